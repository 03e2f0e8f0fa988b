//! Hash keys of the standard library, and the versions of the crate `getrandom`.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use crate::{on_new_thread, simulate};

/// Returns a hash and the order of a map, which depend on the keys of the thread.
fn keyed() -> (u64, Vec<u32>) {
    let map: HashMap<u32, u32> = (0..100).map(|key| (key, key)).collect();
    (RandomState::new().hash_one(0), map.into_keys().collect())
}

/// Returns 33 bytes of each call, which fills its argument.
fn bytes(mut fill: impl FnMut(&mut [u8])) -> [u8; 33] {
    let mut bytes = [0; 33];
    fill(&mut bytes);
    bytes
}

#[test]
fn equal_seeds_have_equal_hash_keys() {
    assert_eq!(simulate(7, keyed), simulate(7, keyed));
    let orders: HashSet<_> = (0..20).map(|seed| simulate(seed, keyed)).collect();
    assert_eq!(orders.len(), 20);
}

#[test]
fn real_threads_have_other_hash_keys() {
    let simulated = simulate(7, || (keyed(), on_new_thread(keyed)));
    assert_ne!(simulated.0, simulated.1);
    assert_ne!(simulated.1, simulate(7, || on_new_thread(keyed)));
    assert_ne!(on_new_thread(keyed), on_new_thread(keyed));
}

#[test]
fn getrandom_0_3_and_0_4_follow_the_seed() {
    let v3 = || bytes(|buffer| getrandom_0_3::fill(buffer).unwrap());
    let v4 = || bytes(|buffer| getrandom_0_4::fill(buffer).unwrap());
    let draw = |seed| simulate(seed, || [v3(), v4(), v3(), v4()]);
    assert_eq!(draw(7), draw(7));
    let draws: HashSet<_> = draw(7).into_iter().chain(draw(8)).chain([v3(), v4()]).collect();
    assert_eq!(draws.len(), 10);
}

/// It makes the system call by the function `syscall`, which has a variable number of parameters and so cannot be
/// replaced by stable Rust. This test fails when a later version is covered, so that the documentation is corrected.
#[test]
fn getrandom_0_2_is_not_replaced() {
    let draw = || simulate(7, || bytes(|buffer| getrandom_0_2::getrandom(buffer).unwrap()));
    assert_ne!(draw(), draw());
}
