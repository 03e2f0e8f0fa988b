//! The deployment controller: a replica set per pod template, rolling updates, and cleanup of old sets.
//!
//! The replica set of the current template is found by comparing templates, as in Kubernetes, so returning to
//! an earlier template reuses its replica set. The sizes of the replica sets are decided in `rollout`, the
//! status in `deployment_status`. Scaling during an update is not proportional.

use std::sync::Arc;

use informer_apiserver::Status;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::claim::{Claims, concerned};
use crate::cluster::{Actor, Cluster};
use crate::deployment_status;
use crate::object::{
    controller, controller_reference, is_controlled_by, is_pod_finished, is_terminating, name, namespace,
    number, template_hash, text, uid,
};
use crate::queue::{Handled, Queue};
use crate::rollout::{self, Limits, Set};

/// Delay before a change is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (100, 600);

/// The annotation with the number of a revision.
pub(crate) const REVISION: &str = "deployment.kubernetes.io/revision";

/// The label that distinguishes the pods of the replica sets of one deployment.
const HASH_LABEL: &str = "pod-template-hash";

const DEPLOYMENTS: (&str, &str, &str) = ("apps/v1", "deployments", "Deployment");

/// The deployment controller.
#[derive(Debug)]
pub(crate) struct Deployments {
    sets: Claims,
    queue: Queue<(String, String)>,
}

impl Deployments {
    pub(crate) fn new() -> Self {
        Deployments { sets: Claims::new("apps/v1", "replicasets"), queue: Queue::new() }
    }
}

impl Actor for Deployments {
    fn name(&self) -> &'static str {
        "deployments"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("apps", "deployments") => {
                    let key = (change.namespace.clone(), change.name.clone());
                    self.queue.add(cluster, key, DELAY_MS);
                }
                ("apps", "replicasets") => {
                    self.sets.observe(&change);
                    for key in concerned(cluster, &change, DEPLOYMENTS) {
                        self.queue.add(cluster, key, DELAY_MS);
                    }
                }
                // With strategy `Recreate`, the removal of the last pod starts the update.
                ("", "pods") => {
                    let gone = change.before.as_ref().filter(|_| change.after.is_none());
                    if let Some(key) = gone.and_then(|pod| deployment_of(cluster, pod)) {
                        self.queue.add(cluster, key, DELAY_MS);
                    }
                }
                _ => {}
            }
        }
        let sets = &self.sets;
        self.queue.run(cluster, |cluster, (namespace, name)| sync(cluster, sets, namespace, name))
    }
}

/// Returns the key of the deployment to which a pod belongs.
fn deployment_of(cluster: &Cluster<'_>, pod: &Value) -> Option<(String, String)> {
    let set = cluster.by_uid(text(controller(pod)?, "/uid"))?;
    let owner = controller(&set).filter(|owner| owner["kind"] == DEPLOYMENTS.2)?;
    Some((text(pod, "/metadata/namespace").to_owned(), text(owner, "/name").to_owned()))
}

fn sync(cluster: &mut Cluster<'_>, claims: &Claims, namespace: &str, name: &str) -> Handled {
    let Some(deployment) = cluster.get(DEPLOYMENTS.0, DEPLOYMENTS.1, Some(namespace), name) else {
        return Ok(None);
    };
    if is_terminating(&deployment) {
        return Ok(None);
    }
    claims.claim(cluster, &deployment)?;
    let is_paused = deployment["spec"]["paused"] == Value::Bool(true);
    let (mut sets, mut new) = sets_of(cluster, &deployment);
    if new.is_none() && !is_paused {
        if !create_new_set(cluster, &deployment, &sets)? {
            return Ok(Some(cluster.now()));
        }
        (sets, new) = sets_of(cluster, &deployment);
    }
    if let Some(new) = new.and_then(|index| sets.get(index)).filter(|_| !is_paused) {
        let new = new.clone();
        if update_revision(cluster, &deployment, &sets, &new)? {
            // The deployment or a replica set was written; their changes cause the next sync.
            return Ok(Some(cluster.now()));
        }
    }
    scale(cluster, &deployment, &sets, new)?;
    let (sets, new) = sets_of(cluster, &deployment);
    let new = new.and_then(|index| sets.get(index)).cloned();
    let again = deployment_status::write(cluster, &deployment, &sets, new.as_deref())?;
    if deployment_status::is_complete(&deployment, &sets, new.as_deref()) {
        delete_old_sets(cluster, &deployment, &sets, new.as_deref())?;
    }
    Ok(again)
}

/// Returns the replica sets of a deployment, oldest first, and the index of the one with the current template.
fn sets_of(cluster: &Cluster<'_>, deployment: &Value) -> (Vec<Arc<Value>>, Option<usize>) {
    let mut sets = cluster.dependents_of(uid(deployment), "apps/v1", "replicasets");
    sets.retain(|set| is_controlled_by(set, uid(deployment)));
    sets.sort_by_key(|set| cluster.mirror.creation_order(uid(set)));
    let template = &deployment["spec"]["template"];
    let new = sets.iter().position(|set| has_template(set, template));
    (sets, new)
}

/// Returns whether a replica set has a pod template, apart from the label with the hash.
fn has_template(set: &Value, template: &Value) -> bool {
    let of_set = &set["spec"]["template"];
    if of_set["spec"] != template["spec"] {
        return false;
    }
    let mut metadata = of_set["metadata"].clone();
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove(HASH_LABEL);
    }
    metadata == template["metadata"]
}

pub(crate) fn revision(object: &Value) -> i64 {
    object["metadata"]["annotations"][REVISION].as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Creates the replica set of the current template. Returns `false` if its name was taken; the
/// next attempt then uses another one.
fn create_new_set(
    cluster: &mut Cluster<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
) -> Result<bool, Status> {
    let collisions = number(deployment, "/status/collisionCount");
    let hash = template_hash(&deployment["spec"]["template"], collisions);
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH_LABEL] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    selector["matchLabels"][HASH_LABEL] = json!(hash);
    let next = sets.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)), "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: next.to_string()},
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {"replicas": initial_size(cluster, deployment, sets), "selector": selector, "template": template},
    });
    // The name may belong to a replica set of a deleted deployment.
    if cluster.get("apps/v1", "replicasets", Some(namespace(deployment)), name(&set)).is_some() {
        let count = collisions.unwrap_or(0) + 1;
        cluster.put_status(deployment, &json!({"collisionCount": count}))?;
        return Ok(false);
    }
    cluster.create(set).map(|_| true)
}

/// Makes the current replica set the newest revision, and records the revision in the deployment. Returns
/// whether something was written.
fn update_revision(
    cluster: &mut Cluster<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: &Value,
) -> Result<bool, Status> {
    let others = sets.iter().filter(|set| uid(set) != uid(new)).map(|set| revision(set)).max().unwrap_or(0);
    let current = revision(new);
    let wanted = if current > others { current } else { others + 1 };
    let annotations = json!({"metadata": {"annotations": {REVISION: wanted.to_string()}}});
    if current != wanted {
        cluster.merge(new, &annotations)?;
    }
    if revision(deployment) != wanted {
        cluster.merge(deployment, &annotations)?;
    }
    Ok(current != wanted || revision(deployment) != wanted)
}

/// Returns the size with which the replica set of the current template is created.
fn initial_size(cluster: &Cluster<'_>, deployment: &Value, sets: &[Arc<Value>]) -> i64 {
    let mut facts: Vec<Set> = sets.iter().map(|set| facts_of(set)).collect();
    let new = facts.len();
    facts.push(Set { replicas: 0, available: 0 });
    let sizes = rollout::sizes(
        &Limits::of(deployment),
        &facts,
        Some(new),
        has_old_pods(cluster, deployment, sets, None),
    );
    sizes.iter().find(|(index, _)| *index == new).map_or(0, |(_, replicas)| *replicas)
}

/// Sets the sizes of the replica sets.
fn scale(
    cluster: &mut Cluster<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: Option<usize>,
) -> Result<(), Status> {
    let facts: Vec<Set> = sets.iter().map(|set| facts_of(set)).collect();
    let has_old_pods = has_old_pods(cluster, deployment, sets, new);
    for (index, replicas) in rollout::sizes(&Limits::of(deployment), &facts, new, has_old_pods) {
        if let Some(set) = sets.get(index) {
            cluster.merge(set, &json!({"spec": {"replicas": replicas}}))?;
        }
    }
    Ok(())
}

fn facts_of(set: &Value) -> Set {
    Set {
        replicas: number(set, "/spec/replicas").unwrap_or(0),
        available: number(set, "/status/availableReplicas").unwrap_or(0),
    }
}

/// Returns whether pods of other replica sets than the new one exist, which matters for strategy `Recreate`.
fn has_old_pods(cluster: &Cluster<'_>, deployment: &Value, sets: &[Arc<Value>], new: Option<usize>) -> bool {
    text(deployment, "/spec/strategy/type") == "Recreate"
        && sets.iter().enumerate().any(|(index, set)| Some(index) != new && has_pods(cluster, set))
}

/// Returns whether a replica set has pods that are not finished.
fn has_pods(cluster: &Cluster<'_>, set: &Value) -> bool {
    let pods = cluster.dependents_of(uid(set), "v1", "pods");
    pods.iter().any(|pod| is_controlled_by(pod, uid(set)) && !is_pod_finished(pod))
}

/// Deletes the oldest replica sets without pods beyond `revisionHistoryLimit`.
fn delete_old_sets(
    cluster: &mut Cluster<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: Option<&Value>,
) -> Result<(), Status> {
    let limit = number(deployment, "/spec/revisionHistoryLimit").unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let is_unused = |set: &&Arc<Value>| {
        let observed = number(set, "/status/observedGeneration") >= number(set, "/metadata/generation");
        let is_empty = |path: &str| number(set, path).unwrap_or(0) == 0;
        let is_old = new.is_none_or(|new| uid(new) != uid(set));
        is_old
            && observed
            && is_empty("/spec/replicas")
            && is_empty("/status/replicas")
            && !is_terminating(set)
    };
    let mut unused: Vec<&Arc<Value>> = sets.iter().filter(is_unused).collect();
    unused.sort_by_key(|set| revision(set));
    let surplus = unused.len().saturating_sub(limit);
    for set in unused.into_iter().take(surplus) {
        cluster.delete(set)?;
    }
    Ok(())
}
