//! The work queue example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{advance_time, with};
use crate::common::{Program, server};
use crate::programs::workqueue;
use informer::SharedInformer;
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::{self, UnboundedReceiver};

fn map(name: &str, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
    })
}

fn start(server: &ApiServer) -> (Program, UnboundedReceiver<String>) {
    let (out, lines) = mpsc::unbounded_channel();
    let maps = SharedInformer::<ConfigMap>::new(server.client());
    let program =
        Program::start(
            |stopped| async move { workqueue::run(&maps, out, async { drop(stopped.await) }).await },
        );
    (program, lines)
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_growing_delays() {
    let server = server();
    server.create(&map("a", &json!({"example.com/fail": "3"}))).unwrap();
    let (program, mut lines) = start(&server);
    let begun = tokio::time::Instant::now();
    for expected in
        ["it failed, retry in 100ms", "it failed, retry in 200ms", "it failed, retry in 400ms", "done"]
    {
        assert_eq!(lines.recv().await.unwrap(), format!("shop/a: {expected}"));
    }
    assert!(begun.elapsed().as_millis() >= 700, "{:?}", begun.elapsed());
    program.stop().await;
    assert_eq!(lines.recv().await.unwrap(), "changes: 1, processed: 4, failures: 3");
}

#[tokio::test(start_paused = true)]
async fn retries_and_delayed_keys_are_independent() {
    let server = server();
    server.create(&map("busy", &json!({"example.com/fail": "1"}))).unwrap();
    server.create(&map("later", &json!({"example.com/again": "60"}))).unwrap();
    let (program, mut lines) = start(&server);
    let mut first = [lines.recv().await.unwrap(), lines.recv().await.unwrap()];
    first.sort();
    assert_eq!(first, ["shop/busy: it failed, retry in 100ms", "shop/later: again in 60s"]);
    assert_eq!(lines.recv().await.unwrap(), "shop/busy: done");
    let before = tokio::time::Instant::now();
    assert_eq!(lines.recv().await.unwrap(), "shop/later: again in 60s");
    assert!(before.elapsed().as_secs() >= 59);
    program.stop().await;
    assert_eq!(lines.recv().await.unwrap(), "changes: 2, processed: 4, failures: 1");
}

/// Regression: the test of coalescing changed nothing while a key was processing, and the program did not
/// show it.
#[tokio::test(start_paused = true)]
async fn changes_of_a_processing_key_are_coalesced() {
    let server = server();
    let slow = map("slow", &json!({"example.com/take": "10"}));
    server.create(&slow).unwrap();
    let (program, mut lines) = start(&server);
    let begun = tokio::time::Instant::now();
    advance_time(Duration::from_secs(1)).await;
    for version in 0..5 {
        server.update(&with(slow.clone(), "/data", json!({"version": version.to_string()}))).unwrap();
        advance_time(Duration::from_secs(1)).await;
    }
    assert_eq!(lines.recv().await.unwrap(), "shop/slow: done");
    assert_eq!(begun.elapsed().as_secs(), 10);
    assert_eq!(lines.recv().await.unwrap(), "shop/slow: done");
    assert_eq!(begun.elapsed().as_secs(), 20, "never processed twice at the same time");
    advance_time(Duration::from_secs(60)).await;
    program.stop().await;
    assert_eq!(lines.recv().await.unwrap(), "changes: 6, processed: 2, failures: 0");
}
