//! The filtering handler example against an embedded server.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::{pod, with};
use crate::common::{Program, output, rest, server};
use crate::programs::filtering_handler;
use informer::SharedInformer;
use serde_json::{Value, json};

fn on(node: &str, name: &str) -> Value {
    with(pod("shop", name), "/spec/nodeName", node)
}

#[tokio::test(start_paused = true)]
async fn starting_to_match_is_an_add_and_ceasing_to_match_a_delete() {
    let server = server();
    server.create(&on("node-a", "web")).unwrap();
    server.create(&pod("shop", "job")).unwrap();
    let pods = SharedInformer::new(server.client());
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        filtering_handler::run(&pods, print, async { drop(stopped.await) }).await
    });
    lines.expect(&["node-a: + shop/web (1 pods)"]).await;
    // Events of a pod without a node are not delivered.
    server.update(&with(pod("shop", "job"), "/metadata/labels/app", "job")).unwrap();
    server.insert_unchecked(&on("node-a", "job")).unwrap();
    lines.expect(&["node-a: + shop/job (2 pods)"]).await;
    let phase = |phase: &str| with(on("node-a", "job"), "/status", json!({"phase": phase}));
    server.insert_unchecked(&phase("Running")).unwrap();
    server.insert_unchecked(&phase("Succeeded")).unwrap();
    lines.expect(&["node-a: - shop/job (1 pods)"]).await;
    // It was delivered as deleted already.
    server.delete("v1", "pods", Some("shop"), "job").unwrap();
    server.delete("v1", "pods", Some("shop"), "web").unwrap();
    lines.expect(&["node-a: - shop/web (0 pods)"]).await;
    program.stop().await;
    assert_eq!(rest(lines).await, [""; 0]);
}
