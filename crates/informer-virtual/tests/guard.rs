//! The guard of a simulation: its end, and threads that cannot enter.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::thread;
use std::time::{Duration, SystemTime};

use informer_virtual::{elapsed, enter, is_simulated, is_supported, jump_wall_clock, set_elapsed};

use crate::{HOUR, WALL, on_new_thread, simulate};

/// Returns the message of a panic.
fn panic_message(call: impl FnOnce() + Send) -> String {
    let outcome = thread::scope(|scope| scope.spawn(call).join());
    let panic = outcome.expect_err("the call panics");
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

#[test]
fn functions_are_replaced_in_this_program() {
    assert!(is_supported());
    assert!(simulate(0, is_supported));
}

#[test]
fn dropped_guard_ends_the_simulation() {
    on_new_thread(|| {
        let simulated = enter(0, WALL);
        assert!(is_simulated());
        drop(simulated);
        assert!(!is_simulated());
        assert!(SystemTime::now() > SystemTime::UNIX_EPOCH + WALL + 1000 * HOUR);
    });
}

#[test]
fn panic_ends_the_simulation() {
    on_new_thread(|| {
        let outcome = catch_unwind(|| {
            let _simulated = enter(0, WALL);
            panic!("of a test");
        });
        assert!(outcome.is_err() && !is_simulated());
    });
}

#[test]
fn second_enter_is_refused() {
    let message = panic_message(|| {
        let _simulated = enter(0, WALL);
        drop(enter(1, WALL));
    });
    assert_eq!(message, "enter simulation: the thread is simulated already");
}

#[test]
fn refused_enter_keeps_the_simulation() {
    simulate(0, || {
        set_elapsed(HOUR);
        assert!(catch_unwind(|| drop(enter(1, Duration::ZERO))).is_err());
        assert_eq!((is_simulated(), elapsed()), (true, HOUR));
        assert_eq!(SystemTime::now(), SystemTime::UNIX_EPOCH + WALL + HOUR);
    });
}

#[test]
fn thread_with_hash_keys_is_refused() {
    let message = panic_message(|| {
        drop(HashMap::<u8, u8>::new());
        drop(enter(0, WALL));
    });
    assert!(message.contains("hash keys"), "{message}");
    // Its hash keys are those of another seed.
    let message = panic_message(|| {
        drop(enter(0, WALL));
        drop(enter(1, WALL));
    });
    assert!(message.contains("hash keys"), "{message}");
}

/// A simulation of several programs sets the time of the one that runs.
#[test]
fn virtual_time_may_go_back() {
    let message = panic_message(|| {
        let _simulated = enter(0, WALL);
        set_elapsed(HOUR);
        set_elapsed(Duration::ZERO);
        assert_eq!(elapsed(), HOUR, "it has gone back");
    });
    assert!(message.contains("it has gone back"), "{message}");
}

#[test]
fn real_thread_has_no_virtual_time() {
    for call in [|| assert_eq!(elapsed(), HOUR), || set_elapsed(HOUR), || jump_wall_clock(1)] {
        let message = panic_message(call);
        assert!(message.ends_with("the thread is not simulated"), "{message}");
    }
}
