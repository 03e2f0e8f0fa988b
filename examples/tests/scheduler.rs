//! The scheduler example against an embedded server: a thousand pods, a hundred nodes, and a leader that is
//! killed half-way.
#![allow(clippy::unwrap_used)]

use crate::common::{Program, cluster, output, server};
use crate::programs::scheduler;
use crate::programs::scheduler::fit;
use informer_apiserver::{ApiServer, ApiService, Verb, faults};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tower::Service;

fn pod(name: &str, scheduler: &str, class: Option<&str>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "shop", "name": name},
        "spec": {"schedulerName": scheduler, "priorityClassName": class, "containers": [{"name": "main", "image": "nginx"}]},
    })
}

/// A ready node with eight cores, which allows 110 pods.
fn node(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
        },
    })
}

fn nodes(server: &ApiServer, count: usize) {
    for number in 0..count {
        insert(server, &node(&format!("node-{number:03}")));
    }
}

/// Stores a node without the taint that a server adds to new nodes.
fn insert(server: &ApiServer, node: &Value) {
    server.insert_unchecked(node).unwrap();
}

fn start(server: &ApiServer) -> (Program, cluster::EventLog) {
    start_with(server.client())
}

fn start_with(client: kube::Client) -> (Program, cluster::EventLog) {
    let (print, lines) = output();
    let program =
        Program::start(|stopped| scheduler::run(client, "shop", print, async { drop(stopped.await) }));
    (program, lines)
}

/// Number of accepted bindings of each pod, by path.
#[derive(Clone, Default)]
struct Accepted(Arc<Mutex<BTreeMap<String, usize>>>);

impl Accepted {
    /// A client that records the responses to its requests, even if the request was cancelled.
    fn client(&self, server: &ApiServer) -> kube::Client {
        let (service, accepted) = (server.service(), self.clone());
        let counting = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let (mut service, accepted) = (service.clone(), accepted.clone());
            async move {
                let path = request.uri().path().to_owned();
                let answer = service.call(request).await?;
                if path.ends_with("/binding") && answer.status().is_success() {
                    *accepted.0.lock().unwrap().entry(path).or_default() += 1;
                }
                Ok::<_, <ApiService as Service<http::Request<kube::client::Body>>>::Error>(answer)
            }
        });
        kube::Client::new(counting, "default")
    }
}

fn node_of(server: &ApiServer, name: &str) -> Option<String> {
    Some(server.get("v1", "pods", Some("shop"), name)?["spec"]["nodeName"].as_str()?.to_owned())
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "pods", Some("shop"), name).unwrap();
}

/// Number of pods per node, and of pods without a node.
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

/// Number of requested bindings per pod.
fn bindings(server: &ApiServer) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for seen in server.recorded_requests() {
        if seen.verb == Verb::Create && seen.subresource.as_deref() == Some("binding") {
            *counts.entry(seen.name.unwrap_or_default()).or_default() += 1;
        }
    }
    counts
}

#[tokio::test(start_paused = true)]
async fn thousand_pods_are_bound_once_although_the_leader_is_killed() {
    let server = server();
    nodes(&server, 100);
    for number in 0..1_000 {
        server.create(&pod(&format!("pod-{number:04}"), "example", None)).unwrap();
    }
    server.create(&pod("foreign", "another", None)).unwrap();
    let accepted = Accepted::default();
    let (first, mut lines) = start_with(accepted.client(&server));
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    let (second, mut others) = start_with(accepted.client(&server));
    for _ in 0..500 {
        lines.0.recv().await.unwrap();
    }
    first.task.abort();
    let died = tokio::time::Instant::now();
    assert!(others.0.recv().await.unwrap().starts_with("leading since"));
    assert!(server.get("coordination.k8s.io/v1", "leases", Some("shop"), "example-scheduler").is_some());
    assert!(died.elapsed() > Duration::from_secs(10), "a lease is not taken before it expires");
    cluster::until(|| placed(&server).1 == 1).await;
    let (counts, _) = placed(&server);
    assert_eq!((counts.len(), counts.values().sum()), (100, 1_000));
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
    let requested = bindings(&server);
    assert_eq!(requested.len(), 1_000);
    // One binding may have been in progress when the leader was killed, and been requested again.
    assert!(
        requested.values().sum::<usize>() <= 1_001,
        "{:?}",
        requested.iter().max_by_key(|(_, count)| **count)
    );
    second.stop().await;
    let accepted = accepted.0.lock().unwrap();
    assert!(accepted.values().all(|count| *count == 1), "{accepted:?}");
    // The response to that binding may not have been received.
    assert!((999..=1_000).contains(&accepted.len()), "{}", accepted.len());
}

/// Regression: a pod waited for a node, was deleted, and another one with the same name but another scheduler
/// was created. It was bound, because only the existence of a pod with that name and without a node was
/// checked.
#[tokio::test(start_paused = true)]
async fn pod_of_another_scheduler_is_not_bound() {
    let server = server();
    server.create(&pod("x", "example", None)).unwrap();
    // A pod being deleted needs no node.
    server
        .create(&cluster::with(
            pod("going", "example", None),
            "/metadata/finalizers",
            json!(["example.com/f"]),
        ))
        .unwrap();
    delete(&server, "going");
    let (program, mut lines) = start(&server);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    assert!(lines.0.recv().await.unwrap().starts_with("shop/x: 0/0 nodes fit"));
    delete(&server, "x");
    server.create(&pod("x", "another", None)).unwrap();
    nodes(&server, 1);
    server.create(&pod("y", "example", None)).unwrap();
    cluster::until(|| node_of(&server, "y").is_some()).await;
    cluster::advance_time(Duration::from_secs(60)).await;
    assert_eq!(bindings(&server), BTreeMap::from([("y".to_owned(), 1)]));
    assert_eq!(node_of(&server, "x"), None);
    program.stop().await;
}

/// Regression: the binding contained only a name. If the pod was deleted and re-created while the request was
/// in progress, the new pod was bound.
#[tokio::test(start_paused = true)]
async fn binding_applies_to_one_incarnation_of_a_pod() {
    let server = server();
    nodes(&server, 2);
    server.create(&pod("x", "example", None)).unwrap();
    let stalled = server.inject(faults::stall_request().for_verb(Verb::Create).for_resource("pods"));
    let (program, _lines) = start(&server);
    cluster::until(|| stalled.hits() == 1).await;
    delete(&server, "x");
    server.create(&pod("x", "another", None)).unwrap();
    drop(stalled);
    server.create(&pod("y", "example", None)).unwrap();
    cluster::until(|| node_of(&server, "y").is_some()).await;
    cluster::advance_time(Duration::from_secs(60)).await;
    assert_eq!(node_of(&server, "x"), None);
    assert_eq!(
        node_of(&server, "y").as_deref(),
        Some("node-000"),
        "the assumed placement of the first pod was undone"
    );
    program.stop().await;
}

/// Regression: while a binding was in progress, the pod was placed by another scheduler, and the informer
/// delivered that. The binding was rejected (409), and the delivered placement was undone instead of the
/// assumed one: the node counted one pod too few forever.
#[tokio::test(start_paused = true)]
async fn failed_binding_undoes_only_the_assumed_placement() {
    let server = server();
    nodes(&server, 2);
    let (program, _lines) = start(&server);
    // A failed write leaves nothing behind: the second attempt finds the node as empty as the first.
    let broken = server.inject(faults::respond(500).for_verb(Verb::Create).for_resource("pods").max_hits(1));
    server.create(&pod("a", "example", None)).unwrap();
    cluster::until(|| node_of(&server, "a").is_some()).await;
    assert_eq!((node_of(&server, "a").as_deref(), broken.hits()), (Some("node-000"), 1));
    delete(&server, "a");
    cluster::advance_time(Duration::from_secs(1)).await;

    let stalled = server.inject(faults::stall_request().for_verb(Verb::Create).for_resource("pods"));
    server.create(&pod("x", "example", None)).unwrap();
    cluster::until(|| stalled.hits() == 1).await;
    let theirs = server.get("v1", "pods", Some("shop"), "x").unwrap();
    server.insert_unchecked(&cluster::with(theirs, "/spec/nodeName", "node-001")).unwrap();
    cluster::advance_time(Duration::from_secs(1)).await;
    drop(stalled);
    for (name, node) in [("y", "node-000"), ("z", "node-000"), ("w", "node-001")] {
        server.create(&pod(name, "example", None)).unwrap();
        cluster::until(|| node_of(&server, name).is_some()).await;
        assert_eq!(node_of(&server, name).as_deref(), Some(node), "{name}");
        cluster::advance_time(Duration::from_secs(1)).await;
    }
    program.stop().await;
}

/// Pods that are already placed count from the first decision on. With two threads the handlers run
/// concurrently: the handler of placed pods needs longer and is half-way through its initial list when the
/// other has finished.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_placed_before_existing_placements_are_known() {
    let server = server();
    for name in ["node-000", "node-001"] {
        insert(&server, &cluster::with(node(name), "/status/allocatable/pods", "1000"));
    }
    // Events are delivered in the order of names: after half of them, node-000 seems to be the emptier one.
    for number in 0..600 {
        let node = if number < 240 { "node-001" } else { "node-000" };
        let taken = pod(&format!("taken-{number:03}"), "another", None);
        server.create(&cluster::with(taken, "/spec/nodeName", node)).unwrap();
    }
    for name in ["x", "y", "z"] {
        server.create(&pod(name, "example", None)).unwrap();
    }
    let (program, _lines) = start(&server);
    for name in ["x", "y", "z"] {
        cluster::until(|| node_of(&server, name).is_some()).await;
        assert_eq!(node_of(&server, name).as_deref(), Some("node-001"), "{name}");
    }
    program.stop().await;
}

#[tokio::test(start_paused = true)]
async fn highest_priority_is_placed_first_and_failures_are_retried() {
    let server = server();
    for (name, value) in [("low", -10), ("high", 100)] {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
        });
        server.create(&class).unwrap();
        server.create(&pod(name, "example", Some(name))).unwrap();
    }
    server.create(&pod("usual", "example", None)).unwrap();
    // Each pod is attempted once before there is a node, in the order of priority.
    let (program, mut lines) = start(&server);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    for name in ["high", "usual", "low"] {
        let line = lines.0.recv().await.unwrap();
        assert!(line.starts_with(&format!("shop/{name}: 0/0 nodes fit, again in ")), "{line}");
    }
    nodes(&server, 1);
    let broken = server.inject(faults::respond(500).for_verb(Verb::Create).for_resource("pods"));
    cluster::until(|| broken.hits() > 5).await;
    drop(broken);
    cluster::until(|| placed(&server).1 == 0).await;
    program.stop().await;
}

/// The lines until this one, without the delay of a retry.
async fn lines_until(lines: &mut cluster::EventLog, last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line| line != last) {
        let line = lines.0.recv().await.unwrap();
        seen.push(line.split(", again in").next().unwrap().to_owned());
    }
    seen
}

/// Regression: pods that failed because no node had appeared yet waited for their backoff, up to 1,000 s,
/// because nodes had no handler. The tests created a node and advanced the clock.
#[tokio::test(start_paused = true)]
async fn pods_are_retried_at_once_when_there_is_room() {
    let server = server();
    let (program, mut lines) = start(&server);
    server.create(&pod("a", "example", None)).unwrap();
    lines_until(&mut lines, "shop/a: 0/0 nodes fit").await;
    cluster::advance_time(Duration::from_secs(1800)).await;
    lines.take();
    let at_once = async |lines: &mut cluster::EventLog, line: &str| {
        let start = tokio::time::Instant::now();
        lines_until(lines, line).await;
        assert!(start.elapsed() < Duration::from_secs(1), "{line}: {:?}", start.elapsed());
    };
    // A node appears and becomes ready.
    let one = cluster::with(node("one"), "/status/allocatable/pods", "1");
    insert(&server, &cluster::with(one.clone(), "/status/conditions/0/status", "False"));
    at_once(&mut lines, "shop/a: 0/1 nodes fit, 1 not ready").await;
    insert(&server, &one);
    at_once(&mut lines, "shop/a on one").await;
    // A pod is deleted, and another one finishes.
    for (last, next) in [("a", "b"), ("b", "c")] {
        server.create(&pod(next, "example", None)).unwrap();
        lines_until(&mut lines, &format!("shop/{next}: 0/1 nodes fit, 1 with too little pods")).await;
        cluster::advance_time(Duration::from_secs(1800)).await;
        lines.take();
        if last == "a" {
            delete(&server, last);
        } else {
            let mut finished = server.get("v1", "pods", Some("shop"), last).unwrap();
            finished["status"]["phase"] = json!("Succeeded");
            server.update_status(&finished).unwrap();
        }
        at_once(&mut lines, &format!("shop/{next} on one")).await;
    }
    program.stop().await;
}

#[tokio::test(start_paused = true)]
async fn assumed_placements_occupy_their_node_before_the_cache_shows_them() {
    let server = server();
    insert(&server, &cluster::with(node("one"), "/status/allocatable/pods", "2"));
    let (program, mut lines) = start(&server);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    // The bindings happen, and the informer does not see them.
    server.create(&pod("first", "example", None)).unwrap();
    lines.expect(&["shop/first on one"]).await;
    let silent = server.inject(faults::stall_watch().for_resource("pods").after_frames(2));
    cluster::break_watches(&server);
    cluster::until(|| silent.affected_watches() == 1).await;
    server.create(&pod("second", "example", None)).unwrap();
    server.create(&pod("third", "example", None)).unwrap();
    let seen = lines_until(&mut lines, "shop/third: 0/1 nodes fit, 1 with too little pods").await;
    assert!(seen.contains(&"shop/second on one".to_owned()), "{seen:?}");
    drop(silent);
    program.stop().await;
    assert_eq!(placed(&server), (BTreeMap::from([("one".to_owned(), 2)]), 1));
}

/// Checks whether a pod with this spec fits on the node, of which another pod requests 6 cores.
fn misfit(pod: &Value, node: &Value) -> Option<String> {
    let mut pod = json!({"metadata": {}, "spec": pod});
    if pod["spec"]["containers"].is_null() {
        pod["spec"]["containers"] = json!([]);
    }
    let (pod, node) = (serde_json::from_value(pod).unwrap(), serde_json::from_value(node.clone()).unwrap());
    let requested = BTreeMap::from([("cpu".to_owned(), 6_000.0), ("pods".to_owned(), 1_000.0)]);
    fit::misfit(&pod, &fit::requests_of(&pod), &node, &requested)
}

#[test]
fn readiness_taints_and_labels_decide_where_a_pod_fits() {
    let with = |pointer: &str, value: Value| cluster::with(node("one"), pointer, value);
    let taint = |effect: &str| with("/spec/taints", json!([{"key": "gpu", "value": "a", "effect": effect}]));
    let tolerate = |toleration: Value| json!({"tolerations": [toleration]});
    let labelled = with("/metadata/labels", json!({"disk": "ssd"}));
    let cases = [
        (json!({}), node("one"), None),
        (json!({}), with("/status/conditions", json!([])), Some("not ready")),
        (json!({}), with("/status/conditions/0/status", json!("Unknown")), Some("not ready")),
        (json!({}), with("/spec/unschedulable", json!(true)), Some("unschedulable")),
        (json!({}), taint("NoSchedule"), Some("tainted gpu")),
        (json!({}), taint("NoExecute"), Some("tainted gpu")),
        (json!({}), taint("PreferNoSchedule"), None),
        (tolerate(json!({"operator": "Exists"})), taint("NoExecute"), None),
        (tolerate(json!({"key": "gpu", "operator": "Exists"})), taint("NoSchedule"), None),
        (tolerate(json!({"key": "gpu", "value": "a", "effect": "NoSchedule"})), taint("NoSchedule"), None),
        (
            tolerate(json!({"key": "gpu", "value": "a", "effect": "NoSchedule"})),
            taint("NoExecute"),
            Some("tainted gpu"),
        ),
        (tolerate(json!({"key": "gpu", "value": "b"})), taint("NoSchedule"), Some("tainted gpu")),
        (tolerate(json!({"key": "tpu", "operator": "Exists"})), taint("NoSchedule"), Some("tainted gpu")),
        (json!({"nodeSelector": {"disk": "ssd"}}), labelled.clone(), None),
        (json!({"nodeSelector": {"disk": "hdd"}}), labelled, Some("without the selected labels")),
        (json!({"nodeSelector": {"disk": "ssd"}}), node("one"), Some("without the selected labels")),
    ];
    for (pod, node, expected) in cases {
        assert_eq!(misfit(&pod, &node).as_deref(), expected, "{pod} on {node}");
    }
}

#[test]
fn requested_resources_decide_where_a_pod_fits() {
    let container = |requests: Value| json!({"name": "main", "resources": {"requests": requests}});
    let pod =
        |init: &[Value], containers: &[Value]| json!({"initContainers": init, "containers": containers});
    let cpu = |amount: &str| container(json!({"cpu": amount}));
    let sidecar = |amount: &str| cluster::with(cpu(amount), "/restartPolicy", "Always");
    let cases = [
        (pod(&[], &[cpu("2")]), None),
        (pod(&[], &[cpu("1500m"), cpu("501m")]), Some("with too little cpu")),
        // An init container runs before the others, a sidecar together with them.
        (pod(&[cpu("2")], &[cpu("2")]), None),
        (pod(&[cpu("2.1")], &[cpu("1")]), Some("with too little cpu")),
        (pod(&[sidecar("1")], &[cpu("1500m")]), Some("with too little cpu")),
        (pod(&[], &[container(json!({"memory": "16Gi"}))]), None),
        (pod(&[], &[container(json!({"memory": "17179869185"}))]), Some("with too little memory")),
        (pod(&[], &[container(json!({"example.com/gpu": "1"}))]), Some("with too little example.com/gpu")),
    ];
    for (pod, expected) in cases {
        assert_eq!(misfit(&pod, &node("one")).as_deref(), expected, "{pod}");
    }
    let full = cluster::with(node("one"), "/status/allocatable/pods", "1");
    assert_eq!(misfit(&pod(&[], &[]), &full).as_deref(), Some("with too little pods"));
}

#[test]
fn quantities_are_read_as_kubernetes_writes_them() {
    let cases = [
        ("0", 0.0),
        ("0.29", 290.0),
        ("1500m", 1_500.0),
        ("1u", 1.0),
        ("1e3", 1e6),
        ("2k", 2e6),
        ("1Ki", 1_024_000.0),
        ("1.5Gi", 1_610_612_736_000.0),
        ("1E", 1e21),
    ];
    for (text, expected) in cases {
        let read = fit::thousandths(&Quantity(text.to_owned()));
        assert!((read - expected).abs() <= f64::EPSILON * expected, "{text}: {read}");
    }
}
