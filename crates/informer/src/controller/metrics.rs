//! Counts the reconciles of a controller, by result.
//!
//! This module does not know how metrics are exported.

use crate::metrics::ControllerMetrics;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(super) struct MetricsRecorder {
    counts: Mutex<ControllerMetrics>,
    active: AtomicUsize,
}

/// Counts one running reconcile until this guard is dropped.
pub(super) struct ActiveGuard<'a>(&'a AtomicUsize);

impl MetricsRecorder {
    pub(super) fn new(concurrency: usize) -> Self {
        let counts = ControllerMetrics { concurrency, ..ControllerMetrics::default() };
        Self { counts: Mutex::new(counts), active: AtomicUsize::new(0) }
    }

    pub(super) fn get(&self) -> ControllerMetrics {
        ControllerMetrics { active: self.active.load(Ordering::Relaxed), ..self.lock().clone() }
    }

    pub(super) fn count(&self, update: impl FnOnce(&mut ControllerMetrics)) {
        update(&mut self.lock());
    }

    /// Counts one more running reconcile until the guard is dropped.
    pub(super) fn count_active(&self) -> ActiveGuard<'_> {
        self.active.fetch_add(1, Ordering::Relaxed);
        ActiveGuard(&self.active)
    }

    fn lock(&self) -> MutexGuard<'_, ControllerMetrics> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ActiveGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
