//! Nodes: leases, readiness, taints, and their effect on pods.

use super::objects::{self, EventDetails};
use super::pods::OwnerId;
use super::status::{self, Phase};
use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, ScheduledAction};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Renew period of a Lease, in milliseconds.
pub(super) const LEASE_RENEW_PERIOD_MS: i64 = 10_000;

/// Time until a deleted node registers again, in milliseconds.
const REREGISTER_DELAY_MS: i64 = 5000;

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
    /// Taints set by users.
    foreign: Vec<Value>,
    changed: Timestamp,
    /// Number of pods on it.
    pub(super) load: usize,
}

impl Node {
    pub(super) fn takes_pods(&self) -> bool {
        self.there && self.ready && !self.cordoned
    }

    /// Returns the taints that follow from its state, as the node controller sets them.
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

    fn at(&self) -> ObjectId {
        ObjectId::new(Kind::Node, "", &self.name)
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

    /// Returns the schedulable node with the fewest pods.
    pub(super) fn choose_node(&mut self) -> Option<usize> {
        let fewest = self.nodes.iter().filter(|node| node.takes_pods()).map(|node| node.load).min()?;
        let among =
            self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods() && node.load <= fewest + 1);
        let among: Vec<usize> = among.map(|(at, _)| at).collect();
        let chosen = self.rng.below(among.len());
        among.get(chosen).copied()
    }

    pub(super) fn renew(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        if node.there && node.ready {
            let lease = ObjectId::new(Kind::Lease, "kube-node-lease", &node.name);
            let renewed = objects::micro_time(self.now);
            self.write(lease, Operation::Merge(json!({"spec": {"renewTime": renewed}})));
        }
        self.after(LEASE_RENEW_PERIOD_MS, ScheduledAction::Lease(at));
    }

    /// Makes a node unreachable for a while.
    pub(super) fn node_lost(&mut self, at: usize) {
        self.set_ready(at, false, "NodeNotReady");
        let wait = self.rng.between(5000, 15_000);
        self.after(wait, ScheduledAction::Back(at));
    }

    pub(super) fn node_back(&mut self, at: usize) {
        self.set_ready(at, true, "NodeReady");
    }

    /// Makes a node unschedulable or schedulable.
    pub(super) fn cordon(&mut self, at: usize, cordoned: bool) {
        let changes = |node: &&mut Node| node.there && node.cordoned != cordoned;
        let Some(node) = self.nodes.get_mut(at).filter(changes) else { return };
        node.cordoned = cordoned;
        let (place, uid) = (node.at(), node.uid.clone());
        let unschedulable = if cordoned { json!(true) } else { Value::Null };
        let patch = json!({"spec": {"unschedulable": unschedulable, "taints": node.taints()}});
        let reason = if cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
        let message = format!("Node {} status is now: {reason}", place.name);
        self.write(place.clone(), Operation::Merge(patch));
        self.record_event(&EventDetails {
            about: &place,
            uid: &uid,
            reason,
            message: &message,
            component: "kubelet",
        });
        if cordoned {
            let wait = self.rng.between(20_000, 40_000);
            self.after(wait, ScheduledAction::Uncordon(at));
        }
    }

    pub(super) fn handle_node_result(&mut self, write: &Write, result: &WriteResult) {
        let found = self.nodes.iter().position(|node| node.name == write.at.name);
        let Some((at, node)) = found.and_then(|at| Some((at, self.nodes.get_mut(at)?))) else { return };
        match (result, &write.operation) {
            (WriteResult::Done(object), operation) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut node.uid);
                node.cordoned = object["spec"]["unschedulable"] == true;
                let there = object["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
                node.foreign = there.iter().filter(|taint| !is_state_taint(taint)).cloned().collect();
                // Its taints at creation, or after a change by a user, may not match its state.
                let is_late = !matches!(operation, Operation::MergeStatus(_))
                    && !are_equal_except_time(&node.taints(), there);
                if is_late {
                    let (place, taints) = (node.at(), node.taints());
                    self.write(place, Operation::Merge(json!({"spec": {"taints": taints}})));
                }
            }
            (WriteResult::Gone, Operation::Read | Operation::Merge(_) | Operation::MergeStatus(_)) => {
                self.node_gone(at);
            }
            (_, Operation::Create(_)) if !self.starting => {
                self.after(REREGISTER_DELAY_MS, ScheduledAction::Register(at));
            }
            _ => {}
        }
    }

    /// Reads all nodes, because users may have deleted one.
    pub(super) fn reconcile_nodes(&mut self) {
        let there: Vec<ObjectId> = self.nodes.iter().filter(|node| node.there).map(Node::at).collect();
        for at in there {
            self.write(at, Operation::Read);
        }
        self.after(1000, ScheduledAction::ReconcileNodes);
    }

    /// Registers a node again.
    pub(super) fn register(&mut self, at: usize) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(at) else { return };
        (node.there, node.ready, node.cordoned, node.changed) = (true, true, false, now);
        node.foreign.clear();
        self.create_node(at);
    }

    /// Handles the deletion of a node: its pods are deleted, and it registers again later.
    fn node_gone(&mut self, at: usize) {
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.there) else { return };
        node.there = false;
        let there = self.pods.iter().filter(|(_, pod)| pod.node == Some(at)).map(|(id, _)| *id);
        for pod in there.collect::<Vec<_>>() {
            self.delete_pod(pod);
        }
        self.after(REREGISTER_DELAY_MS, ScheduledAction::Register(at));
    }

    fn create_node(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        let zone = ["eu-1a", "eu-1b", "eu-1c"].get(at % 3).copied().unwrap_or_default();
        let status = status::node(node.ready, &node.address, node.changed, self.now);
        let object = objects::node(&node.name, zone, &status);
        let (place, lease) = (node.at(), objects::lease(&node.name, self.now));
        let lease_at = ObjectId::new(Kind::Lease, "kube-node-lease", &node.name);
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
        self.write(place.clone(), Operation::MergeStatus(status));
        self.write(place.clone(), Operation::Merge(json!({"spec": {"taints": taints}})));
        let message = format!("Node {} status is now: {reason}", place.name);
        self.record_event(&EventDetails {
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
            self.write_pod_status(pod);
            if let Some(OwnerId::Set(app, _)) = self.pods.get(&pod).map(|pod| &pod.owner) {
                self.want_sync(*app);
            }
        }
    }
}

/// Whether a taint describes the state of a node.
fn is_state_taint(taint: &Value) -> bool {
    let key = taint["key"].as_str().and_then(|key| key.strip_prefix("node.kubernetes.io/"));
    matches!(key, Some("not-ready" | "unreachable" | "unschedulable"))
}

/// Whether two sets of taints are equal except for their times.
fn are_equal_except_time(wanted: &Value, there: &[Value]) -> bool {
    let wanted = wanted.as_array().map_or(&[][..], Vec::as_slice);
    let same = |one: &Value, other: &Value| one["key"] == other["key"] && one["effect"] == other["effect"];
    wanted.len() == there.len() && wanted.iter().all(|one| there.iter().any(|other| same(one, other)))
}
