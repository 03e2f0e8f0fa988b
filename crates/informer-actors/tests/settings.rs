//! Settings of actors: which of them run, own actors, seeds, and servers that lose their history.

use informer_actors::{Actor, ActorError, ActorKind, Actors, Cluster};
use informer_apiserver::ApiServer;
use jiff::Timestamp;
use serde_json::json;

use crate::common::{Simulation, map, name, pod, workload};

#[test]
fn actor_that_is_switched_off_does_nothing() {
    for kind in ActorKind::ALL {
        let mut simulation = Simulation::with(51, |actors| actors.without(*kind));
        simulation.create(&workload("Deployment", "web", 2));
        simulation.settle();
        assert!(!simulation.actions.is_empty() || *kind == ActorKind::Deployments);
        assert!(simulation.actions.iter().all(|action| action.actor.as_ref() != kind.name()));
    }
    let mut simulation = Simulation::with(52, |actors| actors.with_only(&[ActorKind::GarbageCollector]));
    simulation.create(&workload("Deployment", "web", 2));
    let a = simulation.create(&map("a", &[]));
    simulation.create(&map("b", &[&a]));
    simulation.delete("v1", "configmaps", "a");
    simulation.settle();
    let actions: Vec<String> = simulation.actions.iter().map(ToString::to_string).collect();
    assert_eq!(actions, ["garbage-collector: delete ConfigMap default/b"]);
}

#[test]
fn equal_seeds_give_equal_actions() {
    let run = |seed: u64| {
        let mut simulation = Simulation::with(seed, |actors| actors.failure_percent(20));
        simulation.create(&workload("Deployment", "web", 3));
        simulation.create(&workload("StatefulSet", "db", 2));
        simulation.settle();
        simulation.edit("apps/v1", "deployments", "web", |web| {
            web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
        });
        simulation.settle();
        simulation.delete("apps/v1", "statefulsets", "db");
        simulation.settle();
        simulation.actions
    };
    let first = run(53);
    assert_eq!(first, run(53));
    assert_ne!(first, run(54));
}

/// Counts the pods in a configuration map.
struct PodCounter;

impl Actor for PodCounter {
    fn name(&self) -> &'static str {
        "pod-counter"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        let is_pod = |plural: &str| plural == "pods";
        if !cluster.changes().iter().any(|change| is_pod(&change.resource.plural)) {
            return None;
        }
        let data = json!({"data": {"pods": cluster.list("v1", "pods", None).len().to_string()}});
        if let Some(count) = cluster.get("v1", "configmaps", Some("default"), "count") {
            cluster.merge(&count, &data).unwrap();
        } else {
            let mut count = map("count", &[]);
            count["data"] = data["data"].clone();
            cluster.create(count).unwrap();
        }
        None
    }
}

#[test]
fn own_actor_sees_changes_and_writes() {
    let mut simulation = Simulation::new(55);
    simulation.create(&pod("early"));
    simulation.settle();
    // The actor is added later and still sees the existing pod.
    simulation.actors.add(Box::new(PodCounter));
    simulation.settle();
    let count = |simulation: &Simulation| {
        simulation.get("v1", "configmaps", "count").unwrap()["data"]["pods"].clone()
    };
    assert_eq!(count(&simulation), "1");
    simulation.create(&workload("ReplicaSet", "web", 3));
    simulation.settle();
    assert_eq!(count(&simulation), "4");
}

/// Is always due.
struct Restless;

impl Actor for Restless {
    fn name(&self) -> &'static str {
        "restless"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        Some(cluster.now())
    }
}

#[test]
fn actor_that_never_rests_is_an_error() {
    let mut actors = Actors::new(ApiServer::new(), 56);
    actors.add(Box::new(Restless));
    let error = actors.step(Timestamp::UNIX_EPOCH).unwrap_err();
    assert!(matches!(&error, ActorError::Busy { actor, .. } if actor == "restless"), "{error}");
    assert!(error.to_string().starts_with("step actors: actor restless is still busy"));
}

#[test]
fn one_step_is_enough_without_delays() {
    let mut simulation = Simulation::with(57, |actors| actors.delay_percent(0));
    let mut web = workload("Deployment", "web", 20);
    let probe = json!({"httpGet": {"path": "/", "port": 80}});
    web["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = probe;
    simulation.create(&web);
    assert_eq!(simulation.step(), None);
    assert_eq!(simulation.ready_pods(), 20);
    let of_kubelet = simulation.actions.iter().filter(|action| action.actor.as_ref() == "kubelet");
    assert_eq!(of_kubelet.count(), 20, "pods are ready as soon as they start");
}

#[test]
fn actors_survive_restores_and_lost_history() {
    let server = ApiServer::builder().history_limit(2).build();
    let mut simulation = Simulation::new(58);
    (simulation.actors, simulation.server) = (Actors::new(server.clone(), 58), server);
    simulation.create(&workload("Deployment", "web", 3));
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 3);
    let backup = simulation.server.backup();
    for other in ["a", "b", "c"] {
        simulation.create(&workload("Deployment", other, 1));
    }
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 6);
    simulation.server.restore(&backup);
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 3);
    assert!(simulation.pods().iter().all(|pod| name(pod).starts_with("web-")));
    simulation.server.restart();
    assert_eq!(simulation.settle(), 0);
    simulation.delete("apps/v1", "deployments", "web");
    simulation.settle();
    assert!(simulation.pods().is_empty());
}
