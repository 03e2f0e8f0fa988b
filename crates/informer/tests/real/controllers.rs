//! Controllers with a real server: a turn sees what the last one wrote, finalizers hold and let go, and recorded events are taken as valid.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use informer::{
    Controller, EventType, Finalizer, Options, Outcome, Recorder, SharedInformerFactory, Step, set_controller,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use tokio::sync::oneshot;

use crate::arm::{Arm, PATIENCE, map, until};
use crate::runner::statements;

statements![a_turn_sees_what_the_last_one_wrote, finalizers_owners_and_events_are_accepted];

fn factory(arm: &Arm) -> SharedInformerFactory {
    SharedInformerFactory::with_options(
        arm.client.clone(),
        Options::default().namespace(arm.namespace.clone()),
    )
}

/// A controller that counts up a label from what the cache says. A turn that acted on an old state would write the same number twice.
async fn a_turn_sees_what_the_last_one_wrote(arm: &Arm) {
    let turns = Arc::new(Mutex::new(Vec::new()));
    let (seen, api) = (Arc::clone(&turns), Api::<ConfigMap>::namespaced(arm.client.clone(), &arm.namespace));
    let controller = Controller::new::<ConfigMap>(&factory(arm)).concurrency(4).reconcile(move |key, ctx| {
        let (seen, api) = (Arc::clone(&seen), api.clone());
        async move {
            let Some(map) = ctx.lister::<ConfigMap>().get_by_key(&key) else { return Ok(Outcome::Done) };
            let count = map.labels().get("count").map_or(0, |count| count.parse::<u32>().unwrap());
            if count == 20 || !key.name().starts_with("map-") {
                return Ok(Outcome::Done);
            }
            seen.lock().unwrap().push((key.name().to_owned(), count));
            let patch = json!({"metadata": {"labels": {"count": (count + 1).to_string()}}});
            ctx.wrote(&api.patch(key.name(), &PatchParams::default(), &Patch::Merge(&patch)).await?);
            // At once, before the watch can have told it.
            Ok::<_, kube::Error>(Outcome::RequeueAfter(Duration::ZERO))
        }
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = controller.clone();
    let task = tokio::spawn(async move { running.run_until(async { drop(stopped.await) }).await });
    for name in ["map-0", "map-1", "map-2"] {
        arm.post("$ns/configmaps", &map(name, "1")).await;
    }
    until("all is counted", async || turns.lock().unwrap().len() >= 60).await;
    until("the last write is seen", async || controller.queue_metrics().depth == 0).await;
    drop(stop);
    task.await.unwrap().unwrap();
    for name in ["map-0", "map-1", "map-2"] {
        let turns = turns.lock().unwrap();
        let counts: Vec<u32> = turns.iter().filter(|(of, _)| of == name).map(|(_, count)| *count).collect();
        assert_eq!(counts, (0..20).collect::<Vec<u32>>(), "{name}");
    }
    assert_eq!(controller.metrics().unseen_writes, 0);
}

async fn finalizers_owners_and_events_are_accepted(arm: &Arm) {
    let factory = factory(arm);
    let maps = factory.informer::<ConfigMap>();
    let (finalizer, recorder) = (
        Finalizer::<ConfigMap>::new(arm.client.clone(), "informer.example.com/clean-up"),
        Recorder::new(arm.client.clone(), "informer.example.com/stories"),
    );
    arm.post("$ns/configmaps", &map("a", "1")).await;
    factory.start();
    factory.wait_for_sync(PATIENCE).await.unwrap();
    let get = || maps.lister().get(&arm.namespace, "a");
    until("it is cached", async || get().is_some()).await;

    let Step::Apply(held) = finalizer.step(&get().unwrap()).await.unwrap() else { panic!("not deleted") };
    maps.wait_for_version(held.version(), PATIENCE).await.unwrap();
    // What it owns names it in a way that the server accepts.
    let mut owned = Secret::default();
    owned.metadata.name = Some("owned".to_owned());
    set_controller(&*held.typed().unwrap(), &mut owned).unwrap();
    let owned = arm.post("$ns/secrets", &serde_json::to_value(&owned).unwrap()).await;
    assert_eq!(owned["metadata"]["ownerReferences"][0]["name"], "a", "{owned}");
    // Twice: the second makes a series of it.
    for _ in 0..2 {
        recorder.event(&held, EventType::Normal, "Held", "Hold", "it is held");
    }
    recorder.event(&held, EventType::Warning, "Long", "Say", "x".repeat(5_000));

    arm.delete("$ns/configmaps/a").await;
    until("it is marked", async || get().is_some_and(|map| map.deleted().is_some())).await;
    let marked = get().unwrap();
    let Step::CleanUp(clean_up) = finalizer.step(&marked).await.unwrap() else { panic!("not marked") };
    assert!(clean_up.done().await.unwrap().is_none());
    until("it is gone", async || get().is_none()).await;
    recorder.shutdown(PATIENCE).await.unwrap();
    assert_eq!(recorder.metrics().failed, 0, "{:?}", recorder.metrics());
    let events = arm.request("GET", "/apis/events.k8s.io/v1/namespaces/$name/events", None).await.unwrap();
    let events = events["items"].as_array().unwrap();
    let held = events.iter().find(|event| event["reason"] == "Held").unwrap();
    assert_eq!((&held["type"], &held["action"]), (&json!("Normal"), &json!("Hold")), "{held}");
    assert_eq!((&held["regarding"]["name"], &held["series"]["count"]), (&json!("a"), &json!(2)), "{held}");
    assert!(events.iter().any(|event| event["reason"] == "Long"), "{events:?}");
}
