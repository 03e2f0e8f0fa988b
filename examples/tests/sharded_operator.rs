//! The sharded operator against an embedded server: several processes, of which some end in order and some do not.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::until;
use crate::common::server;
use crate::programs::sharded_operator;
use informer::manager::ManagerHandle;
use informer::shard::{ShardGroup, shard_hash};
use informer_apiserver::{ApiServer, User};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Their hashes are far apart. Bug: with names that differ in their last character only, one process had all of them, so that
/// the test passed although the other ones did nothing.
const NAMESPACES: [&str; 8] = ["alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel"];

/// One process of the operator.
struct Process {
    group: ShardGroup,
    handle: ManagerHandle,
    task: JoinHandle<()>,
}

impl Process {
    fn start(server: &ApiServer, identity: &str) -> Self {
        let group = ShardGroup::builder(server.client(), "default", "budget-operator").identity(identity);
        let group = group.build().unwrap();
        let manager = sharded_operator::manager(server.client(), &group);
        let handle = manager.handle();
        let task = tokio::spawn(async { manager.run_until(std::future::pending()).await.unwrap() });
        Self { group, handle, task }
    }

    fn owns(&self, namespace: &str) -> bool {
        self.group.owns_hash(shard_hash(namespace))
    }
}

fn deployment(namespace: &str, name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "nginx"}]},
            },
        },
    })
}

fn has_budget(server: &ApiServer, namespace: &str, name: &str) -> bool {
    server.get("policy/v1", "poddisruptionbudgets", Some(namespace), name).is_some()
}

/// The roles that `--roles` prints are enough, and `reconcile` may write budgets.
#[tokio::test(start_paused = true)]
async fn operator_runs_with_the_roles_that_it_prints() {
    let server = server();
    let manager = |client: kube::Client| {
        let group = ShardGroup::builder(client.clone(), "default", "budget-operator").build().unwrap();
        sharded_operator::manager(client, &group)
    };
    let access = sharded_operator::required_access(&manager(server.client()));
    for manifest in access.manifests("budget-operator", "default") {
        server.create(&manifest).unwrap();
    }
    let account = User::new("system:serviceaccount:default:budget-operator").group("system:serviceaccounts");
    let manager = manager(server.client_as(account));
    let handle = manager.handle();
    let task = tokio::spawn(manager.run_until(std::future::pending()));
    server.create(&deployment("default", "web", 2)).unwrap();
    until(|| has_budget(&server, "default", "web")).await;
    server.update(&deployment("default", "web", 1)).unwrap();
    until(|| !has_budget(&server, "default", "web")).await;
    handle.stop();
    task.await.unwrap().unwrap();
}

/// Each namespace has at most one owner at any time, and each deployment gets its budget, whichever process ends.
#[tokio::test(start_paused = true)]
async fn processes_share_the_namespaces_and_take_over_from_each_other() {
    let server = server();
    for namespace in NAMESPACES {
        server
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
            .unwrap();
        server.create(&deployment(namespace, "web", 2)).unwrap();
    }
    let mut processes: Vec<Process> =
        ["one", "two", "three"].map(|name| Process::start(&server, name)).into();
    let owners = |processes: &[Process], namespace: &str| {
        let owners = processes.iter().filter(|process| process.owns(namespace)).count();
        assert!(owners <= 1, "{namespace} has {owners} owners");
        owners
    };
    until(|| NAMESPACES.iter().all(|namespace| has_budget(&server, namespace, "web"))).await;
    until(|| NAMESPACES.iter().all(|namespace| owners(&processes, namespace) == 1)).await;
    until(|| processes.iter().all(|process| !process.group.status().held.is_empty())).await;

    // A process that ends in order, and one that is killed.
    let stopped = processes.remove(0);
    stopped.handle.stop();
    processes.remove(0).task.abort();
    for namespace in NAMESPACES {
        server.create(&deployment(namespace, "late", 3)).unwrap();
        server.update(&deployment(namespace, "web", 1)).unwrap();
    }
    until(|| {
        NAMESPACES.iter().all(|namespace| {
            owners(&processes, namespace);
            has_budget(&server, namespace, "late") && !has_budget(&server, namespace, "web")
        })
    })
    .await;
    stopped.task.await.unwrap();
    let last = &processes[0];
    assert!(NAMESPACES.iter().all(|namespace| last.owns(namespace)));
}
