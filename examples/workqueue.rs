//! A work queue between an informer and workers: changes are merged per key, a key is in one pair of hands, failures come again after waits that
//! grow, and work can be put off.
//!
//!     cargo run --example workqueue -- [--kubeconfig PATH] [--namespace NAME]

use informer::{Event, Exponential, Key, Lister, MaxWait, Priority, SharedInformer, WorkQueue};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::ConfigMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

const USAGE: &str = "usage: workqueue [--kubeconfig PATH] [--namespace NAME]

Works on every config map that changes, two at a time, until Ctrl-C. One with the annotation `example.com/fail: N` fails N times before it
succeeds; one with `example.com/again: S` is looked at again S seconds later; one with `example.com/take: S` takes S seconds. In the end it says
how many changes there were and how many turns that took: changes that come while a key waits or is worked on are one turn.";

const WORKERS: usize = 2;

/// What the queue does not count: what was told to it, and what went wrong.
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

/// Works on config maps until `done`, then finishes what is queued.
pub(crate) async fn run(
    maps: &SharedInformer<ConfigMap>,
    out: mpsc::UnboundedSender<String>,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    // From 100 ms on, doubling, each key for itself; nothing waits longer than ten seconds.
    let limiter = Exponential::new(Duration::from_millis(100), Duration::from_mins(1));
    let queue = WorkQueue::with_limiter(MaxWait::new(limiter, Duration::from_secs(10)));
    let counts = Arc::new(Counts::default());
    let (adding, told) = (queue.clone(), Arc::clone(&counts));
    let _on = maps.on(move |event| {
        told.changes.fetch_add(1, Ordering::Relaxed);
        // What was there at the start may wait for what happens now.
        let initial = matches!(event, Event::Added { initial: true, .. });
        let priority = if initial { Priority::INITIAL } else { Priority::NORMAL };
        adding.add_with(event.object().key().clone(), priority);
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
    let turns = queue.metrics().work_duration.count();
    out.send(format!("changes: {changes}, turns: {turns}, failures: {failures}"))?;
    maps.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// Takes one key after the other until the queue is shut down. The lease says how it went; if this task were ended in the middle, the
/// key would come again.
async fn work(
    queue: WorkQueue<Key>,
    maps: Lister<ConfigMap>,
    counts: Arc<Counts>,
    out: mpsc::UnboundedSender<String>,
) {
    while let Some(lease) = queue.get().await {
        let line = match attempt(&maps, lease.key(), lease.retries()).await {
            Ok(None) => {
                let line = format!("{}: done", *lease);
                lease.done();
                line
            }
            Ok(Some(delay)) => {
                let line = format!("{}: again in {delay:?}", *lease);
                queue.forget(&lease);
                lease.retry_after(delay);
                line
            }
            Err(error) => {
                counts.failures.fetch_add(1, Ordering::Relaxed);
                let key = lease.key().clone();
                format!("{key}: {error}, retry in {:?}", lease.retry())
            }
        };
        if out.send(line).is_err() {
            return;
        }
    }
}

/// One turn: fails as often as the object says, and may want to be looked at again.
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
