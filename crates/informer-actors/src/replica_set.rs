//! The replica set controller: creates missing pods, deletes surplus ones, and writes the status.
//!
//! Pods that are finished or terminating do not count. Surplus pods are deleted in the order of Kubernetes:
//! pods without a node first, then pending, unready and new ones. `minReadySeconds` is ignored: a ready pod is
//! available.

use std::cmp::Reverse;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::claim::{Claims, concerned};
use crate::cluster::{Actor, Cluster};
use crate::object::{
    at, is_pod_active, is_pod_ready, is_terminating, nonzero, number, pod_from_template, text, uid,
};
use crate::queue::{Handled, Queue};

/// Delay before a change is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 250);

/// Maximum number of pods that are created or deleted at once for one replica set.
const MAX_BURST: usize = 500;

const REPLICA_SETS: (&str, &str, &str) = ("apps/v1", "replicasets", "ReplicaSet");

/// The replica set controller.
#[derive(Debug)]
pub(crate) struct ReplicaSets {
    pods: Claims,
    queue: Queue<(String, String)>,
}

impl ReplicaSets {
    pub(crate) fn new() -> Self {
        ReplicaSets { pods: Claims::new("v1", "pods"), queue: Queue::new() }
    }
}

impl Actor for ReplicaSets {
    fn name(&self) -> &'static str {
        "replica-sets"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("apps", "replicasets") => {
                    let key = (change.namespace.clone(), change.name.clone());
                    self.queue.add(cluster, key, DELAY_MS);
                }
                ("", "pods") => {
                    self.pods.observe(&change);
                    for key in concerned(cluster, &change, REPLICA_SETS) {
                        self.queue.add(cluster, key, DELAY_MS);
                    }
                }
                _ => {}
            }
        }
        let pods = &self.pods;
        self.queue.run(cluster, |cluster, (namespace, name)| sync(cluster, pods, namespace, name))
    }
}

fn sync(cluster: &mut Cluster<'_>, claims: &Claims, namespace: &str, name: &str) -> Handled {
    let Some(set) = cluster.get(REPLICA_SETS.0, REPLICA_SETS.1, Some(namespace), name) else {
        return Ok(None);
    };
    if is_terminating(&set) {
        return Ok(None);
    }
    let mut active = claims.claim(cluster, &set)?;
    active.retain(|pod| is_pod_active(pod));
    let wanted = usize::try_from(number(&set, "/spec/replicas").unwrap_or(1)).unwrap_or(0);
    let mut written = Ok(());
    if active.len() < wanted {
        for _ in active.len()..wanted.min(active.len() + MAX_BURST) {
            let created = cluster.create(pod_from_template(&set, &set["spec"]["template"]));
            match created {
                Ok(pod) => active.push(pod),
                Err(status) => {
                    written = Err(status);
                    break;
                }
            }
        }
    } else if active.len() > wanted {
        active.sort_by_key(|pod| deletion_rank(cluster, pod));
        let surplus = (active.len() - wanted).min(MAX_BURST);
        for pod in active.drain(..surplus) {
            cluster.delete(&pod)?;
        }
    }
    let status = status(&set, &active);
    // The set may have changed since it was read, but its status is written by this actor only.
    cluster.put_status(&set, &status)?;
    written.map(|()| (active.len() < wanted).then_some(cluster.now()))
}

/// Returns the position of a pod in the order in which surplus pods are deleted.
fn deletion_rank(cluster: &Cluster<'_>, pod: &Value) -> (bool, bool, bool, Reverse<u64>) {
    (
        !text(pod, "/spec/nodeName").is_empty(),
        text(pod, "/status/phase") == "Running",
        is_pod_ready(pod),
        Reverse(cluster.mirror.creation_order(uid(pod))),
    )
}

fn status(set: &Value, active: &[Arc<Value>]) -> Value {
    let count = |test: &dyn Fn(&Value) -> bool| {
        i64::try_from(active.iter().filter(|pod| test(pod)).count()).unwrap_or(i64::MAX)
    };
    let labels = at(set, "/spec/template/metadata/labels").and_then(Value::as_object);
    let is_labeled = |pod: &Value| {
        let mut labels = labels.into_iter().flatten();
        labels.all(|(label, value)| pod["metadata"]["labels"].get(label) == Some(value))
    };
    let ready = count(&is_pod_ready);
    json!({
        "replicas": count(&|_| true),
        "fullyLabeledReplicas": nonzero(count(&is_labeled)),
        "readyReplicas": nonzero(ready),
        "availableReplicas": nonzero(ready),
        "observedGeneration": set["metadata"]["generation"],
    })
}
