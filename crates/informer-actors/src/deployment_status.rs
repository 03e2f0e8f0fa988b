//! The status of a deployment: numbers of pods, and the conditions `Available` and `Progressing`.
//!
//! The status depends on the deployment, its replica sets and the time only. The time of a condition changes
//! only if its contents do.

use std::sync::Arc;

use informer_apiserver::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::object::{items, name, nonzero, number, put_condition, text, time, time_at, uid};
use crate::rollout::Limits;

/// The numbers of pods of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    all: i64,
    updated: i64,
    ready: i64,
    available: i64,
    unavailable: i64,
}

impl Counts {
    fn of(sets: &[Arc<Value>], new: Option<&Value>) -> Self {
        let sum = |path: &str| sets.iter().map(|set| number(set, path).unwrap_or(0)).sum::<i64>();
        let available = sum("/status/availableReplicas");
        Counts {
            all: sum("/status/replicas"),
            updated: new.and_then(|new| number(new, "/status/replicas")).unwrap_or(0),
            ready: sum("/status/readyReplicas"),
            available,
            unavailable: (sum("/spec/replicas") - available).max(0),
        }
    }

    fn written(status: &Value) -> Self {
        let count = |field: &str| status.get(field).and_then(Value::as_i64).unwrap_or(0);
        Counts {
            all: count("replicas"),
            updated: count("updatedReplicas"),
            ready: count("readyReplicas"),
            available: count("availableReplicas"),
            unavailable: count("unavailableReplicas"),
        }
    }

    /// Returns whether an update has advanced since `before`.
    fn has_progressed_since(&self, before: &Counts) -> bool {
        self.updated > before.updated
            || self.all - self.updated < before.all - before.updated
            || self.ready > before.ready
            || self.available > before.available
    }
}

/// Returns whether all pods have the current template and are available, and no others exist.
pub(crate) fn is_complete(deployment: &Value, sets: &[Arc<Value>], new: Option<&Value>) -> bool {
    let counts = Counts::of(sets, new);
    let replicas = number(deployment, "/spec/replicas").unwrap_or(1);
    new.is_some() && [counts.updated, counts.all, counts.available] == [replicas; 3]
}

/// Writes the status. Returns when it has to be computed again even if nothing changes: at the progress
/// deadline.
pub(crate) fn write(
    cluster: &mut Cluster<'_>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: Option<&Value>,
) -> Result<Option<Timestamp>, Status> {
    let counts = Counts::of(sets, new);
    let limits = Limits::of(deployment);
    let now = cluster.now();
    let before = items(deployment, "/status/conditions");
    let mut conditions = before.to_vec();
    let is_available = counts.available >= limits.replicas - limits.max_unavailable;
    let available = if is_available {
        ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    } else {
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    };
    put(&mut conditions, before, "Available", available, now);
    let deadline = put_progress(&mut conditions, deployment, sets, new, now);
    let status = json!({
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": nonzero(counts.all),
        "updatedReplicas": nonzero(counts.updated),
        "readyReplicas": nonzero(counts.ready),
        "availableReplicas": nonzero(counts.available),
        "unavailableReplicas": nonzero(counts.unavailable),
        "conditions": conditions,
    });
    // The deployment may have been written in the same sync, for example its revision.
    let current = cluster.by_uid(uid(deployment));
    if let Some(current) = current {
        cluster.put_status(&current, &status)?;
    }
    Ok(deadline)
}

/// Sets the condition `Progressing`. Returns the time at which it becomes false without progress.
fn put_progress(
    conditions: &mut Vec<Value>,
    deployment: &Value,
    sets: &[Arc<Value>],
    new: Option<&Value>,
    now: Timestamp,
) -> Option<Timestamp> {
    let before = items(deployment, "/status/conditions");
    let old = before.iter().find(|condition| condition["type"] == "Progressing");
    let old_reason = old.map_or("", |old| text(old, "/reason"));
    let set = new.map(name).unwrap_or_default();
    if is_complete(deployment, sets, new) {
        let message = format!("ReplicaSet \"{set}\" has successfully progressed.");
        put(conditions, before, "Progressing", ("True", "NewReplicaSetAvailable", &message), now);
        return None;
    }
    let progressed = Counts::of(sets, new).has_progressed_since(&Counts::written(&deployment["status"]));
    let is_new_update = old_reason.is_empty() || old_reason == "NewReplicaSetAvailable";
    if progressed || is_new_update {
        let message = format!("ReplicaSet \"{set}\" is progressing.");
        // Progress renews the time of the condition.
        let kept: Vec<Value> = old.into_iter().map(without_update_time).collect();
        put(conditions, &kept, "Progressing", ("True", "ReplicaSetUpdated", &message), now);
    }
    let written = conditions.iter().find(|condition| condition["type"] == "Progressing");
    let updated = written.and_then(|condition| time_at(condition, "/lastUpdateTime"))?;
    if written.is_none_or(|condition| text(condition, "/status") != "True") {
        return None;
    }
    let seconds = number(deployment, "/spec/progressDeadlineSeconds")?;
    let deadline = updated.saturating_add(SignedDuration::from_secs(seconds)).ok()?;
    if deadline > now || deployment["spec"]["paused"] == Value::Bool(true) {
        return Some(deadline).filter(|deadline| *deadline > now);
    }
    let message = format!("ReplicaSet \"{set}\" has timed out progressing.");
    put(conditions, before, "Progressing", ("False", "ProgressDeadlineExceeded", &message), now);
    None
}

fn without_update_time(condition: &Value) -> Value {
    let mut condition = condition.clone();
    if let Some(fields) = condition.as_object_mut() {
        fields.remove("lastUpdateTime");
    }
    condition
}

/// Sets a condition. Its times stay if its contents do.
fn put(
    conditions: &mut Vec<Value>,
    before: &[Value],
    kind: &str,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
) {
    let mut condition = json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": time(now), "lastUpdateTime": time(now),
    });
    let old = before.iter().find(|old| old["type"] == kind);
    let is_same =
        |old: &&Value| ["status", "reason", "message"].iter().all(|field| old[field] == condition[field]);
    if let Some(updated) = old.filter(is_same).and_then(|old| old.get("lastUpdateTime")) {
        condition["lastUpdateTime"] = updated.clone();
    }
    put_condition(conditions, before, condition);
}
