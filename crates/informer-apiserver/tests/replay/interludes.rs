//! Actions of the recorder that are not in the recordings: the state before a scenario, and changes between two
//! steps.

use std::time::Duration;

use informer_apiserver::ApiServer;
use serde_json::{Value, json};

use super::run::Replay;

/// Namespaces that earlier scenarios had left on the recorded server.
const EARLIER: &[(&str, &[&str])] = &[
    ("auth", &["rec-auth"]),
    ("crud", &["rec-crud", "rec-crud-other"]),
    ("patch", &["rec-patch"]),
    ("delete", &["rec-delete"]),
    ("list", &["rec-list", "rec-list-b"]),
    ("watch", &["rec-watch"]),
    ("namespaces", &[]),
    ("crd", &["rec-crd"]),
    ("leases_events", &["rec-lease"]),
    ("gzip", &["rec-gzip"]),
    ("compaction", &["rec-compact"]),
];

/// Brings a server into the state that the recorded one had when the scenario began.
pub(crate) async fn prepare(replay: &mut Replay, file: &str) {
    for (scenario, namespaces) in EARLIER {
        if (*scenario, file) == ("list", "list") {
            leftovers(replay).await;
        }
        for name in *namespaces {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            replay.quiet("POST", "/api/v1/namespaces", Some(body)).await;
        }
        if *scenario == file {
            break;
        }
    }
    match file {
        "gzip" => {
            for number in 0..100 {
                let text = format!("line {number} of some text that compresses well\n").repeat(40);
                configmap(replay, "rec-gzip", &format!("big-{number:03}"), json!({"k": text})).await;
            }
            configmap(replay, "rec-gzip", "medium", json!({"k": "m".repeat(100_000)})).await;
            configmap(replay, "rec-gzip", "alone", json!({"k": "z".repeat(140_000)})).await;
        }
        "compaction" => {
            // The cache of the recorded server, which had run for a while, began after version 1.
            replay.server.compact_watch_cache("v1", "configmaps", 3);
            assert!(replay.names.learn_version("446", "3"));
            for number in 0..6 {
                pair(replay, number).await;
            }
        }
        _ => {}
    }
}

/// Performs the changes that happened right before a step.
pub(crate) async fn before(replay: &mut Replay, file: &str, step: &str) {
    match (file, step) {
        ("list", "list-sorted") => {
            let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "labels": {"color": "red", "where": "b"}}, "data": {"v": "other"}});
            replay.quiet("POST", "/api/v1/namespaces/rec-list-b/configmaps", Some(body)).await;
        }
        ("list", "page-2") => put(replay, "rec-list", "e", "changed").await,
        ("delete", "watch-deletecollection") => collection(replay).await,
        // The recorded server renewed a Lease of its own from time to time.
        ("watch", "end-timeout-5-bookmarks-moving") => {
            let body =
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "own"}});
            replay
                .quiet("POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", Some(body))
                .await;
            let version = replay.server.resource_version();
            assert!(replay.names.learn_version("432", &(version - 1).to_string()));
            assert!(replay.names.learn_version("433", &version.to_string()));
        }
        ("watch", "end-timeout-1") => {
            let path = "/api/v1/namespaces/default/configmaps";
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "rec-watch-elsewhere"}});
            replay.quiet("POST", path, Some(body)).await;
            replay.quiet("DELETE", &format!("{path}/rec-watch-elsewhere"), None).await;
        }
        ("compaction", "compact") => {
            for number in 6..9 {
                pair(replay, number).await;
                replay.read_open(Duration::from_millis(1)).await;
            }
            for path in ["configmaps/c-3", "events/ev.3"] {
                replay.quiet("DELETE", &format!("/api/v1/namespaces/rec-compact/{path}"), None).await;
            }
            replay.read_open(Duration::from_millis(1)).await;
        }
        _ => {}
    }
}

/// Number of changes, one second apart, while a watch was open and no step ran.
pub(crate) fn moves(file: &str, step: &str) -> u32 {
    if (file, step) == ("watch", "end-timeout-5-bookmarks-moving") { 4 } else { 0 }
}

pub(crate) async fn during(replay: &Replay, number: u32) {
    put(replay, "rec-watch", "c", &format!("moving-{number}")).await;
}

/// Performs a step that has no request.
pub(crate) async fn beside(replay: &mut Replay, file: &str, step: &str) {
    match (file, step) {
        (_, "compact" | "compact-again") => replay.server.compact_etcd(),
        ("watch", "cache-forgets") => {
            // The recorder waited until the watch was open.
            replay.read_open(Duration::from_secs(80)).await;
            forget(replay, ("rec-watch", "c"), 2, "433").await;
        }
        ("compaction", "cache-forgets") => {
            // The recorder waited for more than a minute before it began.
            replay.read_open(Duration::from_secs(40)).await;
            forget(replay, ("rec-compact", "c-0"), 6, "1176").await;
        }
        _ => {}
    }
}

/// Makes the cache of config maps begin at one of their versions, with as many updates as the recorder made.
async fn forget(replay: &mut Replay, (namespace, name): (&str, &str), batches: u32, oldest: &str) {
    for batch in 0..batches {
        for number in 0..150 {
            put(replay, namespace, name, &format!("forget-{batch}-{number}")).await;
            replay.read_open(Duration::from_millis(1)).await;
        }
    }
    let version = if oldest == "433" {
        replay.names.version(oldest)
    } else {
        (replay.server.resource_version() - 800).to_string()
    };
    assert!(replay.names.learn_version(oldest, &version));
    replay.server.compact_watch_cache("v1", "configmaps", version.parse().unwrap());
}

/// Objects of other programs and of earlier scenarios that appear in lists of all namespaces.
async fn leftovers(replay: &Replay) {
    for name in ["1svc", "a", "b", "c"] {
        let name = if name == "1svc" { name.to_owned() } else { format!("svc-{name}") };
        let spec = json!({"selector": {"app": name}, "ports": [{"port": 80, "targetPort": "http"}]});
        let service =
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
        replay.quiet("POST", "/api/v1/namespaces/rec-crud/services", Some(service)).await;
    }
    for (namespace, name) in [("rec-crud", "ios"), ("rec-patch", "applied"), ("rec-patch", "web")] {
        let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]}}}});
        replay.quiet("POST", &format!("/apis/apps/v1/namespaces/{namespace}/deployments"), Some(body)).await;
    }
    let lock = "system::leader-locking-kube-controller-manager";
    for name in
        ["extension-apiserver-authentication-reader", lock, "system:a", "system:b", "system:c", "system:d"]
    {
        let body =
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}});
        let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles";
        replay.quiet("POST", path, Some(body)).await;
    }
    let own = "apiserver-wlv32tlttr4jl3gtroqexyxapa";
    let holder = format!("{own}_e2a3ee6d-f50a-4361-ba3e-bad7c900032a");
    for (namespace, name, holder) in
        [("kube-system", own, holder.as_str()), ("rec-crud", "put-made", "x"), ("rec-crud", "z", "z")]
    {
        let body = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": holder}});
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        replay.quiet("POST", &path, Some(body)).await;
    }
}

async fn put(replay: &Replay, namespace: &str, name: &str, value: &str) {
    let body =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"v": value}});
    replay.quiet("PUT", &format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), Some(body)).await;
}

async fn configmap(replay: &Replay, namespace: &str, name: &str, data: Value) {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
    replay.quiet("POST", &format!("/api/v1/namespaces/{namespace}/configmaps"), Some(body)).await;
}

async fn pair(replay: &Replay, number: u32) {
    let folder = "/api/v1/namespaces/rec-compact";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c-{number}")}});
    replay.quiet("POST", &format!("{folder}/configmaps"), Some(map)).await;
    let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("ev.{number}")},
        "involvedObject": {"kind": "Pod", "namespace": "rec-compact", "name": "p"}});
    replay.quiet("POST", &format!("{folder}/events"), Some(event)).await;
}

async fn collection(replay: &Replay) {
    let path = "/api/v1/namespaces/rec-delete/configmaps";
    for number in 0..6 {
        let half = if number < 3 { "a" } else { "b" };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("dc-{number}"), "labels": {"half": half}}});
        replay.quiet("POST", path, Some(body)).await;
    }
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "dc-final", "labels": {"half": "a"}, "finalizers": ["example.com/x"]}});
    replay.quiet("POST", path, Some(body)).await;
}

/// Returns a server in the state in which recording began.
pub(crate) fn server() -> ApiServer {
    ApiServer::builder().seed(1).build()
}
