//! Deleting objects: at once, or marked and left for whoever holds a finalizer.
//!
//! There is no kubelet and no garbage collector here: a pod with nothing to hold it is gone at once, and dependents stay. A
//! definition takes its objects with it, and goes when the last of them is gone.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::custom::CLEANUP;
use super::kinds::{DEFINITIONS, Place, Resource, ResourceId};
use super::state::State;
use super::status::Status;
use super::{Model, habits, status};

/// What a deletion asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) policy: Policy,
}

/// What happens to dependents. Nobody here collects them, so it only shows in finalizers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Policy {
    #[default]
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
        place: Place,
        (namespace, name): (&str, &str),
        options: &DeleteOptions,
    ) -> Result<Deleted, Status> {
        let resource = self.resource(place.id)?;
        let before = self
            .get(place, namespace, name)
            .ok_or_else(|| Status::not_found(&resource.group, &resource.plural, name))?;
        check(&resource, &before, options)?;
        if before.terminating {
            return Ok(Deleted::Shown(before));
        }
        let mut object = before.decode();
        add_policy_finalizer(&mut object, options.policy);
        let kept = has_finalizers(&object);
        if resource.is("", "namespaces") {
            mark(&mut object, now, None);
            habits::terminate_namespace(&mut object);
            return Ok(Deleted::Shown(self.store(place.id, &resource, Some(before), &object)));
        }
        if resource.is_definition() {
            return Ok(Deleted::Shown(self.delete_definition(now, (place.id, &resource), before, object)));
        }
        if kept {
            mark(&mut object, now, Some(0));
            return Ok(Deleted::Shown(self.store(place.id, &resource, Some(before), &object)));
        }
        if resource.is("", "pods") {
            mark(&mut object, now, Some(0));
            let marked = self.store(place.id, &resource, Some(before), &object);
            self.remove(place.id, marked);
            return Ok(Deleted::Shown(Arc::new(State::encode(&resource, self.version, &object))));
        }
        self.remove(place.id, before.clone());
        self.sweep(place.id);
        Ok(if resource.delete_shows_object() {
            Deleted::Shown(Arc::new(State::encode(&resource, self.version, &object)))
        } else {
            Deleted::Gone(status::deleted(&resource.group, &resource.plural, &before.name, &before.uid))
        })
    }

    /// Marks a definition, deletes its objects, and if that leaves none, the definition too.
    fn delete_definition(
        &mut self,
        now: Timestamp,
        (id, resource): (ResourceId, &Resource),
        before: Arc<State>,
        mut definition: Value,
    ) -> Arc<State> {
        push_finalizer(&mut definition, CLEANUP);
        mark(&mut definition, now, None);
        let marked = self.store(id, resource, Some(before), &definition);
        let Some(served) = self.served_by(&definition) else {
            self.remove(id, marked.clone());
            return marked;
        };
        let place = Place { id: served, version: 0 };
        let objects: Vec<Arc<State>> = self
            .collections
            .get(&served)
            .map(|collection| collection.live().values().cloned().collect())
            .unwrap_or_default();
        for object in objects {
            // Nothing can refuse: there are no preconditions, and the object was there a moment ago.
            let _ = self.delete(now, place, (&object.namespace, &object.name), &DeleteOptions::default());
        }
        self.sweep(served);
        marked
    }

    /// Finishes the deletion of a definition whose last object is gone.
    pub(super) fn sweep(&mut self, id: ResourceId) {
        let Some(resource) = self.registry.get(id) else { return };
        let empty = self.collections.get(&id).is_some_and(|collection| collection.live().is_empty());
        let Some(definition) = self.definition_of(resource).filter(|found| found.terminating && empty) else {
            return;
        };
        self.registry.remove(id);
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.retire();
            if collection.is_abandoned() {
                self.collections.remove(&id);
            }
        }
        self.touched.push(id);
        if let Some(definitions) = self.registry.find(DEFINITIONS.0, DEFINITIONS.1) {
            self.remove(definitions, definition);
        }
    }

    /// The definition of a custom resource.
    pub(super) fn definition_of(&self, resource: &Resource) -> Option<Arc<State>> {
        if !resource.custom {
            return None;
        }
        let id = self.registry.find(DEFINITIONS.0, DEFINITIONS.1)?;
        self.get(Place { id, version: 0 }, "", &format!("{}.{}", resource.plural, resource.group))
    }

    fn served_by(&self, definition: &Value) -> Option<ResourceId> {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
        let id = self.registry.find(text("/spec/group")?, text("/spec/names/plural")?)?;
        self.registry.get(id).filter(|resource| resource.custom).map(|_| id)
    }
}

fn check(resource: &Resource, before: &State, options: &DeleteOptions) -> Result<(), Status> {
    let name = &before.name;
    if resource.is("", "namespaces") && super::IMMORTAL.contains(&name.as_str()) {
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

fn add_policy_finalizer(object: &mut Value, policy: Policy) {
    match policy {
        Policy::Background => {}
        Policy::Foreground => push_finalizer(object, "foregroundDeletion"),
        Policy::Orphan => push_finalizer(object, "orphan"),
    }
}

fn push_finalizer(object: &mut Value, finalizer: &str) {
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
fn mark(object: &mut Value, now: Timestamp, grace: Option<u32>) {
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = json!(super::write::time(now));
    if let Some(grace) = grace {
        metadata["deletionGracePeriodSeconds"] = json!(grace);
        if let Some(generation) = metadata.get("generation").and_then(Value::as_u64) {
            metadata["generation"] = json!(generation + 1);
        }
    }
}
