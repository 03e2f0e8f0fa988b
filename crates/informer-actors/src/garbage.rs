//! The garbage collector: deletes objects whose owners are gone, and carries out foreground deletion and
//! orphaning.
//!
//! The rules are those of Kubernetes. An owner counts as absent if no object has the uid, kind and name of the
//! reference in the namespace of the dependent or in no namespace. Events are not collected.

use std::sync::Arc;

use informer_apiserver::{DeleteParams, Propagation, Status};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::{Actor, Cluster};
use crate::mirror::{ObjectChange, ObjectKey};
use crate::object::{
    finalizers_without, has_finalizer, is_terminating, name, namespace, owner_references, text, uid,
};
use crate::queue::{Handled, Queue};

/// Delay before the garbage collector handles an object, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 800);

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The garbage collector.
#[derive(Debug)]
pub(crate) struct GarbageCollector {
    queue: Queue<ObjectKey>,
}

/// The state of an owner as a dependent sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Present,
    Absent,
    /// The owner is being deleted after its dependents.
    WaitsForDependents,
}

impl GarbageCollector {
    pub(crate) fn new() -> Self {
        GarbageCollector { queue: Queue::new() }
    }

    /// Queues the objects that a change may concern.
    fn enqueue(&mut self, cluster: &mut Cluster<'_>, change: &ObjectChange) {
        let key = ObjectKey {
            resource: change.resource.clone(),
            namespace: change.namespace.clone(),
            name: change.name.clone(),
        };
        if let Some(after) = &change.after
            && (is_terminating(after) || !owner_references(after).is_empty())
        {
            self.queue.add(cluster, key, DELAY_MS);
        }
        let is_going = change.after.as_ref().is_none_or(|after| is_terminating(after));
        if !is_going {
            return;
        }
        for state in [&change.before, &change.after].into_iter().flatten() {
            let dependents: Vec<ObjectKey> = cluster.mirror.dependents(uid(state)).cloned().collect();
            let owners = owner_references(state).iter();
            let owners = owners.filter_map(|owner| cluster.mirror.key_of_uid(text(owner, "/uid")).cloned());
            let owners: Vec<ObjectKey> = owners.collect();
            for key in dependents.into_iter().chain(owners) {
                self.queue.add(cluster, key, DELAY_MS);
            }
        }
    }
}

impl Actor for GarbageCollector {
    fn name(&self) -> &'static str {
        "garbage-collector"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            if change.resource.plural != "events" {
                self.enqueue(cluster, &change);
            }
        }
        self.queue.run(cluster, |cluster, key| {
            let Some(object) = cluster.mirror.get_key(key).cloned() else { return Ok(None) };
            collect(cluster, &object)
        })
    }
}

/// Moves one object closer to the state that its owners and finalizers require.
fn collect(cluster: &mut Cluster<'_>, object: &Value) -> Handled {
    if is_terminating(object) {
        if has_finalizer(object, ORPHAN) {
            orphan_dependents(cluster, object)?;
        } else if has_finalizer(object, FOREGROUND) && blocking_dependents(cluster, object).is_empty() {
            remove_finalizer(cluster, object, FOREGROUND)?;
        }
        return Ok(None);
    }
    let owners = owner_references(object);
    if owners.is_empty() {
        return Ok(None);
    }
    let states: Vec<OwnerState> = owners.iter().map(|owner| owner_state(cluster, object, owner)).collect();
    if states.contains(&OwnerState::Present) {
        let present = owners.iter().zip(&states).filter(|(_, state)| **state == OwnerState::Present);
        let present: Vec<&Value> = present.map(|(owner, _)| owner).collect();
        if present.len() == owners.len() {
            return Ok(None);
        }
        cluster.merge(object, &json!({"metadata": {"ownerReferences": present}}))?;
        return Ok(None);
    }
    let dependents = cluster.dependents(uid(object));
    let is_waited_for = states.contains(&OwnerState::WaitsForDependents);
    let propagation = if is_waited_for && !dependents.is_empty() {
        if dependents.iter().any(|dependent| waits_for_dependents(dependent)) {
            unblock_owners(cluster, object)?;
        }
        Propagation::Foreground
    } else if has_finalizer(object, ORPHAN) {
        Propagation::Orphan
    } else if has_finalizer(object, FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    cluster.delete_with(object, DeleteParams::new().propagation(propagation))?;
    Ok(None)
}

/// Returns the state of an owner of `object`.
fn owner_state(cluster: &Cluster<'_>, object: &Value, reference: &Value) -> OwnerState {
    let found = cluster.by_uid(text(reference, "/uid"));
    let fits = |owner: &&Arc<Value>| {
        let scope = namespace(owner);
        let is_same = owner["kind"] == reference["kind"] && name(owner) == text(reference, "/name");
        is_same && (scope.is_empty() || scope == namespace(object))
    };
    match found.as_ref().filter(fits) {
        Some(owner) if waits_for_dependents(owner) => OwnerState::WaitsForDependents,
        Some(_) => OwnerState::Present,
        None => OwnerState::Absent,
    }
}

fn waits_for_dependents(object: &Value) -> bool {
    is_terminating(object) && has_finalizer(object, FOREGROUND)
}

/// Returns the dependents that block the deletion of their owner.
fn blocking_dependents(cluster: &Cluster<'_>, owner: &Value) -> Vec<Arc<Value>> {
    let blocks = |dependent: &Arc<Value>| {
        owner_references(dependent).iter().any(|reference| {
            reference["blockOwnerDeletion"] == Value::Bool(true)
                && text(reference, "/uid") == uid(owner)
                && owner_state(cluster, dependent, reference) != OwnerState::Absent
        })
    };
    let mut dependents = cluster.dependents(uid(owner));
    dependents.retain(blocks);
    dependents
}

/// Removes the owner from all its dependents, then the finalizer that requested this.
fn orphan_dependents(cluster: &mut Cluster<'_>, owner: &Value) -> Result<(), Status> {
    for dependent in cluster.dependents(uid(owner)) {
        let references = owner_references(&dependent).iter();
        let others: Vec<&Value> = references.filter(|other| text(other, "/uid") != uid(owner)).collect();
        match cluster.merge(&dependent, &json!({"metadata": {"ownerReferences": others}})) {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    remove_finalizer(cluster, owner, ORPHAN)
}

/// Lets the owners of an object be deleted before it: its dependents wait for their own dependents, perhaps in
/// a cycle.
fn unblock_owners(cluster: &mut Cluster<'_>, object: &Value) -> Result<(), Status> {
    let mut references = owner_references(object).to_vec();
    for reference in &mut references {
        if reference["blockOwnerDeletion"] == Value::Bool(true) {
            reference["blockOwnerDeletion"] = Value::Bool(false);
        }
    }
    cluster.merge(object, &json!({"metadata": {"ownerReferences": references}}))
}

fn remove_finalizer(cluster: &mut Cluster<'_>, object: &Value, finalizer: &str) -> Result<(), Status> {
    // The object may have changed by writes of the same step.
    let current = cluster.by_uid(uid(object));
    let Some(current) = current else { return Ok(()) };
    cluster.merge(&current, &json!({"metadata": {"finalizers": finalizers_without(&current, finalizer)}}))
}
