//! Reads of a snapshot allocate nothing, and those of a lister only what they return.
//!
//! One test, because allocations of the whole process are counted. The runtime has one thread, so that no task
//! of the informer runs while a read is measured.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer::cache::Retention;
use informer::selector::LabelSelector;
use informer::{Index, InformerOptions, Key, Lister, Object, Projection, SharedInformerFactory, Snapshot};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Enough for several levels in the tree that orders the objects, and in those of the indexes.
const PODS: usize = 1_500;
const NAMESPACES: usize = 3;
const NODES: usize = 10;

#[derive(serde::Deserialize)]
struct PodLite {
    spec: SpecLite,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecLite {
    node_name: String,
}

fn namespace(number: usize) -> String {
    // Longer than the texts that a key stores in place.
    if number == 0 { "n".repeat(63) } else { format!("namespace-{number}") }
}

fn pod(number: usize) -> serde_json::Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{number:05}"), "namespace": namespace(number % NAMESPACES),
            "labels": {"app": if number.is_multiple_of(2) { "web" } else { "db" }, "team": "shop"}},
        "spec": {"nodeName": format!("node-{}", number % NODES), "containers": [{"name": "a", "image": "b"}]}})
}

/// Checks the number of allocations and the result of a read.
#[track_caller]
fn check(name: &str, max_allocations: usize, expected: usize, read: impl Fn() -> usize) {
    // The first read of a thread may prepare what later ones use.
    assert_eq!(read(), expected, "{name}");
    let region = Region::new(ALLOCATOR);
    let result = read();
    let taken = region.change();
    let allocations = taken.allocations + taken.reallocations;
    assert_eq!(result, expected, "{name}");
    assert!(
        allocations <= max_allocations,
        "{name}: {allocations} allocations, but at most {max_allocations} are allowed"
    );
}

#[tokio::test]
async fn c5_reads_allocate_nothing() {
    let server = ApiServer::new();
    for number in 0..NAMESPACES {
        let name = namespace(number);
        let _exists =
            server.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    for number in 0..PODS {
        server.create(&pod(number)).unwrap();
    }
    let options = InformerOptions::default().retention(Retention::Decoded);
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let pods = factory.informer::<Pod>();
    let by_field = pods.add_index(Index::field("spec.nodeName")).unwrap();
    let by_label = pods.add_index(Index::label("app")).unwrap();
    let by_closure = pods
        .add_index(Index::from_fn("namespace", |pod: &Object<Pod>| pod.namespace().map(ToOwned::to_owned)))
        .unwrap();
    let lite = pods.add_projection::<PodLite>();
    factory.start();
    factory.wait_for_sync(Duration::from_secs(60)).await.unwrap();

    let (snapshot, lister) = (pods.snapshot(), pods.lister());
    check_snapshot(&snapshot, &lite);
    check("by_index, field", 0, PODS / NODES, || snapshot.by_index(&by_field, "node-7").count());
    check("by_index, label", 0, PODS / 2, || snapshot.by_index(&by_label, "web").count());
    check("by_index, closure", 0, PODS / NAMESPACES, || {
        snapshot.by_index(&by_closure, "namespace-1").count()
    });
    check("by_index without result", 0, 0, || snapshot.by_index(&by_field, "node-x").count());
    check("index_keys", 0, PODS / NODES, || snapshot.index_keys(&by_field, "node-7").count());
    check("index_values: the sorted list", 20, NODES, || snapshot.index_values(&by_field).count());
    check_lister(&lister);
    check("Lister::by_index: the list", 20, PODS / NODES, || lister.by_index(&by_field, "node-7").len());
}

fn check_snapshot(snapshot: &Snapshot<Pod>, lite: &Projection<PodLite>) {
    let key = Key::new("namespace-1", "pod-00001");
    let long_key = Key::new(&namespace(0), "pod-00000");
    let web: LabelSelector = "app=web,team in (shop, blog),!other".parse().unwrap();
    check("get", 0, 1, || usize::from(snapshot.get(&key).is_some() && snapshot.get(&long_key).is_some()));
    check("iter", 0, PODS, || snapshot.iter().count());
    check("for", 0, PODS, || {
        let mut names = 0;
        for pod in snapshot {
            names += usize::from(!pod.name().is_empty() && !pod.uid().is_empty());
        }
        names
    });
    for number in 0..NAMESPACES {
        let namespace = namespace(number);
        check("namespace", 0, PODS / NAMESPACES, || snapshot.namespace(&namespace).count());
    }
    check("namespace without objects", 0, 0, || snapshot.namespace("none").count());
    check("matching", 0, PODS / 2, || snapshot.matching(&web).count());
    check("resource_version", 0, 1, || usize::from(snapshot.resource_version().is_some()));
    check("snapshot.clone", 0, PODS, || snapshot.clone().len());
    // Decoded when the object was received.
    check("projected", 0, PODS / NODES, || {
        let on_node = |pod: &Object<Pod>| pod.projected(lite).unwrap().spec.node_name == "node-3";
        snapshot.iter().filter(|pod| on_node(pod)).count()
    });
    // Kept since the first read, with this retention.
    check("typed", 0, 1, || usize::from(snapshot.get(&key).unwrap().typed().unwrap().spec.is_some()));
}

fn check_lister(lister: &Lister<Pod>) {
    let key = Key::new("namespace-1", "pod-00001");
    check("Lister::get", 0, 1, || usize::from(lister.get("namespace-1", "pod-00001").is_some()));
    let long = namespace(0);
    check("Lister::get, long key", 2, 1, || usize::from(lister.get(&long, "pod-00000").is_some()));
    check("Lister::get_by_key", 0, 1, || usize::from(lister.get_by_key(&key).is_some()));
    check("Lister::snapshot", 0, PODS, || lister.snapshot().len());
    check("Lister::len", 0, PODS, || lister.len());
}
