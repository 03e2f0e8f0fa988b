//! Clocks of other libraries.

use std::time::Instant;

use informer_virtual::{jump_wall_clock, set_elapsed};
use jiff::{SignedDuration, Timestamp};
use tokio::runtime::{Builder, Runtime};
use tokio::time;

use crate::{HOUR, WALL, simulate};

fn runtime(builder: &mut Builder) -> Runtime {
    builder.enable_time().build().expect("build a runtime")
}

#[test]
fn jiff_follows_the_virtual_time() {
    simulate(0, || {
        let start = Timestamp::from_second(WALL.as_secs().cast_signed()).unwrap();
        assert_eq!(Timestamp::now(), start);
        set_elapsed(HOUR);
        assert_eq!(Timestamp::now(), start + HOUR);
        jump_wall_clock(-1);
        assert_eq!(Timestamp::now(), start + HOUR - SignedDuration::from_nanos(1));
    });
}

#[test]
fn tokio_clock_follows_the_virtual_time() {
    simulate(0, || {
        runtime(&mut Builder::new_current_thread()).block_on(async {
            let start = time::Instant::now();
            set_elapsed(HOUR);
            assert_eq!(time::Instant::now(), start + HOUR);
        });
    });
}

/// The paused clock starts with the virtual time, moves by itself, and leaves the virtual time to its caller.
#[test]
fn paused_tokio_clock_starts_at_the_virtual_time() {
    simulate(0, || {
        set_elapsed(HOUR);
        runtime(Builder::new_current_thread().start_paused(true)).block_on(async {
            let start = time::Instant::now();
            assert_eq!(start.into_std(), Instant::now());
            time::timeout(HOUR, std::future::pending::<()>()).await.unwrap_err();
            let progress = start.elapsed();
            assert!(progress >= HOUR);
            assert_eq!(start.into_std(), Instant::now());
            set_elapsed(HOUR + progress);
            assert_eq!(time::Instant::now().into_std(), Instant::now());
            time::advance(HOUR).await;
            set_elapsed(HOUR + start.elapsed());
            assert_eq!(time::Instant::now().into_std(), Instant::now());
        });
    });
}
