//! A work queue between an informer and workers: changes are coalesced per key, each key is processed by one
//! worker at a time, failures are retried with backoff, and keys can be delayed.
//!
//!     cargo example workqueue -- [--kubeconfig PATH] [--namespace NAME]

use informer::workqueue::{ExponentialBackoff, Priority, WithMaxDelay, WorkQueue};
use informer::{Event, Key, Lister, SharedInformer};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::ConfigMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const USAGE: &str = "usage: workqueue [--kubeconfig PATH] [--namespace NAME]

Processes every changed config map, two at a time, until Ctrl-C. One with the annotation `example.com/fail: N` fails N times before it
succeeds; one with `example.com/again: S` is processed again S seconds later; one with `example.com/take: S` takes S seconds. At the end, the
numbers of changes and of processed keys are printed: changes of a key that is queued or processing are coalesced.";

const WORKERS: usize = 2;

/// Counters in addition to those of the queue: changes and failures.
#[derive(Default)]
struct Counts {
    changes: AtomicU64,
    failures: AtomicU64,
}

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let options = arguments.options()?;
        let maps = SharedInformer::with_options(arguments.client().await?, options);
        let (out, mut lines) = mpsc::unbounded_channel();
        let printing = tokio::task::spawn_blocking(move || {
            while let Some(line) = lines.blocking_recv() {
                println!("{line}");
            }
        });
        run(&maps, out, stop_signal()).await?;
        Ok(printing.await?)
    })
    .await
}

/// Processes config maps until `done`, then finishes the queued keys.
pub(crate) async fn run(
    maps: &SharedInformer<ConfigMap>,
    out: mpsc::UnboundedSender<String>,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    // Backoff per key from 100 ms, doubling up to ten seconds.
    let limiter = ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(60));
    let queue = WorkQueue::with_rate_limiter(WithMaxDelay::new(limiter, Duration::from_secs(10)));
    let counts = Arc::new(Counts::default());
    let (adding, counted) = (queue.clone(), Arc::clone(&counts));
    let _on = maps.on_event(move |event| {
        counted.changes.fetch_add(1, Ordering::Relaxed);
        // Initial objects are processed after changes.
        let initial = matches!(event, Event::Added { initial: true, .. });
        let priority = if initial { Priority::INITIAL } else { Priority::NORMAL };
        adding.add_with_priority(event.object().key().clone(), priority);
    });
    maps.start();
    maps.wait_for_sync(Duration::from_secs(30)).await?;
    let worker = |_| tokio::spawn(work(queue.clone(), maps.lister(), Arc::clone(&counts), out.clone()));
    let workers: Vec<_> = (0..WORKERS).map(worker).collect();
    done.await;
    queue.drain(Duration::from_secs(5)).await?;
    for worker in workers {
        worker.await?;
    }
    let [changes, failures] = [&counts.changes, &counts.failures].map(|count| count.load(Ordering::Relaxed));
    let processed = queue.metrics().work_duration.count();
    out.send(format!("changes: {changes}, processed: {processed}, failures: {failures}"))?;
    maps.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Processes keys until the queue is shut down. Each work item is finished with its result; if this task were
/// aborted, the key would be requeued.
async fn work(
    queue: WorkQueue<Key>,
    maps: Lister<ConfigMap>,
    counts: Arc<Counts>,
    out: mpsc::UnboundedSender<String>,
) {
    while let Some(item) = queue.get().await {
        let line = match attempt(&maps, item.key(), item.retries()).await {
            Ok(None) => {
                let line = format!("{}: done", *item);
                item.done();
                line
            }
            Ok(Some(delay)) => {
                let line = format!("{}: again in {delay:?}", *item);
                queue.forget(&item);
                item.retry_after(delay);
                line
            }
            Err(error) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                let key = item.key().clone();
                format!("{key}: {error}, retry in {:?}", item.retry())
            }
        };
        if out.send(line).is_err() {
            return;
        }
    }
}

/// Processes a key once: fails as often as the object's annotation says, and may request to be processed
/// again.
async fn attempt(
    maps: &Lister<ConfigMap>,
    key: &Key,
    failures: u32,
) -> Result<Option<Duration>, Box<dyn Error + Send + Sync>> {
    let Some(map) = maps.get_by_key(key) else { return Ok(None) };
    let map = map.typed()?;
    let annotation = |name: &str| {
        let value = map.metadata.annotations.as_ref()?.get(&format!("example.com/{name}"))?;
        value.parse::<u32>().ok()
    };
    if let Some(seconds) = annotation("take") {
        tokio::time::sleep(Duration::from_secs(seconds.into())).await;
    }
    if annotation("fail").is_some_and(|times| failures < times) {
        return Err("it failed".into());
    }
    Ok(annotation("again").map(|seconds| Duration::from_secs(seconds.into())))
}
