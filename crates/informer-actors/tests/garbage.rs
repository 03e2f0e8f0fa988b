//! The garbage collector and the namespace controller.

use informer_apiserver::{DeleteParams, Propagation};
use serde_json::{Value, json};

use crate::common::{Simulation, map, name, workload};

fn maps(simulation: &Simulation) -> Vec<String> {
    let maps = simulation.server.list("v1", "configmaps", None);
    maps.iter().map(|map| name(map).to_owned()).collect()
}

fn delete(simulation: &Simulation, name: &str, propagation: Propagation) {
    let params = DeleteParams::new().propagation(propagation);
    simulation.server.delete_with("v1", "configmaps", Some("default"), name, &params).unwrap();
}

fn define_widgets(simulation: &Simulation) {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    simulation.create(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
        },
    }));
}

fn widget(name: &str, namespace: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name, "namespace": namespace}})
}

#[test]
fn background_deletion_deletes_dependents_of_dependents() {
    let mut simulation = Simulation::new(41);
    let a = simulation.create(&map("a", &[]));
    let b = simulation.create(&map("b", &[&a]));
    simulation.create(&map("c", &[&b]));
    simulation.create(&map("d", &[]));
    simulation.settle();
    assert_eq!(maps(&simulation), ["a", "b", "c", "d"]);
    delete(&simulation, "a", Propagation::Background);
    simulation.settle();
    assert_eq!(maps(&simulation), ["d"]);
}

#[test]
fn dependent_with_another_owner_loses_the_reference_to_a_deleted_one() {
    let mut simulation = Simulation::new(42);
    let (a, b) = (simulation.create(&map("a", &[])), simulation.create(&map("b", &[])));
    simulation.create(&map("c", &[&a, &b]));
    simulation.settle();
    delete(&simulation, "a", Propagation::Background);
    simulation.settle();
    let c = simulation.get("v1", "configmaps", "c").unwrap();
    let owners = c["metadata"]["ownerReferences"].as_array().unwrap();
    assert_eq!((owners.len(), &owners[0]["name"]), (1, &json!("b")));
    delete(&simulation, "b", Propagation::Background);
    simulation.settle();
    assert!(maps(&simulation).is_empty());
}

#[test]
fn owner_with_another_uid_kind_or_namespace_counts_as_absent() {
    let mut simulation = Simulation::new(43);
    let a = simulation.create(&map("a", &[]));
    simulation.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}));
    let mut elsewhere = map("elsewhere", &[&a]);
    elsewhere["metadata"]["namespace"] = json!("other");
    let mut wrong_uid = map("wrong-uid", &[&a]);
    wrong_uid["metadata"]["ownerReferences"][0]["uid"] = json!("5d0ce0a7-0000-4000-8000-000000000000");
    let mut wrong_kind = map("wrong-kind", &[&a]);
    wrong_kind["metadata"]["ownerReferences"][0]["kind"] = json!("Secret");
    for object in [&elsewhere, &wrong_uid, &wrong_kind, &map("right", &[&a])] {
        simulation.create(object);
    }
    simulation.settle();
    assert_eq!(maps(&simulation), ["a", "right"]);
}

#[test]
fn foreground_deletion_deletes_blocking_dependents_first() {
    let mut simulation = Simulation::new(44);
    let a = simulation.create(&map("a", &[]));
    let mut b = map("b", &[&a]);
    b["metadata"]["finalizers"] = json!(["example.com/f"]);
    let b = simulation.create(&b);
    simulation.create(&map("c", &[&b]));
    simulation.settle();
    delete(&simulation, "a", Propagation::Foreground);
    simulation.settle();
    assert_eq!(maps(&simulation), ["a", "b"], "a waits for b, which has a finalizer");
    simulation.edit("v1", "configmaps", "b", |map| map["metadata"]["finalizers"] = json!([]));
    simulation.settle();
    assert!(maps(&simulation).is_empty());
}

#[test]
fn foreground_deletion_of_a_deployment_ends_with_the_deployment() {
    let mut simulation = Simulation::new(45);
    simulation.create(&workload("Deployment", "web", 3));
    simulation.settle();
    let params = DeleteParams::new().propagation(Propagation::Foreground);
    simulation.server.delete_with("apps/v1", "deployments", Some("default"), "web", &params).unwrap();
    simulation.run_until(|server| {
        let exists = server.get("apps/v1", "deployments", Some("default"), "web").is_some();
        let pods = server.list("v1", "pods", None).len();
        assert!(exists || pods == 0, "the deployment is the last");
        !exists
    });
    simulation.settle();
    assert!(simulation.server.list("apps/v1", "replicasets", None).is_empty());
}

#[test]
fn orphaned_dependents_stay_and_are_adopted() {
    let mut simulation = Simulation::new(46);
    simulation.create(&workload("Deployment", "web", 2));
    simulation.settle();
    let pods = simulation.pod_names();
    let params = DeleteParams::new().propagation(Propagation::Orphan);
    simulation.server.delete_with("apps/v1", "deployments", Some("default"), "web", &params).unwrap();
    simulation.settle();
    let sets = simulation.server.list("apps/v1", "replicasets", None);
    assert!(simulation.get("apps/v1", "deployments", "web").is_none());
    assert!(sets.len() == 1 && sets[0]["metadata"].get("ownerReferences").is_none());
    simulation.create(&workload("Deployment", "web", 2));
    simulation.settle();
    assert_eq!(simulation.server.list("apps/v1", "replicasets", None).len(), 1, "the set was adopted");
    assert_eq!(simulation.pod_names(), pods);
    simulation.delete("apps/v1", "deployments", "web");
    simulation.settle();
    assert!(simulation.pods().is_empty());
}

#[test]
fn cycle_of_owners_is_deleted() {
    let mut simulation = Simulation::new(47);
    let a = simulation.create(&map("a", &[]));
    let b = simulation.create(&map("b", &[&a]));
    simulation.edit("v1", "configmaps", "a", |object| {
        object["metadata"]["ownerReferences"] = map("a", &[&b])["metadata"]["ownerReferences"].clone();
    });
    simulation.settle();
    assert_eq!(maps(&simulation), ["a", "b"], "both have an owner");
    delete(&simulation, "a", Propagation::Foreground);
    simulation.settle();
    assert!(maps(&simulation).is_empty());
}

#[test]
fn dependents_of_custom_resources_are_collected_with_their_definition() {
    let mut simulation = Simulation::new(48);
    simulation.settle();
    define_widgets(&simulation);
    for name in ["v", "w"] {
        let owner = simulation.create(&widget(name, "default"));
        simulation.create(&map(&format!("of-{name}"), &[&owner]));
    }
    simulation.settle();
    assert_eq!(maps(&simulation), ["of-v", "of-w"]);
    simulation.delete("example.com/v1", "widgets", "v");
    simulation.settle();
    assert_eq!(maps(&simulation), ["of-w"]);
    let definitions = ("apiextensions.k8s.io/v1", "customresourcedefinitions");
    simulation.server.delete(definitions.0, definitions.1, None, "widgets.example.com").unwrap();
    simulation.settle();
    assert!(maps(&simulation).is_empty());
}

#[test]
fn deleted_namespace_is_emptied_and_removed() {
    let mut simulation = Simulation::new(49);
    define_widgets(&simulation);
    simulation.create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let mut web = workload("Deployment", "web", 2);
    web["metadata"]["namespace"] = json!("shop");
    simulation.create(&web);
    let mut held = widget("held", "shop");
    held["metadata"]["finalizers"] = json!(["example.com/f"]);
    simulation.create(&held);
    simulation.create(&widget("free", "shop"));
    simulation.create(&map("kept", &[]));
    simulation.settle();
    simulation.server.delete("v1", "namespaces", None, "shop").unwrap();
    simulation.settle();
    assert!(simulation.get("v1", "namespaces", "shop").is_some(), "a finalizer holds the namespace");
    assert!(simulation.pods().is_empty());
    assert_eq!(simulation.server.list("example.com/v1", "widgets", Some("shop")).len(), 1);
    let mut held = simulation.server.get("example.com/v1", "widgets", Some("shop"), "held").unwrap();
    held["metadata"]["finalizers"] = json!([]);
    simulation.server.update(&held).unwrap();
    simulation.settle();
    assert!(simulation.get("v1", "namespaces", "shop").is_none());
    assert_eq!(maps(&simulation), ["kept"]);
}
