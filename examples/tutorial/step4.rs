//! Step 4 of the tutorial: a work queue. Deletes pods ten seconds after they have finished.

use informer::workqueue::WorkQueue;
use informer::{Key, Lister, Object, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DeleteParams, Preconditions};
use std::time::Duration;

/// How long finished pods are kept.
const TTL: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), informer::Error> {
    let client = informer::client(kube::Config::infer().await?)?;
    run(client, async { drop(tokio::signal::ctrl_c().await) }).await
}

pub(crate) async fn run(client: kube::Client, stop: impl Future<Output = ()>) -> Result<(), informer::Error> {
    let pods = SharedInformer::<Pod>::new(client.clone());
    let queue = WorkQueue::new();
    let keys = queue.clone();
    let _registration = pods.on_event(move |event| keys.add(event.object().key().clone()));
    pods.start();
    pods.wait_for_sync(Duration::from_secs(30)).await?;

    for _ in 0..4 {
        tokio::spawn(work(queue.clone(), pods.lister(), client.clone()));
    }
    stop.await;
    queue.drain(Duration::from_secs(5)).await?;
    pods.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

/// A worker: processes keys until the queue is shut down.
async fn work(queue: WorkQueue<Key>, pods: Lister<Pod>, client: kube::Client) {
    while let Some(item) = queue.get().await {
        match process(&pods, &client, item.key()).await {
            Ok(None) => item.done(),
            Ok(Some(delay)) => item.retry_after(delay),
            Err(error) => {
                eprintln!("{}: {error}", item.key());
                item.retry(); // with backoff
            }
        }
    }
}

/// Deletes a pod if it finished long enough ago. Returns the delay after which it must be examined again.
async fn process(
    pods: &Lister<Pod>,
    client: &kube::Client,
    key: &Key,
) -> Result<Option<Duration>, informer::Error> {
    let Some(pod) = pods.get_by_key(key) else { return Ok(None) }; // deleted in the meantime
    let Some(finished) = finished_at(&*pod.typed()?) else { return Ok(None) }; // still running
    let age = Duration::try_from(Timestamp::now().duration_since(finished)).unwrap_or_default();
    if let Some(remaining) = TTL.checked_sub(age).filter(|remaining| !remaining.is_zero()) {
        return Ok(Some(remaining));
    }
    delete(client, &pod).await?;
    Ok(None)
}

/// Returns the time at which a pod finished; `None` if it has not.
pub(crate) fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let is_finished = |phase: &String| matches!(phase.as_str(), "Succeeded" | "Failed");
    let status = pod.status.as_ref().filter(|status| status.phase.as_ref().is_some_and(is_finished))?;
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|one| one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    // An evicted pod may have no containers.
    let changes = status.conditions.iter().flatten().filter_map(|one| one.last_transition_time.as_ref());
    ends.max().or(changes.max()).or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Deletes exactly this pod, and not a new one of the same name that the cache does not show yet.
pub(crate) async fn delete(client: &kube::Client, pod: &Object<Pod>) -> Result<(), informer::Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), pod.namespace().unwrap_or_default());
    let this_pod = Preconditions { uid: Some(pod.uid().to_owned()), ..Preconditions::default() };
    match pods.delete(pod.name(), &DeleteParams::default().preconditions(this_pod)).await {
        Ok(_) => {
            println!("{} deleted", pod.key());
            Ok(())
        }
        // Another client deleted the pod, or it was replaced by another one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
