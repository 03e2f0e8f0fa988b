//! Random operations on a cluster: after it comes to rest, its objects are consistent.

use std::collections::BTreeSet;

use informer_actors::Random;
use informer_apiserver::{DeleteParams, Propagation};
use serde_json::{Value, json};

use crate::common::{Simulation, map, name, uid, workload};

/// Number of seeds; `INFORMER_SEEDS` sets another number.
const DEFAULT_SEEDS: u64 = 12;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const WORKLOADS: [(&str, &str); 3] =
    [("Deployment", "deployments"), ("ReplicaSet", "replicasets"), ("StatefulSet", "statefulsets")];

#[test]
fn cluster_is_consistent_after_random_operations() {
    let seeds = std::env::var("INFORMER_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(DEFAULT_SEEDS) {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "seed {seed} fails: set INFORMER_SEEDS={} to replay", seed + 1);
    }
}

fn run(seed: u64) {
    let percent = if seed.is_multiple_of(3) { 20 } else { 0 };
    let mut simulation = Simulation::with(seed, |actors| actors.failure_percent(percent));
    let mut random = Random::new(seed ^ 0xface);
    for _ in 0..20 {
        operate(&mut simulation, &mut random);
        match random.between(0, 3) {
            0 => {}
            1 => simulation.run_for(1),
            2 => simulation.run_for(10),
            _ => {
                simulation.settle();
            }
        }
    }
    simulation.settle();
    check(&simulation);
    assert_eq!(simulation.settle(), 0, "a cluster at rest is not written to");
    simulation.run_for(1_000);
    assert_eq!(simulation.settle(), 0, "a cluster at rest is not written to later");
}

/// Creates, changes or deletes a random object.
fn operate(simulation: &mut Simulation, random: &mut Random) {
    let object_name = NAMES[random.index_below(NAMES.len())];
    let (kind, plural) = WORKLOADS[random.index_below(WORKLOADS.len())];
    let replicas = random.index_below(5);
    // Workloads of different kinds must not compete for the same pods.
    let full_name = format!("{object_name}-{}", plural.chars().next().unwrap());
    let exists = simulation.get("apps/v1", plural, &full_name);
    let terminating = exists.as_ref().is_some_and(is_terminating);
    match (random.between(0, 9), exists) {
        (_, None) => {
            simulation.create(&workload(kind, &full_name, replicas));
        }
        (0..=2, Some(_)) if !terminating => {
            simulation
                .edit("apps/v1", plural, &full_name, |object| object["spec"]["replicas"] = json!(replicas));
        }
        (3..=4, Some(_)) if !terminating => {
            let image = format!("web:{}", random.between(1, 4));
            simulation.edit("apps/v1", plural, &full_name, |object| {
                object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            });
        }
        (5..=6, Some(_)) => {
            let propagation = [Propagation::Background, Propagation::Foreground, Propagation::Orphan];
            let params = DeleteParams::new().propagation(propagation[random.index_below(3)]);
            simulation.server.delete_with("apps/v1", plural, Some("default"), &full_name, &params).unwrap();
        }
        (7, Some(owner)) => {
            let dependent = map(&format!("m{}", simulation.server.resource_version()), &[&owner]);
            simulation.create(&dependent);
        }
        (8, Some(_)) => {
            let job = json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "job-"},
                "spec": {"completions": 1 + replicas, "parallelism": 2, "ttlSecondsAfterFinished": 5, "template": {"spec": {
                    "restartPolicy": "Never", "containers": [{"name": "main", "image": "work:1"}],
                }}},
            });
            simulation.create(&job);
        }
        _ => delete_pod(simulation, random),
    }
}

fn delete_pod(simulation: &mut Simulation, random: &mut Random) {
    let pods = simulation.pods();
    if let Some(pod) = pods.get(random.index_below(pods.len())) {
        let params = DeleteParams::new().grace_period_seconds(random.between(0, 30));
        simulation.server.delete_with("v1", "pods", Some("default"), name(pod), &params).unwrap();
    }
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Requires that all objects are as their owners want them.
fn check(simulation: &Simulation) {
    let mut all = Vec::new();
    for resource in simulation.server.served_resources() {
        all.extend(simulation.server.list(&resource.api_version, &resource.plural, None));
    }
    let uids: BTreeSet<&str> = all.iter().map(uid).collect();
    for object in &all {
        let text = || format!("{} {}", object["kind"], name(object));
        assert!(!is_terminating(object), "{} is terminating", text());
        for owner in object["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
            assert!(uids.contains(owner["uid"].as_str().unwrap()), "the owner of {} exists", text());
        }
    }
    let controlled = |owner: &Value, kind: &str| -> usize {
        let is_owned = |object: &&Value| {
            object["kind"] == kind && object["metadata"]["ownerReferences"][0]["uid"] == uid(owner)
        };
        let counts =
            |object: &&Value| !matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        all.iter().filter(is_owned).filter(counts).count()
    };
    for object in &all {
        let replicas = object["spec"]["replicas"].as_u64().unwrap_or(0);
        let text = || format!("{} {}: {}", object["kind"], name(object), object["status"]);
        match object["kind"].as_str().unwrap() {
            "ReplicaSet" | "StatefulSet" => {
                assert_eq!(controlled(object, "Pod") as u64, replicas, "{}", text());
                assert_eq!(object["status"]["readyReplicas"].as_u64().unwrap_or(0), replicas, "{}", text());
            }
            "Deployment" => {
                for field in ["replicas", "readyReplicas", "updatedReplicas", "availableReplicas"] {
                    assert_eq!(object["status"][field].as_u64().unwrap_or(0), replicas, "{}", text());
                }
                assert_eq!(object["status"]["observedGeneration"], object["metadata"]["generation"]);
            }
            "Job" => panic!("job {} is deleted after its end", name(object)),
            "Pod" => assert!(object["spec"]["nodeName"].is_string(), "{}", text()),
            _ => {}
        }
    }
}
