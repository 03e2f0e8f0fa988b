//! Metrics of work queues: client-go's, under the same names, and three more.

use super::WorkQueue;
use crate::metrics::{CollectNamed, Encoder, QueueMetrics};
use std::hash::Hash;

/// Name, help text and value of a counter.
type Counter = (&'static str, &'static str, fn(&QueueMetrics) -> u64);

/// The first two names are client-go's.
const COUNTERS: &[Counter] = &[
    ("workqueue_adds_total", "Adds that queued a key.", |m| m.adds),
    ("workqueue_retries_total", "Adds with a delay.", |m| m.retries),
    ("workqueue_abandoned_total", "Work items dropped without being completed.", |m| m.abandoned),
    ("workqueue_dropped_total", "Keys dropped by a shutdown.", |m| m.dropped),
];

impl<T: Eq + Hash + Clone> CollectNamed for WorkQueue<T> {
    fn collect(&self, name: &str, encoder: &mut Encoder) {
        self.metrics().collect(name, encoder);
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
impl CollectNamed for QueueMetrics {
    fn collect(&self, name: &str, encoder: &mut Encoder) {
        // Distinguishes queues of the same name.
        let identity = encoder.identity("workqueue", name);
        let labels = &[("name", &*identity)];
        encoder.gauge("workqueue_depth", "Keys queued.", labels, self.depth as f64);
        encoder.gauge("workqueue_delayed", "Keys waiting for their delay.", labels, self.delayed as f64);
        for (name, help, value) in COUNTERS {
            encoder.counter(name, help, labels, value(self));
        }
        let help = "Sum of the times for which the current keys have been processing.";
        encoder.seconds("workqueue_unfinished_work_seconds", help, labels, Some(self.unfinished_work));
        let help = "Time for which the longest-running key has been processing.";
        let longest = Some(self.longest_running);
        encoder.seconds("workqueue_longest_running_processor_seconds", help, labels, longest);
        let help = "Time from the first add of a key to its processing.";
        encoder.histogram("workqueue_queue_duration_seconds", help, labels, &self.queue_duration);
        let help = "Time to process a key.";
        encoder.histogram("workqueue_work_duration_seconds", help, labels, &self.work_duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::{Collect, encode, named};

    #[test]
    fn wm_1_metrics_have_the_names_of_client_go() {
        let queue = WorkQueue::new();
        queue.add(1);
        queue.try_get().unwrap().done();
        let text = encode([&named("q", &queue) as &dyn Collect]);
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
        assert!(text.contains("le=\"0.00000001\""), "the first bound is ten nanoseconds: {text}");
    }
}
