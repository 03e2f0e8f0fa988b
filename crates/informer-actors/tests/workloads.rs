//! Deployments, replica sets and stateful sets.

use serde_json::{Value, json};

use crate::common::{Simulation, condition, is_ready, name, template, uid, workload};

fn set_image(simulation: &Simulation, plural: &str, image: &str) {
    simulation.edit("apps/v1", plural, "web", |object| {
        object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
    });
}

fn images(simulation: &Simulation) -> Vec<String> {
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    simulation.pods().iter().map(image).collect()
}

#[test]
fn deployment_gets_ready_pods_and_a_status() {
    let mut simulation = Simulation::new(1);
    simulation.create(&workload("Deployment", "web", 3));
    simulation.settle();
    let web = simulation.get("apps/v1", "deployments", "web").unwrap();
    let status = &web["status"];
    let expected = json!({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3});
    for (field, count) in expected.as_object().unwrap() {
        assert_eq!(status[field], *count, "{field}");
    }
    assert_eq!(status["observedGeneration"], web["metadata"]["generation"]);
    assert_eq!((condition(&web, "Available"), condition(&web, "Progressing")), ("True", "True"));
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let sets = simulation.server.list("apps/v1", "replicasets", None);
    assert_eq!(sets.len(), 1);
    let hash = &sets[0]["metadata"]["labels"]["pod-template-hash"];
    assert_eq!(name(&sets[0]), format!("web-{}", hash.as_str().unwrap()));
    for pod in simulation.pods() {
        assert_eq!(pod["metadata"]["labels"]["pod-template-hash"], *hash);
        assert!(is_ready(&pod) && pod["status"]["podIP"].is_string());
    }
    assert_eq!(simulation.settle(), 0, "a cluster at rest is not written to");
}

#[test]
fn deployment_is_scaled_up_and_down() {
    let mut simulation = Simulation::new(2);
    simulation.create(&workload("Deployment", "web", 2));
    simulation.settle();
    for replicas in [5, 1, 0] {
        simulation.edit("apps/v1", "deployments", "web", |web| web["spec"]["replicas"] = json!(replicas));
        simulation.settle();
        assert_eq!((simulation.pods().len(), simulation.ready_pods()), (replicas, replicas));
        assert_eq!(simulation.server.list("apps/v1", "replicasets", None).len(), 1);
    }
}

#[test]
fn rolling_update_keeps_enough_pods_available() {
    let mut simulation = Simulation::new(3);
    let mut web = workload("Deployment", "web", 4);
    web["spec"]["strategy"] = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
    simulation.create(&web);
    simulation.settle();
    set_image(&simulation, "deployments", "web:2");
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        let active = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let ready = active.filter(|pod| is_ready(pod)).count();
        let sets = server.list("apps/v1", "replicasets", None);
        let wanted: i64 = sets.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap()).sum();
        assert!(wanted <= 5 && ready >= 3, "{wanted} pods wanted, {ready} ready");
        pods.len() == 4 && pods.iter().all(|pod| pod["spec"]["containers"][0]["image"] == "web:2")
    });
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 4);
    let web = simulation.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!(web["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
}

#[test]
fn rollback_reuses_the_replica_set_and_history_is_limited() {
    let mut simulation = Simulation::new(4);
    let mut web = workload("Deployment", "web", 2);
    web["spec"]["revisionHistoryLimit"] = json!(1);
    simulation.create(&web);
    simulation.settle();
    let first = simulation.server.list("apps/v1", "replicasets", None);
    set_image(&simulation, "deployments", "web:2");
    simulation.settle();
    set_image(&simulation, "deployments", "web:1");
    simulation.settle();
    let sets = simulation.server.list("apps/v1", "replicasets", None);
    let current = sets.iter().find(|set| uid(set) == uid(&first[0])).unwrap();
    assert_eq!((&current["spec"]["replicas"], &current["status"]["readyReplicas"]), (&json!(2), &json!(2)));
    assert_eq!(current["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    for version in 3..6 {
        set_image(&simulation, "deployments", &format!("web:{version}"));
        simulation.settle();
    }
    assert_eq!(simulation.server.list("apps/v1", "replicasets", None).len(), 2);
    assert_eq!(images(&simulation), ["web:5", "web:5"]);
}

#[test]
fn recreate_stops_old_pods_before_it_starts_new_ones() {
    let mut simulation = Simulation::new(5);
    let mut web = workload("Deployment", "web", 3);
    web["spec"]["strategy"] = json!({"type": "Recreate"});
    simulation.create(&web);
    simulation.settle();
    set_image(&simulation, "deployments", "web:2");
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        let new = |pod: &&Value| pod["spec"]["containers"][0]["image"] == "web:2";
        let count = pods.iter().filter(new).count();
        assert!(count == 0 || count == pods.len(), "old and new pods do not run together");
        pods.iter().filter(new).filter(|pod| is_ready(pod)).count() == 3
    });
    simulation.settle();
}

#[test]
fn failing_update_stops_and_misses_its_deadline() {
    let mut simulation = Simulation::new(6);
    let mut web = workload("Deployment", "web", 4);
    web["spec"]["progressDeadlineSeconds"] = json!(60);
    simulation.create(&web);
    simulation.settle();
    simulation.edit("apps/v1", "deployments", "web", |web| {
        let annotations = json!({"informer-actors/outcome": "never-ready"});
        web["spec"]["template"]["metadata"]["annotations"] = annotations;
    });
    simulation.settle();
    let web = simulation.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!((condition(&web, "Available"), condition(&web, "Progressing")), ("True", "False"));
    assert_eq!(simulation.ready_pods(), 3);
    simulation.edit("apps/v1", "deployments", "web", |web| {
        web["spec"]["template"] = template("web", "web:1");
    });
    simulation.settle();
    let web = simulation.get("apps/v1", "deployments", "web").unwrap();
    assert_eq!((condition(&web, "Progressing"), simulation.ready_pods()), ("True", 4));
}

#[test]
fn paused_deployment_does_not_update() {
    let mut simulation = Simulation::new(7);
    simulation.create(&workload("Deployment", "web", 2));
    simulation.settle();
    simulation.edit("apps/v1", "deployments", "web", |web| {
        web["spec"]["paused"] = json!(true);
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    });
    simulation.settle();
    assert_eq!(images(&simulation), ["web:1", "web:1"]);
    simulation.edit("apps/v1", "deployments", "web", |web| web["spec"]["paused"] = json!(false));
    simulation.settle();
    assert_eq!(images(&simulation), ["web:2", "web:2"]);
}

#[test]
fn replica_set_replaces_adopts_and_releases_pods() {
    let mut simulation = Simulation::new(8);
    let mut bare = crate::common::pod("bare");
    bare["metadata"]["labels"] = json!({"app": "web"});
    simulation.create(&bare);
    simulation.create(&workload("ReplicaSet", "web", 2));
    simulation.settle();
    let names = simulation.pod_names();
    assert_eq!((names.len(), simulation.ready_pods()), (2, 2));
    let bare = simulation.get("v1", "pods", "bare").unwrap();
    assert_eq!(bare["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet", "the pod was adopted");

    simulation.delete("v1", "pods", names.iter().find(|name| *name != "bare").unwrap());
    simulation.settle();
    assert_eq!((simulation.pods().len(), simulation.ready_pods()), (2, 2));

    simulation.edit("v1", "pods", "bare", |pod| pod["metadata"]["labels"] = json!({"app": "other"}));
    simulation.settle();
    let bare = simulation.get("v1", "pods", "bare").unwrap();
    assert!(bare["metadata"].get("ownerReferences").is_none(), "the pod was released");
    let set = simulation.get("apps/v1", "replicasets", "web").unwrap();
    assert_eq!((simulation.pods().len(), &set["status"]["readyReplicas"]), (3, &json!(2)));
}

#[test]
fn stateful_set_starts_and_stops_pods_in_order() {
    let mut simulation = Simulation::new(9);
    simulation.create(&workload("StatefulSet", "web", 3));
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        let not_ready = pods.iter().filter(|pod| !is_ready(pod)).count();
        assert!(not_ready <= 1, "only the last pod is not ready");
        pods.len() == 3 && not_ready == 0
    });
    simulation.settle();
    assert_eq!(simulation.pod_names(), ["web-0", "web-1", "web-2"]);
    let web = simulation.get("apps/v1", "statefulsets", "web").unwrap();
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(web["status"][field], 3, "{field}");
    }
    simulation.edit("apps/v1", "statefulsets", "web", |web| web["spec"]["replicas"] = json!(1));
    simulation.run_until(|server| {
        let pods = server.list("v1", "pods", None);
        let terminating = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        assert!(terminating.count() <= 1, "pods are stopped one at a time");
        pods.len() == 1
    });
    simulation.settle();
    assert_eq!(simulation.pod_names(), ["web-0"]);
    assert_eq!(simulation.settle(), 0);
}

#[test]
fn stateful_set_updates_pods_down_to_its_partition() {
    let mut simulation = Simulation::new(10);
    let mut web = workload("StatefulSet", "web", 3);
    web["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    simulation.create(&web);
    simulation.settle();
    let first = uid(&simulation.get("v1", "pods", "web-0").unwrap()).to_owned();
    set_image(&simulation, "statefulsets", "web:2");
    simulation.settle();
    assert_eq!(images(&simulation), ["web:1", "web:2", "web:2"]);
    assert_eq!(uid(&simulation.get("v1", "pods", "web-0").unwrap()), first);
    simulation.edit("apps/v1", "statefulsets", "web", |web| {
        web["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(0);
    });
    simulation.settle();
    assert_eq!(images(&simulation), ["web:2", "web:2", "web:2"]);
    let web = simulation.get("apps/v1", "statefulsets", "web").unwrap();
    assert_eq!(web["status"]["currentRevision"], web["status"]["updateRevision"]);
    assert_eq!(simulation.settle(), 0);
}

#[test]
fn recreated_workloads_do_not_use_dependents_of_their_predecessors() {
    for (seed, kind, plural) in [(11, "Deployment", "deployments"), (12, "StatefulSet", "statefulsets")] {
        let mut simulation = Simulation::new(seed);
        simulation.create(&workload(kind, "web", 2));
        simulation.settle();
        let before: Vec<String> = simulation.pods().iter().map(|pod| uid(pod).to_owned()).collect();
        simulation.delete("apps/v1", plural, "web");
        simulation.create(&workload(kind, "web", 2));
        simulation.settle();
        let pods = simulation.pods();
        assert_eq!((pods.len(), simulation.ready_pods()), (2, 2), "{kind}");
        assert!(pods.iter().all(|pod| !before.contains(&uid(pod).to_owned())), "{kind}");
        assert_eq!(simulation.settle(), 0, "{kind}");
    }
}
