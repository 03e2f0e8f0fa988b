//! The controller of the tutorial, from step 5 on. Each `Cleanup` deletes the finished pods of its namespace that
//! match its selector, and counts them in its status.

// ANCHOR: imports
use informer::controller::{Context, Controller, Outcome, RunnableController};
use informer::selector::LabelSelector;
use informer::{Index, Key, Object, SharedInformerFactory};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::CustomResource;
use kube::api::{Api, DeleteParams, Preconditions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
// ANCHOR_END: imports

// ANCHOR: resource
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(group = "tutorial.example", version = "v1", kind = "Cleanup", namespaced, status = "CleanupStatus")]
#[serde(rename_all = "camelCase")]
pub(crate) struct CleanupSpec {
    /// Which pods, in the syntax of `kubectl -l`.
    pub(crate) selector: String,
    /// How long finished pods are kept.
    pub(crate) ttl_seconds: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CleanupStatus {
    /// How many pods were deleted.
    pub(crate) deleted: u64,
}
// ANCHOR_END: resource

// ANCHOR: controller
pub(crate) fn controller(client: kube::Client) -> Result<RunnableController, informer::Error> {
    let factory = SharedInformerFactory::new(client.clone());
    let cleanups = factory.informer::<Cleanup>();
    let by_namespace = cleanups.add_index(Index::from_fn("namespace", |cleanup: &Object<Cleanup>| {
        cleanup.namespace().map(str::to_owned)
    }))?;
    let lister = cleanups.lister();
    Ok(Controller::new::<Cleanup>(&factory)
        // A change of a pod concerns all cleanups of its namespace.
        .watches::<Pod>(move |pod| lister.keys_by_index(&by_namespace, pod.namespace().unwrap_or_default()))
        .state(client)
        .reconcile(reconcile))
}
// ANCHOR_END: controller

// ANCHOR: reconcile
/// Brings the pods of one cleanup to the desired state. Errors are retried with backoff.
pub(crate) async fn reconcile(key: Key, ctx: Context<kube::Client>) -> Result<Outcome, informer::Error> {
    let Some(cleanup) = ctx.lister::<Cleanup>().get_by_key(&key) else { return Ok(Outcome::Done) };
    let cleanup = cleanup.typed()?;
    let Ok(selector) = cleanup.spec.selector.parse::<LabelSelector>() else {
        return Ok(Outcome::terminal("spec.selector is not a label selector")); // a retry would not help
    };
    let ttl = Duration::from_secs(cleanup.spec.ttl_seconds.into());
    let mut deleted = 0;
    let mut next: Option<Duration> = None;
    for pod in ctx.lister::<Pod>().namespace(key.namespace().unwrap_or_default()).list_matching(&selector) {
        let Some(finished) = finished_at(&*pod.typed()?) else { continue }; // still running
        let age = Duration::try_from(ctx.now().duration_since(finished)).unwrap_or_default();
        match ttl.checked_sub(age).filter(|remaining| !remaining.is_zero()) {
            Some(remaining) => next = Some(next.map_or(remaining, |next| next.min(remaining))),
            None => deleted += u64::from(delete(ctx.state(), &pod).await?),
        }
    }
    if deleted > 0 {
        let before = cleanup.status.as_ref().map_or(0, |status| status.deleted);
        ctx.patch_status(&cleanup, &CleanupStatus { deleted: before + deleted }).await?;
    }
    Ok(next.map_or(Outcome::Done, Outcome::RequeueAfter))
}
// ANCHOR_END: reconcile

// ANCHOR: pods
/// Returns the time at which a pod finished; `None` if it has not.
fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let is_finished = |phase: &String| matches!(phase.as_str(), "Succeeded" | "Failed");
    let status = pod.status.as_ref().filter(|status| status.phase.as_ref().is_some_and(is_finished))?;
    let containers = status.container_statuses.iter().flatten();
    let ends = containers.filter_map(|one| one.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref());
    // An evicted pod may have no containers.
    let changes = status.conditions.iter().flatten().filter_map(|one| one.last_transition_time.as_ref());
    ends.max().or(changes.max()).or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Deletes exactly this pod, and not a new one of the same name that the cache does not show yet. Returns
/// whether this call deleted it.
async fn delete(client: &kube::Client, pod: &Object<Pod>) -> Result<bool, informer::Error> {
    let pods = Api::<Pod>::namespaced(client.clone(), pod.namespace().unwrap_or_default());
    let this_pod = Preconditions { uid: Some(pod.uid().to_owned()), ..Preconditions::default() };
    match pods.delete(pod.name(), &DeleteParams::default().preconditions(this_pod)).await {
        Ok(_) => {
            tracing::info!("deleted {}", pod.key());
            Ok(true)
        }
        // Another client deleted the pod, or it was replaced by another one.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
// ANCHOR_END: pods
