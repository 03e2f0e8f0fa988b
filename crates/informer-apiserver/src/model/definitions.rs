//! The life cycle of definitions (`CustomResourceDefinition`): stored, accepted, served, and removed with
//! their objects.
//!
//! In kube-apiserver, controllers take these steps shortly after each write. Here the write itself takes
//! them, so clients need not wait; each step is a change of its own, which watches see. A definition whose
//! names conflict is stored but not served.

use std::sync::Arc;

use informer_objects::definition::{self, Taken};
use informer_objects::status::Status;
use jiff::Timestamp;
use serde_json::Value;

use super::collection::Collection;
use super::delete::{DeleteOptions, mark, push_finalizer};
use super::kinds::{ResourceId, VersionedResource};
use super::resource::{DEFINITIONS, Resource};
use super::state::State;
use super::write_context::WriteContext;
use super::write_target::WriteTarget;
use super::{ChangeNotice, Model, Objects, custom};

/// The finalizer that keeps a definition until its objects are deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The field manager of the status of definitions.
const STATUS_MANAGER: &str = "kube-apiserver";

impl Model {
    /// Accepts the names of a stored definition, and serves it if they are free.
    pub(super) fn install(
        &mut self,
        now: Timestamp,
        gvr: VersionedResource,
        stored: Arc<State>,
    ) -> Result<(), Status> {
        let context = WriteContext::at(now, STATUS_MANAGER);
        let mut definition = stored.decode();
        let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default().to_owned();
        let live = self.collections.get(&gvr.id).map(Collection::live);
        let all: Vec<Value> =
            live.into_iter().flat_map(Objects::values).map(|state| state.decode()).collect();
        let mut state = stored;
        if definition::accept_names(&mut definition, &Taken::in_group(&group, &all), now) {
            state = self.overwrite(&context, gvr, WriteTarget::Status, state, definition.clone())?;
        }
        if definition::establish(&mut definition, now) {
            self.overwrite(&context, gvr, WriteTarget::Status, state, definition.clone())?;
        }
        if definition::is_true(&definition, "Established") {
            self.define(&definition);
        }
        Ok(())
    }

    /// Starts to serve the resource of a definition, unless it is served already.
    fn define(&mut self, definition: &Value) {
        let Some(resource) = custom::resource(definition) else { return };
        if self.registry.find(&resource.group, &resource.plural).is_some() {
            return;
        }
        let id = self.registry.insert(resource);
        let collection = Collection::new(Objects::new(), self.version, self.limits.changes);
        self.collections.insert(id, collection);
    }

    /// Replaces the resource of a changed definition, and ends its open watches.
    pub(super) fn redefine(&mut self, before: &Value, definition: &Value) {
        let Some(resource) = custom::resource(definition) else { return };
        let Some(id) = self.registry.find(&resource.group, &resource.plural) else { return };
        let Some(current) = self.registry.get(id).filter(|current| current.custom) else { return };
        if let Some(collection) = self.collections.get_mut(&id) {
            if encoding_fields(before) != encoding_fields(definition) {
                collection.reencode(current, &resource);
            }
            collection.end_watches();
        }
        self.registry.replace(id, resource);
        self.notices.push(ChangeNotice { id, namespace: None });
    }

    /// Marks a definition as terminating and deletes its objects. Removes the definition if no object is
    /// left. Returns the marked definition.
    pub(super) fn delete_definition(
        &mut self,
        now: Timestamp,
        gvr: VersionedResource,
        before: Arc<State>,
        mut definition: Value,
    ) -> Result<Arc<State>, Status> {
        let resource = self.resource(gvr.id)?;
        push_finalizer(&mut definition, CLEANUP);
        mark(&mut definition, now, None);
        let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
        definition::set_condition(
            &mut definition,
            now,
            "Terminating",
            "True",
            "InstanceDeletionPending",
            message,
        );
        let marked = self.store(now, gvr.id, &resource, Some(before), &definition);
        let Some(served) = self.served_by(&definition) else {
            self.remove(now, gvr.id, marked.clone());
            return Ok(marked);
        };
        let message = "CustomResource deletion is in progress";
        definition::set_condition(
            &mut definition,
            now,
            "Terminating",
            "True",
            "InstanceDeletionInProgress",
            message,
        );
        let context = WriteContext::at(now, STATUS_MANAGER);
        self.overwrite(&context, gvr, WriteTarget::Status, marked.clone(), definition)?;
        let objects: Vec<Arc<State>> = self
            .collections
            .get(&served)
            .map(|collection| collection.live().values().cloned().collect())
            .unwrap_or_default();
        for object in objects {
            // Cannot fail: there are no preconditions, and the object exists.
            let key = (object.namespace.as_str(), object.name.as_str());
            let _ = self.delete(
                now,
                VersionedResource { id: served, version: 0 },
                key,
                &DeleteOptions::default(),
            );
        }
        self.finish_definition_if_empty(now, served);
        Ok(marked)
    }

    /// Completes the deletion of the definition of a custom resource, if the definition is terminating and
    /// the resource has no objects left.
    pub(super) fn finish_definition_if_empty(&mut self, now: Timestamp, id: ResourceId) {
        let Some(resource) = self.registry.get(id) else { return };
        let empty = self.collections.get(&id).is_some_and(|collection| collection.live().is_empty());
        let Some(definition) = self.definition_of(resource).filter(|found| found.terminating && empty) else {
            return;
        };
        self.registry.remove(id);
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.retire();
            if collection.is_unused() {
                self.collections.remove(&id);
            }
        }
        self.notices.push(ChangeNotice { id, namespace: None });
        if let Some(definitions) = self.registry.find(DEFINITIONS.0, DEFINITIONS.1) {
            self.remove(now, definitions, definition);
        }
    }

    /// Returns the definition of a custom resource.
    pub(super) fn definition_of(&self, resource: &Resource) -> Option<Arc<State>> {
        if !resource.custom {
            return None;
        }
        let id = self.registry.find(DEFINITIONS.0, DEFINITIONS.1)?;
        self.get(VersionedResource { id, version: 0 }, "", &format!("{}.{}", resource.plural, resource.group))
    }

    /// Returns the id of the resource that a definition currently serves.
    fn served_by(&self, definition: &Value) -> Option<ResourceId> {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str);
        let id = self.registry.find(text("/spec/group")?, text("/spec/names/plural")?)?;
        self.registry.get(id).filter(|resource| resource.custom).map(|_| id)
    }
}

/// Returns the parts of a definition that determine how its objects are encoded and selected. Printer
/// columns, short names and other fields have no influence.
fn encoding_fields(definition: &Value) -> Vec<Vec<Option<&Value>>> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let fields = ["name", "served", "storage", "schema", "selectableFields"];
    versions.map(|version| fields.iter().map(|field| version.get(field)).collect()).collect()
}
