//! Compressed caches behave as uncompressed ones and use less memory.
#![cfg(feature = "compression")]
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    Diagnostics, TIMEOUT, gap_without_change, log_events, pod, synced_informer, until, with,
};
use informer::cache::Retention;
use informer::source::WatchListPolicy;
use informer::{Index, InformerOptions, SharedInformer};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{Pod, Secret};
use serde_json::{Value, json};

fn compressed() -> InformerOptions {
    InformerOptions::default().retention(Retention::Compressed)
}

/// A pod with contents that all pods share.
fn large(number: usize) -> Value {
    let env: Vec<Value> = (0..25)
        .map(
            |variable| json!({"name": format!("VARIABLE_{variable}"), "value": "equal in all of these pods"}),
        )
        .collect();
    let pod = with(pod("default", &format!("pod-{number:04}")), "/spec/containers/0/env", env);
    with(pod, "/spec/nodeName", format!("node-{}", number % 3))
}

fn create(server: &ApiServer, numbers: std::ops::Range<usize>) {
    for number in numbers {
        server.create(&large(number)).unwrap();
    }
}

/// Bytes in the cache, and the uncompressed size of all objects.
fn bytes(pods: &SharedInformer<Pod>) -> (usize, usize) {
    let objects = pods.lister().list();
    (pods.metrics().memory_bytes, objects.iter().map(|object| object.raw_bytes().len()).sum())
}

#[tokio::test(start_paused = true)]
async fn compressed_cache_equals_uncompressed_cache() {
    let server = ApiServer::new();
    create(&server, 0..100);
    let plain = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    for policy in [WatchListPolicy::Auto, WatchListPolicy::Never] {
        let compressed_pods = synced_informer::<Pod>(&server, compressed().watch_list(policy)).await;
        let by_node = compressed_pods.add_index(Index::field("spec.nodeName")).unwrap();
        until(|| compressed_pods.metrics().memory_bytes < plain.metrics().memory_bytes / 2).await;
        assert_eq!(compressed_pods.lister().by_index(&by_node, "node-1").len(), 33);
        for (left, right) in plain.lister().list().iter().zip(compressed_pods.lister().list()) {
            assert_eq!((left.raw_bytes(), left.labels()), (right.raw_bytes(), right.labels()));
            assert_eq!(*left.typed().unwrap(), *right.typed().unwrap());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn compression_causes_no_event() {
    let server = ApiServer::new();
    create(&server, 0..100);
    let pods = SharedInformer::<Pod>::with_options(server.client(), compressed());
    let (_registration, mut notes) = log_events(&pods);
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    until(|| bytes(&pods).0 < bytes(&pods).1 / 2).await;
    let log: Vec<String> = (0..100).map(|number| format!("+pod-{number:04} initial")).collect();
    notes.expect(&log.iter().map(String::as_str).collect::<Vec<_>>()).await;
    // A relist finds all objects unchanged.
    gap_without_change(&server).await;
    until(|| pods.status().reflector.full_lists == 2).await;
    server.create(&large(500)).unwrap();
    notes.expect(&["+pod-0500"]).await;
    assert!(notes.is_empty());
    assert_eq!(pods.metrics().updated, 0);
}

#[tokio::test(start_paused = true)]
async fn objects_received_later_are_compressed_immediately() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, compressed()).await;
    create(&server, 0..300);
    until(|| pods.lister().len() == 300 && bytes(&pods).0 < bytes(&pods).1 / 2).await;
    let metrics = pods.metrics();
    assert_eq!((metrics.added, metrics.updated), (300, 0));
}

#[tokio::test(start_paused = true)]
async fn secrets_are_compressed_without_failures() {
    let server = ApiServer::new();
    for number in 0..100 {
        let data = json!({"password": "aHVudGVy".repeat(100)});
        let name = format!("secret-{number}");
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": name}, "data": data,
        });
        server.create(&secret).unwrap();
    }
    let diagnostics = Diagnostics::default();
    let secrets = synced_informer::<Secret>(&server, diagnostics.hook(compressed())).await;
    // Immediately, since there is no dictionary to wait for.
    let plain: usize = secrets.lister().list().iter().map(|secret| secret.raw_bytes().len()).sum();
    assert!(secrets.metrics().memory_bytes < plain);
    for secret in secrets.lister().list() {
        assert_eq!(secret.typed().unwrap().data.as_ref().unwrap()["password"].0.len(), 600);
    }
    assert_eq!(diagnostics.texts(), Vec::<String>::new());
}
