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
    /// Whether the node exists on the server.
    exists: bool,
    pub(super) ready: bool,
    cordoned: bool,
    /// Taints set by users.
    user_taints: Vec<Value>,
    /// Time of the last change of `ready`.
    changed: Timestamp,
    /// Number of pods on the node.
    pub(super) load: usize,
}

impl Node {
    pub(super) fn takes_pods(&self) -> bool {
        self.exists && self.ready && !self.cordoned
    }

    /// Returns the taints set by users, and those that follow from the node's state, as the node controller
    /// of kube-controller-manager sets them.
    fn taints(&self) -> Value {
        let taint = |key: &str, effect: &str| {
            let added = objects::time(self.changed);
            json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect, "timeAdded": added})
        };
        let mut taints = self.user_taints.clone();
        if !self.ready {
            taints.extend([taint("unreachable", "NoSchedule"), taint("unreachable", "NoExecute")]);
        }
        if self.cordoned {
            taints.push(taint("unschedulable", "NoSchedule"));
        }
        if taints.is_empty() { Value::Null } else { Value::Array(taints) }
    }

    fn object_id(&self) -> ObjectId {
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
                exists: true,
                ready: true,
                cordoned: false,
                user_taints: Vec::new(),
                changed: now,
                load: 0,
            });
            self.create_node(number);
        }
    }

    /// Returns a random node among the schedulable ones with the fewest pods or one more.
    pub(super) fn choose_node(&mut self) -> Option<usize> {
        let fewest = self.nodes.iter().filter(|node| node.takes_pods()).map(|node| node.load).min()?;
        let candidates =
            self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods() && node.load <= fewest + 1);
        let candidates: Vec<usize> = candidates.map(|(index, _)| index).collect();
        let chosen = self.rng.below(candidates.len());
        candidates.get(chosen).copied()
    }

    /// Renews the Lease of a node, if the node is ready, and schedules the next renewal.
    pub(super) fn renew_lease(&mut self, node_index: usize) {
        let Some(node) = self.nodes.get(node_index) else { return };
        if node.exists && node.ready {
            let lease = ObjectId::new(Kind::Lease, "kube-node-lease", &node.name);
            let renewed = objects::micro_time(self.now);
            self.write(lease, Operation::Merge(json!({"spec": {"renewTime": renewed}})));
        }
        self.schedule_after(LEASE_RENEW_PERIOD_MS, ScheduledAction::RenewLease(node_index));
    }

    /// Makes a node unreachable for a while.
    pub(super) fn lose_node(&mut self, node_index: usize) {
        let ready = false;
        self.set_ready(node_index, ready, "NodeNotReady");
        let wait = self.rng.between(5000, 15_000);
        self.schedule_after(wait, ScheduledAction::RestoreNode(node_index));
    }

    pub(super) fn restore_node(&mut self, node_index: usize) {
        let ready = true;
        self.set_ready(node_index, ready, "NodeReady");
    }

    /// Makes a node unschedulable or schedulable.
    pub(super) fn cordon(&mut self, node_index: usize, cordoned: bool) {
        let changes = |node: &&mut Node| node.exists && node.cordoned != cordoned;
        let Some(node) = self.nodes.get_mut(node_index).filter(changes) else { return };
        node.cordoned = cordoned;
        let (object_id, uid) = (node.object_id(), node.uid.clone());
        let unschedulable = if cordoned { json!(true) } else { Value::Null };
        let patch = json!({"spec": {"unschedulable": unschedulable, "taints": node.taints()}});
        let reason = if cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
        let message = format!("Node {} status is now: {reason}", object_id.name);
        self.write(object_id.clone(), Operation::Merge(patch));
        self.record_event(&EventDetails {
            regarding: &object_id,
            uid: &uid,
            reason,
            message: &message,
            component: "kubelet",
        });
        if cordoned {
            let wait = self.rng.between(20_000, 40_000);
            self.schedule_after(wait, ScheduledAction::Uncordon(node_index));
        }
    }

    pub(super) fn handle_node_result(&mut self, write: &Write, result: &WriteResult) {
        let position = self.nodes.iter().position(|node| node.name == write.object_id.name);
        let Some(node_index) = position else { return };
        let Some(node) = self.nodes.get_mut(node_index) else { return };
        match (result, &write.operation) {
            (WriteResult::Done(object), operation) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut node.uid);
                node.cordoned = object["spec"]["unschedulable"] == true;
                let actual = object["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
                node.user_taints = actual.iter().filter(|taint| !is_state_taint(taint)).cloned().collect();
                // The taints at the creation of a node, or after a change by a user, may not match its state.
                // After a status, which is written first, the taints of the new state follow.
                let has_wrong_taints = !matches!(operation, Operation::MergeStatus(_))
                    && !are_equal_except_time(&node.taints(), actual);
                if has_wrong_taints {
                    let (object_id, taints) = (node.object_id(), node.taints());
                    self.write(object_id, Operation::Merge(json!({"spec": {"taints": taints}})));
                }
            }
            (WriteResult::Gone, Operation::Read | Operation::Merge(_) | Operation::MergeStatus(_)) => {
                self.handle_node_deletion(node_index);
            }
            (_, Operation::Create(_)) if !self.starting => {
                self.schedule_after(REREGISTER_DELAY_MS, ScheduledAction::RegisterNode(node_index));
            }
            _ => {}
        }
    }

    /// Reads all nodes, because users may have deleted one.
    pub(super) fn read_nodes(&mut self) {
        let existing = self.nodes.iter().filter(|node| node.exists);
        for object_id in existing.map(Node::object_id).collect::<Vec<_>>() {
            self.write(object_id, Operation::Read);
        }
        self.schedule_after(1000, ScheduledAction::ReadNodes);
    }

    /// Registers a node again.
    pub(super) fn register_node(&mut self, node_index: usize) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(node_index) else { return };
        (node.exists, node.ready, node.cordoned, node.changed) = (true, true, false, now);
        node.user_taints.clear();
        self.create_node(node_index);
    }

    /// Handles the deletion of a node: its pods are deleted, and it registers again later.
    fn handle_node_deletion(&mut self, node_index: usize) {
        let Some(node) = self.nodes.get_mut(node_index).filter(|node| node.exists) else { return };
        node.exists = false;
        let pods = self.pods.iter().filter(|(_, pod)| pod.node == Some(node_index)).map(|(id, _)| *id);
        for pod in pods.collect::<Vec<_>>() {
            self.delete_pod(pod);
        }
        self.schedule_after(REREGISTER_DELAY_MS, ScheduledAction::RegisterNode(node_index));
    }

    fn create_node(&mut self, node_index: usize) {
        let Some(node) = self.nodes.get(node_index) else { return };
        let zone = ["eu-1a", "eu-1b", "eu-1c"].get(node_index % 3).copied().unwrap_or_default();
        let status = status::node(node.ready, &node.address, node.changed, self.now);
        let object = objects::node(&node.name, zone, &status);
        let (object_id, lease) = (node.object_id(), objects::lease(&node.name, self.now));
        let lease_id = ObjectId::new(Kind::Lease, "kube-node-lease", &node.name);
        self.create(object_id, object);
        self.create(lease_id, lease);
    }

    fn set_ready(&mut self, node_index: usize, ready: bool, reason: &str) {
        let now = self.now;
        let changes = |node: &&mut Node| node.exists && node.ready != ready;
        let Some(node) = self.nodes.get_mut(node_index).filter(changes) else { return };
        (node.ready, node.changed) = (ready, now);
        let (object_id, uid, taints) = (node.object_id(), node.uid.clone(), node.taints());
        let status = status::node(ready, &node.address, now, now);
        self.write(object_id.clone(), Operation::MergeStatus(status));
        self.write(object_id.clone(), Operation::Merge(json!({"spec": {"taints": taints}})));
        let message = format!("Node {} status is now: {reason}", object_id.name);
        self.record_event(&EventDetails {
            regarding: &object_id,
            uid: &uid,
            reason,
            message: &message,
            component: "node-controller",
        });
        let ready_pods: Vec<u64> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.node == Some(node_index) && pod.phase == Phase::Ready)
            .map(|(id, _)| *id)
            .collect();
        for pod in ready_pods {
            self.touch(pod);
            self.write_pod_status(pod);
            if let Some(OwnerId::Set(app, _)) = self.pods.get(&pod).map(|pod| &pod.owner) {
                self.schedule_sync(*app);
            }
        }
    }
}

/// Whether a taint describes the state of a node.
fn is_state_taint(taint: &Value) -> bool {
    let key = taint["key"].as_str().and_then(|key| key.strip_prefix("node.kubernetes.io/"));
    matches!(key, Some("not-ready" | "unreachable" | "unschedulable"))
}

/// Whether two sets of taints have the same keys and effects; their times may differ.
fn are_equal_except_time(expected: &Value, actual: &[Value]) -> bool {
    let expected = expected.as_array().map_or(&[][..], Vec::as_slice);
    let same = |left: &Value, right: &Value| left["key"] == right["key"] && left["effect"] == right["effect"];
    expected.len() == actual.len() && expected.iter().all(|left| actual.iter().any(|right| same(left, right)))
}
