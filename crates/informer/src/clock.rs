//! Clocks: moments for the state machines, counted from the creation of an informer, and the time of day.

use informer_core::Moment;
use jiff::Timestamp;
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
        let year = Duration::from_hours(24 * 365);
        self.origin.checked_add(moment.since_origin()).unwrap_or_else(|| Instant::now() + year)
    }
}

/// The time of day. In tests that pause or advance tokio's clock, it follows that clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WallClock {
    origin: Instant,
    time_at_origin: Timestamp,
}

impl WallClock {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), time_at_origin: Timestamp::now() }
    }

    /// Returns the system's time of day; under a paused or advanced clock of tokio, the time at the creation
    /// of this clock plus what has passed on tokio's clock since.
    pub(crate) fn now(&self) -> Timestamp {
        // tokio's clock cannot be asked whether it is paused. If it is not, it reads the clock of std, so
        // that a reading of std between two of tokio is between them.
        let before = Instant::now().into_std();
        let real = std::time::Instant::now();
        let now = Instant::now();
        if before <= real && real <= now.into_std() {
            return Timestamp::now();
        }
        let elapsed = now.saturating_duration_since(self.origin);
        self.time_at_origin.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
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
    async fn wall_clock_follows_a_paused_clock() {
        let clock = WallClock::new();
        let began = clock.now();
        assert_eq!(clock.now(), began, "a paused clock stands still");
        tokio::time::advance(Duration::from_hours(48)).await;
        assert_eq!(clock.now(), began + Duration::from_hours(48));
        tokio::time::resume();
        let resumed = clock.now();
        assert!(resumed >= began + Duration::from_hours(48), "{resumed}");
        assert!(resumed < began + Duration::from_hours(49), "{resumed}");
    }

    #[test]
    fn wall_clock_is_the_time_of_day_without_a_paused_clock() {
        let clock = WallClock { origin: Instant::now(), time_at_origin: Timestamp::UNIX_EPOCH };
        let before = Timestamp::now();
        let now = clock.now();
        assert!(before <= now && now <= Timestamp::now(), "{now}");
    }

    #[tokio::test(start_paused = true)]
    async fn wall_clock_does_not_overflow() {
        let clock = WallClock { origin: Instant::now(), time_at_origin: Timestamp::MAX };
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now(), Timestamp::MAX);
    }
}
