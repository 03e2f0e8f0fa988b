//! `ShardedReflector`, queue and store against a model server, while hash ranges are gained and released: random
//! schedules, one seed each.
//!
//! Each seed performs some hundred random steps in virtual time. After each, the store must contain objects of held
//! ranges only, its changes must be legal (C1, C3, C4), and its version must be one that all complete ranges have
//! reached. Without faults, no range is listed twice. Then the faults end, and the store must converge to the objects
//! of the held ranges. `INFORMER_SEEDS=200000` runs more seeds; a failing one prints the command that replays it.

#![allow(clippy::unwrap_used)]

mod checks;
mod dice;
mod net;
mod regressions;
mod run;
mod selection;
mod server;

use dice::FAULTS;
use run::{Outcome, Trace, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn number_from(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Adds up the outcomes of every `threads`-th seed from `first` on.
fn run_some(first: u64, count: u64, threads: usize) -> Outcome {
    let mut total = Outcome { hits: vec![0; FAULTS.len()], ..Outcome::default() };
    for seed in (first..count).step_by(threads) {
        match catch_unwind(AssertUnwindSafe(|| run(seed, Trace::Off))) {
            Ok(outcome) => add(&mut total, &outcome),
            Err(panic) => {
                eprintln!(
                    "seed {seed} failed. Replay it with its trace:\n  INFORMER_SEED={seed} cargo test -p informer-core --test sharded \
                     replay -- --nocapture"
                );
                std::panic::resume_unwind(panic);
            }
        }
    }
    total
}

fn add(total: &mut Outcome, outcome: &Outcome) {
    total.hits.iter_mut().zip(&outcome.hits).for_each(|(total, hits)| *total += hits);
    total.reported += outcome.reported;
    total.gained += outcome.gained;
    total.released += outcome.released;
    total.foreign += outcome.foreign;
    total.recovery = total.recovery.max(outcome.recovery);
}

#[test]
fn store_follows_held_ranges_under_random_faults() {
    const THREADS: usize = 2;
    let count = number_from("INFORMER_SEEDS").unwrap_or(600);
    let began = std::time::Instant::now();
    let totals = std::thread::scope(|scope| {
        let threads = [0, 1].map(|first| scope.spawn(move || run_some(first, count, THREADS)));
        threads.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [mut total, other] = totals;
    add(&mut total, &other);
    println!("{count} seeds in {:?}: {total:?}", began.elapsed());
    // A check that is never reached proves nothing.
    for ((fault, _), hits) in FAULTS.iter().zip(&total.hits) {
        assert!(*hits >= count / 100, "{fault:?} was applied only {hits} times in {count} seeds");
    }
    let Outcome { reported, gained, released, foreign, .. } = total;
    assert!(reported >= 10 * count && gained.min(released) >= count && foreign >= count, "{total:?}");
}

/// Prints the trace of the seed in `INFORMER_SEED`.
#[test]
fn replay() {
    let Some(seed) = number_from("INFORMER_SEED") else { return };
    run(seed, Trace::Printed);
}

#[test]
fn equal_seeds_give_equal_traces() {
    for seed in 0..20 {
        let traces = [(); 2].map(|()| run(seed, Trace::Kept).trace);
        assert!(traces[0].len() > 1000 && traces[0] == traces[1], "seed {seed}");
    }
}

#[test]
fn hash_of_the_model_is_fnv_1a() {
    assert_eq!(selection::hash("foobar"), 0x8594_4171_f739_67e8);
}
