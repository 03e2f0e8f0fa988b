//! The manifests of the operator example: the embedded server accepts them, and the operator runs with exactly the
//! permissions of `rbac.yaml`.
#![allow(clippy::unwrap_used)]

use crate::common::cluster::TIMEOUT;
use crate::common::server;
use crate::programs::operator;
use crate::programs::operator::{Website, WebsiteSpec};
use informer::access::RequiredAccess;
use informer::election::LeaderElector;
use informer::finalizer::Finalizer;
use informer::manager::Manager;
use informer_apiserver::{ApiServer, RecordedRequest, User, Verb, faults};
use k8s_openapi::api::coordination::v1::Lease;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NAMESPACE: &str = "websites";
const NAME: &str = "website-operator";
const USER: &str = "system:serviceaccount:websites:website-operator";

const OPERATOR: &str = include_str!("../operator/deploy/operator.yaml");
const RBAC: &str = include_str!("../operator/deploy/rbac.yaml");

fn documents(yaml: &str) -> Vec<Value> {
    yaml.split("\n---\n").map(|document| serde_saphyr::from_str(document).unwrap()).collect()
}

/// The manager of the operator's `main`, in a pod.
fn manager(client: kube::Client) -> Manager {
    let elector = LeaderElector::new(client.clone(), NAMESPACE, NAME);
    operator::manager(client).leader_election(elector)
}

/// The permissions of the roles in a manifest, as namespace, group, resource and verb.
fn granted(manifests: &[Value]) -> BTreeSet<[String; 4]> {
    let mut granted = BTreeSet::new();
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    for role in manifests.iter().filter(|manifest| manifest["rules"].is_array()) {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        granted.insert([namespace.to_owned(), group.clone(), resource.clone(), verb]);
                    }
                }
            }
        }
    }
    granted
}

fn resource(request: &RecordedRequest) -> String {
    match &request.subresource {
        Some(subresource) => format!("{}/{subresource}", request.plural),
        None => request.plural.clone(),
    }
}

/// The verbs for which a request needs a permission. An apply may create the object.
fn verbs(request: &RecordedRequest) -> Vec<&'static str> {
    let is_apply = request.parameter("force").is_some();
    if is_apply { vec![request.verb.name(), "create"] } else { vec![request.verb.name()] }
}

/// The requests of the operator.
fn requests(server: &ApiServer) -> Vec<RecordedRequest> {
    server.recorded_requests().into_iter().filter(|request| request.user == USER).collect()
}

fn website(name: &str, replicas: i32) -> Website {
    let mut website = Website::new(name, WebsiteSpec { image: "nginx".to_owned(), replicas });
    website.metadata.namespace = Some("shop".to_owned());
    website
}

// ANCHOR: access
/// Returns the permissions of the operator, after a run against `server`.
fn required_access(server: &ApiServer) -> RequiredAccess {
    let client = server.client();
    // Informers, leader election and recorded events.
    let mut access = manager(client.clone()).required_access();
    access.merge(Finalizer::<Website>::new(client, "informer.example/website").required_access());
    // What the reconcile function did. The lease is in a known namespace; websites may be in any.
    for request in requests(server).iter().filter(|request| request.plural != "leases") {
        for verb in verbs(request) {
            access.add(None, &request.group, &resource(request), verb);
        }
    }
    access
}
// ANCHOR_END: access

/// Runs the operator, and does everything that makes it send requests.
async fn run(server: &ApiServer) {
    // Otherwise the initial lists are watches.
    let _lists = server.inject(faults::refuse_watch_list());
    let manager = manager(server.client_as(User::new(USER)));
    let handle = manager.handle();
    let running = tokio::spawn(manager.run_until(std::future::pending()));
    // After a conflict, the finalizer reads the website.
    let _conflict =
        server.inject(faults::respond(409).for_verb(Verb::Patch).for_resource("websites").max_hits(1));
    server.create(&website("blog", 2)).unwrap();
    server.wait_for("shop/blog", TIMEOUT, |site: &Website| site.status.is_some()).await.unwrap();

    // An event that recurs is written as a series.
    let is_too_many = |event: &Value| event["reason"] == "TooMany";
    let has_event =
        |server: &ApiServer| server.list("events.k8s.io/v1", "events", None).iter().any(is_too_many);
    server.create(&website("huge", 101)).unwrap();
    server.wait_until(TIMEOUT, has_event).await.unwrap();
    let mut huge = server.get("informer.example/v1", "websites", Some("shop"), "huge").unwrap();
    huge["spec"]["replicas"] = json!(102);
    server.update(&huge).unwrap();
    let is_series = |event: &Value| event["series"].is_object();
    let has_series =
        |server: &ApiServer| server.list("events.k8s.io/v1", "events", None).iter().any(is_series);
    server.wait_until(TIMEOUT, has_series).await.unwrap();

    for name in ["blog", "huge"] {
        server.delete("informer.example/v1", "websites", Some("shop"), name).unwrap();
    }
    let is_gone = |server: &ApiServer| server.list("informer.example/v1", "websites", None).is_empty();
    server.wait_until(TIMEOUT, is_gone).await.unwrap();
    // The lease is renewed.
    let renewed = |lease: &Lease| {
        let spec = lease.spec.as_ref().unwrap();
        spec.renew_time > spec.acquire_time
    };
    server.wait_for("websites/website-operator", TIMEOUT, renewed).await.unwrap();
    handle.stop();
    running.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn operator_uses_exactly_the_permissions_of_its_manifest() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    for manifest in documents(OPERATOR).iter().chain(&documents(RBAC)) {
        server.create(manifest).unwrap_or_else(|status| panic!("{}: {status:?}", manifest["kind"]));
    }
    run(&server).await;

    let mut unused = granted(&documents(RBAC));
    for request in requests(&server) {
        for verb in verbs(&request) {
            for namespace in [String::new(), request.namespace.clone().unwrap_or_default()] {
                unused.remove(&[namespace, request.group.clone(), resource(&request), verb.to_owned()]);
            }
        }
    }
    assert!(unused.is_empty(), "permissions that the operator does not use: {unused:?}");
}

/// The manifest is what the library needs, and what the reconcile function wrote in a run with all permissions.
#[tokio::test(start_paused = true)]
async fn manifest_is_derived_from_a_run() {
    let server = server();
    server.create(&Website::crd()).unwrap();
    server
        .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}))
        .unwrap();
    server
        .create(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "everything"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}],
        }))
        .unwrap();
    run(&server).await;

    let derived = required_access(&server).manifests(NAME, NAMESPACE);
    let yaml: Vec<String> =
        derived.iter().map(|manifest| serde_saphyr::to_string(manifest).unwrap()).collect();
    assert_eq!(documents(RBAC), derived, "rbac.yaml should be:\n{}", yaml.join("---\n"));
}
