//! The dynamic example against an embedded server.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../dynamic.rs"]
#[allow(dead_code)]
mod dynamic;

use common::cluster::{pod, until, with};
use common::{Program, output, server};
use informer::SharedInformerFactory;
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn prints_changes_of_the_kind_named_on_the_command_line() {
    let server = server();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "spec": {}});
    server.create(&node).unwrap();
    let resource = dynamic::find(&server.client(), "nodes").await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        dynamic::run(&factory, &resource, print, async { drop(stopped.await) }).await
    });
    lines.expect(&["+ node-a"]).await;
    server.update(&with(node.clone(), "/spec/unschedulable", true)).unwrap();
    lines.expect(&["~ node-a: spec"]).await;
    server.update_status(&with(node.clone(), "/status", json!({"phase": "Running"}))).unwrap();
    lines.expect(&["~ node-a: status"]).await;
    let labelled = with(node, "/metadata/labels", json!({"zone": "1"}));
    server.update(&with(labelled, "/spec/unschedulable", true)).unwrap();
    lines.expect(&["~ node-a: metadata"]).await;
    server.delete("v1", "nodes", None, "node-a").unwrap();
    lines.expect(&["- node-a"]).await;
    program.stop().await;
    until(|| server.open_watches() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn kind_is_found_by_short_or_full_name() {
    let server = server();
    let client = server.client();
    for (text, api_version, kind) in [
        ("pods", "v1", "Pod"),
        ("pod", "v1", "Pod"),
        ("deployments", "apps/v1", "Deployment"),
        ("deploy", "apps/v1", "Deployment"),
        ("Deployment.apps", "apps/v1", "Deployment"),
        ("events", "v1", "Event"),
        ("events.events.k8s.io", "events.k8s.io/v1", "Event"),
        ("v1/pods/Pod", "v1", "Pod"),
        ("example.org/v2/things/Thing", "example.org/v2", "Thing"),
    ] {
        let found = dynamic::find(&client, text).await.unwrap();
        assert_eq!((&*found.api_version, &*found.kind), (api_version, kind), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_kind_is_an_error_with_a_hint() {
    let server = server();
    server.create(&pod("shop", "web")).unwrap();
    let error = dynamic::find(&server.client(), "zebras").await.unwrap_err().to_string();
    let hint = "(`kubectl api-resources` lists all resources)";
    assert_eq!(error, format!("resolve resource \"zebras\": not served {hint}"));
    let error = dynamic::find(&server.client(), "tokenreviews").await.unwrap_err().to_string();
    assert_eq!(error, "tokenreviews.authentication.k8s.io cannot be watched");
    let error = dynamic::find(&server.client(), "a/b").await.unwrap_err().to_string();
    assert_eq!(error, "a/b is not a kind (expected a name, or group/version/plural/kind)");

    // With the full name, no request is sent before the informer's.
    let resource = dynamic::find(&server.client(), "example.org/v2/things/Thing").await.unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let error =
        dynamic::run(&factory, &resource, |_| {}, std::future::pending()).await.unwrap_err().to_string();
    let start = "wait for sync: things.v2.example.org in all namespaces: not served: 404";
    assert!(error.starts_with(start), "{error}");
}
