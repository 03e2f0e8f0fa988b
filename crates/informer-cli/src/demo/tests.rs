//! The demo against a simulated server that accepts everything, one that rejects writes, and the embedded server.

use super::driver::{ServerDriver, merge};
use super::*;
use informer_apiserver::ApiServer;
use serde_json::json;
use std::collections::BTreeSet;

/// A simulated server.
#[derive(Default)]
struct World {
    objects: BTreeMap<ObjectId, Value>,
    uids: u64,
}

impl World {
    fn apply(&mut self, write: &Write) -> WriteResult {
        let Write { object_id, operation } = write;
        if let Operation::Create(object) = operation {
            if let Some(existing) = self.objects.get(object_id) {
                return WriteResult::Done(existing.clone());
            }
            self.uids += 1;
            let mut object = object.clone();
            object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
            object["metadata"]["generation"] = json!(1);
            assert_eq!(object["metadata"]["name"], object_id.name.as_str());
            if object_id.kind == Kind::Node {
                // kube-apiserver adds this taint to new nodes.
                object["spec"]["taints"] =
                    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
            }
            self.objects.insert(object_id.clone(), object.clone());
            return WriteResult::Done(object);
        }
        if matches!(operation, Operation::DeleteNow) {
            self.objects.remove(object_id);
            return WriteResult::Gone;
        }
        if matches!(operation, Operation::Finalize) {
            self.objects.retain(|other, _| other != object_id && other.namespace != object_id.name);
            return WriteResult::Gone;
        }
        let Some(object) = self.objects.get_mut(object_id) else { return WriteResult::Gone };
        match operation {
            Operation::Merge(patch) => merge(object, patch),
            Operation::MergeStatus(status) => merge(object, &json!({"status": status})),
            Operation::Bind(node) => object["spec"]["nodeName"] = json!(node),
            Operation::Delete => object["metadata"]["deletionTimestamp"] = json!("now"),
            Operation::Read | Operation::Create(_) | Operation::DeleteNow | Operation::Finalize => {}
        }
        WriteResult::Done(object.clone())
    }

    fn objects_of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(id, _)| id.kind == kind).map(|(_, object)| object)
    }

    /// Checks invariants visible to any client.
    fn check(&self) {
        let nodes: BTreeSet<&str> =
            self.objects_of(Kind::Node).filter_map(|node| node["metadata"]["name"].as_str()).collect();
        let uids: BTreeMap<&str, &ObjectId> = self
            .objects
            .iter()
            .filter_map(|(id, object)| Some((object["metadata"]["uid"].as_str()?, id)))
            .collect();
        for pod in self.objects_of(Kind::Pod) {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                assert!(nodes.contains(node), "the node of a pod must exist: {pod}");
            }
            let owner = &pod["metadata"]["ownerReferences"][0];
            let owner_id = owner["uid"].as_str().and_then(|uid| uids.get(uid));
            assert!(
                owner_id.is_some_and(|id| owner["name"] == id.name.as_str()),
                "the owner of a pod must exist: {pod}"
            );
            check_containers(pod);
        }
        self.objects_of(Kind::Node).for_each(check_taints);
    }

    /// Checks that replica sets count their ready pods, after all statuses are written. A terminating pod does not
    /// count, even before its status is written.
    fn check_counts(&self) {
        for set in self.objects_of(Kind::ReplicaSet) {
            let owned = |pod: &&Value| {
                pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
                    && pod["metadata"]["deletionTimestamp"].is_null()
            };
            let ready =
                self.objects_of(Kind::Pod).filter(owned).filter(|pod| condition(pod, "Ready") == "True");
            let written = set["status"]["readyReplicas"].as_u64().unwrap_or(0);
            assert_eq!(written, ready.count() as u64, "readyReplicas must match: {set}");
        }
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("")
}

/// Regression: evicted pods kept a running, ready container.
fn check_containers(pod: &Value) {
    let container = &pod["status"]["containerStatuses"][0];
    match pod["status"]["phase"].as_str() {
        Some("Failed") => assert!(container.is_null(), "a failed pod must not have a container: {pod}"),
        Some("Succeeded") => assert!(container["state"]["terminated"].is_object(), "{pod}"),
        Some("Pending") => assert!(container["state"]["running"].is_null(), "{pod}"),
        _ => {}
    }
    if condition(pod, "Ready") == "True" {
        assert!(pod["status"]["phase"] == "Running" && container["ready"] == true, "{pod}");
    }
}

/// Regression: nodes kept the taint of their creation, and a lost node had none.
fn check_taints(node: &Value) {
    let taints = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let mut taints: Vec<String> = taints
        .iter()
        .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()))
        .collect();
    taints.sort_unstable();
    let mut expected = Vec::new();
    if condition(node, "Ready") != "True" {
        expected.extend(["unreachable:NoExecute", "unreachable:NoSchedule"]);
    }
    if node["spec"]["unschedulable"] == true {
        expected.push("unschedulable:NoSchedule");
    }
    let expected: Vec<String> =
        expected.into_iter().map(|taint| format!("node.kubernetes.io/{taint}")).collect();
    assert_eq!(taints, expected, "{node}");
}

fn start(seed: u64, pods: usize) -> (Demo, World, Timestamp) {
    let now: Timestamp = "2024-01-01T00:00:00Z".parse().unwrap();
    let (mut demo, mut world) = (Demo::new(seed, pods, now), World::default());
    while play(&mut demo, &mut world, now) > 0 {}
    demo.start_incidents();
    (demo, world, now)
}

fn play(demo: &mut Demo, world: &mut World, now: Timestamp) -> usize {
    let writes = demo.tick(now);
    for write in &writes {
        let result = world.apply(write);
        demo.handle_result(write, &result);
    }
    writes.iter().filter(|write| write.operation != Operation::Read).count()
}

/// Runs the demo for this many seconds; returns the number of writes.
fn run_for(demo: &mut Demo, world: &mut World, now: &mut Timestamp, seconds: i64) -> usize {
    let end = *now + SignedDuration::from_secs(seconds);
    let mut writes = 0;
    while *now < end {
        *now = demo.next_action_time().max(*now + SignedDuration::from_millis(5)).min(end);
        writes += play(demo, world, *now);
        demo.check_invariants();
    }
    writes
}

/// Stops random incidents.
fn stop_incidents(demo: &mut Demo) {
    demo.queue.retain(|Reverse((.., action))| *action != ScheduledAction::Incident);
}

fn check_converged(demo: &Demo, world: &World) {
    for app in demo.apps.iter().filter(|app| !app.is_gone()) {
        let sets: usize = app.sets.iter().map(|set| set.pods.len()).sum();
        assert_eq!(sets, app.replicas, "the deployment must have the desired number of pods");
    }
    for deployment in world.objects_of(Kind::Deployment) {
        let wanted = &deployment["spec"]["replicas"];
        assert_eq!(&deployment["status"]["readyReplicas"], wanted, "{deployment}");
        assert_eq!(&deployment["status"]["updatedReplicas"], wanted, "{deployment}");
    }
    let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    assert_eq!(world.objects_of(Kind::Pod).filter(ready).count(), demo.pods.len());
}

#[test]
fn cluster_is_complete_before_incidents_start() {
    for pods in [1, 40, 300] {
        let (demo, world, _) = start(1, pods);
        demo.check_invariants();
        world.check();
        world.check_counts();
        check_converged(&demo, &world);
    }
}

#[test]
fn cluster_converges_after_incidents() {
    for seed in 0..4 {
        let (mut demo, mut world, mut now) = start(seed, 40);
        let mut writes = 0;
        for _ in 0..100 {
            writes += run_for(&mut demo, &mut world, &mut now, 3);
            world.check();
        }
        assert!((500..9000).contains(&writes), "seed {seed}: {writes} writes in five minutes");
        stop_incidents(&mut demo);
        run_for(&mut demo, &mut world, &mut now, 240);
        world.check();
        world.check_counts();
        check_converged(&demo, &world);
    }
}

/// The memory of a demo that runs for hours is flat only if neither its objects nor its own state accumulate.
#[test]
fn nothing_accumulates_in_an_hour() {
    let (mut demo, mut world, mut now) = start(5, 20);
    // The largest values of each third of the hour: objects, bytes of objects, scheduled actions, events.
    let mut peaks = [[0; 4]; 3];
    for peak in &mut peaks {
        for _ in 0..20 {
            let end = now + SignedDuration::from_secs(60);
            while now < end {
                now = demo.next_action_time().max(now + SignedDuration::from_millis(5));
                play(&mut demo, &mut world, now);
            }
            let bytes = world.objects.values().map(|object| object.to_string().len()).sum();
            let sizes = [world.objects.len(), bytes, demo.queue.len(), demo.events.len()];
            for (peak, size) in peak.iter_mut().zip(sizes) {
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
fn same_seed_produces_same_writes() {
    let history = || {
        let (mut demo, mut world, mut now) = start(7, 40);
        run_for(&mut demo, &mut world, &mut now, 60);
        world.objects
    };
    assert!(history() == history());
}

#[test]
fn deleted_pod_is_replaced() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    let doomed: Vec<ObjectId> =
        world.objects.keys().filter(|id| id.kind == Kind::Pod).take(5).cloned().collect();
    for id in &doomed {
        world.objects.remove(id);
    }
    let set = world.objects.keys().find(|id| id.kind == Kind::ReplicaSet).cloned().unwrap();
    world.objects.get_mut(&set).unwrap()["metadata"]["generation"] = json!(1);
    run_for(&mut demo, &mut world, &mut now, 60);
    check_converged(&demo, &world);
    assert!(doomed.iter().all(|id| !world.objects.contains_key(id)));
}

/// Regression: while a node was lost, its pods were not ready, but their replica sets reported them as ready.
#[test]
fn lost_node_reduces_ready_replicas() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    demo.lose_node(0);
    run_for(&mut demo, &mut world, &mut now, 2);
    let lost = |pod: &&Value| pod["spec"]["nodeName"] == "node-01" && condition(pod, "Ready") == "False";
    assert!(world.objects_of(Kind::Pod).filter(lost).count() > 5);
    world.check();
    world.check_counts();
    run_for(&mut demo, &mut world, &mut now, 30);
    world.check();
    world.check_counts();
    check_converged(&demo, &world);
}

/// Regression: the pods of a deleted node stayed until the renewal of its Lease was due.
#[test]
fn pods_of_deleted_node_are_deleted_immediately() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    world.objects.remove(&ObjectId::new(Kind::Node, "", "node-02"));
    run_for(&mut demo, &mut world, &mut now, 2);
    assert!(world.objects_of(Kind::Pod).all(|pod| pod["spec"]["nodeName"] != "node-02"));
    world.check();
    run_for(&mut demo, &mut world, &mut now, 60);
    assert!(world.objects.contains_key(&ObjectId::new(Kind::Node, "", "node-02")));
    world.check();
    check_converged(&demo, &world);
}

/// Taints set by users stay, and a node cordoned by a user is tainted.
#[test]
fn taints_set_by_users_are_kept() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    let mine = json!({"key": "mine", "value": "x", "effect": "NoSchedule"});
    let node = ObjectId::new(Kind::Node, "", "node-01");
    let spec = json!({"spec": {"unschedulable": true, "taints": [mine]}});
    merge(world.objects.get_mut(&node).unwrap(), &spec);
    run_for(&mut demo, &mut world, &mut now, 3);
    demo.lose_node(0);
    run_for(&mut demo, &mut world, &mut now, 2);
    let taints = |world: &World| world.objects[&node]["spec"]["taints"].as_array().unwrap().clone();
    assert_eq!(taints(&world).len(), 4, "{:?}", taints(&world));
    run_for(&mut demo, &mut world, &mut now, 30);
    assert_eq!(taints(&world).len(), 2, "{:?}", taints(&world));
    assert!(taints(&world).contains(&mine));
}

/// Regression: the deletion of a namespace never completed.
#[test]
fn deleted_namespace_is_finalized() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    let payments = ObjectId::new(Kind::Namespace, "", "payments");
    world.objects.get_mut(&payments).unwrap()["metadata"]["deletionTimestamp"] = json!("now");
    run_for(&mut demo, &mut world, &mut now, 5);
    assert!(!world.objects.contains_key(&payments));
    assert_eq!(world.objects.keys().find(|id| id.namespace == "payments"), None);
    assert!(demo.pods.values().all(|pod| pod.object_id.namespace != "payments"));
}

#[test]
fn changes_by_users_are_carried_out() {
    let (mut demo, mut world, mut now) = start(3, 40);
    stop_incidents(&mut demo);
    let web = ObjectId::new(Kind::Deployment, "shop", "web");
    merge(world.objects.get_mut(&web).unwrap(), &json!({"spec": {"replicas": 9}}));
    world.objects.get_mut(&web).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("mine:1");
    run_for(&mut demo, &mut world, &mut now, 120);
    check_converged(&demo, &world);
    let mine =
        world.objects_of(Kind::Pod).filter(|pod| pod["spec"]["containers"][0]["image"] == "mine:1").count();
    assert_eq!(mine, 9);

    world.objects.remove(&web);
    run_for(&mut demo, &mut world, &mut now, 60);
    let left = world.objects.keys().filter(|id| id.namespace == "shop" && id.name.starts_with("web-"));
    let left: Vec<&ObjectId> = left.filter(|id| matches!(id.kind, Kind::Pod | Kind::ReplicaSet)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn rejected_writes_break_nothing() {
    for refusal in [WriteResult::Rejected, WriteResult::Gone] {
        let (mut demo, mut world, mut now) = start(5, 40);
        for _ in 0..2000 {
            now += SignedDuration::from_millis(200);
            for (number, write) in demo.tick(now).into_iter().enumerate() {
                let result = if number % 3 == 0 { refusal.clone() } else { world.apply(&write) };
                demo.handle_result(&write, &result);
            }
            demo.check_invariants();
        }
    }
}

/// Executes the current writes, all of which the server must accept; returns whether there were any.
async fn apply_all(driver: &ServerDriver, demo: &mut Demo, now: Timestamp) -> bool {
    let writes = demo.tick(now);
    for write in &writes {
        let result = driver.apply(write).await;
        assert_ne!(result, WriteResult::Rejected, "{write:?}");
        demo.handle_result(write, &result);
    }
    demo.check_invariants();
    !writes.is_empty()
}

/// The embedded server accepts every write, so kube-apiserver would too. Regression: the server rejected
/// every Service, because their addresses belonged to another network, and the demo did not notice while it
/// built the cluster.
#[tokio::test]
async fn embedded_server_accepts_every_write() {
    let server = ApiServer::new();
    let driver = ServerDriver::new(&server);
    let mut now = Timestamp::now();
    let mut demo = Demo::new(11, 30, now);
    while apply_all(&driver, &mut demo, now).await {}
    let services = server.list("v1", "services", None);
    let of_demo = services.iter().filter(|service| service["metadata"]["namespace"] != "default");
    assert_eq!(of_demo.count(), demo.apps.len());
    demo.start_incidents();
    let end = now + SignedDuration::from_secs(60);
    while now < end {
        now = demo.next_action_time().max(now + SignedDuration::from_millis(5));
        apply_all(&driver, &mut demo, now).await;
    }
    for node in server.list("v1", "nodes", None) {
        check_taints(&node);
    }
    let ready = |pod: &&Value| pod["status"]["phase"] == "Running";
    assert!(server.list("v1", "pods", None).iter().filter(ready).count() > 10);
    assert_eq!(server.list("v1", "pods", None).len(), demo.pods.len());
}

/// The embedded server finalizes a namespace through its subresource.
#[tokio::test]
async fn embedded_server_finalizes_namespace() {
    let server = ApiServer::new();
    let driver = ServerDriver::new(&server);
    let mut now = Timestamp::now();
    let mut demo = Demo::new(11, 30, now);
    while apply_all(&driver, &mut demo, now).await {}
    demo.start_incidents();
    stop_incidents(&mut demo);
    server.delete("v1", "namespaces", None, "payments").unwrap();
    let end = now + SignedDuration::from_secs(5);
    while now < end {
        now = demo.next_action_time().max(now + SignedDuration::from_millis(5));
        apply_all(&driver, &mut demo, now).await;
    }
    assert_eq!(server.get("v1", "namespaces", None, "payments"), None);
    for kind in Kind::IN_NAMESPACES {
        assert!(server.list(kind.api_version(), kind.plural(), Some("payments")).is_empty(), "{kind:?}");
    }
}

#[test]
fn merge_follows_rfc_7396() {
    let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 1});
    merge(&mut object, &json!({"a": {"b": null, "x": {"y": null}}, "d": [3], "f": "g"}));
    assert_eq!(object, json!({"a": {"c": 2, "x": {}}, "d": [3], "e": 1, "f": "g"}));
}
