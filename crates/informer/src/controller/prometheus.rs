//! Metrics of controllers, under the names that dashboards for controller-runtime use.
//!
//! Nothing here counts; the values come from [`ControllerMetrics`].

use super::runnable::RunnableController;
use crate::metrics::{Collect, CollectNamed, ControllerMetrics, Encoder};

/// Name, help text and value of a counter.
type Counter = (&'static str, &'static str, fn(&ControllerMetrics) -> u64);

const COUNTERS: &[Counter] = &[
    ("controller_runtime_reconcile_errors_total", "Reconciles that failed.", ControllerMetrics::errors),
    (
        "controller_runtime_terminal_reconcile_errors_total",
        "Reconciles that failed and are not retried.",
        |m| m.terminal,
    ),
    ("controller_runtime_reconcile_panics_total", "Reconciles that panicked.", |m| m.panicked),
    ("controller_runtime_reconcile_timeouts_total", "Reconciles that timed out.", |m| m.timed_out),
    ("informer_controller_withdrawn_total", "Reconciles dropped because their hash range was lost.", |m| {
        m.withdrawn
    }),
    (
        "informer_controller_invisible_writes_total",
        "Reconciles that started before the cache showed an earlier write.",
        |m| m.invisible_writes,
    ),
];

#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
impl Collect for RunnableController {
    fn collect(&self, encoder: &mut Encoder) {
        let (identity, metrics) = (encoder.identity("controller", self.name()), self.metrics());
        let controller = ("controller", &*identity);
        let results = [
            ("success", metrics.succeeded),
            ("requeue_after", metrics.requeued),
            ("error", metrics.errors()),
        ];
        for (result, count) in results {
            let labels = [controller, ("result", result)];
            let help = "Reconciles that have ended, by result.";
            encoder.counter("controller_runtime_reconcile_total", help, &labels, count);
        }
        for (name, help, value) in COUNTERS {
            encoder.counter(name, help, &[controller], value(&metrics));
        }
        let limit = metrics.concurrency as f64;
        let help = "Upper bound on concurrent reconciles.";
        encoder.gauge("controller_runtime_max_concurrent_reconciles", help, &[controller], limit);
        let help = "Reconciles that are running.";
        encoder.gauge("controller_runtime_active_workers", help, &[controller], metrics.active as f64);
        let help = "Duration of reconciles.";
        let durations = &metrics.reconcile_duration;
        encoder.histogram("controller_runtime_reconcile_time_seconds", help, &[controller], durations);
        self.queue_metrics().collect(&identity, encoder);
    }
}
