//! The driver's clock: moments for the machines, counted from the start of an informer.

use informer_core::Moment;
use std::time::Duration;
use tokio::time::Instant;

/// Tells the time since its making. Follows tokio's clock, so tests may pause it.
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

    /// The instant of a moment; one that no clock can tell is a year away.
    pub(crate) fn instant(&self, moment: Moment) -> Instant {
        let year = Duration::from_hours(24 * 365);
        self.origin.checked_add(moment.since_origin()).unwrap_or_else(|| Instant::now() + year)
    }
}

/// Returns at the deadline; never, if there is none.
pub(crate) async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
