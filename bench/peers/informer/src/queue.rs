//! Keys that pass through informer's work queue, which records metrics.

use std::time::Instant;

use informer::Key;
use informer::workqueue::{ExponentialBackoff, WorkQueue};
use serde_json::{Value, json};

/// Measures from the first add until the last key is done; returns how many were done.
pub(crate) async fn run(keys: usize, workers: usize) -> Value {
    let names: Vec<Key> = (0..keys).map(|number| Key::new("default", &format!("pod-{number:07}"))).collect();
    let queue: WorkQueue<Key> = WorkQueue::with_rate_limiter(ExponentialBackoff::default());
    let started = Instant::now();
    if workers == 0 {
        let mut completed = 0;
        for name in &names {
            queue.add(name.clone());
            if let Some(item) = queue.try_get() {
                item.done();
                completed += 1;
            }
        }
        return json!({"keys": completed, "seconds": started.elapsed().as_secs_f64()});
    }
    let work = |_| {
        let queue = queue.clone();
        tokio::spawn(async move {
            let mut completed = 0;
            while let Some(item) = queue.get().await {
                item.done();
                completed += 1;
            }
            completed
        })
    };
    let tasks: Vec<_> = (0..workers).map(work).collect();
    for name in names {
        queue.add(name);
    }
    queue.shutdown();
    let mut completed = 0;
    for task in tasks {
        // The keys of a worker that panicked are not counted.
        completed += task.await.unwrap_or(0);
    }
    json!({"keys": completed, "seconds": started.elapsed().as_secs_f64()})
}
