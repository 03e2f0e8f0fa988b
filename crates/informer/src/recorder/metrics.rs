//! Metrics of event recorders.

use super::EventRecorder;
use crate::metrics::{Collect, Encoder};

impl Collect for EventRecorder {
    fn collect(&self, encoder: &mut Encoder) {
        let (identity, metrics) = (encoder.identity("recorder", self.reporting_controller()), self.metrics());
        let name = ("name", &*identity);
        for (result, count) in [
            ("sent", metrics.sent),
            ("aggregated", metrics.aggregated),
            ("limited", metrics.limited),
            ("dropped", metrics.dropped),
            ("failed", metrics.failed),
        ] {
            let labels = [name, ("result", result)];
            encoder.counter("event_recorder_events_total", "Recorded events, by result.", &labels, count);
        }
        let help = "Updates of event series that were written.";
        encoder.counter("event_recorder_series_updates_total", help, &[name], metrics.updated);
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a floating-point number")]
        encoder.gauge("event_recorder_waiting", "Writes that are queued.", &[name], metrics.waiting as f64);
    }
}
