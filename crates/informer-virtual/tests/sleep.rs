//! Sleeps and blocking waits on a simulated thread. The only tests that call `std::thread::sleep`: they check that it does not sleep.

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use informer_virtual::{MAX_MISUSES, Misuse, elapsed, enter, take_misuse};

use crate::{HOUR, WALL, on_new_thread, simulate};

#[test]
fn sleep_returns_immediately_and_is_recorded() {
    simulate(0, || {
        let start = Instant::now();
        thread::sleep(1000 * HOUR);
        thread::sleep(Duration::from_nanos(1));
        assert_eq!((start.elapsed(), elapsed()), (Duration::ZERO, Duration::ZERO));
        let slept = [Misuse::Slept(1000 * HOUR), Misuse::Slept(Duration::from_nanos(1))];
        assert_eq!(take_misuse(), slept);
        assert_eq!(take_misuse(), []);
    });
}

#[test]
fn misuses_are_kept_after_the_simulation() {
    on_new_thread(|| {
        let simulated = enter(0, WALL);
        thread::sleep(HOUR);
        drop(simulated);
        assert_eq!(take_misuse(), [Misuse::Slept(HOUR)]);
    });
}

#[test]
fn number_of_misuses_is_bounded() {
    simulate(0, || {
        (0..2 * MAX_MISUSES).for_each(|_| thread::sleep(HOUR));
        assert_eq!(take_misuse().len(), MAX_MISUSES);
    });
}

/// The deadline is computed with the virtual clock, but the kernel compares it with the real one, which is earlier.
#[test]
fn wait_with_a_timeout_lasts_until_it_is_woken() {
    let (is_ready, woken) = (Mutex::new(false), Condvar::new());
    simulate(0, || {
        let mut guard = is_ready.lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                *is_ready.lock().unwrap() = true;
                woken.notify_one();
            });
            while !*guard {
                let outcome = woken.wait_timeout(guard, Duration::from_nanos(1)).unwrap();
                assert!(!outcome.1.timed_out());
                guard = outcome.0;
            }
        });
        assert_eq!(take_misuse(), []);
    });
}

#[test]
fn sleep_of_a_real_thread_is_not_recorded() {
    thread::sleep(Duration::from_nanos(1));
    assert_eq!(take_misuse(), []);
}
