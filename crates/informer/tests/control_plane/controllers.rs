//! Controllers against a control plane: a reconcile sees the previous write, a status is replaced, finalizers
//! block deletion until removed, and recorded events are accepted.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::controller::{Controller, Outcome, predicates};
use informer::finalizer::{Finalizer, FinalizerAction};
use informer::owner::set_controller_reference;
use informer::recorder::{EventRecorder, EventType};
use informer::{Error, InformerOptions, SharedInformerFactory};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};

use crate::runner::statements;
use crate::targets::{TIMEOUT, Target, map, until};

statements![
    reconcile_sees_the_previous_write,
    status_is_replaced_unless_the_object_has_changed,
    finalizers_owners_and_events_are_accepted,
];

fn factory(target: &Target) -> SharedInformerFactory {
    SharedInformerFactory::with_options(
        target.client.clone(),
        InformerOptions::default().namespace(target.namespace.clone()),
    )
}

/// Increments a label from its cached value. A reconcile that read a stale object would write the same number
/// twice.
async fn reconcile_sees_the_previous_write(target: &Target) {
    let reconciles = Arc::new(Mutex::new(Vec::new()));
    let (recorded, api) =
        (Arc::clone(&reconciles), Api::<ConfigMap>::namespaced(target.client.clone(), &target.namespace));
    let controller =
        Controller::new::<ConfigMap>(&factory(target)).concurrency(4).reconcile(move |key, ctx| {
            let (recorded, api) = (Arc::clone(&recorded), api.clone());
            async move {
                let Some(map) = ctx.lister::<ConfigMap>().get_by_key(&key) else { return Ok(Outcome::Done) };
                let count = map.labels().get("count").map_or(0, |count| count.parse::<u32>().unwrap());
                if count == 20 || !key.name().starts_with("map-") {
                    return Ok(Outcome::Done);
                }
                recorded.lock().unwrap().push((key.name().to_owned(), count));
                let patch = json!({"metadata": {"labels": {"count": (count + 1).to_string()}}});
                ctx.record_write(
                    &api.patch(key.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?,
                );
                // Immediately, before the watch can have delivered the write.
                Ok::<_, kube::Error>(Outcome::RequeueAfter(Duration::ZERO))
            }
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = controller.clone();
    let task = tokio::spawn(async move { running.run_until(async { drop(stopped.await) }).await });
    for name in ["map-0", "map-1", "map-2"] {
        target.post("$ns/configmaps", &map(name, "1")).await;
    }
    until("every increment is written", async || reconciles.lock().unwrap().len() >= 60).await;
    until("the last write is visible", async || controller.queue_metrics().depth == 0).await;
    drop(stop);
    task.await.unwrap().unwrap();
    for name in ["map-0", "map-1", "map-2"] {
        let reconciles = reconciles.lock().unwrap();
        let counts: Vec<u32> =
            reconciles.iter().filter(|(of, _)| of == name).map(|(_, count)| *count).collect();
        assert_eq!(counts, (0..20).collect::<Vec<u32>>(), "{name}");
    }
    assert_eq!(controller.metrics().invisible_writes, 0);
}

/// Fields that are not in the new status disappear, and a status of an older object is a conflict.
async fn status_is_replaced_unless_the_object_has_changed(target: &Target) {
    let (sender, mut results) = mpsc::unbounded_channel();
    let controller = Controller::new::<PodDisruptionBudget>(&factory(target))
        .with_predicate(predicates::generation_changed)
        .reconcile(move |key, ctx| {
            let sender = sender.clone();
            async move {
                let Some(budget) = ctx.lister::<PodDisruptionBudget>().get_by_key(&key) else {
                    return Ok(Outcome::Done);
                };
                let status = |disrupted_pods: &serde_json::Value| {
                    json!({"observedGeneration": 1, "currentHealthy": 0, "desiredHealthy": 1,
                        "disruptionsAllowed": 0, "expectedPods": 0, "disruptedPods": disrupted_pods})
                };
                let disrupted = |budget: &PodDisruptionBudget| {
                    budget.status.clone().and_then(|status| status.disrupted_pods).unwrap_or_default().len()
                };
                let pods = json!({"p": "2026-01-01T00:00:00Z", "q": "2026-01-01T00:00:00Z"});
                let first = ctx.patch_status(&budget, &status(&pods)).await?;
                let pods = json!({"q": "2026-01-01T00:00:00Z"});
                let second = ctx.patch_status(&first, &status(&pods)).await?;
                let outdated = ctx.patch_status(&first, &status(&json!({}))).await.map_err(Error::from);
                let is_conflict = outdated.is_err_and(|error| error.is_conflict());
                let _ = sender.send((disrupted(&first), disrupted(&second), is_conflict));
                Ok::<_, Error>(Outcome::Done)
            }
        });
    let (stop, stopped) = oneshot::channel::<()>();
    let task = tokio::spawn(async move { controller.run_until(async { drop(stopped.await) }).await });
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1}});
    target.post("/apis/policy/v1/namespaces/$name/poddisruptionbudgets", &budget).await;
    assert_eq!(results.recv().await.unwrap(), (2, 1, true));
    drop(stop);
    task.await.unwrap().unwrap();
}

async fn finalizers_owners_and_events_are_accepted(target: &Target) {
    let factory = factory(target);
    let maps = factory.informer::<ConfigMap>();
    let (finalizer, recorder) = (
        Finalizer::<ConfigMap>::new(target.client.clone(), "informer.example.com/clean-up"),
        EventRecorder::new(target.client.clone(), "informer.example.com/tests"),
    );
    target.post("$ns/configmaps", &map("a", "1")).await;
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    let get = || maps.lister().get(&target.namespace, "a");
    until("the object is cached", async || get().is_some()).await;

    let FinalizerAction::Apply(object) = finalizer.ensure(&get().unwrap()).await.unwrap() else {
        panic!("expected Apply")
    };
    maps.wait_for_resource_version(object.resource_version(), TIMEOUT).await.unwrap();
    // The owner reference is accepted by the server.
    let mut owned = Secret::default();
    owned.metadata.name = Some("owned".to_owned());
    set_controller_reference(&*object.typed().unwrap(), &mut owned).unwrap();
    let owned = target.post("$ns/secrets", &serde_json::to_value(&owned).unwrap()).await;
    assert_eq!(owned["metadata"]["ownerReferences"][0]["name"], "a", "{owned}");
    // Recorded twice, so that it becomes a series.
    for _ in 0..2 {
        recorder.record(&object, EventType::Normal, "Held", "Hold", "finalizer added");
    }
    recorder.record(&object, EventType::Warning, "Long", "Say", "x".repeat(5_000));

    target.delete("$ns/configmaps/a").await;
    until("the object is marked as deleted", async || {
        get().is_some_and(|map| map.deletion_timestamp().is_some())
    })
    .await;
    let marked = get().unwrap();
    let FinalizerAction::Cleanup(clean_up) = finalizer.ensure(&marked).await.unwrap() else {
        panic!("expected Cleanup")
    };
    assert!(clean_up.complete().await.unwrap().is_none());
    until("the object is deleted", async || get().is_none()).await;
    recorder.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(recorder.metrics().failed, 0, "{:?}", recorder.metrics());
    let events = target.request("GET", "/apis/events.k8s.io/v1/namespaces/$name/events", None).await.unwrap();
    let events = events["items"].as_array().unwrap();
    let object = events.iter().find(|event| event["reason"] == "Held").unwrap();
    assert_eq!((&object["type"], &object["action"]), (&json!("Normal"), &json!("Hold")), "{object}");
    assert_eq!(
        (&object["regarding"]["name"], &object["series"]["count"]),
        (&json!("a"), &json!(2)),
        "{object}"
    );
    assert!(events.iter().any(|event| event["reason"] == "Long"), "{events:?}");
}
