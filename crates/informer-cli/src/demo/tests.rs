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
            self.objects.insert(at.clone(), object.clone());
            return Answer::Done(object);
        }
        if matches!(what, What::Kill) {
            self.objects.remove(at);
            return Answer::Gone;
        }
        let Some(object) = self.objects.get_mut(at) else { return Answer::Gone };
        match what {
            What::Merge(patch) => merge(object, patch),
            What::MergeStatus(status) => merge(object, &json!({"status": status})),
            What::Bind(node) => object["spec"]["nodeName"] = json!(node),
            What::Delete => object["metadata"]["deletionTimestamp"] = json!("now"),
            What::Look | What::Create(_) | What::Kill => {}
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
        }
    }
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
        check_converged(&demo, &world);
    }
}

#[test]
fn whatever_happens_it_comes_to_rest() {
    for seed in 0..4 {
        let (mut demo, mut world, mut now) = start(seed, 40);
        let writes = live(&mut demo, &mut world, &mut now, 300);
        world.check();
        assert!((500..9000).contains(&writes), "seed {seed}: {writes} writes in five minutes");
        calm(&mut demo);
        live(&mut demo, &mut world, &mut now, 240);
        world.check();
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
    let ready = |pod: &&Value| pod["status"]["phase"] == "Running";
    assert!(server.list("v1", "pods", None).iter().filter(ready).count() > 10);
    assert_eq!(server.list("v1", "pods", None).len(), demo.pods.len());
}

#[test]
fn a_merge_is_that_of_the_rfc() {
    let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1, 2], "e": 1});
    merge(&mut object, &json!({"a": {"b": null, "x": {"y": null}}, "d": [3], "f": "g"}));
    assert_eq!(object, json!({"a": {"c": 2, "x": {}}, "d": [3], "e": 1, "f": "g"}));
}
