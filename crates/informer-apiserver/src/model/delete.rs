//! Deleting objects: at once, or marked and left for whoever holds a finalizer.
//!
//! There is no kubelet and no garbage collector here: a pod on a node stays until its grace is taken away, and dependents stay. A
//! definition takes its objects with it, and goes when the last of them is gone.

use std::sync::Arc;

use informer_objects::status::{self, Status};
use informer_objects::text::times;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{ResourceId, VersionedResource};
use super::resource::Resource;
use super::state::State;
use super::{Model, json_edit};

/// What a deletion asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) policy: Option<Policy>,
    /// How long whoever runs the object may take, in seconds.
    pub(crate) grace: Option<i64>,
    pub(crate) dry_run: bool,
}

/// What happens to dependents. Nobody here collects them, so it only shows in finalizers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Background,
    Foreground,
    Orphan,
}

/// How a deletion is answered.
#[derive(Debug, Clone)]
pub(crate) enum Deleted {
    /// With a status.
    Gone(Vec<u8>),
    /// With the object.
    Shown(Arc<State>),
}

impl Model {
    /// Deletes an object, or marks it.
    pub(crate) fn delete(
        &mut self,
        now: Timestamp,
        place: VersionedResource,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let resource = self.resource(place.id)?;
        let home = self.home(place);
        let before = self
            .get(place, namespace, name)
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        check(&resource, &before, options)?;
        let resource = self.resource(home)?;
        let mut object = before.decode();
        let pods = resource.is("", "pods");
        let mut grace = Grace::None;
        if pods {
            grace = graceful(now, &mut object, options.grace);
        }
        if grace == Grace::Pending || (before.terminating && !pods) {
            return Ok(Deleted::Shown(before));
        }
        if !before.terminating {
            let usual = resource.orphans().then_some(Policy::Orphan);
            add_policy_finalizer(&mut object, options.policy.or(usual));
        }
        if resource.is("", "namespaces") {
            mark(&mut object, now, None);
            json_edit::terminate_namespace(&mut object);
            return Ok(Deleted::Shown(self.keep(home, &resource, before, &object, options)));
        }
        if resource.is_definition() {
            if options.dry_run {
                return Ok(Deleted::Shown(before));
            }
            return Ok(Deleted::Shown(self.delete_definition(now, place, before, object)?));
        }
        let kept = has_finalizers(&object);
        if kept && grace == Grace::None && !before.terminating {
            mark(&mut object, now, Some(0));
        }
        if !kept && grace == Grace::None {
            return Ok(self.delete_now(home, &resource, &before, &object, options));
        }
        let marked = self.keep(home, &resource, before, &object, options);
        if kept || matches!(grace, Grace::Set(seconds) if seconds > 0) || options.dry_run {
            return Ok(Deleted::Shown(marked));
        }
        self.remove(home, marked);
        Ok(Deleted::Shown(Arc::new(State::encode(&resource, self.version, &object))))
    }

    /// Stores an object that is marked, unless nothing changed or nothing may be stored.
    fn keep(
        &mut self,
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
        self.store(id, resource, Some(before), object)
    }

    fn delete_now(
        &mut self,
        id: ResourceId,
        resource: &Resource,
        before: &Arc<State>,
        object: &Value,
        options: &DeleteOptions,
    ) -> Deleted {
        if !options.dry_run {
            self.remove(id, before.clone());
            self.sweep(id);
        }
        if resource.delete_shows_object() {
            let version = if options.dry_run { before.version } else { self.version };
            Deleted::Shown(Arc::new(State::encode(resource, version, object)))
        } else {
            Deleted::Gone(status::deleted(&resource.group, &resource.plural, &before.name, &before.uid))
        }
    }

    /// Deletes what a list shows, one after the other; what something else took meanwhile does not matter.
    pub(crate) fn delete_collection(
        &mut self,
        now: Timestamp,
        place: VersionedResource,
        states: &[Arc<State>],
        options: &DeleteOptions,
    ) -> Result<(), Status> {
        for state in states {
            match self.delete(now, place, (&state.namespace, &state.name), options) {
                Err(refused) if refused.code != 404 => return Err(refused),
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn check(resource: &Resource, before: &State, options: &DeleteOptions) -> Result<(), Status> {
    let name = &before.name;
    if resource.is("", "namespaces") && super::PROTECTED_NAMESPACES.contains(&name.as_str()) {
        return Err(Status::forbidden("", "namespaces", name, "this namespace may not be deleted"));
    }
    // These two name the kind where all other conflicts name the plural.
    if let Some(uid) = options.uid.as_ref().filter(|uid| **uid != before.uid) {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been \
             deleted and then recreated",
            before.uid
        );
        return Err(Status::conflict(&resource.group, &resource.kind, name, &why));
    }
    if let Some(version) = options.version.as_ref().filter(|version| **version != before.version.to_string())
    {
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

/// What grace means for a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grace {
    /// Nobody waits for anything.
    None,
    /// The object is marked, and goes in so many seconds.
    Set(i64),
    /// It was marked before, and this changes nothing.
    Pending,
}

/// Marks a pod, or moves the time of its end forward.
fn graceful(now: Timestamp, pod: &mut Value, wanted: Option<i64>) -> Grace {
    let metadata = &pod["metadata"];
    if let Some(end) = metadata.get("deletionTimestamp").and_then(Value::as_str) {
        let left = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        if left == 0 {
            return Grace::None;
        }
        let (Some(wanted), Ok(end)) = (wanted, end.parse::<Timestamp>()) else { return Grace::Pending };
        if wanted >= left {
            return Grace::Pending;
        }
        let end = later(end, wanted.saturating_sub(left));
        pod["metadata"]["deletionTimestamp"] = json!(times::written(end));
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(wanted);
        return Grace::Set(wanted);
    }
    let spec = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let nobody = text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Succeeded" | "Failed");
    let seconds = match wanted.or(spec).unwrap_or(30) {
        _ if nobody => 0,
        seconds if seconds < 0 => 1,
        seconds => seconds,
    };
    mark(pod, later(now, seconds), Some(seconds));
    Grace::Set(seconds)
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
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

/// Says since when an object is going; that counts as a change of what it should be.
pub(super) fn mark(object: &mut Value, now: Timestamp, grace: Option<i64>) {
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = json!(times::written(now));
    if let Some(grace) = grace {
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
            metadata["generation"] = json!(generation + 1);
        }
    }
}
