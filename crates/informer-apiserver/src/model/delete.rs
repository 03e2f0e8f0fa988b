//! Deletes objects, or marks those that have finalizers or a grace period as terminating.
//!
//! There is no kubelet, garbage collector or namespace controller: an unfinished pod on a node stays until it
//! is deleted with grace period 0, dependents stay, and a namespace is only marked. Deleting a definition
//! deletes its objects; the definition is removed after its last object.

use std::sync::Arc;

use informer_objects::status::{self, Status};
use informer_objects::text::times;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{ResourceId, VersionedResource};
use super::resource::Resource;
use super::state::State;
use super::{Model, json_edit};

/// The options of a deletion request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Preconditions: the UID and resource version that the object must have.
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) policy: Option<Policy>,
    /// The grace period in seconds.
    pub(crate) grace: Option<i64>,
    pub(crate) dry_run: bool,
}

/// The propagation policy. Without a garbage collector it only adds finalizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// The body of the response to a deletion.
#[derive(Debug, Clone)]
pub(crate) enum DeleteResponse {
    /// A `Status`, as JSON: the object was removed.
    Status(Vec<u8>),
    /// The object: it was marked as terminating, or it was removed and its kind responds with the object.
    Object(Arc<State>),
}

impl Model {
    /// Deletes an object, or marks it as terminating.
    pub(crate) fn delete(
        &mut self,
        now: Timestamp,
        gvr: VersionedResource,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
    ) -> Result<DeleteResponse, Status> {
        // events.k8s.io events are stored as core events; errors name the requested resource.
        let requested = self.resource(gvr.id)?;
        let before = self
            .get(gvr, namespace, name)
            .ok_or_else(|| Status::not_found(&requested.group, &requested.plural, name))?;
        check(&requested, &before, options)?;
        let storage_id = self.storage_id(gvr);
        let stored_as = self.resource(storage_id)?;
        let mut object = before.decode();
        let is_pod = stored_as.is("", "pods");
        let mut grace = Grace::None;
        if is_pod {
            grace = set_grace_period(now, &mut object, options.grace);
        }
        if grace == Grace::Pending || (before.terminating && !is_pod) {
            return Ok(DeleteResponse::Object(before));
        }
        if !before.terminating {
            let default_policy = stored_as.orphans_by_default().then_some(Policy::Orphan);
            add_policy_finalizer(&mut object, options.policy.or(default_policy));
        }
        if stored_as.is("", "namespaces") {
            mark(&mut object, now, None);
            json_edit::terminate_namespace(&mut object);
            return Ok(DeleteResponse::Object(
                self.store_marked(now, storage_id, &stored_as, before, &object, options),
            ));
        }
        if stored_as.is_definition() {
            if options.dry_run {
                return Ok(DeleteResponse::Object(before));
            }
            return Ok(DeleteResponse::Object(self.delete_definition(now, gvr, before, object)?));
        }
        let finalizing = has_finalizers(&object);
        if finalizing && grace == Grace::None && !before.terminating {
            mark(&mut object, now, Some(0));
        }
        if !finalizing && grace == Grace::None {
            return Ok(self.delete_now(now, storage_id, &stored_as, &before, &object, options));
        }
        let marked = self.store_marked(now, storage_id, &stored_as, before, &object, options);
        if finalizing || matches!(grace, Grace::Set(seconds) if seconds > 0) || options.dry_run {
            return Ok(DeleteResponse::Object(marked));
        }
        // A pod with grace period 0: watches see that it is marked, then that it is deleted.
        self.remove(now, storage_id, marked);
        Ok(DeleteResponse::Object(Arc::new(State::encode(&stored_as, self.version, &object))))
    }

    /// Stores a marked object, unless nothing changed or the deletion is a dry run.
    fn store_marked(
        &mut self,
        now: Timestamp,
        id: ResourceId,
        resource: &Resource,
        before: Arc<State>,
        object: &Value,
        options: &DeleteOptions,
    ) -> Arc<State> {
        if before.decode() == *object {
            return before;
        }
        if options.dry_run {
            return Arc::new(State::encode(resource, before.version, object));
        }
        self.store(now, id, resource, Some(before), object)
    }

    /// Removes an object that has neither finalizers nor a grace period.
    fn delete_now(
        &mut self,
        now: Timestamp,
        id: ResourceId,
        resource: &Resource,
        before: &Arc<State>,
        object: &Value,
        options: &DeleteOptions,
    ) -> DeleteResponse {
        if !options.dry_run {
            self.remove(now, id, before.clone());
            self.finish_definition_if_empty(now, id);
        }
        if resource.delete_shows_object() {
            let version = if options.dry_run { before.version } else { self.version };
            DeleteResponse::Object(Arc::new(State::encode(resource, version, object)))
        } else {
            DeleteResponse::Status(status::deleted(
                &resource.group,
                &resource.plural,
                &before.name,
                &before.uid,
            ))
        }
    }

    /// Deletes the listed objects one after the other. Objects that no longer exist are ignored; any other
    /// error ends the deletion.
    pub(crate) fn delete_collection(
        &mut self,
        now: Timestamp,
        gvr: VersionedResource,
        states: &[Arc<State>],
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        for state in states {
            match self.delete(now, gvr, (&state.namespace, &state.name), options) {
                Err(refused) if refused.code != 404 => return Err(refused),
                _ => {}
            }
        }
        Ok(())
    }
}

/// Rejects the deletion of a protected namespace, and a deletion whose preconditions are not met.
pub(super) fn check(resource: &Resource, before: &State, options: &DeleteOptions) -> Result<(), Status> {
    let name = &before.name;
    if resource.is("", "namespaces") && super::PROTECTED_NAMESPACES.contains(&name.as_str()) {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    // As in kube-apiserver, conflicts of deletions contain the kind, those of updates the plural.
    if let Some(uid) = options.uid.as_ref().filter(|uid| **uid != before.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            before.uid
        );
        return Err(Status::conflict(&resource.group, &resource.kind, name, &why));
    }
    let given = options.resource_version.as_ref();
    if let Some(version) = given.filter(|version| **version != before.version.to_string()) {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). \
             The object might have been modified",
            before.version
        );
        return Err(Status::conflict(&resource.group, &resource.kind, name, &why));
    }
    Ok(())
}

fn add_policy_finalizer(object: &mut Value, policy: Option<Policy>) {
    match policy {
        None | Some(Policy::Background) => {}
        Some(Policy::Foreground) => push_finalizer(object, "foregroundDeletion"),
        Some(Policy::Orphan) => push_finalizer(object, "orphan"),
    }
}

/// The effect of the grace period on a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// No grace period applies: the object is removed unless it has finalizers.
    None,
    /// The object was marked with this grace period; 0 removes it now unless it has finalizers.
    Set(i64),
    /// The object is already marked and the request does not shorten the grace period.
    Pending,
}

/// Marks a pod as terminating, or shortens its grace period, as kube-apiserver does.
fn set_grace_period(now: Timestamp, pod: &mut Value, requested: Option<i64>) -> Grace {
    let metadata = &pod["metadata"];
    if let Some(end) = metadata.get("deletionTimestamp").and_then(Value::as_str) {
        let granted = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if granted == 0 {
            return Grace::None;
        }
        let (Some(requested), Ok(end)) = (requested, end.parse::<Timestamp>()) else { return Grace::Pending };
        if requested >= granted {
            return Grace::Pending;
        }
        // The deletion timestamp is the end of the grace period.
        let end = plus_seconds(end, requested.saturating_sub(granted));
        pod["metadata"]["deletionTimestamp"] = json!(times::written(end));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(requested);
        return Grace::Set(requested);
    }
    let default = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let not_running =
        text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed");
    let seconds = match requested.or(default).unwrap_or(30) {
        _ if not_running => 0,
        seconds if seconds < 0 => 1,
        seconds => seconds,
    };
    mark(pod, plus_seconds(now, seconds), Some(seconds));
    Grace::Set(seconds)
}

fn plus_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    time.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(time)
}

pub(super) fn push_finalizer(object: &mut Value, finalizer: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|other| other == finalizer) => {}
        Some(list) => list.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

/// Marks an object as terminating: sets the deletion timestamp and, if `grace` is given, the grace period and
/// the next generation.
pub(super) fn mark(object: &mut Value, deletion_time: Timestamp, grace: Option<i64>) {
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = json!(times::written(deletion_time));
    if let Some(grace) = grace {
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
            metadata["generation"] = json!(generation + 1);
        }
    }
}
