//! Projections of an informer: decoded where objects are read, available to handlers, released with their last
//! handle.
#![allow(clippy::unwrap_used)]

use crate::cluster::{Diagnostics, create_pods, pod, synced_informer, until, with};
use informer::{Event, InformerOptions};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Debug, Deserialize)]
struct PodLite {
    spec: SpecLite,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecLite {
    node_name: Option<String>,
    containers: Vec<ContainerLite>,
}

#[derive(Debug, Deserialize)]
struct ContainerLite {
    image: String,
}

impl PodLite {
    fn text(&self) -> String {
        let images: Vec<_> = self.spec.containers.iter().map(|container| &*container.image).collect();
        format!("{} on {}", images.join(","), self.spec.node_name.as_deref().unwrap_or("none"))
    }
}

/// > C4: When a handler runs, the cache already contains that change or a newer one, and `projected` returns the
/// > values of its objects.
#[tokio::test(start_paused = true)]
async fn c4_handlers_read_projections_of_old_and_new_states() {
    for protobuf in [false, true] {
        let server = ApiServer::new();
        server.create(&pod("default", "a")).unwrap();
        let options = InformerOptions::default().prefer_protobuf(protobuf);
        let pods = synced_informer::<Pod>(&server, options).await;
        // Added after the initial list: the pod `a` is decoded when the handler reads it.
        let lite = pods.add_projection::<PodLite>();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (texts, handle) = (Arc::clone(&log), lite.clone());
        let _registration = pods.on_event(move |event| {
            let text = |object: &informer::Object<Pod>| object.projected(&handle).unwrap().text();
            let text = match &event {
                Event::Updated { old, new, .. } => format!("{} -> {}", text(old), text(new)),
                other => text(other.object()),
            };
            texts.lock().unwrap().push(text);
        });
        until(|| log.lock().unwrap().len() == 1).await;
        let changed = with(pod("default", "a"), "/spec/nodeName", "node-1");
        server.insert_unchecked(&changed).unwrap();
        until(|| log.lock().unwrap().len() == 2).await;
        assert_eq!(lite.metrics().values, 1, "the value of the old state is freed with it");
        server.delete("v1", "pods", Some("default"), "a").unwrap();
        until(|| log.lock().unwrap().len() == 3).await;
        let expected = ["nginx on none", "nginx on none -> nginx on node-1", "nginx on node-1"];
        assert_eq!(*log.lock().unwrap(), expected, "protobuf: {protobuf}");
        until(|| lite.metrics().values == 0).await;
    }
}

/// Number of values of [`Traced`].
static LIVE: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug)]
struct Traced;

impl<'de> Deserialize<'de> for Traced {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer)?;
        LIVE.fetch_add(1, Ordering::Relaxed);
        Ok(Self)
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn values_are_freed_after_the_last_handle_was_dropped() {
    let count = || LIVE.load(Ordering::Relaxed);
    let server = ApiServer::new();
    for number in 0..300 {
        server.create(&pod("default", &format!("web-{number}"))).unwrap();
    }
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (traced, lite) = (pods.add_projection::<Traced>(), pods.add_projection::<PodLite>());
    for pod in &pods.snapshot() {
        pod.projected(&traced).unwrap();
    }
    let other = traced.clone();
    drop(traced);
    assert_eq!(count(), 300);
    let kept = pods.snapshot();
    drop(other);
    // Also the entries that the snapshot shares are rewritten; the snapshot keeps the old ones.
    until(|| lite.metrics().values == 300).await;
    assert_eq!(count(), 300);
    drop(kept);
    until(|| count() == 0).await;
    server.create(&pod("default", "new")).unwrap();
    until(|| pods.lister().len() == 301).await;
    assert_eq!(count(), 0, "nothing is decoded without a handle");
    assert_eq!(lite.metrics().values, 301);
}

/// > C9: An unreadable object … affects nothing else; it is counted and reported.
#[tokio::test(start_paused = true)]
async fn c9_objects_without_a_value_are_counted_and_reported_once() {
    #[derive(Debug, Deserialize)]
    struct Scheduled {
        spec: Spec,
    }
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        node_name: String,
    }
    let server = ApiServer::new();
    let diagnostics = Diagnostics::default();
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(InformerOptions::default())).await;
    let scheduled = pods.add_projection::<Scheduled>();
    let limited = pods.add_projection_with_limit::<PodLite>(1);
    create_pods(&server, &["a", "b", "c"]);
    server.create(&with(pod("default", "d"), "/spec/nodeName", "node-1")).unwrap();
    until(|| pods.lister().len() == 4).await;
    assert_eq!(scheduled.metrics().decode_errors, 3);
    assert_eq!(limited.metrics().values, 1, "the first value exceeds the limit");
    let found = pods.lister().list().iter().filter(|pod| pod.projected(&limited).is_ok()).count();
    assert_eq!((found, limited.metrics().limit_errors), (1, 3));
    let snapshot = pods.snapshot();
    let nodes: Vec<_> =
        snapshot.iter().map(|pod| pod.projected(&scheduled).ok().map(|pod| &*pod.spec.node_name)).collect();
    assert_eq!(nodes, [None, None, None, Some("node-1")]);
    let texts = diagnostics.texts();
    let of_projections = texts.iter().filter(|text| text.starts_with("projection: "));
    let at_limit = of_projections.clone().filter(|text| text.contains("reached their limit of 1 bytes"));
    assert_eq!((of_projections.count(), at_limit.count()), (2, 1), "{texts:?}");
}
