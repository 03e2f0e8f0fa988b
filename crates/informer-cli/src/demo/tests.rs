//! The demo on the embedded server, in virtual time.

use super::*;
use informer_apiserver::ManualClock;
use jiff::SignedDuration;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A demo cluster and its clock.
struct World {
    server: ApiServer,
    clock: ManualClock,
    demo: Demo,
}

impl World {
    /// Builds a cluster with incidents for this many seconds.
    fn start(seed: u64, pods: usize, incident_seconds: i64) -> Self {
        let start: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
        let clock = ManualClock::new(start);
        let server = ApiServer::builder().seed(seed).clock(clock.clone()).build();
        let last_incident = start + SignedDuration::from_secs(incident_seconds);
        let demo = Demo::build(&server, Settings { seed, pods, last_incident });
        Self { server, clock, demo }
    }

    /// Lets the demo run for this many seconds; returns the number of writes. The server must accept all of them,
    /// so kube-apiserver would too.
    fn run_for(&mut self, seconds: u64) -> usize {
        let end = self.clock.elapsed() + Duration::from_secs(seconds);
        let mut writes = 0;
        loop {
            let now = self.server.now();
            let due = self.demo.actors.step(now).unwrap();
            for action in self.demo.actors.take_actions() {
                assert!(action.rejected.is_none(), "{action}");
                writes += 1;
            }
            if self.clock.elapsed() >= end {
                return writes;
            }
            let wait = due.map_or(Duration::MAX, |due| due.duration_since(now).try_into().unwrap());
            self.clock.advance_to(self.clock.elapsed().saturating_add(wait).min(end));
        }
    }

    fn get(&self, api_version: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        self.server.get(api_version, plural, namespace, name)
    }

    fn pods(&self) -> Vec<Value> {
        self.server.list("v1", "pods", None)
    }

    fn edit_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        let mut node = self.get("v1", "nodes", "", name).unwrap();
        change(&mut node);
        let updated = self.server.update(&node).unwrap();
        node["metadata"]["resourceVersion"] = updated["metadata"]["resourceVersion"].clone();
        self.server.update_status(&node).unwrap();
    }

    fn set_node_ready(&self, name: &str, ready: bool) {
        let conditions = objects::node_conditions(ready, self.server.now());
        self.edit_node(name, |node| node["status"]["conditions"] = conditions);
    }

    fn events(&self) -> BTreeMap<String, usize> {
        let mut reasons = BTreeMap::new();
        for event in self.server.list("v1", "events", None) {
            *reasons.entry(text(&event, "/reason").to_owned()).or_default() += 1;
        }
        reasons
    }

    /// Checks what always holds.
    fn check(&self) {
        let nodes = self.server.list("v1", "nodes", None);
        let names: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
        for pod in self.pods() {
            let node = text(&pod, "/spec/nodeName");
            assert!(node.is_empty() || names.contains(node), "the node of a pod must exist: {pod}");
            check_containers(&pod);
        }
        assert!(self.server.list("v1", "events", None).len() <= 100 + 2 * 300);
    }

    /// Checks that all workloads are as they should be.
    fn check_converged(&self) {
        self.check();
        for set in self.server.list("apps/v1", "replicasets", None) {
            let owned = |pod: &&Value| pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"];
            let ready = |pod: &&Value| condition(pod, "Ready") == "True";
            let pods = self.pods();
            let counted = set["status"]["readyReplicas"].as_u64().unwrap_or(0);
            assert_eq!(counted, pods.iter().filter(owned).filter(ready).count() as u64, "{set}");
        }
        let mut wanted = 0;
        for deployment in self.server.list("apps/v1", "deployments", None) {
            let replicas = &deployment["spec"]["replicas"];
            assert_eq!(&deployment["status"]["readyReplicas"], replicas, "{deployment}");
            assert_eq!(&deployment["status"]["updatedReplicas"], replicas, "{deployment}");
            wanted += replicas.as_u64().unwrap();
        }
        let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
        assert_eq!(self.pods().iter().filter(ready).count() as u64, wanted);
        self.server.list("v1", "nodes", None).iter().for_each(check_taints);
    }
}

/// Regression: evicted pods kept a running, ready container.
fn check_containers(pod: &Value) {
    let container = &pod["status"]["containerStatuses"][0];
    match text(pod, "/status/phase") {
        "Failed" => assert!(container.is_null(), "a failed pod must not have a container: {pod}"),
        "Succeeded" => assert!(container["state"]["terminated"].is_object(), "{pod}"),
        "Pending" => assert!(container["state"]["running"].is_null(), "{pod}"),
        _ => {}
    }
    if condition(pod, "Ready") == "True" {
        assert!(pod["status"]["phase"] == "Running" && container["ready"] == true, "{pod}");
    }
}

/// Regression: nodes kept the taint of their creation, and a lost node had none.
fn check_taints(node: &Value) {
    assert_eq!(node["spec"]["taints"].as_array().map_or(0, Vec::len), 0, "{node}");
    assert_eq!((condition(node, "Ready"), node["spec"]["unschedulable"] == true), ("True", false));
}

#[test]
fn cluster_is_complete_before_incidents_start() {
    for pods in [1, 40, 300] {
        let mut world = World::start(1, pods, 0);
        world.check_converged();
        let planned: usize = catalogue::plan(pods).iter().map(|planned| planned.replicas).sum();
        assert_eq!(world.pods().len(), planned);
        let deployments = world.server.list("apps/v1", "deployments", None).len();
        let services = world.server.list("v1", "services", None);
        let of_demo = services.iter().filter(|service| service["metadata"]["namespace"] != "default");
        assert_eq!(of_demo.count(), deployments);
        assert!(world.events().is_empty());
        // Only Leases are written.
        let leases = world.run_for(9);
        assert!(leases <= catalogue::nodes(pods), "{leases}");
    }
}

#[test]
fn cluster_converges_after_incidents() {
    for seed in 0..2 {
        let mut world = World::start(seed, 40, 300);
        let mut writes = 0;
        let (mut statuses, mut reasons) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..100 {
            writes += world.run_for(3);
            world.check();
            reasons.extend(world.events().into_keys());
            for pod in world.pods() {
                let waiting = text(&pod, "/status/containerStatuses/0/state/waiting/reason");
                let status = if waiting.is_empty() { text(&pod, "/status/phase") } else { waiting };
                statuses.insert(status.to_owned());
            }
        }
        assert!((500..9000).contains(&writes), "seed {seed}: {writes} writes in five minutes");
        for status in ["Pending", "ContainerCreating", "Running", "CrashLoopBackOff", "Succeeded", "Failed"] {
            assert!(statuses.contains(status), "seed {seed}: no {status} in {statuses:?}");
        }
        for reason in ["Scheduled", "Started", "Killing", "ScalingReplicaSet", "SuccessfulCreate"] {
            assert!(reasons.contains(reason), "seed {seed}: no {reason} in {reasons:?}");
        }
        // Incidents still change deployments: only the last events are kept.
        assert!(world.events().contains_key("ScalingReplicaSet"), "seed {seed}");
        // A container that crashed several times is restarted after at most five minutes.
        world.run_for(400);
        world.check_converged();
        assert!(world.server.list("batch/v1", "jobs", None).is_empty());
    }
}

/// The memory of a demo that runs for hours is flat only if objects do not accumulate.
#[test]
fn nothing_accumulates_in_half_an_hour() {
    let mut world = World::start(5, 20, 1800);
    // The largest values of each third of the time: objects and their bytes.
    let mut peaks = [[0; 2]; 3];
    for peak in &mut peaks {
        for _ in 0..20 {
            world.run_for(30);
            let objects: Vec<Value> = world
                .server
                .served_resources()
                .iter()
                .flat_map(|resource| world.server.list(&resource.api_version, &resource.plural, None))
                .collect();
            let bytes = objects.iter().map(|object| object.to_string().len()).sum();
            for (peak, size) in peak.iter_mut().zip([objects.len(), bytes]) {
                *peak = size.max(*peak);
            }
        }
    }
    let [first, second, third] = peaks;
    for (first, later) in first.iter().zip(second).chain(first.iter().zip(third)) {
        assert!(later * 4 <= first * 5, "more than a quarter larger than in the first third: {peaks:?}");
    }
}

#[test]
fn same_seed_produces_same_objects() {
    let pods = || {
        let mut world = World::start(7, 40, 60);
        world.run_for(60);
        (world.pods(), world.server.list("v1", "events", None))
    };
    assert!(pods() == pods());
}

#[test]
fn deleted_pod_is_replaced() {
    let mut world = World::start(3, 40, 0);
    let doomed: Vec<Value> = world.pods().into_iter().take(5).collect();
    for pod in &doomed {
        let (namespace, name) = (text(pod, "/metadata/namespace"), text(pod, "/metadata/name"));
        world.server.delete("v1", "pods", Some(namespace), name).unwrap();
    }
    world.run_for(60);
    world.check_converged();
    assert!(doomed.iter().all(|pod| !world.pods().iter().any(|other| other["metadata"] == pod["metadata"])));
}

/// Regression: while a node was lost, its pods were not ready, but their replica sets reported them as ready.
#[test]
fn lost_node_reduces_ready_replicas() {
    let mut world = World::start(3, 40, 0);
    world.run_for(1);
    world.set_node_ready("node-01", false);
    world.run_for(4);
    let is_lost = |pod: &&Value| pod["spec"]["nodeName"] == "node-01" && condition(pod, "Ready") == "False";
    let lost = world.pods().iter().filter(is_lost).count();
    assert!(lost > 5, "{lost}");
    let sets = world.server.list("apps/v1", "replicasets", None);
    let ready: u64 = sets.iter().map(|set| set["status"]["readyReplicas"].as_u64().unwrap_or(0)).sum();
    assert_eq!(usize::try_from(ready).unwrap(), world.pods().len() - lost);
    assert_eq!(world.events().get("NodeNotReady"), Some(&1));
    world.set_node_ready("node-01", true);
    world.run_for(30);
    world.check_converged();
}

/// Regression: the pods of a deleted node stayed until the renewal of its Lease was due.
#[test]
fn pods_of_deleted_node_are_deleted_immediately() {
    let mut world = World::start(3, 40, 0);
    world.run_for(1);
    world.server.delete("v1", "nodes", None, "node-02").unwrap();
    world.run_for(2);
    assert!(world.pods().iter().all(|pod| pod["spec"]["nodeName"] != "node-02"));
    world.check();
    world.run_for(60);
    assert!(world.get("v1", "nodes", "", "node-02").is_some());
    world.check_converged();
}

/// Taints set by users stay, and a node cordoned by a user is tainted.
#[test]
fn taints_set_by_users_are_kept() {
    let mut world = World::start(3, 40, 0);
    let mine = json!({"key": "mine", "value": "x", "effect": "NoSchedule"});
    world.edit_node("node-01", |node| node["spec"] = json!({"unschedulable": true, "taints": [mine]}));
    world.run_for(3);
    world.set_node_ready("node-01", false);
    world.run_for(2);
    let taints = |world: &World| {
        world.get("v1", "nodes", "", "node-01").unwrap()["spec"]["taints"].as_array().unwrap().clone()
    };
    assert_eq!(taints(&world).len(), 4, "{:?}", taints(&world));
    world.set_node_ready("node-01", true);
    world.run_for(30);
    assert_eq!(taints(&world).len(), 2, "{:?}", taints(&world));
    assert!(taints(&world).contains(&mine));
}

/// Regression: the deletion of a namespace never completed.
#[test]
fn deleted_namespace_is_finalized() {
    let mut world = World::start(3, 40, 0);
    world.server.delete("v1", "namespaces", None, "payments").unwrap();
    world.demo.step(world.server.now());
    world.clock.advance_to(Duration::from_secs(10));
    for _ in 0..100 {
        let now = world.server.now();
        let due = world.demo.step(now).unwrap_or(now);
        let wait: Duration = due.duration_since(now).try_into().unwrap();
        world.clock.advance_to(world.clock.elapsed() + wait);
    }
    assert_eq!(world.get("v1", "namespaces", "", "payments"), None);
    for resource in world.server.served_resources().iter().filter(|resource| resource.namespaced) {
        let left = world.server.list(&resource.api_version, &resource.plural, Some("payments"));
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn changes_by_users_are_carried_out() {
    let mut world = World::start(3, 40, 60);
    world.run_for(1);
    let mut web = world.get("apps/v1", "deployments", "shop", "web").unwrap();
    web["spec"]["replicas"] = json!(9);
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("mine:1");
    world.server.update(&web).unwrap();
    // Incidents leave the deployment alone.
    world.run_for(400);
    world.check_converged();
    let is_mine = |pod: &&Value| pod["spec"]["containers"][0]["image"] == "mine:1";
    assert_eq!(world.pods().iter().filter(is_mine).count(), 9);

    world.server.delete("apps/v1", "deployments", Some("shop"), "web").unwrap();
    world.run_for(60);
    let is_left = |object: &&Value| text(object, "/metadata/name").starts_with("web-");
    assert_eq!(world.pods().iter().find(is_left), None);
    assert_eq!(world.server.list("apps/v1", "replicasets", Some("shop")).iter().find(is_left), None);
}
