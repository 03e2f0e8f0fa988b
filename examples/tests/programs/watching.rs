//! The examples that print changes.

#[path = "../../custom_resource.rs"]
#[allow(dead_code)]
mod custom_resource;
#[path = "../../diagnostics.rs"]
#[allow(dead_code)]
mod diagnostics;
#[path = "../../dynamic.rs"]
#[allow(dead_code)]
mod dynamic;
#[path = "../../event_stream.rs"]
#[allow(dead_code)]
mod event_stream;
#[path = "../../filtering_handler.rs"]
#[allow(dead_code)]
mod filtering_handler;
#[path = "../../lister_index.rs"]
#[allow(dead_code)]
mod lister_index;
#[path = "../../memory.rs"]
#[allow(dead_code)]
mod memory;
#[path = "../../metadata_only.rs"]
#[allow(dead_code)]
mod metadata_only;
#[path = "../../pod_informer.rs"]
#[allow(dead_code)]
mod pod_informer;
#[path = "../../resync.rs"]
#[allow(dead_code)]
mod resync;
#[path = "../../shared_factory.rs"]
#[allow(dead_code)]
mod shared_factory;

use custom_resource::Backup;
use informer::{InformerOptions, SharedInformer, SharedInformerFactory};
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;

use crate::apart::{run_on_own_thread, slow_wait};
use crate::common::cluster::EventLog;
use crate::common::{Program, output, rest};
use crate::runner::statements;
use crate::targets::{Target, until};

statements![
    pod_informer_prints_changes_of_pods,
    shared_factory_prints_changes_and_counts,
    lister_index_finds_by_node_app_and_image,
    custom_resource_waits_for_its_definition,
    dynamic_follows_a_kind_by_its_name,
    metadata_only_knows_labels_and_owners,
    filtering_handler_counts_pods_on_nodes,
    event_stream_prints_every_version,
    resync_reports_pending_pods,
    memory_prints_every_way,
    diagnostics_prints_states_and_counters,
];

fn options(target: &Target) -> InformerOptions {
    InformerOptions::default().namespace(target.namespace.clone())
}

fn factory(target: &Target) -> SharedInformerFactory {
    SharedInformerFactory::with_options(target.client.clone(), options(target))
}

/// A pod that no scheduler or kubelet handles, on a nonexistent node if given.
pub(crate) fn pod(name: &str, node: Option<&str>) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {
            "schedulerName": "none.example", "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "app", "image": "registry.example/app:1"}],
        },
    })
}

/// Deletes a pod immediately, since there is no kubelet.
pub(crate) async fn delete_pod(target: &Target, name: &str) {
    let at_once = json!({"gracePeriodSeconds": 0});
    target.request("DELETE", &format!("$ns/pods/{name}"), Some(&at_once)).await.unwrap();
}

fn label(value: &str) -> Value {
    json!({"metadata": {"labels": {"changed": value}}})
}

async fn pod_informer_prints_changes_of_pods(target: &Target) {
    let pods = SharedInformer::with_options(target.client.clone(), options(target));
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        pod_informer::run(&pods, print, async { drop(stopped.await) }).await
    });
    target.post("$ns/pods", &pod("web", None)).await;
    lines.expect(&["New Pod Added to Store: web"]).await;
    target.merge("$ns/pods/web", &label("yes")).await;
    lines.expect(&["web Pod Updated to web"]).await;
    delete_pod(target, "web").await;
    // A pod is marked as deleted before it is deleted.
    let is_marked = |line: &str| line == "web Pod Updated to web";
    assert_eq!(next_except(&mut lines, is_marked).await, "Pod Deleted from Store: web");
    program.stop().await;
    assert_eq!(rest(lines).await, [""; 0]);
}

/// The next line that is not one of these.
async fn next_except(lines: &mut EventLog, these: impl Fn(&str) -> bool) -> String {
    loop {
        let line = lines.0.recv().await.unwrap();
        if !these(&line) {
            return line;
        }
    }
}

async fn shared_factory_prints_changes_and_counts(target: &Target) {
    let (factory, (print, lines)) = (factory(target), output());
    let program = Program::start(|stopped| async move {
        shared_factory::run(&factory, print, async { drop(stopped.await) }).await
    });
    target.post("$ns/pods", &pod("a", None)).await;
    until("both handlers received a", async || lines.0.len() == 2).await;
    target.post("$ns/pods", &pod("b", None)).await;
    until("both handlers received b", async || lines.0.len() == 4).await;
    delete_pod(target, "a").await;
    until("both handlers received the deletion", async || lines.0.len() >= 6).await;
    program.stop().await;
    let (counts, mut changes): (Vec<_>, Vec<_>) =
        rest(lines).await.into_iter().partition(|line| line.starts_with("pods in"));
    // A pod is marked as deleted first; whether that is a separate event depends on the speed of the handler.
    changes.retain(|line| !line.starts_with('~'));
    let name = &target.namespace;
    assert_eq!(changes, [format!("+ {name}/a"), format!("+ {name}/b"), format!("- {name}/a")]);
    assert_eq!(counts, ["1", "2", "1"].map(|count| format!("pods in {name}: {count}")));
}

async fn lister_index_finds_by_node_app_and_image(target: &Target) {
    for (name, node) in [("a", Some("node-1")), ("b", None), ("c", Some("node-1"))] {
        target.post("$ns/pods", &pod(name, node)).await;
    }
    let (print, lines) = output();
    lister_index::run(&factory(target), print).await.unwrap();
    let name = &target.namespace;
    let expected = [
        &format!("node node-1: {name}/a {name}/c"),
        "without a node: 1",
        "app web: 3",
        "image registry.example/app:1: 3",
    ];
    assert_eq!(rest(lines).await, expected);
}

async fn custom_resource_waits_for_its_definition(target: &Target) {
    run_on_own_thread(target, define_and_delete).await;
}

async fn define_and_delete(target: Target) {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let backups = SharedInformer::<Backup>::with_options(target.client.clone(), options(&target));
    let (path, definition) = (
        "/apis/informer.example/v1/namespaces/$name/backups",
        format!("{DEFINITIONS}/{}", Backup::crd_name()),
    );
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        custom_resource::run(&backups, print, async { drop(stopped.await) }).await
    });
    lines.expect(&["waiting for the kind Backup to be defined"]).await;
    target.post_outside(DEFINITIONS, &serde_json::to_value(Backup::crd()).unwrap()).await;
    until("the kind is served", async || target.request("GET", path, None).await.is_ok()).await;
    slow_wait().await;
    lines.expect(&["following the kind Backup"]).await;
    let backup = json!({
        "apiVersion": "informer.example/v1", "kind": "Backup", "metadata": {"name": "db"},
        "spec": {"schedule": "0 3 * * *", "keep": 7},
    });
    target.post(path, &backup).await;
    lines.expect(&[&format!("+ {}/db: at 0 3 * * *, keep 7", target.namespace)]).await;
    target.merge(&format!("{path}/db"), &json!({"spec": {"keep": 9}})).await;
    lines.expect(&[&format!("~ {}/db: at 0 3 * * *, keep 9", target.namespace)]).await;
    target.delete(&definition).await;
    // The deletion of a definition marks its objects first.
    let lines = async {
        let mut seen = Vec::new();
        while seen.len() < 2 {
            let line = lines.0.recv().await.unwrap();
            if !line.starts_with('~') {
                seen.push(line);
            }
        }
        seen
    };
    let expected =
        [format!("- {}/db", target.namespace), "waiting for the kind Backup to be defined".to_owned()];
    assert_eq!(lines.await, expected);
    program.stop().await;
}

async fn dynamic_follows_a_kind_by_its_name(target: &Target) {
    let resource = informer::resolve(&target.client, "leases.coordination.k8s.io").await.unwrap();
    let (factory, (print, mut lines)) = (factory(target), output());
    let program = Program::start(|stopped| async move {
        dynamic::run(&factory, &resource, print, async { drop(stopped.await) }).await
    });
    let path = "/apis/coordination.k8s.io/v1/namespaces/$name/leases";
    target.post(path, &json!({"metadata": {"name": "a"}})).await;
    lines.expect(&[&format!("+ {}/a", target.namespace)]).await;
    target.merge(&format!("{path}/a"), &json!({"spec": {"holderIdentity": "me"}})).await;
    lines.expect(&[&format!("~ {}/a: spec", target.namespace)]).await;
    target.merge(&format!("{path}/a"), &label("yes")).await;
    lines.expect(&[&format!("~ {}/a: metadata", target.namespace)]).await;
    target.delete(&format!("{path}/a")).await;
    lines.expect(&[&format!("- {}/a", target.namespace)]).await;
    program.stop().await;
}

async fn metadata_only_knows_labels_and_owners(target: &Target) {
    let owner = target.post("$ns/configmaps", &json!({"metadata": {"name": "owner"}})).await;
    let (factory, (print, mut lines)) = (factory(target), output());
    let program = Program::start(|stopped| async move {
        metadata_only::run(&factory, print, async { drop(stopped.await) }).await
    });
    let owners = json!([
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]},
    ]);
    let metadata = json!({"name": "a", "labels": {"app": "web"}, "ownerReferences": owners});
    target.post("$ns/secrets", &json!({"metadata": metadata, "stringData": {"a": "secret"}})).await;
    lines.expect(&[&format!("+ {}/a of ConfigMap owner app=web", target.namespace)]).await;
    target.merge("$ns/secrets/a", &label("yes")).await;
    lines.expect(&[&format!("~ {}/a of ConfigMap owner app=web changed=yes", target.namespace)]).await;
    target.delete("$ns/secrets/a").await;
    lines.expect(&[&format!("- {}/a", target.namespace)]).await;
    program.stop().await;
}

async fn filtering_handler_counts_pods_on_nodes(target: &Target) {
    let pods = SharedInformer::with_options(target.client.clone(), options(target));
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        filtering_handler::run(&pods, print, async { drop(stopped.await) }).await
    });
    target.post("$ns/pods", &pod("waits", None)).await;
    target.post("$ns/pods", &pod("a", Some("node-1"))).await;
    lines.expect(&[&format!("node-1: + {}/a (1 pods)", target.namespace)]).await;
    target.post("$ns/pods", &pod("b", Some("node-1"))).await;
    lines.expect(&[&format!("node-1: + {}/b (2 pods)", target.namespace)]).await;
    target.merge("$ns/pods/a/status", &json!({"status": {"phase": "Succeeded"}})).await;
    lines.expect(&[&format!("node-1: - {}/a (1 pods)", target.namespace)]).await;
    delete_pod(target, "b").await;
    lines.expect(&[&format!("node-1: - {}/b (0 pods)", target.namespace)]).await;
    program.stop().await;
    assert_eq!(rest(lines).await, [""; 0]);
}

async fn event_stream_prints_every_version(target: &Target) {
    let pods = SharedInformer::with_options(target.client.clone(), options(target));
    let (out, mut lines) = mpsc::channel(1);
    let watched = pods.clone();
    let program = Program::start(|stopped| async move {
        event_stream::run(&watched, out, async { drop(stopped.await) }).await
    });
    // A busy machine wrote four versions before the initial list, which then contained only the fourth.
    pods.wait_for_sync(Duration::from_secs(30)).await.unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let mut last = version(&target.post("$ns/pods", &pod("web", None)).await);
    let key = format!("{}/web", target.namespace);
    let mut expected = vec![format!("+ {key} {last}")];
    for number in 0..50 {
        let next = version(&target.merge("$ns/pods/web", &label(&number.to_string())).await);
        expected.push(format!("~ {key} {last} -> {next}"));
        last = next;
    }
    for line in expected {
        assert_eq!(lines.recv().await.unwrap(), line);
    }
    delete_pod(target, "web").await;
    // Marked as deleted, then deleted.
    let marked = lines.recv().await.unwrap();
    assert!(marked.starts_with(&format!("~ {key} {last} -> ")), "{marked}");
    assert_eq!(lines.recv().await.unwrap(), format!("- {key}"));
    program.stop().await;
}

async fn resync_reports_pending_pods(target: &Target) {
    target.post("$ns/pods", &pod("waits", None)).await;
    let pods = SharedInformer::with_options(target.client.clone(), options(target));
    let (print, mut lines) = output();
    let program = Program::start(|stopped| async move {
        resync::run(&pods, Duration::ZERO, print, async { drop(stopped.await) }).await
    });
    lines.expect(&[&format!("{}/waits has been pending for 0 minutes", target.namespace)]).await;
    program.stop().await;
}

async fn memory_prints_every_way(target: &Target) {
    target.post("$ns/pods", &pod("web", None)).await;
    let (print, lines) = output();
    memory::run(&target.client, &options(target), print).await.unwrap();
    let lines = rest(lines).await;
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines.iter().all(|line| line.contains(": 1 pods, ")), "{lines:?}");
}

async fn diagnostics_prints_states_and_counters(target: &Target) {
    let (client, options, (print, mut lines)) = (target.client.clone(), options(target), output());
    let program =
        Program::start(|stopped| diagnostics::run(client, options, print, async { drop(stopped.await) }));
    while lines.0.recv().await.unwrap() != "state: live" {}
    program.stop().await;
    assert!(rest(lines).await.contains(&"added 0, updated 0, deleted 0".to_owned()));
}
