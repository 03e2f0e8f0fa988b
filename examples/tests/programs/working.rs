//! The examples that write.

#[path = "../../namespaces.rs"]
#[allow(dead_code)]
mod namespaces;
#[path = "../../operator.rs"]
#[allow(dead_code)]
mod operator;
#[path = "../../scheduler.rs"]
#[allow(dead_code)]
mod scheduler;
#[path = "../../sharded_operator.rs"]
#[allow(dead_code)]
mod sharded_operator;
#[path = "../../to_database.rs"]
#[allow(dead_code)]
mod to_database;
#[path = "../../workqueue.rs"]
#[allow(dead_code)]
mod workqueue;

use std::collections::BTreeMap;

use futures::StreamExt as _;
use informer::manager::ManagerHandle;
use informer::shard::{ShardGroup, shard_hash};
use informer::{InformerOptions, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use kube::CustomResourceExt as _;
use operator::Website;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::common::cluster::EventLog;
use crate::common::{Program, output};
use crate::runner::statements;
use crate::targets::{Target, until};
use crate::watching::{delete_pod, pod};

statements![
    scheduler_places_a_thousand_pods_although_its_leader_is_killed,
    operator_creates_repairs_and_cleans_up,
    sharded_operator_takes_over_from_processes_that_end,
    workqueue_retries_failures,
    to_database_is_correct_after_a_restart,
    namespaces_copies_a_config_map,
];

/// Number of concurrent requests when many objects are created.
const MAX_CONCURRENT_REQUESTS: usize = 8;

const PODS: usize = 1_000;
const NODES: usize = 100;

fn scheduler_of(target: &Target) -> (Program, EventLog) {
    let (client, (print, lines)) = (target.again().client, output());
    // A lease of its own: the namespace is used by this test only.
    let namespace = target.namespace.clone();
    let program = Program::start(|stopped| async move {
        scheduler::run(client, &namespace, print, async { drop(stopped.await) }).await
    });
    (program, lines)
}

/// Number of pods per node.
async fn placed(target: &Target) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in target.list::<Pod>().await {
        if let Some(node) = pod.data["spec"]["nodeName"].as_str() {
            *counts.entry(node.to_owned()).or_default() += 1;
        }
    }
    counts
}

async fn scheduler_places_a_thousand_pods_although_its_leader_is_killed(target: &Target) {
    let nodes = target.request("GET", "/api/v1/nodes", None).await.unwrap();
    let foreign_nodes = nodes["items"].as_array().unwrap().len();
    let status = json!({
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
    });
    let name = |number| format!("{}-{number}", target.namespace);
    futures::stream::iter(0..NODES)
        .for_each_concurrent(MAX_CONCURRENT_REQUESTS, async |number| {
            let node = json!({"metadata": {"name": name(number)}, "status": status});
            target.post_outside("/api/v1/nodes", &node).await;
            // The server taints every new node as not ready; a controller manager would remove that.
            let untainted = json!({"spec": {"taints": null}});
            target.merge(&format!("/api/v1/nodes/{}", name(number)), &untainted).await;
        })
        .await;
    futures::stream::iter(0..PODS)
        .for_each_concurrent(MAX_CONCURRENT_REQUESTS, async |number| {
            let mut pod = pod(&format!("pod-{number:04}"), None);
            pod["spec"]["schedulerName"] = json!("example");
            target.post("$ns/pods", &pod).await;
        })
        .await;
    let (first, mut lines) = scheduler_of(target);
    assert!(lines.0.recv().await.unwrap().starts_with("leading since"));
    let (second, mut others) = scheduler_of(target);
    for _ in 0..PODS / 2 {
        let line = lines.0.recv().await.unwrap();
        assert!(line.contains(" on "), "{line}");
    }
    first.task.abort();
    assert!(others.0.recv().await.unwrap().starts_with("leading since"));
    // Independent of the speed. One binding may have been in progress when the leader was killed, and is not
    // repeated.
    let left = PODS - placed(target).await.values().sum::<usize>();
    for _ in 1..left {
        others.0.recv().await.unwrap();
    }
    until("every pod is placed", async || placed(target).await.values().sum::<usize>() == PODS).await;
    let counts = placed(target).await;
    // With foreign nodes, other pods count too.
    if foreign_nodes == 0 {
        assert_eq!(counts.len(), NODES);
        assert!(counts.values().all(|count| *count == PODS / NODES), "{counts:?}");
    }
    second.stop().await;
}

async fn operator_creates_repairs_and_cleans_up(target: &Target) {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let sites = "/apis/informer.example/v1/namespaces/$name/websites";
    let deployments = "/apis/apps/v1/namespaces/$name/deployments";
    let get = async |path: &str| target.request("GET", path, None).await.ok();
    target.post_outside(DEFINITIONS, &serde_json::to_value(Website::crd()).unwrap()).await;
    until("the kind is served", async || get(sites).await.is_some()).await;
    let manager = operator::manager(target.client.clone());
    let handle = manager.handle();
    let task = tokio::spawn(async { manager.run_until(std::future::pending()).await });

    let site = json!({
        "apiVersion": "informer.example/v1", "kind": "Website", "metadata": {"name": "blog"},
        "spec": {"image": "registry.example/web:1", "replicas": 2},
    });
    target.post(sites, &site).await;
    let (site, deployment) = (format!("{sites}/blog"), format!("{deployments}/blog"));
    until("the deployment exists", async || get(&deployment).await.is_some()).await;
    until("the service exists", async || get("$ns/services/blog").await.is_some()).await;
    let made = get(&deployment).await.unwrap();
    let owner = &made["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Website"), &json!(true)), "{made}");
    let ready = json!({"status": {"replicas": 2, "readyReplicas": 2}});
    target.merge(&format!("{deployment}/status"), &ready).await;
    let status = async |ready: Value| get(&site).await.is_some_and(|site| site["status"]["ready"] == ready);
    until("the status shows the ready replicas", async || status(json!(2)).await).await;

    let replicas = async |count: Value| {
        get(&deployment).await.is_some_and(|deployment| deployment["spec"]["replicas"] == count)
    };
    target.merge(&site, &json!({"spec": {"replicas": 5}})).await;
    until("the deployment follows the website", async || replicas(json!(5)).await).await;
    // A deletion by another user.
    let at_once = json!({"propagationPolicy": "Background"});
    target.request("DELETE", &deployment, Some(&at_once)).await.unwrap();
    until("the deployment is re-created", async || replicas(json!(5)).await).await;
    target.merge(&deployment, &json!({"spec": {"replicas": 1}})).await;
    until("the deployment is repaired", async || replicas(json!(5)).await).await;

    target.delete(&site).await;
    until("the website is deleted", async || get(&site).await.is_none()).await;
    handle.stop();
    task.await.unwrap().unwrap();
    let events = get("/apis/events.k8s.io/v1/namespaces/$name/events").await.unwrap();
    let events = events["items"].as_array().unwrap();
    for reason in ["Applied", "Stopped"] {
        assert!(events.iter().any(|event| event["reason"] == reason), "{reason}: {events:?}");
    }
}

/// One process of the sharded operator.
struct Process {
    group: ShardGroup,
    handle: ManagerHandle,
    task: JoinHandle<()>,
}

impl Process {
    fn start(target: &Target, identity: &str) -> Self {
        let client = target.again().client;
        let group = ShardGroup::builder(client.clone(), &target.namespace, "budget-operator");
        let group = group.identity(identity).build().unwrap();
        let manager = sharded_operator::manager(client, &group);
        let handle = manager.handle();
        let task = tokio::spawn(async { manager.run_until(std::future::pending()).await.unwrap() });
        Self { group, handle, task }
    }
}

/// Three processes, of which one ends in order and one is killed.
async fn sharded_operator_takes_over_from_processes_that_end(target: &Target) {
    // Names that differ in their last character only would belong to one process.
    let words = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];
    let namespaces = words.map(|word| format!("{word}-{}", target.namespace));
    let path = |namespace: &str| format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let create = async |name: &str, replicas: i32| {
        for namespace in &namespaces {
            let labels = json!({"app": name});
            let pod = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}});
            let spec = json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod});
            target.post(&path(namespace), &json!({"metadata": {"name": name}, "spec": spec})).await;
        }
    };
    let have_budgets = async |name: &str, expected: bool| {
        for namespace in &namespaces {
            let budget = format!("/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}");
            if target.request("GET", &budget, None).await.is_ok() != expected {
                return false;
            }
        }
        true
    };
    let owners = |processes: &[Process], namespace: &str| {
        processes.iter().filter(|process| process.group.owns_hash(shard_hash(namespace))).count()
    };
    for name in &namespaces {
        target.post_outside("/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }
    create("web", 2).await;
    let mut processes = ["one", "two", "three"]
        .map(|identity| Process::start(target, identity))
        .into_iter()
        .collect::<Vec<_>>();
    until("each deployment has a budget", async || have_budgets("web", true).await).await;
    let is_settled =
        |process: &Process| process.group.status().is_settled && process.group.status().held.share() > 0.3;
    until("each process has a shard", async || processes.iter().all(is_settled)).await;
    assert!(namespaces.iter().all(|namespace| owners(&processes, namespace) == 1));

    let stopped = processes.remove(0);
    stopped.handle.stop();
    stopped.task.await.unwrap();
    let is_coordinator = |process: &Process| process.group.status().is_coordinator;
    until("a process is the coordinator", async || processes.iter().any(is_coordinator)).await;
    let killed = processes.iter().position(|process| !is_coordinator(process)).unwrap();
    processes.remove(killed).task.abort();
    create("late", 3).await;
    for namespace in &namespaces {
        target.merge(&format!("{}/web", path(namespace)), &json!({"spec": {"replicas": 1}})).await;
    }
    until("new deployments have budgets", async || have_budgets("late", true).await).await;
    until("budgets that are not needed are deleted", async || have_budgets("web", false).await).await;
    // Another run of this test on the same server may have written the budgets.
    let is_owned = |namespace: &String| owners(&processes, namespace) == 1;
    until("one process has all namespaces", async || namespaces.iter().all(is_owned)).await;
    let last = processes.pop().unwrap();
    last.handle.stop();
    last.task.await.unwrap();
}

async fn workqueue_retries_failures(target: &Target) {
    let options = InformerOptions::default().namespace(target.namespace.clone());
    let maps = SharedInformer::with_options(target.client.clone(), options);
    let (out, mut lines) = mpsc::unbounded_channel();
    let program =
        Program::start(
            |stopped| async move { workqueue::run(&maps, out, async { drop(stopped.await) }).await },
        );
    let annotations = json!({"example.com/fail": "2"});
    target.post("$ns/configmaps", &json!({"metadata": {"name": "a", "annotations": annotations}})).await;
    for expected in ["it failed, retry in 100ms", "it failed, retry in 200ms", "done"] {
        let mine = format!("{}/a: {expected}", target.namespace);
        let mut line = lines.recv().await.unwrap();
        // With a controller manager, every namespace contains another config map.
        while !line.starts_with(&format!("{}/a:", target.namespace)) {
            line = lines.recv().await.unwrap();
        }
        assert_eq!(line, mine);
    }
    program.stop().await;
    let line = std::iter::from_fn(|| lines.try_recv().ok()).last().unwrap();
    assert!(line.ends_with("failures: 2"), "{line}");
}

type Row = (String, String, String);

/// Uid, name and version of every row.
fn table(file: &str) -> Option<Vec<Row>> {
    let connection = Connection::open(file).unwrap();
    let mut rows = connection.prepare("SELECT uid, name, version FROM pods ORDER BY uid").ok()?;
    let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    rows.query_map((), row).unwrap().collect::<Result<_, _>>().ok()
}

/// Uid, name and version of every pod.
async fn expected_rows(target: &Target) -> Vec<Row> {
    let text = |text: Option<String>| text.unwrap_or_default();
    let row = |pod: kube::core::DynamicObject| {
        (text(pod.metadata.uid), text(pod.metadata.name), text(pod.metadata.resource_version))
    };
    let mut rows: Vec<Row> = target.list::<Pod>().await.into_iter().map(row).collect();
    rows.sort();
    rows
}

/// Runs the program and `meanwhile` until the table is correct.
async fn follow(target: &Target, file: &str, meanwhile: impl Future<Output = ()>) {
    let options = InformerOptions::default().namespace(target.namespace.clone());
    let (pods, table_file) = (SharedInformer::with_options(target.client.clone(), options), file.to_owned());
    let program = Program::start(|stopped| async move {
        to_database::run(&pods, &table_file, drop, async { drop(stopped.await) }).await
    });
    meanwhile.await;
    until("the table is correct", async || table(file) == Some(expected_rows(target).await)).await;
    program.stop().await;
    assert_eq!(table(file), Some(expected_rows(target).await));
}

async fn to_database_is_correct_after_a_restart(target: &Target) {
    // Namespace and file are used by this test only.
    let file = format!("{}/{}.db", env!("CARGO_TARGET_TMPDIR"), target.namespace);
    for name in ["again", "goes", "stays"] {
        target.post("$ns/pods", &pod(name, None)).await;
    }
    follow(target, &file, async {
        target.post("$ns/pods", &pod("new", Some("node-1"))).await;
    })
    .await;
    delete_pod(target, "goes").await;
    delete_pod(target, "again").await;
    target.post("$ns/pods", &pod("again", None)).await;
    follow(target, &file, async {}).await;
    for suffix in ["", "-wal", "-shm"] {
        // The last two exist only while the database is open.
        let _ = std::fs::remove_file(format!("{file}{suffix}"));
    }
}

async fn namespaces_copies_a_config_map(target: &Target) {
    let to = [format!("{}-copy", target.namespace)];
    target.post_outside("/api/v1/namespaces", &json!({"metadata": {"name": to[0]}})).await;
    target.post("$ns/configmaps", &json!({"metadata": {"name": "settings"}, "data": {"a": "b"}})).await;
    let (print, mut lines) = output();
    let copy = || namespaces::run(target.client.clone(), "settings", &target.namespace, &to, print.clone());
    copy().await.unwrap();
    copy().await.unwrap();
    let lines = lines.take();
    assert!(lines[0].starts_with(&format!("{}/settings: copied", to[0])), "{lines:?}");
    assert_eq!(lines[1], format!("{}/settings: unchanged", to[0]));
}
