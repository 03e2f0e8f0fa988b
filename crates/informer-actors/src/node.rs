//! The node controller: keeps the taints of nodes that follow from their state.
//!
//! A node that is not ready has the taint `not-ready`, or `unreachable` if its readiness is unknown; a cordoned
//! one has `unschedulable`. All other taints stay. New nodes start with `not-ready`, which the server adds.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Actor, Cluster};
use crate::object::{condition_status, is_state_taint, is_terminating, items, text, time};
use crate::queue::{Handled, Queue};

/// Delay before a change is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 250);

/// The node controller.
#[derive(Debug)]
pub(crate) struct Nodes {
    queue: Queue<String>,
}

impl Nodes {
    pub(crate) fn new() -> Self {
        Nodes { queue: Queue::new() }
    }
}

impl Actor for Nodes {
    fn name(&self) -> &'static str {
        "nodes"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            if change.resource.plural == "nodes" && change.resource.group.is_empty() {
                self.queue.add(cluster, change.name.clone(), DELAY_MS);
            }
        }
        self.queue.run(cluster, |cluster, name| update_taints(cluster, name))
    }
}

fn update_taints(cluster: &mut Cluster<'_>, name: &str) -> Handled {
    let Some(node) = cluster.get("v1", "nodes", None, name).filter(|node| !is_terminating(node)) else {
        return Ok(None);
    };
    let before = items(&node, "/spec/taints");
    let wanted = wanted_taints(&node);
    let is_wanted = |taint: &Value| {
        let is_same = |other: &(&str, &str)| (text(taint, "/key"), text(taint, "/effect")) == *other;
        !is_state_taint(taint) || wanted.iter().any(is_same)
    };
    let mut taints: Vec<Value> = before.iter().filter(|taint| is_wanted(taint)).cloned().collect();
    for (key, effect) in wanted {
        if !taints.iter().any(|taint| taint["key"] == key && taint["effect"] == effect) {
            taints.push(json!({"key": key, "effect": effect, "timeAdded": time(cluster.now())}));
        }
    }
    let patch = if taints.is_empty() { Value::Null } else { json!(taints) };
    cluster.merge(&node, &json!({"spec": {"taints": patch}}))?;
    Ok(None)
}

/// Returns the taints that follow from the state of a node, as keys and effects.
fn wanted_taints(node: &Value) -> Vec<(&'static str, &'static str)> {
    let mut wanted = Vec::new();
    let key = match condition_status(node, "Ready") {
        "True" => None,
        "Unknown" => Some("node.kubernetes.io/unreachable"),
        _ => Some("node.kubernetes.io/not-ready"),
    };
    if let Some(key) = key {
        wanted.extend([(key, "NoSchedule"), (key, "NoExecute")]);
    }
    if node["spec"]["unschedulable"] == Value::Bool(true) {
        wanted.push(("node.kubernetes.io/unschedulable", "NoSchedule"));
    }
    wanted
}
