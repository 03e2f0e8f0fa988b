//! Clocks of the standard library.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use informer_virtual::{elapsed, enter, jump_wall_clock, set_elapsed};

use crate::{HOUR, WALL, on_new_thread, simulate};

fn wall_clock() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the time is after the epoch")
}

#[test]
fn clocks_follow_the_virtual_time() {
    simulate(0, || {
        let start = Instant::now();
        assert_eq!((wall_clock(), start.elapsed(), elapsed()), (WALL, Duration::ZERO, Duration::ZERO));
        for progress in [Duration::ZERO, Duration::from_nanos(1), HOUR, HOUR, 10_000 * HOUR] {
            set_elapsed(progress);
            assert_eq!((wall_clock(), start.elapsed(), elapsed()), (WALL + progress, progress, progress));
        }
    });
}

#[test]
fn monotonic_clock_starts_at_the_same_time_in_every_simulation() {
    let start = || simulate(0, Instant::now);
    assert_eq!(start(), start());
    assert!(start().checked_sub(1000 * HOUR).is_some());
}

#[test]
fn jump_moves_only_the_wall_clock() {
    simulate(0, || {
        let start = Instant::now();
        set_elapsed(HOUR);
        jump_wall_clock(7);
        assert_eq!(wall_clock(), WALL + HOUR + Duration::from_nanos(7));
        jump_wall_clock(-3_600_000_000_007);
        assert_eq!(wall_clock(), WALL);
        assert_eq!((start.elapsed(), elapsed()), (HOUR, HOUR));
        jump_wall_clock(i64::MIN);
        assert!(SystemTime::now() < SystemTime::UNIX_EPOCH);
    });
}

#[test]
fn other_thread_sees_real_time_during_a_simulation() {
    let steps = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            let _simulated = enter(0, WALL);
            steps.wait();
            set_elapsed(HOUR);
            steps.wait();
        });
        steps.wait();
        let start = Instant::now();
        steps.wait();
        assert!(wall_clock() > WALL + 1000 * HOUR);
        assert!(start.elapsed() < HOUR);
        assert!(!informer_virtual::is_simulated());
    });
}

#[test]
fn thread_started_by_a_simulation_is_real() {
    let inner = simulate(0, || on_new_thread(|| (informer_virtual::is_simulated(), wall_clock())));
    assert!(!inner.0 && inner.1 > WALL + 1000 * HOUR);
}

#[test]
fn real_clocks_advance_without_a_simulation() {
    let (start, wall) = (Instant::now(), SystemTime::now());
    while start.elapsed() == Duration::ZERO || SystemTime::now() == wall {
        thread::yield_now();
    }
}
