//! The stateful set controller: pods with ordinals, created and deleted in order.
//!
//! With pod management policy `OrderedReady`, a pod is created only when all pods before it are ready, and
//! surplus pods are deleted from the end, one at a time. Updates replace pods from the end, one at a time, down
//! to the partition. There are neither volume claims nor controller revisions: a pod that is created again has
//! the current template.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer_apiserver::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::claim::{Claims, concerned};
use crate::cluster::{Actor, Cluster};
use crate::object::{
    is_pod_finished, is_pod_ready, is_terminating, name, namespace, nonzero, number, pod_from_template,
    template_hash, text,
};
use crate::queue::{Handled, Queue};

/// Delay before a change is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 250);

const STATEFUL_SETS: (&str, &str, &str) = ("apps/v1", "statefulsets", "StatefulSet");

/// The label with the revision of a pod.
const REVISION_LABEL: &str = "controller-revision-hash";

/// The stateful set controller.
#[derive(Debug)]
pub(crate) struct StatefulSets {
    pods: Claims,
    queue: Queue<(String, String)>,
}

impl StatefulSets {
    pub(crate) fn new() -> Self {
        StatefulSets { pods: Claims::new("v1", "pods"), queue: Queue::new() }
    }
}

impl Actor for StatefulSets {
    fn name(&self) -> &'static str {
        "stateful-sets"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("apps", "statefulsets") => {
                    let key = (change.namespace.clone(), change.name.clone());
                    self.queue.add(cluster, key, DELAY_MS);
                }
                ("", "pods") => {
                    self.pods.observe(&change);
                    for key in concerned(cluster, &change, STATEFUL_SETS) {
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

/// A stateful set with its pods.
struct Set<'a> {
    object: &'a Value,
    /// The first ordinal.
    start: i64,
    replicas: i64,
    is_ordered: bool,
    revision: String,
    /// Pods by ordinal, including surplus ones.
    pods: BTreeMap<i64, Arc<Value>>,
}

fn sync(cluster: &mut Cluster<'_>, claims: &Claims, namespace: &str, name: &str) -> Handled {
    let Some(object) = cluster.get(STATEFUL_SETS.0, STATEFUL_SETS.1, Some(namespace), name) else {
        return Ok(None);
    };
    if is_terminating(&object) {
        return Ok(None);
    }
    let mut pods = BTreeMap::new();
    for pod in claims.claim(cluster, &object)? {
        if let Some(ordinal) = ordinal_of(&object, &pod) {
            pods.insert(ordinal, pod);
        }
    }
    let mut set = Set {
        start: number(&object, "/spec/ordinals/start").unwrap_or(0),
        replicas: number(&object, "/spec/replicas").unwrap_or(1),
        is_ordered: text(&object, "/spec/podManagementPolicy") != "Parallel",
        revision: template_hash(&object["spec"]["template"], None),
        object: &object,
        pods,
    };
    let written = set.update_pods(cluster);
    cluster.put_status(&object, &set.status())?;
    written.map(|()| None)
}

/// Returns the ordinal in the name of a pod.
fn ordinal_of(set: &Value, pod: &Value) -> Option<i64> {
    name(pod).strip_prefix(name(set))?.strip_prefix('-')?.parse().ok()
}

impl Set<'_> {
    fn ordinals(&self) -> std::ops::Range<i64> {
        self.start..self.start.saturating_add(self.replicas.max(0))
    }

    /// Creates, deletes or replaces pods as far as their order allows.
    fn update_pods(&mut self, cluster: &mut Cluster<'_>) -> Result<(), Status> {
        for ordinal in self.ordinals() {
            match self.pods.get(&ordinal) {
                None => {
                    // The pod of a deleted set with the same name has to be removed first.
                    let name = format!("{}-{ordinal}", name(self.object));
                    if cluster.get("v1", "pods", Some(namespace(self.object)), &name).is_some() {
                        return Ok(());
                    }
                    let pod = cluster.create(self.new_pod(ordinal))?;
                    self.pods.insert(ordinal, pod);
                }
                Some(pod) if is_pod_finished(pod) && !is_terminating(pod) => {
                    let pod = pod.clone();
                    return cluster.delete(&pod);
                }
                Some(_) => {}
            }
            if self.is_ordered && !self.is_healthy(ordinal) {
                return Ok(());
            }
        }
        let mut surplus: Vec<i64> = self.pods.keys().copied().collect();
        surplus.retain(|ordinal| !self.ordinals().contains(ordinal));
        for ordinal in surplus.iter().rev() {
            let Some(pod) = self.pods.get(ordinal).cloned() else { continue };
            if !is_terminating(&pod) {
                cluster.delete(&pod)?;
            }
            if self.is_ordered {
                return Ok(());
            }
        }
        self.replace_outdated(cluster)
    }

    /// Deletes the last pod that has an outdated template, unless a pod after it is not ready.
    fn replace_outdated(&mut self, cluster: &mut Cluster<'_>) -> Result<(), Status> {
        if text(self.object, "/spec/updateStrategy/type") == "OnDelete" {
            return Ok(());
        }
        let partition = number(self.object, "/spec/updateStrategy/rollingUpdate/partition").unwrap_or(0);
        for ordinal in self.ordinals().rev().take_while(|ordinal| *ordinal >= partition) {
            let Some(pod) = self.pods.get(&ordinal).cloned() else { continue };
            if !self.is_updated(&pod) && !is_terminating(&pod) {
                return cluster.delete(&pod);
            }
            if !self.is_healthy(ordinal) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn new_pod(&self, ordinal: i64) -> Value {
        let mut pod = pod_from_template(self.object, &self.object["spec"]["template"]);
        let pod_name = format!("{}-{ordinal}", name(self.object));
        let metadata = &mut pod["metadata"];
        metadata["labels"][REVISION_LABEL] = json!(self.revision_name());
        metadata["labels"]["statefulset.kubernetes.io/pod-name"] = json!(pod_name);
        metadata["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
        pod["spec"]["hostname"] = json!(pod_name);
        if let Some(service) = self.object["spec"].get("serviceName").filter(|service| *service != "") {
            pod["spec"]["subdomain"] = service.clone();
        }
        pod["metadata"]["name"] = json!(pod_name);
        pod
    }

    fn revision_name(&self) -> String {
        format!("{}-{}", name(self.object), self.revision)
    }

    fn is_healthy(&self, ordinal: i64) -> bool {
        self.pods.get(&ordinal).is_some_and(|pod| is_pod_ready(pod) && !is_terminating(pod))
    }

    fn is_updated(&self, pod: &Value) -> bool {
        pod["metadata"]["labels"][REVISION_LABEL] == json!(self.revision_name())
    }

    fn status(&self) -> Value {
        let count = |test: &dyn Fn(&Value) -> bool| {
            i64::try_from(self.pods.values().filter(|pod| test(pod)).count()).unwrap_or(i64::MAX)
        };
        let is_live = |pod: &Value| !is_terminating(pod) && !is_pod_finished(pod);
        let revision = self.revision_name();
        let updated = count(&|pod| is_live(pod) && self.is_updated(pod));
        let all = count(&|_| true);
        let before = text(self.object, "/status/currentRevision");
        let is_current = |pod: &Value| is_live(pod) && pod["metadata"]["labels"][REVISION_LABEL] == before;
        let is_done = before.is_empty() || (updated == self.replicas && all == self.replicas);
        let ready = count(&|pod| is_pod_ready(pod) && !is_terminating(pod));
        json!({
            "observedGeneration": self.object["metadata"]["generation"],
            "replicas": all,
            "readyReplicas": nonzero(ready),
            "availableReplicas": ready,
            "updatedReplicas": nonzero(updated),
            "currentReplicas": nonzero(if is_done { updated } else { count(&is_current) }),
            "currentRevision": if is_done { &revision } else { before },
            "updateRevision": revision,
            "collisionCount": 0,
        })
    }
}
