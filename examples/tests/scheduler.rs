//! The scheduler example against an embedded server: a thousand pods, a hundred nodes, and a leader that is killed half-way.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "../scheduler.rs"]
#[allow(dead_code)]
mod scheduler;

use common::{Program, cluster, output, server};
use informer_apiserver::{ApiServer, Verb, faults};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

fn pod(name: &str, scheduler: &str, class: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": name},
        "spec": {"schedulerName": scheduler, "priorityClassName": class, "containers": [{"name": "main", "image": "nginx"}]},
    })
}

fn nodes(server: &ApiServer, count: usize) {
    for number in 0..count {
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": format!("node-{number:03}")}});
        server.create(&node).unwrap();
    }
}

fn start(server: &ApiServer) -> (Program, cluster::Notes) {
    let (print, lines) = output();
    let client = server.client();
    let program = Program::start(|stopped| scheduler::run(client, print, async { drop(stopped.await) }));
    (program, lines)
}

/// How many pods there are on each node, and how many on none.
fn placed(server: &ApiServer) -> (BTreeMap<String, usize>, usize) {
    let mut counts = BTreeMap::new();
    let mut waiting = 0;
    for pod in server.list("v1", "pods", Some("shop")) {
        match pod["spec"]["nodeName"].as_str() {
            Some(node) => *counts.entry(node.to_owned()).or_default() += 1,
            None => waiting += 1,
        }
    }
    (counts, waiting)
}

/// The bindings that were asked for, each pod's.
fn bindings(server: &ApiServer) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for seen in server.requests() {
        if seen.verb == Verb::Create && seen.subresource.as_deref() == Some("binding") {
            *counts.entry(seen.name.unwrap_or_default()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn a_thousand_pods_are_each_bound_once_though_the_leader_is_killed_half_way() {
    let server = server();
    nodes(&server, 100);
    for number in 0..1_000 {
        server.create(&pod(&format!("pod-{number:04}"), "example", None)).unwrap();
    }
    server.create(&pod("foreign", "another", None)).unwrap();
    let (first, mut lines) = start(&server);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    let (second, mut others) = start(&server);
    for _ in 0..500 {
        lines.0.recv().await.unwrap();
    }
    first.task.abort();
    let died = tokio::time::Instant::now();
    assert!(others.0.recv().await.unwrap().starts_with("leading since"));
    assert!(died.elapsed() > Duration::from_secs(10), "nobody takes a lease that has not run out");
    cluster::until(|| placed(&server).1 == 1).await;
    let (counts, _) = placed(&server);
    assert_eq!((counts.len(), counts.values().sum()), (100, 1_000));
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
    let asked = bindings(&server);
    assert_eq!(asked.len(), 1_000);
    // One may have been under way when the leader died, and been asked for again.
    assert!(asked.values().sum::<usize>() <= 1_001, "{:?}", asked.iter().max_by_key(|(_, count)| **count));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_highest_priority_goes_first_and_failures_come_again() {
    let server = server();
    for (name, value) in [("low", -10), ("high", 100)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        server.create(&class).unwrap();
        server.create(&pod(name, "example", Some(name))).unwrap();
    }
    server.create(&pod("usual", "example", None)).unwrap();
    // Each is tried once before there is a node, in the order of their priorities.
    let (program, mut lines) = start(&server);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    for name in ["high", "usual", "low"] {
        let line = lines.0.recv().await.unwrap();
        assert!(line.starts_with(&format!("shop/{name}: there is no node, again in ")), "{line}");
    }
    nodes(&server, 1);
    let broken = server.fault(faults::status(500).on(Verb::Create).of("pods"));
    cluster::until(|| broken.hits() > 5).await;
    drop(broken);
    cluster::until(|| placed(&server).1 == 0).await;
    program.stop().await;
}
