//! Simulated clock and seeded randomness for the threads of a simulation.
//!
//! Between [`enter`] and the end of its guard, the calling thread sees a virtual clock, which only [`set_elapsed`]
//! and [`jump_wall_clock`] move, and random bytes that depend only on the seed. All other threads see the real ones.
//!
//! ```
//! use std::time::{Duration, Instant, SystemTime};
//!
//! # if !informer_virtual::is_supported() { return; }
//! let simulation = std::thread::spawn(|| {
//!     let wall = Duration::from_secs(1_800_000_000);
//!     let _simulated = informer_virtual::enter(42, wall);
//!     let start = Instant::now();
//!     informer_virtual::set_elapsed(Duration::from_secs(3600));
//!     assert_eq!(start.elapsed(), Duration::from_secs(3600));
//!     assert_eq!(SystemTime::now(), SystemTime::UNIX_EPOCH + wall + start.elapsed());
//! });
//! simulation.join().unwrap();
//! ```
//!
//! # Method
//!
//! The crate defines functions of the C library: `clock_gettime`, `gettimeofday`, `time`, `getrandom`, `getentropy`,
//! `nanosleep` and `clock_nanosleep`. The linker prefers them to those of the C library, also for the Rust standard
//! library. On a thread that is not simulated they make the system call. This is the only crate of the workspace that
//! contains unsafe code, and it contains nothing else. It belongs in tests only: in a program that links it, every
//! thread reads the clock by a system call, which is slower than the C library's way.
//!
//! The functions are part of a program only if it uses an item of the crate; a line in `Cargo.toml` is not enough.
//!
//! # Coverage
//!
//! Replaced on Linux (GNU and musl, `x86_64` and `aarch64`):
//!
//! - `SystemTime::now`, `Instant::now`, and clocks built on them, such as those of jiff, chrono and tokio;
//! - the keys of `RandomState`, and so the iteration order of `HashMap` and `HashSet`;
//! - the crate `getrandom` 0.3 and 0.4 with the default backend, and so `rand` 0.9 and 0.10, except in programs that
//!   contain the GNU C library (`crt-static`), where they read a file;
//! - `std::thread::sleep`, which returns immediately and is recorded as [`Misuse::Slept`].
//!
//! Not replaced:
//!
//! - threads that a simulated thread starts, also by `spawn_blocking`: they are real, and see the real clock;
//! - the timeouts of blocking waits. `Condvar::wait_timeout`, `thread::park_timeout` and `recv_timeout` never time out
//!   on a simulated thread, only another thread ends them: the standard library passes a deadline of the virtual clock
//!   to the system call `futex`, and the kernel compares it with the real clock, which is decades behind. `poll` and
//!   `epoll_wait` time out in real time;
//! - the crate `getrandom` 0.2, and so `rand` 0.8 and `ring`, and the crate `rustix`: they make system calls
//!   without the functions above;
//! - `sleep`, `usleep`, `timespec_get` and `arc4random` of the C library, which it implements without calling the
//!   functions above, and files such as `/dev/urandom`;
//! - clocks of CPU time, and time stamp counters of the CPU;
//! - hash keys and seeds that do not come from the system: `foldhash` (the default of `hashbrown`) hashes addresses,
//!   `fastrand` the id of the thread, and `select!` of tokio and futures a counter of the process. The order of
//!   tokio's `select!` without `biased` is reproducible only if a process creates its runtimes in the same order;
//! - what threads share: a `static` that creates hash maps when it is first used, or a `regex::Regex`, which creates
//!   some for each thread that uses it at the same time, changes the keys of the later hash maps of that thread.
//!
//! tokio's paused clock starts at the virtual time at which the runtime is built, and then moves by itself. A
//! simulation passes its progress to [`set_elapsed`].

// Elsewhere there is no `symbols`, which uses most of it.
#[cfg_attr(not(target_os = "linux"), allow(dead_code))]
mod state;
#[cfg(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
))]
mod symbols;

use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::state::STATE;

/// Whether the crate defines the functions of the C library on this system.
const IS_REPLACED: bool = cfg!(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64"),
    target_pointer_width = "64",
    not(miri)
));

/// A call that has no place in a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The thread called `std::thread::sleep` or another blocking sleep of this length.
    Slept(Duration),
}

/// Keeps the thread simulated until it is dropped.
///
/// Hash keys outlast it: those of `RandomState` are drawn once per thread.
#[derive(Debug)]
#[must_use = "the simulation ends when the guard is dropped"]
pub struct Simulated {
    /// The guard belongs to its thread, so it is not `Send`.
    thread: PhantomData<*const ()>,
}

impl Drop for Simulated {
    fn drop(&mut self) {
        STATE.with(state::State::stop);
    }
}

/// Simulates the clock and the randomness of this thread until the guard is dropped.
///
/// `wall` is the initial time of the wall clock, since the Unix epoch. The monotonic clock starts at a fixed time,
/// so `Instant`s of other threads and of the time before cannot be compared with those of the simulation.
///
/// On systems where [`is_supported`] returns false, nothing is replaced.
///
/// # Panics
///
/// If the thread is simulated already, or used a `RandomState` before, for instance in a `HashMap`: its hash keys would
/// not depend on the seed. A new thread has used none.
pub fn enter(seed: u64, wall: Duration) -> Simulated {
    assert!(!is_simulated(), "enter simulation: the thread is simulated already");
    STATE.with(|state| state.start(seed, wall));
    let simulated = Simulated { thread: PhantomData };
    // Draws the hash keys now, unless the thread has some.
    let _ = RandomState::new();
    assert!(
        !IS_REPLACED || STATE.with(state::State::has_drawn),
        "enter simulation: the hash keys of the thread do not come from the seed (enter on a new thread, before its \
         first HashMap; see also is_supported)"
    );
    simulated
}

/// Sets the virtual time since [`enter`], which moves the monotonic clock and the wall clock.
///
/// A simulation of several programs on one thread sets the time of the program that runs next, which may be behind the
/// others. No program should see its own time go back.
///
/// # Panics
///
/// If the thread is not simulated.
pub fn set_elapsed(elapsed: Duration) {
    assert!(is_simulated(), "set virtual time: the thread is not simulated");
    STATE.with(|state| state.set_elapsed(elapsed));
}

/// Returns the virtual time since [`enter`].
///
/// # Panics
///
/// If the thread is not simulated.
pub fn elapsed() -> Duration {
    assert!(is_simulated(), "virtual time: the thread is not simulated");
    STATE.with(state::State::elapsed)
}

/// Moves the wall clock forwards or, by a negative number, backwards; the monotonic clock does not change.
///
/// Jumps add up.
///
/// # Panics
///
/// If the thread is not simulated.
pub fn jump_wall_clock(nanoseconds: i64) {
    assert!(is_simulated(), "jump wall clock: the thread is not simulated");
    STATE.with(|state| state.jump(nanoseconds));
}

/// Returns the misuses of this thread since [`enter`] or the last call, and forgets them.
///
/// At most [`MAX_MISUSES`] are kept, the earliest ones. Those of a simulation that has ended are kept until the next.
pub fn take_misuse() -> Vec<Misuse> {
    STATE.with(state::State::take_misuses).into_iter().flatten().collect()
}

/// Upper bound on the misuses that a thread keeps for [`take_misuse`].
pub const MAX_MISUSES: usize = 16;

/// Returns whether this thread is simulated.
pub fn is_simulated() -> bool {
    STATE.with(state::State::is_simulated)
}

/// Returns whether the clock and the hash keys of simulated threads are really replaced in this program.
///
/// The first call tests it on two new threads; other calls return its result.
pub fn is_supported() -> bool {
    static IS_SUPPORTED: OnceLock<bool> = OnceLock::new();
    *IS_SUPPORTED.get_or_init(|| IS_REPLACED && self_test())
}

/// Checks that two threads see the same hash keys and the virtual clock.
fn self_test() -> bool {
    let observe = || thread::Builder::new().spawn(observe).ok()?.join().ok()?;
    let first: Option<u64> = observe();
    first.is_some() && first == observe()
}

/// Returns a hash with the keys of a simulated thread, or none if its clock is not virtual.
fn observe() -> Option<u64> {
    const SEED: u64 = 1;
    const WALL: Duration = Duration::from_secs(1_000_000_000);
    const PROGRESS: Duration = Duration::from_nanos(1_000_000_001);

    STATE.with(|state| state.start(SEED, WALL));
    let simulated = Simulated { thread: PhantomData };
    let start = Instant::now();
    set_elapsed(PROGRESS);
    let is_virtual =
        start.elapsed() == PROGRESS && SystemTime::now() == SystemTime::UNIX_EPOCH + WALL + PROGRESS;
    let hash = RandomState::new().hash_one(SEED);
    drop(simulated);
    is_virtual.then_some(hash)
}
