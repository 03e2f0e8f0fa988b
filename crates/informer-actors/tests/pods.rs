//! Scheduler and kubelet.

use informer_apiserver::DeleteParams;
use serde_json::{Value, json};

use crate::common::{Simulation, condition, is_ready, pod, uid};

fn set_node_ready(simulation: &Simulation, node: &str, status: &str) {
    let mut node = simulation.get("v1", "nodes", node).unwrap();
    let conditions = node["status"]["conditions"].as_array_mut().unwrap();
    let ready = conditions.iter_mut().find(|condition| condition["type"] == "Ready").unwrap();
    ready["status"] = json!(status);
    simulation.server.update_status(&node).unwrap();
}

fn node_of(simulation: &Simulation, name: &str) -> Value {
    simulation.get("v1", "pods", name).unwrap()["spec"]["nodeName"].clone()
}

#[test]
fn pod_is_bound_runs_and_becomes_ready() {
    let mut simulation = Simulation::new(21);
    let mut object = pod("a");
    object["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/", "port": 80}});
    simulation.create(&object);
    simulation.run_until(|server| {
        let pod = server.get("v1", "pods", Some("default"), "a").unwrap();
        pod["status"]["phase"] == "Running" && !is_ready(&pod)
    });
    simulation.settle();
    let found = simulation.get("v1", "pods", "a").unwrap();
    assert!(is_ready(&found));
    assert_eq!((condition(&found, "PodScheduled"), &found["status"]["phase"]), ("True", &json!("Running")));
    let container = &found["status"]["containerStatuses"][0];
    assert!(container["ready"] == true && container["state"]["running"].is_object());
    let of_pod = simulation.actions.iter().filter(|action| action.kind == "Pod");
    let actions: Vec<String> = of_pod.map(ToString::to_string).collect();
    let expected = [
        "scheduler: bind Pod default/a",
        "kubelet: update status Pod default/a",
        "kubelet: update status Pod default/a",
    ];
    assert_eq!(actions, expected);
}

#[test]
fn pods_are_spread_over_the_nodes() {
    let mut simulation = Simulation::with(22, |actors| actors.nodes(3));
    for number in 0..9 {
        simulation.create(&pod(&format!("p{number}")));
    }
    simulation.settle();
    for node in ["node-1", "node-2", "node-3"] {
        let pods = simulation.pods();
        assert_eq!(pods.iter().filter(|pod| pod["spec"]["nodeName"] == node).count(), 3, "{node}");
    }
}

#[test]
fn scheduler_respects_nodes_and_pods() {
    let mut simulation = Simulation::with(23, |actors| actors.nodes(2));
    simulation.settle();
    simulation.edit("v1", "nodes", "node-1", |node| node["spec"]["unschedulable"] = json!(true));
    let mut other = pod("other");
    other["spec"]["schedulerName"] = json!("other-scheduler");
    let mut selecting = pod("selecting");
    selecting["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-1"});
    let mut gated = pod("gated");
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
    for object in [&other, &selecting, &gated, &pod("a")] {
        simulation.create(object);
    }
    simulation.settle();
    assert_eq!(node_of(&simulation, "a"), "node-2");
    let taints = simulation.get("v1", "nodes", "node-1").unwrap()["spec"]["taints"].clone();
    assert_eq!(taints[0]["key"], "node.kubernetes.io/unschedulable");
    for name in ["other", "selecting", "gated"] {
        assert_eq!(node_of(&simulation, name), Value::Null, "{name}");
    }
    let found = simulation.get("v1", "pods", "selecting").unwrap();
    assert_eq!(condition(&found, "PodScheduled"), "False");
    assert_eq!(simulation.settle(), 0);

    simulation.edit("v1", "nodes", "node-1", |node| {
        node["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    });
    let mut tolerating = pod("tolerating");
    tolerating["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": "node-1"});
    tolerating["spec"]["tolerations"] = json!([{"key": "k", "operator": "Exists"}]);
    simulation.create(&tolerating);
    simulation.settle();
    assert_eq!(node_of(&simulation, "tolerating"), "node-1");
    assert_eq!(node_of(&simulation, "selecting"), Value::Null);
}

#[test]
fn pending_pod_is_bound_when_a_node_appears() {
    let mut simulation = Simulation::with(24, |actors| actors.nodes(0));
    simulation.create(&pod("a"));
    simulation.settle();
    assert_eq!(node_of(&simulation, "a"), Value::Null);
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": ready});
    simulation.create(&node);
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 1);
}

#[test]
fn deleted_pod_is_removed_within_its_grace_period() {
    for (seed, grace) in [(25, 30), (26, 1)] {
        let mut simulation = Simulation::new(seed);
        simulation.create(&pod("a"));
        simulation.settle();
        let params = DeleteParams::new().grace_period_seconds(grace);
        simulation.server.delete_with("v1", "pods", Some("default"), "a", &params).unwrap();
        let before = simulation.now;
        assert!(simulation.step().is_some());
        assert_eq!(simulation.pods().len(), 1, "the pod stays during its grace period");
        simulation.run_until(|server| server.list("v1", "pods", None).is_empty());
        let seconds = simulation.now.duration_since(before).as_secs_f64();
        assert!(seconds <= if grace == 1 { 1.0 } else { 3.0 }, "{seconds}");
    }
}

#[test]
fn terminated_pod_with_finalizer_stays_and_is_finished() {
    let mut simulation = Simulation::new(27);
    let mut object = pod("a");
    object["metadata"]["finalizers"] = json!(["example.com/f"]);
    simulation.create(&object);
    simulation.settle();
    simulation.server.delete_with("v1", "pods", Some("default"), "a", &DeleteParams::new()).unwrap();
    simulation.settle();
    let found = simulation.get("v1", "pods", "a").unwrap();
    assert_eq!(found["status"]["phase"], "Failed");
    simulation.edit("v1", "pods", "a", |pod| pod["metadata"]["finalizers"] = json!([]));
    assert!(simulation.pods().is_empty());
    assert_eq!(simulation.settle(), 0);
}

#[test]
fn outcome_of_a_pod_is_chosen_by_its_annotation() {
    let mut simulation = Simulation::new(28);
    for (outcome, policy) in
        [("fail", "Always"), ("never-ready", "Always"), ("crash", "Never"), ("succeed", "Never")]
    {
        let mut object = pod(&format!("{outcome}-{}", policy.to_lowercase()));
        object["metadata"]["annotations"] = json!({"informer-actors/outcome": outcome});
        object["spec"]["restartPolicy"] = json!(policy);
        simulation.create(&object);
    }
    simulation.settle();
    let phase = |name: &str| simulation.get("v1", "pods", name).unwrap()["status"]["phase"].clone();
    assert_eq!(phase("fail-always"), "Failed");
    assert_eq!(phase("crash-never"), "Failed");
    assert_eq!(phase("succeed-never"), "Succeeded");
    let found = simulation.get("v1", "pods", "never-ready-always").unwrap();
    assert!(found["status"]["phase"] == "Running" && !is_ready(&found));
}

#[test]
fn crashing_pod_is_restarted_with_increasing_delays_until_it_recovers() {
    let mut simulation = Simulation::new(29);
    let mut object = pod("a");
    object["metadata"]["annotations"] = json!({"informer-actors/outcome": "crash"});
    simulation.create(&object);
    simulation.run_for(60);
    let found = simulation.get("v1", "pods", "a").unwrap();
    let restarts = found["status"]["containerStatuses"][0]["restartCount"].as_i64().unwrap();
    assert!((4..=6).contains(&restarts), "{restarts}");
    simulation.run_until(|server| {
        let pod = server.get("v1", "pods", Some("default"), "a").unwrap();
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    simulation.edit("v1", "pods", "a", |pod| pod["metadata"]["annotations"] = json!({}));
    simulation.settle();
    let found = simulation.get("v1", "pods", "a").unwrap();
    assert!(is_ready(&found));
    assert_eq!(found["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 1);
}

/// Others may end a container, as an operating system does that runs out of memory.
#[test]
fn terminated_container_is_restarted() {
    let mut simulation = Simulation::new(34);
    for index in [0, 1] {
        let name = format!("a{index}");
        let mut object = pod(&name);
        let sidecar = json!({"name": "sidecar", "image": "sidecar:1"});
        object["spec"]["containers"].as_array_mut().unwrap().push(sidecar);
        simulation.create(&object);
        simulation.settle();
        let mut found = simulation.get("v1", "pods", &name).unwrap();
        let container = &mut found["status"]["containerStatuses"][index];
        container["state"] = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
        container["ready"] = json!(false);
        simulation.server.update_status(&found).unwrap();
        simulation.settle();
        let found = simulation.get("v1", "pods", &name).unwrap();
        let (container, other) =
            (&found["status"]["containerStatuses"][index], &found["status"]["containerStatuses"][1 - index]);
        assert!(is_ready(&found) && container["state"]["running"].is_object());
        assert_eq!((container["restartCount"].as_i64(), other["restartCount"].as_i64()), (Some(1), Some(0)));
        assert_eq!(container["lastState"]["terminated"]["reason"], "OOMKilled");
    }
}

#[test]
fn pod_without_image_starts_when_the_annotation_is_removed() {
    for has_creation in [false, true] {
        let mut simulation = Simulation::with(35, |actors| actors.container_creation(has_creation));
        let mut object = pod("a");
        object["metadata"]["annotations"] = json!({"informer-actors/outcome": "no-image"});
        simulation.create(&object);
        simulation.settle();
        let found = simulation.get("v1", "pods", "a").unwrap();
        assert_eq!(found["status"]["phase"], "Pending");
        let container = &found["status"]["containerStatuses"][0];
        assert_eq!(container["state"]["waiting"]["reason"], "ImagePullBackOff");
        simulation.edit("v1", "pods", "a", |pod| pod["metadata"]["annotations"] = json!({}));
        simulation.settle();
        let found = simulation.get("v1", "pods", "a").unwrap();
        assert!(is_ready(&found));
        assert_eq!(found["status"]["containerStatuses"][0]["restartCount"], 0);
    }
}

#[test]
fn creation_of_containers_is_written_on_request() {
    for is_written in [false, true] {
        let mut simulation = Simulation::with(36, |actors| actors.container_creation(is_written));
        simulation.create(&pod("a"));
        let mut was_seen = false;
        simulation.run_until(|server| {
            let pod = server.get("v1", "pods", Some("default"), "a").unwrap();
            let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
            was_seen |= waiting["reason"] == "ContainerCreating";
            is_ready(&pod)
        });
        assert_eq!(was_seen, is_written);
    }
}

#[test]
fn containers_fail_with_the_given_probability() {
    let mut simulation = Simulation::with(30, |actors| actors.failure_percent(50));
    for number in 0..40 {
        simulation.create(&pod(&format!("p{number}")));
    }
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 40, "containers recover");
    let restarted = |pod: &&Value| pod["status"]["containerStatuses"][0]["restartCount"] != 0;
    let restarted = simulation.pods().iter().filter(restarted).count();
    assert!((10..=30).contains(&restarted), "{restarted}");
}

#[test]
fn pods_on_a_lost_node_are_not_ready_until_it_returns() {
    let mut simulation = Simulation::with(31, |actors| actors.nodes(1));
    simulation.create(&pod("a"));
    simulation.settle();
    set_node_ready(&simulation, "node-1", "Unknown");
    simulation.settle();
    assert_eq!(simulation.ready_pods(), 0);
    simulation.server.delete_with("v1", "pods", Some("default"), "a", &DeleteParams::new()).unwrap();
    simulation.settle();
    assert_eq!(simulation.pods().len(), 1, "no kubelet removes the pod");
    set_node_ready(&simulation, "node-1", "True");
    simulation.settle();
    assert!(simulation.pods().is_empty());
}

#[test]
fn pods_of_a_deleted_node_are_removed_and_replaced() {
    let mut simulation = Simulation::new(32);
    simulation.create(&crate::common::workload("ReplicaSet", "web", 4));
    simulation.settle();
    simulation.server.delete("v1", "nodes", None, "node-1").unwrap();
    simulation.settle();
    let pods = simulation.pods();
    assert_eq!((pods.len(), simulation.ready_pods()), (4, 4));
    assert!(pods.iter().all(|pod| pod["spec"]["nodeName"] == "node-2"));
}

#[test]
fn recreated_pod_is_another_pod() {
    let mut simulation = Simulation::new(33);
    simulation.create(&pod("a"));
    simulation.settle();
    let before = uid(&simulation.get("v1", "pods", "a").unwrap()).to_owned();
    simulation.delete("v1", "pods", "a");
    simulation.create(&pod("a"));
    simulation.settle();
    let found = simulation.get("v1", "pods", "a").unwrap();
    assert!(uid(&found) != before && is_ready(&found));
}
