//! The figures of controllers as text for Prometheus, under the names that controller-runtime's dashboards know.
//!
//! Nothing here counts anything.

use super::reconciler::Reconciler;
use crate::metrics::{ControllerMetrics, Text, Value};
use crate::workqueue::queues_prometheus;

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
