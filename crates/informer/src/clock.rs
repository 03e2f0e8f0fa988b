//! The clock of an informer: moments for the state machines, counted from the creation of the informer.

use informer_core::Moment;
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

/// Waits until the deadline; forever if there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
