//! Tests of the simulated clock and randomness, in one program. Each simulation runs on a new thread.

// Elsewhere nothing is replaced.
#![cfg(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]

mod c_library;
mod clock;
mod guard;
mod libraries;
mod randomness;
mod sleep;

use std::thread;
use std::time::Duration;

/// The initial time of the wall clock of all tests, which is in the past.
const WALL: Duration = Duration::from_secs(1_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

/// Calls a function on a new thread, and panics if it does.
fn on_new_thread<T: Send>(call: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(call).join().expect("the thread does not panic"))
}

/// Calls a function on a new, simulated thread.
fn simulate<T: Send>(seed: u64, call: impl FnOnce() -> T + Send) -> T {
    on_new_thread(|| {
        let _simulated = informer_virtual::enter(seed, WALL);
        call()
    })
}
