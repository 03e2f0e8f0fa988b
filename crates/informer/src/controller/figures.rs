//! The figures of controllers, and their text for Prometheus under the names that controller-runtime's dashboards know.

use super::reconciler::Reconciler;
use crate::metrics::{Text, Value};
use crate::workqueue::queues_prometheus;
use informer_core::workqueue::Histogram;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a controller has done. Counts only ever grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Turns that went well.
    pub done: u64,
    /// Turns that went well and asked for another.
    pub requeued: u64,
    /// Turns that failed and are tried again.
    pub failed: u64,
    /// Turns that failed for good.
    pub terminal: u64,
    /// Turns that panicked.
    pub panicked: u64,
    /// Turns that took too long.
    pub timed_out: u64,
    /// Turns that began although the cache had not seen a write.
    pub unseen_writes: u64,
    /// Turns that go on.
    pub active: usize,
    /// How many may go on at the same time.
    pub concurrency: usize,
    /// How long turns took.
    pub durations: Histogram,
}

impl ControllerMetrics {
    /// Turns that failed, in whatever way.
    pub fn errors(&self) -> u64 {
        self.failed + self.terminal + self.panicked + self.timed_out
    }
}

pub(super) struct Figures {
    counts: Mutex<ControllerMetrics>,
    active: AtomicUsize,
}

/// A call that goes on.
pub(super) struct Active<'a>(&'a AtomicUsize);

impl Figures {
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

type Figure = (&'static str, &'static str, &'static str, fn(&ControllerMetrics) -> u64);

const FIGURES: &[Figure] = &[
    (
        "controller_runtime_reconcile_errors_total",
        "counter",
        "Turns that failed, in whatever way.",
        ControllerMetrics::errors,
    ),
    ("controller_runtime_terminal_reconcile_errors_total", "counter", "Turns that failed for good.", |m| {
        m.terminal
    }),
    ("controller_runtime_reconcile_panics_total", "counter", "Turns that panicked.", |m| m.panicked),
    ("controller_runtime_reconcile_timeouts_total", "counter", "Turns that took too long.", |m| m.timed_out),
    ("controller_runtime_max_concurrent_reconciles", "gauge", "Turns there may be at a time.", |m| {
        m.concurrency as u64
    }),
    ("controller_runtime_active_workers", "gauge", "Turns that go on.", |m| m.active as u64),
    ("informer_controller_unseen_writes_total", "counter", "Turns begun before a write was seen.", |m| {
        m.unseen_writes
    }),
];

/// The figures of several controllers and their queues as Prometheus reads them. Their names must differ.
pub fn controllers_prometheus(controllers: &[Reconciler]) -> String {
    let all: Vec<(&str, ControllerMetrics)> =
        controllers.iter().map(|controller| (controller.name(), controller.metrics())).collect();
    let mut text = Text::default();
    let total = "Turns that have ended, by how.";
    text.family("controller_runtime_reconcile_total", "counter", total, |out| {
        for (name, m) in &all {
            let results = [("success", m.done), ("requeue_after", m.requeued), ("error", m.errors())];
            for (result, count) in results {
                out.sample(&[("controller", name), ("result", result)], &Value::Count(count));
            }
        }
    });
    for (family, kind, help, value) in FIGURES {
        text.family(family, kind, help, |out| {
            for (name, metrics) in &all {
                out.sample(&[("controller", name)], &Value::Count(value(metrics)));
            }
        });
    }
    text.family("controller_runtime_reconcile_time_seconds", "histogram", "How long turns took.", |out| {
        for (name, metrics) in &all {
            out.histogram(("controller", name), &metrics.durations);
        }
    });
    let queues: Vec<_> =
        controllers.iter().map(|controller| (controller.name(), controller.queue_metrics())).collect();
    text.0 + &queues_prometheus(&queues)
}
