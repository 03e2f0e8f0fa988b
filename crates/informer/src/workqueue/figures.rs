//! The figures of queues as text for Prometheus, under client-go's names.

use informer_core::workqueue::QueueMetrics;

use crate::metrics::{Text, Value};

type Figure = (&'static str, &'static str, &'static str, fn(&QueueMetrics) -> Value);

/// The first are those that client-go has, by its names.
const FIGURES: &[Figure] = &[
    ("workqueue_depth", "gauge", "Keys that wait for a turn.", |m| Value::Count(m.depth as u64)),
    ("workqueue_adds_total", "counter", "Adds that led to a turn.", |m| Value::Count(m.adds)),
    ("workqueue_retries_total", "counter", "Adds with a delay.", |m| Value::Count(m.retries)),
    ("workqueue_unfinished_work_seconds", "gauge", "Time spent on keys whose turns have not ended.", |m| {
        Value::Time(Some(m.unfinished))
    }),
    ("workqueue_longest_running_processor_seconds", "gauge", "Age of the longest turn.", |m| {
        Value::Time(Some(m.longest_running))
    }),
    ("workqueue_delayed", "gauge", "Keys that come later.", |m| Value::Count(m.delayed as u64)),
    ("workqueue_abandoned_total", "counter", "Leases dropped without a word.", |m| Value::Count(m.abandoned)),
    ("workqueue_dropped_total", "counter", "Keys that a shutdown dropped.", |m| Value::Count(m.dropped)),
];

/// The figures of several queues as Prometheus reads them, each with its name. Names must differ.
///
/// ```
/// let queue = informer::WorkQueue::new();
/// queue.add("default/web");
/// let text = informer::queues_prometheus(&[("pods", queue.metrics())]);
/// assert!(text.contains("workqueue_adds_total{name=\"pods\"} 1"));
/// ```
pub fn queues_prometheus(queues: &[(&str, QueueMetrics)]) -> String {
    let mut text = Text::default();
    for (name, kind, help, value) in FIGURES {
        text.family(name, kind, help, |out| {
            for (queue, metrics) in queues {
                out.sample(&[("name", queue)], &value(metrics));
            }
        });
    }
    let waited = "How long turns waited, from the first add to the take.";
    text.family("workqueue_queue_duration_seconds", "histogram", waited, |out| {
        for (name, metrics) in queues {
            out.histogram(("name", name), &metrics.queue_duration);
        }
    });
    text.family("workqueue_work_duration_seconds", "histogram", "How long turns took.", |out| {
        for (name, metrics) in queues {
            out.histogram(("name", name), &metrics.work_duration);
        }
    });
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::WorkQueue;

    #[test]
    fn wm_1_the_names_are_those_of_client_go() {
        let queue = WorkQueue::new();
        queue.add(1);
        queue.try_get().unwrap().done();
        let text = queues_prometheus(&[("q", queue.metrics())]);
        for name in [
            "depth",
            "adds_total",
            "queue_duration_seconds_bucket",
            "work_duration_seconds_sum",
            "unfinished_work_seconds",
            "longest_running_processor_seconds",
            "retries_total",
        ] {
            assert!(text.contains(&format!("\nworkqueue_{name}{{name=\"q\"")), "{name}:\n{text}");
        }
        assert!(text.contains("workqueue_work_duration_seconds_count{name=\"q\"} 1\n"), "{text}");
        assert!(text.contains("workqueue_queue_duration_seconds_bucket{name=\"q\",le=\"10\"} 1\n"), "{text}");
        assert!(text.contains("le=\"0.00000001\""), "ten nanoseconds come first: {text}");
    }
}
