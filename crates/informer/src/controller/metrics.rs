//! Counting what the turns of a controller come to.
//!
//! Nothing here knows how the figures are shown.

use crate::metrics::ControllerMetrics;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct MetricsRecorder {
    counts: Mutex<ControllerMetrics>,
    active: AtomicUsize,
}

/// A call that goes on.
pub(super) struct Active<'a>(&'a AtomicUsize);

impl MetricsRecorder {
    pub(super) fn new(concurrency: usize) -> Self {
        let counts = ControllerMetrics { concurrency, ..ControllerMetrics::default() };
        Self { counts: Mutex::new(counts), active: AtomicUsize::new(0) }
    }

    pub(super) fn get(&self) -> ControllerMetrics {
        ControllerMetrics { active: self.active.load(Ordering::Relaxed), ..self.lock().clone() }
    }

    pub(super) fn count(&self, note: impl FnOnce(&mut ControllerMetrics)) {
        note(&mut self.lock());
    }

    /// Counts a call until this is dropped.
    pub(super) fn active(&self) -> Active<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(&self.active)
    }

    fn lock(&self) -> MutexGuard<'_, ControllerMetrics> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
