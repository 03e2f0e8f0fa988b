//! The dynamic example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{until, with};
use crate::common::{Program, output, server};
use crate::programs::dynamic;
use informer::{InformerOptions, SharedInformerFactory};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn prints_changes_of_the_kind_named_on_the_command_line() {
    let server = server();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a"}, "spec": {}});
    server.create(&node).unwrap();
    let resource = informer::resolve(&server.client(), "nodes").await.unwrap().watchable().unwrap();
    // The namespace does not apply to nodes, which are cluster-scoped.
    let options = InformerOptions::default().namespace("shop");
    let factory = SharedInformerFactory::with_options(server.client(), options);
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
async fn kind_is_found_by_its_full_name() {
    for (text, api_version, kind) in
        [("v1/pods/Pod", "v1", "Pod"), ("example.org/v2/things/Thing", "example.org/v2", "Thing")]
    {
        let found = dynamic::parse_full_name(text).unwrap();
        assert_eq!((&*found.api_version, &*found.kind), (api_version, kind), "{text}");
    }
    let error = dynamic::parse_full_name("a/b").unwrap_err().to_string();
    assert_eq!(error, "a/b is not a kind (expected a name, or group/version/plural/kind)");

    // No request is sent before the informer's.
    let server = server();
    let resource = dynamic::parse_full_name("example.org/v2/things/Thing").unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let error =
        dynamic::run(&factory, &resource, |_| {}, std::future::pending()).await.unwrap_err().to_string();
    let start = "wait for sync: things.v2.example.org in all namespaces: not served: 404";
    assert!(error.starts_with(start), "{error}");
}
