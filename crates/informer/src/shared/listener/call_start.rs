//! The start of the call of a handler that is in progress.

use informer_core::Moment;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// When the call in progress started, in nanoseconds since the origin of the clock plus one; zero if there is
/// none.
///
/// Atomic, so that a call can be observed without a lock while it runs.
#[derive(Debug, Default)]
pub(super) struct CallStart(AtomicU64);

impl CallStart {
    pub(super) fn set(&self, started: Option<Moment>) {
        let nanos = started.map_or(0, |at| {
            u64::try_from(at.since_origin().as_nanos()).unwrap_or(u64::MAX).saturating_add(1)
        });
        self.0.store(nanos, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> Option<Moment> {
        self.0.load(Ordering::Relaxed).checked_sub(1).map(|nanos| Moment::at(Duration::from_nanos(nanos)))
    }
}
