//! The clock of a server: the time of day and timers.
//!
//! A server follows tokio's clock, which tests can pause, unless it was built with a [`ManualClock`]. Then nothing
//! of it needs a tokio runtime: its futures wait only for notifications and for the manual clock.
//!
//! `informer::now` follows tokio's clock in the same way, so that a client computes right ages of objects in
//! virtual time. The crates share no code: the server uses nothing of the client.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// A clock that stands still until it is advanced, for [`ApiServerBuilder::clock`](crate::ApiServerBuilder::clock).
///
/// A simulation that owns the time advances it from event to event: [`ManualClock::next_timer`] returns when the
/// server has something to do. Clones are handles of the same clock.
///
/// ```
/// use std::time::Duration;
///
/// use informer_apiserver::{ApiServer, ManualClock};
///
/// let clock = ManualClock::new("2026-01-01T00:00:00Z".parse().unwrap());
/// let server = ApiServer::builder().clock(clock.clone()).build();
/// clock.advance_to(Duration::from_secs(60));
/// assert_eq!(server.now().to_string(), "2026-01-01T00:01:00Z");
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<ManualState>>);

/// The state of a manual clock. Timers that are due have been removed.
#[derive(Debug)]
struct ManualState {
    start: Timestamp,
    /// An arbitrary instant that stands for the start.
    base: Instant,
    elapsed: Duration,
    /// The tasks to wake, by time and order of registration.
    timers: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
}

impl ManualClock {
    /// Creates a clock that shows this time.
    pub fn new(start: Timestamp) -> Self {
        let state = ManualState {
            start,
            base: Instant::now(),
            elapsed: Duration::ZERO,
            timers: BTreeMap::new(),
            next_number: 0,
        };
        ManualClock(Arc::new(Mutex::new(state)))
    }

    /// Returns the time of day.
    pub fn now(&self) -> Timestamp {
        let state = self.lock();
        state.start.saturating_add(state.elapsed).unwrap_or(Timestamp::MAX)
    }

    /// Returns the time since the creation of the clock.
    pub fn elapsed(&self) -> Duration {
        self.lock().elapsed
    }

    /// Sets the time since the creation of the clock, and wakes the tasks whose timers are due, in the order of
    /// their times. Does nothing if the clock is already past this time.
    pub fn advance_to(&self, elapsed: Duration) {
        let mut state = self.lock();
        state.elapsed = state.elapsed.max(elapsed);
        let now = state.base + state.elapsed;
        let later = state.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        due.into_values().for_each(Waker::wake);
    }

    /// Returns the time since the creation of the clock at which the next timer is due.
    pub fn next_timer(&self) -> Option<Duration> {
        let state = self.lock();
        state.timers.first_key_value().map(|((at, _), _)| at.saturating_duration_since(state.base))
    }

    /// Waits until the clock has been advanced by this duration.
    pub async fn sleep(&self, duration: Duration) {
        let clock = Clock::Manual(self.clone());
        clock.sleep_until(clock.instant() + duration).await;
    }

    fn lock(&self) -> MutexGuard<'_, ManualState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock that a server uses.
#[derive(Debug, Clone, Default)]
pub(crate) enum Clock {
    #[default]
    Tokio,
    Manual(ManualClock),
}

impl Clock {
    /// Returns the time of day.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Clock::Tokio => now(),
            Clock::Manual(clock) => clock.now(),
        }
    }

    /// Returns the instant that timers are compared with.
    pub(crate) fn instant(&self) -> Instant {
        match self {
            Clock::Tokio => Instant::now(),
            Clock::Manual(clock) => {
                let state = clock.lock();
                state.base + state.elapsed
            }
        }
    }

    pub(crate) async fn sleep_until(&self, deadline: Instant) {
        match self {
            Clock::Tokio => tokio::time::sleep_until(deadline).await,
            Clock::Manual(clock) => ManualSleep { clock: clock.clone(), deadline, number: None }.await,
        }
    }

    /// Waits for a future, but not longer than this. Returns `None` if the time has passed.
    pub(crate) async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let deadline = self.instant() + time;
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep_until(deadline) => None,
        }
    }
}

/// Waits for a manual clock.
struct ManualSleep {
    clock: ManualClock,
    deadline: Instant,
    /// The number of the registered timer.
    number: Option<u64>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (clock, deadline) = (self.clock.clone(), self.deadline);
        let mut state = clock.lock();
        if state.base + state.elapsed >= deadline {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.next_number += 1;
            state.next_number
        });
        state.timers.insert((deadline, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock.lock().timers.remove(&(self.deadline, number));
        }
    }
}

/// Returns the time of the system, or in a runtime whose clock is or was paused, the time on that clock.
fn now() -> Timestamp {
    // tokio's clock cannot be asked whether it is paused. If it is not, it reads the clock of std, so that a
    // reading of std between two of tokio is between them.
    let before = Instant::now().into_std();
    let real = std::time::Instant::now();
    let now = Instant::now().into_std();
    if before <= real && real <= now { Timestamp::now() } else { time_at(now) }
}

/// Returns the time of day at an instant, as if the system's clock had not been set since the first call.
///
/// The origin belongs to the process and not to a server: a server that is created after hours of virtual
/// time must not be hours behind.
fn time_at(instant: std::time::Instant) -> Timestamp {
    static ORIGIN: LazyLock<(std::time::Instant, Timestamp)> =
        LazyLock::new(|| (std::time::Instant::now(), Timestamp::now()));
    let (origin, time) = *ORIGIN;
    match instant.checked_duration_since(origin) {
        Some(since) => time.saturating_add(since).unwrap_or(Timestamp::MAX),
        None => time.saturating_sub(origin.duration_since(instant)).unwrap_or(Timestamp::MIN),
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn timers_of_a_manual_clock_are_due_at_their_time() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let server = Clock::Manual(clock.clone());
        let deadline = server.instant() + Duration::from_secs(2);
        let mut sleep = Box::pin(server.sleep_until(deadline));
        let mut poll = || sleep.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!((poll(), clock.next_timer()), (Poll::Pending, Some(Duration::from_secs(2))));
        clock.advance_to(Duration::from_millis(1_999));
        assert_eq!(poll(), Poll::Pending);
        clock.advance_to(Duration::from_secs(2));
        assert_eq!((poll(), clock.next_timer()), (Poll::Ready(()), None));
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH + Duration::from_secs(2));
    }

    #[test]
    fn dropped_timers_are_forgotten() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        let server = Clock::Manual(clock.clone());
        let mut sleep = Box::pin(server.sleep_until(server.instant() + Duration::from_secs(2)));
        assert_eq!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        drop(sleep);
        assert_eq!(clock.next_timer(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn time_follows_a_paused_clock() {
        let began = now();
        assert_eq!(now(), began, "a paused clock stands still");
        tokio::time::advance(Duration::from_secs(172_800)).await;
        assert_eq!(now(), began + Duration::from_secs(172_800));
        let server = crate::ApiServer::new();
        assert_eq!(server.now(), now(), "a new server has the same time");
    }

    #[test]
    fn time_is_that_of_the_system_without_a_paused_clock() {
        let before = Timestamp::now();
        let now = now();
        assert!(before <= now && now <= Timestamp::now(), "{now}");
    }
}
