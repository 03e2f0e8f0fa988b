//! Clocks: moments for the state machines, counted from the creation of an informer, and the time of day.

use informer_core::Moment;
use jiff::Timestamp;
use std::sync::LazyLock;
use std::time::Duration;
use tokio::time::Instant;

/// A monotonic clock that starts at its creation. Uses tokio's time, so tests can pause it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Moment {
        Moment::at(self.origin.elapsed())
    }

    /// Converts a moment to an instant; a moment beyond the range of `Instant` becomes the instant one year
    /// from now.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        instant_after(self.origin, moment.since_origin())
    }
}

/// Adds a duration, which may be `Duration::MAX`; beyond the range of `Instant`, the result is one year from now.
pub(crate) fn instant_after(start: Instant, duration: Duration) -> Instant {
    let year = Duration::from_secs(365 * 24 * 3600);
    start.checked_add(duration).unwrap_or_else(|| Instant::now() + year)
}

/// Returns the time of day. In tests that pause or advance tokio's clock, it follows that clock.
///
/// Ages computed with it are right in virtual time, too: the clock of the embedded API server shows the same
/// time, to well under a second if nobody sets the system's clock meanwhile. Timestamps in objects are in whole
/// seconds, rounded down, so an age may be up to a second too long. In a reconcile,
/// [`Context::now`](crate::controller::Context::now) returns the same.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::time::Duration;
///
/// let started = informer::now();
/// tokio::time::sleep(Duration::from_secs(3600)).await; // takes no time if the clock is paused
/// assert_eq!(informer::now().duration_since(started).as_secs(), 3600);
/// # }
/// ```
pub fn now() -> Timestamp {
    // tokio's clock cannot be asked whether it is paused. If it is not, it reads the clock of std, so that a
    // reading of std between two of tokio is between them.
    let before = Instant::now().into_std();
    let real = std::time::Instant::now();
    let now = Instant::now().into_std();
    if before <= real && real <= now { Timestamp::now() } else { time_at(now) }
}

/// Returns the time of day at an instant, as if the system's clock had not been set since the first call.
///
/// All callers use the same origin, so that they agree about the time of every runtime with a paused clock.
fn time_at(instant: std::time::Instant) -> Timestamp {
    static ORIGIN: LazyLock<(std::time::Instant, Timestamp)> =
        LazyLock::new(|| (std::time::Instant::now(), Timestamp::now()));
    let (origin, time) = *ORIGIN;
    match instant.checked_duration_since(origin) {
        Some(since) => time.saturating_add(since).unwrap_or(Timestamp::MAX),
        None => time.saturating_sub(origin.duration_since(instant)).unwrap_or(Timestamp::MIN),
    }
}

/// Waits until the deadline; forever if there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_of_day_follows_a_paused_clock() {
        let began = now();
        assert_eq!(now(), began, "a paused clock stands still");
        tokio::time::advance(Duration::from_secs(172_800)).await;
        assert_eq!(now(), began + Duration::from_secs(172_800));
        tokio::time::resume();
        let resumed = now();
        assert!(resumed >= began + Duration::from_secs(172_800), "{resumed}");
        assert!(resumed < began + Duration::from_secs(176_400), "{resumed}");
    }

    #[test]
    fn time_of_day_is_that_of_the_system_without_a_paused_clock() {
        let before = Timestamp::now();
        let now = now();
        assert!(before <= now && now <= Timestamp::now(), "{now}");
    }

    #[test]
    fn instants_before_the_origin_have_a_time() {
        let now = std::time::Instant::now();
        let (later, hour) = (time_at(now), Duration::from_secs(3600));
        if let Some(earlier) = now.checked_sub(hour) {
            assert_eq!(time_at(earlier), later - hour);
        }
        assert_eq!(time_at(now + hour), later + hour);
    }
}
