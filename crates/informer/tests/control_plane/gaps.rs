//! Positions that have expired on the server: the informer relists and delivers exactly the differences,
//! once.

use informer::status::InformerState;
use informer::{InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use serde_json::{Value, json};

use crate::model::Model;
use crate::proxy::Proxy;
use crate::runner::{Needs, statements};
use crate::targets::{TIMEOUT, Target, map, until, value};

statements![
    needs: Needs::Compaction;
    changes_before_a_compaction_are_delivered_as_differences,
    broken_watch_resumes_at_its_position,
];

fn event(target: &Target, name: &str) -> Value {
    let about = json!({"kind": "Node", "name": "n", "namespace": target.namespace});
    json!({"metadata": {"name": name}, "involvedObject": about, "reason": "Tested"})
}

/// Compacts etcd up to the current version.
async fn compact(target: &Target) {
    // Two writes, because the version at which etcd is compacted remains readable.
    target.post("$ns/secrets", &json!({"metadata": {"name": "compaction-marker"}})).await;
    let change = json!({"metadata": {"annotations": {"value": "2"}}});
    let newest = target.merge("$ns/secrets/compaction-marker", &change).await;
    let revision = newest["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    crate::etcd::compact(target.etcd.as_ref().unwrap(), revision).await;
}

/// Events are served without a watch cache, so a compaction of etcd causes a real 410.
async fn changes_before_a_compaction_are_delivered_as_differences(target: &Target) {
    let proxy = Proxy::to(&target.config.cluster_url).await;
    let options = InformerOptions::default().namespace(target.namespace.clone());
    let events = SharedInformer::<Event>::with_options(target.client_by(proxy.address), options);
    let (on, model) = Model::follow(&events);
    for name in ["again", "changes", "goes", "stays"] {
        target.post("$ns/events", &event(target, name)).await;
    }
    events.start();
    events.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(on.wait_for_sync().await);
    assert_eq!(model.lines(), ["+again", "+changes", "+goes", "+stays"]);

    proxy.block();
    until("the outage is noticed", async || events.status().state != InformerState::Live).await;
    target.delete("$ns/events/goes").await;
    target.delete("$ns/events/again").await;
    target.post("$ns/events", &event(target, "again")).await;
    target.merge("$ns/events/changes", &json!({"message": "changed"})).await;
    target.post("$ns/events", &event(target, "new")).await;
    target.post("$ns/events", &event(target, "brief")).await;
    target.delete("$ns/events/brief").await;
    compact(target).await;
    assert!(events.status().synced && model.lines().is_empty());
    proxy.unblock();

    model.settles(&events, async || target.list::<Event>().await).await;
    // C5: deletions first, then the rest in key order. C3: another incarnation is two events.
    assert_eq!(model.lines(), ["-again inferred", "-goes inferred", "+again", "~changes", "+new"]);
    let counters = events.status().reflector;
    assert_eq!((counters.expired, counters.relists.expired, counters.rewinds), (1, 1, 0), "{counters:?}");
    // The informer follows the server again.
    target.delete("$ns/events/new").await;
    until("the next change is delivered", async || model.has("-new")).await;
}

/// The server still has the missed changes: no relist happens.
async fn broken_watch_resumes_at_its_position(target: &Target) {
    let proxy = Proxy::to(&target.config.cluster_url).await;
    let options = InformerOptions::default().namespace(target.namespace.clone());
    let maps = SharedInformer::<ConfigMap>::with_options(target.client_by(proxy.address), options);
    let (on, model) = Model::follow(&maps);
    for name in ["a", "b"] {
        target.post("$ns/configmaps", &map(name, "1")).await;
    }
    maps.start();
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(on.wait_for_sync().await);
    for round in 0..3 {
        proxy.block();
        until("the outage is noticed", async || maps.status().state != InformerState::Live).await;
        target.merge("$ns/configmaps/a", &value(&format!("round {round}"))).await;
        target.post("$ns/configmaps", &map(&format!("new-{round}"), "1")).await;
        proxy.unblock();
        model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    }
    target.delete("$ns/configmaps/b").await;
    model.settles(&maps, async || target.list::<ConfigMap>().await).await;
    let counters = maps.status().reflector;
    assert_eq!((counters.relists.expired, counters.full_lists), (0, 1), "{counters:?}");
    assert!(!model.lines().iter().any(|line| line.ends_with("inferred")));
}
