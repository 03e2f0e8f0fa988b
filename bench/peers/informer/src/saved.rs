//! Saved caches: where they are stored, when they are readable, and what a durable handler receives.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use informer::persistence::{Persistence, RestoredReads};
use informer::{Event, Registration, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, Patch, PatchParams};
use peer_protocol::{Failure, ProcessStats};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Time limit for saving the cache at the end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of patches at the same time. kube-apiserver may forget changes after 75 seconds.
const CONCURRENT_PATCHES: usize = 32;

/// Events that a durable handler has received, by what it had acknowledged in an earlier process.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Objects in the state that was acknowledged.
    unchanged: AtomicU64,
    /// Objects of which another state was acknowledged.
    changed: AtomicU64,
    /// Objects of which nothing was acknowledged.
    added: AtomicU64,
    deleted: AtomicU64,
}

impl Difference {
    fn record(&self, event: &Event<Pod>) {
        let counter = match event {
            Event::Added { object, previous: Some(previous), .. }
                if previous.resource_version() == object.resource_version() =>
            {
                &self.unchanged
            }
            Event::Added { previous: None, .. } => &self.added,
            Event::Added { .. } | Event::Updated { .. } => &self.changed,
            Event::Deleted { .. } => &self.deleted,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn response(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        json!({
            "unchanged": count(&self.unchanged),
            "changed": count(&self.changed),
            "added": count(&self.added),
            "deleted": count(&self.deleted),
        })
    }
}

pub(crate) fn persistence(directory: &Path) -> Persistence {
    // The name is constant, because each start of a replay server has another port.
    Persistence::for_cluster(directory, "bench").restored_reads(RestoredReads::Serve)
}

pub(crate) fn add_durable_handler(pods: &SharedInformer<Pod>, difference: &Arc<Difference>) -> Registration {
    let difference = Arc::clone(difference);
    pods.handler().durable("bench").on_event(move |event| difference.record(&event))
}

/// Waits until the cache can be read; returns the time since the start in seconds.
pub(crate) async fn readable(pods: &SharedInformer<Pod>, stats: &ProcessStats) -> f64 {
    while pods.lister().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stats.seconds()
}

/// Stops an informer, which then saves its cache.
pub(crate) async fn stop(pods: &SharedInformer<Pod>) -> Result<Value, Failure> {
    let stats = ProcessStats::start();
    pods.shutdown(SHUTDOWN_TIMEOUT).await?;
    Ok(stats.response(json!({})))
}

/// Patches the annotation `revision` of the first pods on the server.
pub(crate) async fn change(
    client: &kube::Client,
    pods: &SharedInformer<Pod>,
    count: usize,
    revision: &str,
) -> Result<Value, Failure> {
    let stats = ProcessStats::start();
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"revision": revision}}}));
    let mut pods = pods.lister().list().into_iter().take(count).peekable();
    let mut running = JoinSet::new();
    while pods.peek().is_some() || !running.is_empty() {
        while running.len() < CONCURRENT_PATCHES
            && let Some(pod) = pods.next()
        {
            let api: Api<Pod> = Api::namespaced(client.clone(), pod.namespace().unwrap_or_default());
            let patch = patch.clone();
            running.spawn(async move {
                api.patch_metadata(pod.name(), &PatchParams::default(), &patch).await.map(drop)
            });
        }
        running.join_next().await.transpose()?.transpose()?;
    }
    Ok(stats.response(json!({})))
}
