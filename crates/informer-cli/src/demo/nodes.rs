//! Nodes: their leases, their readiness, their taints, and what all that means for the pods on them.

use super::objects::{self, Report};
use super::pods::OwnerId;
use super::status::{self, Phase};
use super::write::{Answer, At, Kind, What, Write};
use super::{Demo, Due};
use jiff::Timestamp;
use serde_json::{Value, json};

/// How often a lease is renewed, in milliseconds.
pub(super) const LEASE: i64 = 10_000;

/// How long a node that somebody deleted stays away, in milliseconds.
const ABSENCE: i64 = 5000;

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: String,
    uid: String,
    /// Whether the server has it.
    there: bool,
    pub(super) ready: bool,
    cordoned: bool,
    /// Taints that somebody else put on it.
    foreign: Vec<Value>,
    changed: Timestamp,
    /// How many pods are on it.
    pub(super) load: usize,
}

impl Node {
    pub(super) fn takes_pods(&self) -> bool {
        self.there && self.ready && !self.cordoned
    }

    /// The taints that follow from its state, as the node controller puts them.
    fn taints(&self) -> Value {
        let taint = |key: &str, effect: &str| {
            let added = objects::time(self.changed);
            json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect, "timeAdded": added})
        };
        let mut taints = self.foreign.clone();
        if !self.ready {
            taints.extend([taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")]);
        }
        if self.cordoned {
            taints.push(taint("unschedulable", "NoSchedule"));
        }
        if taints.is_empty() { Value::Null } else { Value::Array(taints) }
    }

    fn at(&self) -> At {
        At::new(Kind::Node, "", &self.name)
    }
}

impl Demo {
    pub(super) fn add_nodes(&mut self, count: usize) {
        for number in 0..count {
            let name = format!("node-{:02}", number + 1);
            let address = format!("10.0.{}.{}", number / 250, number % 250 + 4);
            let now = self.now;
            self.nodes.push(Node {
                name,
                address,
                uid: String::new(),
                there: true,
                ready: true,
                cordoned: false,
                foreign: Vec::new(),
                changed: now,
                load: 0,
            });
            self.create_node(number);
        }
    }

    /// The node for the next pod: one with the fewest, if any takes pods.
    pub(super) fn choose_node(&mut self) -> Option<usize> {
        let fewest = self.nodes.iter().filter(|node| node.takes_pods()).map(|node| node.load).min()?;
        let among =
            self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods() && node.load <= fewest + 1);
        let among: Vec<usize> = among.map(|(at, _)| at).collect();
        let chosen = self.chance.below(among.len());
        among.get(chosen).copied()
    }

    pub(super) fn renew(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        if node.there && node.ready {
            let lease = At::new(Kind::Lease, "kube-node-lease", &node.name);
            let renewed = objects::micro_time(self.now);
            self.write(lease, What::Merge(json!({"spec": {"renewTime": renewed}})));
        }
        self.after(LEASE, Due::Lease(at));
    }

    /// A node is not heard any more, for a while.
    pub(super) fn node_lost(&mut self, at: usize) {
        self.set_ready(at, false, "NodeNotReady");
        let wait = self.chance.between(5000, 15_000);
        self.after(wait, Due::Back(at));
    }

    pub(super) fn node_back(&mut self, at: usize) {
        self.set_ready(at, true, "NodeReady");
    }

    /// Takes a node out of scheduling, or puts it back.
    pub(super) fn cordon(&mut self, at: usize, cordoned: bool) {
        let changes = |node: &&mut Node| node.there && node.cordoned != cordoned;
        let Some(node) = self.nodes.get_mut(at).filter(changes) else { return };
        node.cordoned = cordoned;
        let (place, uid) = (node.at(), node.uid.clone());
        let unschedulable = if cordoned { json!(true) } else { Value::Null };
        let patch = json!({"spec": {"unschedulable": unschedulable, "taints": node.taints()}});
        let reason = if cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
        let message = format!("Node {} status is now: {reason}", place.name);
        self.write(place.clone(), What::Merge(patch));
        self.say(&Report { about: &place, uid: &uid, reason, message: &message, component: "kubelet" });
        if cordoned {
            let wait = self.chance.between(20_000, 40_000);
            self.after(wait, Due::Uncordon(at));
        }
    }

    pub(super) fn node_answered(&mut self, write: &Write, answer: &Answer) {
        let found = self.nodes.iter().position(|node| node.name == write.at.name);
        let Some((at, node)) = found.and_then(|at| Some((at, self.nodes.get_mut(at)?))) else { return };
        match (answer, &write.what) {
            (Answer::Done(object), what) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut node.uid);
                node.cordoned = object["spec"]["unschedulable"] == true;
                let there = object["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
                node.foreign = there.iter().filter(|taint| !is_ours(taint)).cloned().collect();
                // What it was created with, or what somebody did to it, may not be what its state says.
                let is_late = !matches!(what, What::MergeStatus(_)) && !are_alike(&node.taints(), there);
                if is_late {
                    let (place, taints) = (node.at(), node.taints());
                    self.write(place, What::Merge(json!({"spec": {"taints": taints}})));
                }
            }
            (Answer::Gone, What::Look | What::Merge(_) | What::MergeStatus(_)) => self.node_gone(at),
            (_, What::Create(_)) if !self.young => self.after(ABSENCE, Due::Register(at)),
            _ => {}
        }
    }

    /// Looks whether all of them are there: somebody may have deleted one.
    pub(super) fn look_at_nodes(&mut self) {
        let there: Vec<At> = self.nodes.iter().filter(|node| node.there).map(Node::at).collect();
        for at in there {
            self.write(at, What::Look);
        }
        self.after(1000, Due::LookNodes);
    }

    /// Its machine is there again, and says so.
    pub(super) fn register(&mut self, at: usize) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(at) else { return };
        (node.there, node.ready, node.cordoned, node.changed) = (true, true, false, now);
        node.foreign.clear();
        self.create_node(at);
    }

    /// Somebody deleted it: its pods go with it, and its machine registers again after a while.
    fn node_gone(&mut self, at: usize) {
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.there) else { return };
        node.there = false;
        let there = self.pods.iter().filter(|(_, pod)| pod.node == Some(at)).map(|(id, _)| *id);
        for pod in there.collect::<Vec<_>>() {
            self.kill(pod);
        }
        self.after(ABSENCE, Due::Register(at));
    }

    fn create_node(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        let zone = ["eu-1a", "eu-1b", "eu-1c"].get(at % 3).copied().unwrap_or_default();
        let status = status::node(node.ready, &node.address, node.changed, self.now);
        let object = objects::node(&node.name, zone, &status);
        let (place, lease) = (node.at(), objects::lease(&node.name, self.now));
        let lease_at = At::new(Kind::Lease, "kube-node-lease", &node.name);
        self.create(place, object);
        self.create(lease_at, lease);
    }

    fn set_ready(&mut self, at: usize, ready: bool, reason: &str) {
        let now = self.now;
        let changes = |node: &&mut Node| node.there && node.ready != ready;
        let Some(node) = self.nodes.get_mut(at).filter(changes) else { return };
        (node.ready, node.changed) = (ready, now);
        let (place, uid, taints) = (node.at(), node.uid.clone(), node.taints());
        let status = status::node(ready, &node.address, now, now);
        self.write(place.clone(), What::MergeStatus(status));
        self.write(place.clone(), What::Merge(json!({"spec": {"taints": taints}})));
        let message = format!("Node {} status is now: {reason}", place.name);
        self.say(&Report {
            about: &place,
            uid: &uid,
            reason,
            message: &message,
            component: "node-controller",
        });
        let there: Vec<u64> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.node == Some(at) && pod.phase == Phase::Ready)
            .map(|(id, _)| *id)
            .collect();
        for pod in there {
            self.touch(pod);
            self.tell_status(pod);
            if let Some(OwnerId::Set(app, _)) = self.pods.get(&pod).map(|pod| &pod.owner) {
                self.want_sync(*app);
            }
        }
    }
}

/// Whether a taint says what state a node is in.
fn is_ours(taint: &Value) -> bool {
    let key = taint["key"].as_str().and_then(|key| key.strip_prefix("node.kubernetes.io/"));
    matches!(key, Some("not-ready" | "unreachable" | "unschedulable"))
}

/// Whether two sets of taints are the same but for when they were put there.
fn are_alike(wanted: &Value, there: &[Value]) -> bool {
    let wanted = wanted.as_array().map_or(&[][..], Vec::as_slice);
    let same = |one: &Value, other: &Value| one["key"] == other["key"] && one["effect"] == other["effect"];
    wanted.len() == there.len() && wanted.iter().all(|one| there.iter().any(|other| same(one, other)))
}
