//! The demo against a world that does as it is told, against one that does not, and against the embedded server.

use super::driver::{Stage, merge};
use super::*;
use informer_apiserver::ApiServer;
use serde_json::json;
use std::collections::BTreeSet;

/// The objects of a cluster without a server.
#[derive(Default)]
struct World {
    objects: BTreeMap<At, Value>,
    uids: u64,
}

impl World {
    fn apply(&mut self, write: &Write) -> Answer {
        let Write { at, what } = write;
        if let What::Create(object) = what {
            if let Some(there) = self.objects.get(at) {
                return Answer::Done(there.clone());
            }
            self.uids += 1;
            let mut object = object.clone();
            object["metadata"]["uid"] = json!(format!("uid-{}", self.uids));
            object["metadata"]["generation"] = json!(1);
            assert_eq!(object["metadata"]["name"], at.name.as_str());
            if at.kind == Kind::Node {
                // As the server does it.
                object["spec"]["taints"] =
                    json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]);
            }
            self.objects.insert(at.clone(), object.clone());
            return Answer::Done(object);
        }
        if matches!(what, What::Kill) {
            self.objects.remove(at);
            return Answer::Gone;
        }
        if matches!(what, What::Finalize) {
            self.objects.retain(|other, _| other != at && other.namespace != at.name);
            return Answer::Gone;
        }
        let Some(object) = self.objects.get_mut(at) else { return Answer::Gone };
        match what {
            What::Merge(patch) => merge(object, patch),
            What::MergeStatus(status) => merge(object, &json!({"status": status})),
            What::Bind(node) => object["spec"]["nodeName"] = json!(node),
            What::Delete => object["metadata"]["deletionTimestamp"] = json!("now"),
            What::Look | What::Create(_) | What::Kill | What::Finalize => {}
        }
        Answer::Done(object.clone())
    }

    fn of(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(at, _)| at.kind == kind).map(|(_, object)| object)
    }

    /// What anybody who looks at the cluster may rely on.
    fn check(&self) {
        let nodes: BTreeSet<&str> =
            self.of(Kind::Node).filter_map(|node| node["metadata"]["name"].as_str()).collect();
        let uids: BTreeMap<&str, &At> = self
            .objects
            .iter()
            .filter_map(|(at, object)| Some((object["metadata"]["uid"].as_str()?, at)))
            .collect();
        for pod in self.of(Kind::Pod) {
            if let Some(node) = pod["spec"]["nodeName"].as_str() {
                assert!(nodes.contains(node), "a pod is on a node that is there: {pod}");
            }
            let owner = &pod["metadata"]["ownerReferences"][0];
            let found = owner["uid"].as_str().and_then(|uid| uids.get(uid));
            assert!(
                found.is_some_and(|at| owner["name"] == at.name.as_str()),
                "a pod's owner is there: {pod}"
            );
            check_containers(pod);
        }
        self.of(Kind::Node).for_each(check_taints);
    }

    /// Once every status is told: sets count the pods that are ready. A pod that ends counts no more, though nothing was told of it yet.
    fn check_counts(&self) {
        for set in self.of(Kind::ReplicaSet) {
            let owned = |pod: &&Value| {
                pod["metadata"]["ownerReferences"][0]["uid"] == set["metadata"]["uid"]
                    && pod["metadata"]["deletionTimestamp"].is_null()
            };
            let ready = self.of(Kind::Pod).filter(owned).filter(|pod| condition(pod, "Ready") == "True");
            let told = set["status"]["readyReplicas"].as_u64().unwrap_or(0);
            assert_eq!(told, ready.count() as u64, "a set counts its pods: {set}");
        }
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or("")
}

/// Evicted pods once kept a container that ran and was ready.
fn check_containers(pod: &Value) {
    let container = &pod["status"]["containerStatuses"][0];
    match pod["status"]["phase"].as_str() {
        Some("Failed") => assert!(container.is_null(), "what failed has no container: {pod}"),
        Some("Succeeded") => assert!(container["state"]["terminated"].is_object(), "{pod}"),
        Some("Pending") => assert!(container["state"]["running"].is_null(), "{pod}"),
        _ => {}
    }
    if condition(pod, "Ready") == "True" {
        assert!(pod["status"]["phase"] == "Running" && container["ready"] == true, "{pod}");
    }
}

/// Nodes once kept the taint that the server creates them with, and a lost one had none.
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
    demo.let_live();
    (demo, world, now)
}

fn play(demo: &mut Demo, world: &mut World, now: Timestamp) -> usize {
    let writes = demo.tick(now);
    for write in &writes {
        let answer = world.apply(write);
        demo.answer(write, &answer);
    }
    writes.iter().filter(|write| write.what != What::Look).count()
}

/// Plays for so many seconds; how much was written.
fn live(demo: &mut Demo, world: &mut World, now: &mut Timestamp, seconds: i64) -> usize {
    let end = *now + SignedDuration::from_secs(seconds);
    let mut writes = 0;
    while *now < end {
        *now = demo.next().max(*now + SignedDuration::from_millis(5)).min(end);
        writes += play(demo, world, *now);
        demo.check_invariants();
    }
    writes
}

/// Lets nothing more happen by chance.
fn calm(demo: &mut Demo) {
    demo.queue.retain(|Reverse((.., due))| *due != Due::Incident);
}

fn check_converged(demo: &Demo, world: &World) {
    for app in demo.apps.iter().filter(|app| !app.is_gone()) {
        let sets: usize = app.sets.iter().map(|set| set.pods.len()).sum();
        assert_eq!(sets, app.replicas, "as many pods as wanted");
    }
    for deployment in world.of(Kind::Deployment) {
        let wanted = &deployment["spec"]["replicas"];
        assert_eq!(&deployment["status"]["readyReplicas"], wanted, "{deployment}");
        assert_eq!(&deployment["status"]["updatedReplicas"], wanted, "{deployment}");
    }
    let ready = |pod: &&Value| pod["status"]["containerStatuses"][0]["ready"] == true;
    assert_eq!(world.of(Kind::Pod).filter(ready).count(), demo.pods.len());
}

#[test]
fn the_cluster_stands_before_it_lives() {
    for pods in [1, 40, 300] {
        let (demo, world, _) = start(1, pods);
        demo.check_invariants();
        world.check();
        world.check_counts();
        check_converged(&demo, &world);
    }
}

#[test]
fn whatever_happens_it_comes_to_rest() {
    for seed in 0..4 {
        let (mut demo, mut world, mut now) = start(seed, 40);
        let mut writes = 0;
        for _ in 0..100 {
            writes += live(&mut demo, &mut world, &mut now, 3);
            world.check();
        }
        assert!((500..9000).contains(&writes), "seed {seed}: {writes} writes in five minutes");
        calm(&mut demo);
        live(&mut demo, &mut world, &mut now, 240);
        world.check();
        world.check_counts();
        check_converged(&demo, &world);
    }
}

#[test]
fn the_same_seed_tells_the_same_story() {
    let story = || {
        let (mut demo, mut world, mut now) = start(7, 40);
        live(&mut demo, &mut world, &mut now, 60);
        world.objects
    };
    assert!(story() == story());
}

#[test]
fn what_somebody_deletes_is_replaced() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    let doomed: Vec<At> = world.objects.keys().filter(|at| at.kind == Kind::Pod).take(5).cloned().collect();
    for at in &doomed {
        world.objects.remove(at);
    }
    let set = world.objects.keys().find(|at| at.kind == Kind::ReplicaSet).cloned().unwrap();
    world.objects.get_mut(&set).unwrap()["metadata"]["generation"] = json!(1);
    live(&mut demo, &mut world, &mut now, 60);
    check_converged(&demo, &world);
    assert!(doomed.iter().all(|at| !world.objects.contains_key(at)));
}

/// While a node was lost its pods were not ready, and their sets said that they were.
#[test]
fn a_lost_node_shows_in_what_sets_count() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    demo.node_lost(0);
    live(&mut demo, &mut world, &mut now, 2);
    let lost = |pod: &&Value| pod["spec"]["nodeName"] == "node-01" && condition(pod, "Ready") == "False";
    assert!(world.of(Kind::Pod).filter(lost).count() > 5);
    world.check();
    world.check_counts();
    live(&mut demo, &mut world, &mut now, 30);
    world.check();
    world.check_counts();
    check_converged(&demo, &world);
}

/// The pods of a node that somebody deleted stayed on it for as long as its lease was not due.
#[test]
fn the_pods_of_a_deleted_node_go_at_once() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    world.objects.remove(&At::new(Kind::Node, "", "node-02"));
    live(&mut demo, &mut world, &mut now, 2);
    assert!(world.of(Kind::Pod).all(|pod| pod["spec"]["nodeName"] != "node-02"));
    world.check();
    live(&mut demo, &mut world, &mut now, 60);
    assert!(world.objects.contains_key(&At::new(Kind::Node, "", "node-02")));
    world.check();
    check_converged(&demo, &world);
}

/// What somebody else puts on a node stays, and what he cordons is tainted.
#[test]
fn the_taints_of_others_stay() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    let mine = json!({"key": "mine", "value": "x", "effect": "NoSchedule"});
    let node = At::new(Kind::Node, "", "node-01");
    let spec = json!({"spec": {"unschedulable": true, "taints": [mine]}});
    merge(world.objects.get_mut(&node).unwrap(), &spec);
    live(&mut demo, &mut world, &mut now, 3);
    demo.node_lost(0);
    live(&mut demo, &mut world, &mut now, 2);
    let taints = |world: &World| world.objects[&node]["spec"]["taints"].as_array().unwrap().clone();
    assert_eq!(taints(&world).len(), 4, "{:?}", taints(&world));
    live(&mut demo, &mut world, &mut now, 30);
    assert_eq!(taints(&world).len(), 2, "{:?}", taints(&world));
    assert!(taints(&world).contains(&mine));
}

/// A namespace that somebody deleted never ended.
#[test]
fn a_deleted_namespace_ends() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    let payments = At::new(Kind::Namespace, "", "payments");
    world.objects.get_mut(&payments).unwrap()["metadata"]["deletionTimestamp"] = json!("now");
    live(&mut demo, &mut world, &mut now, 5);
    assert!(!world.objects.contains_key(&payments));
    assert_eq!(world.objects.keys().find(|at| at.namespace == "payments"), None);
    assert!(demo.pods.values().all(|pod| pod.at.namespace != "payments"));
}

#[test]
fn what_somebody_asks_for_is_done() {
    let (mut demo, mut world, mut now) = start(3, 40);
    calm(&mut demo);
    let web = At::new(Kind::Deployment, "shop", "web");
    merge(world.objects.get_mut(&web).unwrap(), &json!({"spec": {"replicas": 9}}));
    world.objects.get_mut(&web).unwrap()["spec"]["template"]["spec"]["containers"][0]["image"] =
        json!("mine:1");
    live(&mut demo, &mut world, &mut now, 120);
    check_converged(&demo, &world);
    let mine = world.of(Kind::Pod).filter(|pod| pod["spec"]["containers"][0]["image"] == "mine:1").count();
    assert_eq!(mine, 9);

    world.objects.remove(&web);
    live(&mut demo, &mut world, &mut now, 60);
    let left = world.objects.keys().filter(|at| at.namespace == "shop" && at.name.starts_with("web-"));
    let left: Vec<&At> = left.filter(|at| matches!(at.kind, Kind::Pod | Kind::ReplicaSet)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_server_that_refuses_everything_breaks_nothing() {
    for refusal in [Answer::Refused, Answer::Gone] {
        let (mut demo, mut world, mut now) = start(5, 40);
        for _ in 0..2000 {
            now += SignedDuration::from_millis(200);
            for (number, write) in demo.tick(now).into_iter().enumerate() {
                let answer = if number % 3 == 0 { refusal.clone() } else { world.apply(&write) };
                demo.answer(&write, &answer);
            }
            demo.check_invariants();
        }
    }
}

/// Does what there is to do now, all of which the server takes; whether there was anything.
async fn play_on(stage: &Stage, demo: &mut Demo, now: Timestamp) -> bool {
    let writes = demo.tick(now);
    for write in &writes {
        let answer = stage.apply(write).await;
        assert_ne!(answer, Answer::Refused, "{write:?}");
        demo.answer(write, &answer);
    }
    demo.check_invariants();
    !writes.is_empty()
}

/// The embedded server accepts all of it: what the demo writes is what a real one would take. It once refused every Service, for an address
/// of another network, and nobody looked at the answers while the cluster was built.
#[tokio::test]
async fn the_embedded_server_takes_every_write() {
    let server = ApiServer::new();
    let stage = Stage::new(&server);
    let mut now = Timestamp::now();
    let mut demo = Demo::new(11, 30, now);
    while play_on(&stage, &mut demo, now).await {}
    let services = server.list("v1", "services", None);
    let of_ours = services.iter().filter(|service| service["metadata"]["namespace"] != "default");
    assert_eq!(of_ours.count(), demo.apps.len());
    demo.let_live();
    let end = now + SignedDuration::from_secs(60);
    while now < end {
        now = demo.next().max(now + SignedDuration::from_millis(5));
        play_on(&stage, &mut demo, now).await;
    }
    for node in server.list("v1", "nodes", None) {
        check_taints(&node);
    }
    let ready = |pod: &&Value| pod["status"]["phase"] == "Running";
    assert!(server.list("v1", "pods", None).iter().filter(ready).count() > 10);
    assert_eq!(server.list("v1", "pods", None).len(), demo.pods.len());
}

/// On the embedded server too, through the subresource.
#[tokio::test]
async fn the_embedded_server_lets_a_namespace_end() {
    let server = ApiServer::new();
    let stage = Stage::new(&server);
    let mut now = Timestamp::now();
    let mut demo = Demo::new(11, 30, now);
    while play_on(&stage, &mut demo, now).await {}
    demo.let_live();
    calm(&mut demo);
    server.delete("v1", "namespaces", None, "payments").unwrap();
    let end = now + SignedDuration::from_secs(5);
    while now < end {
        now = demo.next().max(now + SignedDuration::from_millis(5));
        play_on(&stage, &mut demo, now).await;
    }
    assert_eq!(server.get("v1", "namespaces", None, "payments"), None);
    for kind in Kind::IN_NAMESPACES {
        assert!(server.list(kind.api_version(), kind.plural(), Some("payments")).is_empty(), "{kind:?}");
    }
}

#[test]
fn a_merge_is_that_of_the_rfc() {
    let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 1});
    merge(&mut object, &json!({"a": {"b": null, "x": {"y": null}}, "d": [3], "f": "g"}));
    assert_eq!(object, json!({"a": {"c": 2, "x": {}}, "d": [3], "e": 1, "f": "g"}));
}
