//! The figures of recorders as text for Prometheus.

use informer_core::recorder::RecorderMetrics;

use crate::metrics::{Text, Value};

/// The figures of several recorders as Prometheus reads them, each with its name. Names must differ.
///
/// ```
/// let text = informer::recorders_prometheus(&[("websites", Default::default())]);
/// assert!(text.contains("event_recorder_events_total{name=\"websites\",result=\"sent\"} 0"));
/// ```
pub fn recorders_prometheus(recorders: &[(&str, RecorderMetrics)]) -> String {
    let mut text = Text::default();
    let help = "Events that were recorded, by what became of them.";
    text.family("event_recorder_events_total", "counter", help, |out| {
        for (name, m) in recorders {
            for (result, count) in [
                ("sent", m.sent),
                ("aggregated", m.aggregated),
                ("limited", m.limited),
                ("dropped", m.dropped),
                ("failed", m.failed),
            ] {
                out.sample(&[("name", name), ("result", result)], &Value::Count(count));
            }
        }
    });
    text.family("event_recorder_series_updates_total", "counter", "Series told to the server.", |out| {
        for (name, m) in recorders {
            out.sample(&[("name", name)], &Value::Count(m.updated));
        }
    });
    text.family("event_recorder_waiting", "gauge", "Writes that wait.", |out| {
        for (name, m) in recorders {
            out.sample(&[("name", name)], &Value::Count(m.waiting as u64));
        }
    });
    text.0
}
