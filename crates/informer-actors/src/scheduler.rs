//! The scheduler: binds pods without a node to one of the nodes with the fewest pods.
//!
//! A node takes pods if it is ready and not cordoned, the pod tolerates its taints, and it has the labels of
//! the pod's node selector. Resources and affinity are ignored. Pods of other schedulers, and pods with
//! scheduling gates, are left alone. At the start the scheduler creates nodes if there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use informer_apiserver::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Actor, Cluster};
use crate::mirror::ObjectChange;
use crate::object::{
    at, condition_status, is_pod_finished, is_state_taint, is_terminating, items, name as node_name,
    put_condition, text, time,
};
use crate::queue::{Handled, Queue};

/// Delay before a pod is bound, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 500);

/// The scheduler.
#[derive(Debug)]
pub(crate) struct Scheduler {
    has_started: bool,
    /// Pods without a node.
    pending: BTreeSet<(String, String)>,
    /// The nodes of pods that are not finished.
    assigned: BTreeMap<(String, String), String>,
    /// Number of pods by node.
    load: BTreeMap<String, usize>,
    queue: Queue<(String, String)>,
}

/// A node that takes new pods, during one step.
struct OpenNode {
    object: Arc<Value>,
    load: usize,
}

impl Scheduler {
    pub(crate) fn new() -> Self {
        Scheduler {
            has_started: false,
            pending: BTreeSet::new(),
            assigned: BTreeMap::new(),
            load: BTreeMap::new(),
            queue: Queue::new(),
        }
    }

    /// Updates the load of nodes and the pending pods.
    fn observe_pod(&mut self, cluster: &mut Cluster<'_>, change: &ObjectChange) {
        let key = (change.namespace.clone(), change.name.clone());
        if let Some(node) = self.assigned.remove(&key) {
            let load = self.load.entry(node).or_default();
            *load = load.saturating_sub(1);
        }
        self.pending.remove(&key);
        let Some(pod) = &change.after else { return };
        let node = text(pod, "/spec/nodeName");
        if !node.is_empty() && !is_pod_finished(pod) {
            *self.load.entry(node.to_owned()).or_default() += 1;
            self.assigned.insert(key, node.to_owned());
        } else if is_to_schedule(pod) {
            self.pending.insert(key.clone());
            self.queue.add(cluster, key, DELAY_MS);
        }
    }

    /// Binds a pod to one of the open nodes, or records that no node takes it.
    fn schedule(
        &mut self,
        cluster: &mut Cluster<'_>,
        nodes: &mut [OpenNode],
        key: &(String, String),
    ) -> Handled {
        let pod = cluster.get("v1", "pods", Some(&key.0), &key.1);
        let Some(pod) = pod.filter(|pod| is_to_schedule(pod)) else { return Ok(None) };
        // The nodes with the fewest pods among those that take the pod.
        let (mut least, mut takers) = (usize::MAX, Vec::new());
        for node in nodes {
            if node.load > least || !takes(&node.object, &pod) {
                continue;
            }
            if node.load < least {
                least = node.load;
                takers.clear();
            }
            takers.push(node);
        }
        if takers.is_empty() {
            return mark_unschedulable(cluster, &pod).map(|()| None);
        }
        let chosen = cluster.random().index_below(takers.len());
        if let Some(node) = takers.get_mut(chosen) {
            let name = node_name(&node.object).to_owned();
            cluster.bind_pod(&pod, &name)?;
            // The next pod of this step finds the load that results.
            node.load += 1;
            self.pending.remove(key);
            *self.load.entry(name.clone()).or_default() += 1;
            self.assigned.insert(key.clone(), name);
        }
        Ok(None)
    }
}

impl Actor for Scheduler {
    fn name(&self) -> &'static str {
        "scheduler"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        if !std::mem::replace(&mut self.has_started, true) && cluster.list("v1", "nodes", None).is_empty() {
            for number in 1..=cluster.options.nodes {
                // A rejected node is missing, which pods without a node show.
                let _ = cluster.create(new_node(number, cluster.now()));
            }
        }
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("", "pods") => self.observe_pod(cluster, &change),
                ("", "nodes") => {
                    for key in self.pending.clone() {
                        self.queue.add(cluster, key, DELAY_MS);
                    }
                }
                _ => {}
            }
        }
        if self.queue.next_due().is_none_or(|due| due > cluster.now()) {
            return self.queue.next_due();
        }
        let mut nodes = cluster.list("v1", "nodes", None);
        nodes.retain(|node| is_open(node));
        let load = |node: &Value| self.load.get(node_name(node)).copied().unwrap_or(0);
        let mut nodes: Vec<OpenNode> =
            nodes.into_iter().map(|object| OpenNode { load: load(&object), object }).collect();
        let mut queue = std::mem::replace(&mut self.queue, Queue::new());
        let due = queue.run(cluster, |cluster, key| self.schedule(cluster, &mut nodes, key));
        self.queue = queue;
        due
    }
}

/// Returns whether the default scheduler has to bind a pod.
fn is_to_schedule(pod: &Value) -> bool {
    text(pod, "/spec/nodeName").is_empty()
        && matches!(text(pod, "/spec/schedulerName"), "" | "default-scheduler")
        && items(pod, "/spec/schedulingGates").is_empty()
        && !is_terminating(pod)
        && !is_pod_finished(pod)
}

/// Returns whether a node takes new pods.
fn is_open(node: &Value) -> bool {
    condition_status(node, "Ready") == "True"
        && node["spec"]["unschedulable"] != Value::Bool(true)
        && !is_terminating(node)
}

/// Returns whether an open node takes a pod.
fn takes(node: &Value, pod: &Value) -> bool {
    // An open node may still have taints of its former state.
    let mut taints = items(node, "/spec/taints")
        .iter()
        .filter(|taint| taint["effect"] != "PreferNoSchedule" && !is_state_taint(taint));
    let selector = at(pod, "/spec/nodeSelector").and_then(Value::as_object);
    let mut selector = selector.into_iter().flatten();
    taints.all(|taint| tolerates(pod, taint))
        && selector.all(|(label, value)| node["metadata"]["labels"].get(label) == Some(value))
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    items(pod, "/spec/tolerations").iter().any(|toleration| {
        let key = text(toleration, "/key");
        let is_key = (key.is_empty() && toleration["operator"] == "Exists") || key == text(taint, "/key");
        let is_value =
            toleration["operator"] == "Exists" || text(toleration, "/value") == text(taint, "/value");
        let effect = text(toleration, "/effect");
        is_key && is_value && (effect.is_empty() || effect == text(taint, "/effect"))
    })
}

fn mark_unschedulable(cluster: &mut Cluster<'_>, pod: &Value) -> Result<(), Status> {
    let before = items(pod, "/status/conditions");
    if condition_status(pod, "PodScheduled") == "False" {
        return Ok(());
    }
    let mut conditions = before.to_vec();
    let condition = json!({
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastProbeTime": null,
        "message": "no node is ready, schedulable and tolerated by the pod",
        "lastTransitionTime": time(cluster.now()),
    });
    put_condition(&mut conditions, before, condition);
    cluster.put_status(pod, &json!({"conditions": conditions}))
}

/// Returns a ready node.
fn new_node(number: usize, now: Timestamp) -> Value {
    let name = format!("node-{number}");
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(now),
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        }},
        "spec": {},
        "status": {
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{}", number % 250 + 3)}],
            "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
            "allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        },
    })
}
