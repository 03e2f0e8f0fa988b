//! Changes of all resources since a position, for readers in the same process.
//!
//! Applying the changes to the objects at the position results in the current objects. A resource whose
//! changes are not complete (it is new, its definition or the server was replaced, its history was dropped)
//! is reported as reset, followed by all its objects. Decoding happens elsewhere, without the lock of the
//! model.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::collection::Collection;
use super::kinds::{ResourceId, VersionedResource};
use super::resource::Resource;
use super::state::State;
use super::view::{ObjectShape, View};
use super::{Model, Objects};

/// The position of a reader: the state of the server up to which it knows all changes.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChangePosition {
    /// Epoch, version and revision of the registry; `None` before the first read.
    reached: Option<(u64, u64, u64)>,
    /// The resources that were served.
    resources: BTreeMap<ResourceId, Arc<Resource>>,
}

/// A change since a position.
#[derive(Debug, Clone)]
pub(crate) enum ModelChange {
    /// All objects of the resource are replaced by those that follow.
    Reset(ResourceId, Arc<Resource>, View),
    /// The resource is no longer served.
    Removed(ResourceId),
    /// The object has a new state.
    Written(ResourceId, Arc<State>),
    /// The object was deleted. The state is the last one.
    Deleted(ResourceId, Arc<State>),
}

impl Model {
    /// Returns the changes since a position, in the order of their versions within a resource, and advances the
    /// position.
    pub(crate) fn changes_since(&self, position: &mut ChangePosition) -> Vec<ModelChange> {
        let now = (self.epoch, self.version, self.registry.revision());
        let before = position.reached.replace(now);
        if before == Some(now) {
            return Vec::new();
        }
        let mut changes = Vec::new();
        let reached = before.filter(|(epoch, ..)| *epoch == self.epoch).map(|(_, version, _)| version);
        if before.is_none_or(|(epoch, _, revision)| (epoch, revision) != (now.0, now.2)) {
            self.add_resource_changes(position, reached, &mut changes);
        }
        let Some(reached) = reached else { return changes };
        for id in position.resources.keys() {
            if let Some(collection) = self.collections.get(id) {
                self.add_object_changes(*id, collection, reached, &mut changes);
            }
        }
        changes
    }

    /// Returns the resources whose objects are stored, each once, with their ids.
    pub(crate) fn stored_resources(&self) -> impl Iterator<Item = (ResourceId, &Arc<Resource>)> {
        let ids = self.registry.iter().map(|(id, _)| id);
        let stored = move |id: &ResourceId| self.storage_id(VersionedResource { id: *id, version: 0 }) == *id;
        ids.filter(stored)
            .filter_map(|id| Some((id, self.registry.get(id)?)))
            .filter(|(_, resource)| resource.is_stored())
    }

    /// Adds the resources that are no longer served, and those that are new or were replaced. With `reached`
    /// unset, all resources count as replaced.
    fn add_resource_changes(
        &self,
        position: &mut ChangePosition,
        reached: Option<u64>,
        changes: &mut Vec<ModelChange>,
    ) {
        let served: BTreeMap<ResourceId, Arc<Resource>> =
            self.stored_resources().map(|(id, resource)| (id, resource.clone())).collect();
        let known = std::mem::replace(&mut position.resources, served);
        let is_gone = |id: &&ResourceId| !position.resources.contains_key(id);
        changes.extend(known.keys().filter(is_gone).map(|id| ModelChange::Removed(*id)));
        for (id, resource) in &position.resources {
            let is_same = known.get(id).is_some_and(|before| Arc::ptr_eq(before, resource));
            if !is_same || reached.is_none() {
                self.add_reset(*id, changes);
            }
        }
    }

    /// Adds the changes of one resource since the version `reached`.
    fn add_object_changes(
        &self,
        id: ResourceId,
        collection: &Collection,
        reached: u64,
        changes: &mut Vec<ModelChange>,
    ) {
        let is_reset = |change: &ModelChange| matches!(change, ModelChange::Reset(reset, ..) if *reset == id);
        if collection.has_no_change_after(reached) || changes.iter().any(is_reset) {
            return;
        }
        if reached < collection.watch_floor() {
            self.add_reset(id, changes);
            return;
        }
        let mut sequence = collection.sequence_after(reached);
        while let Some(change) = collection.change(sequence) {
            sequence += 1;
            match (&change.before, &change.after) {
                (_, Some(after)) => changes.push(ModelChange::Written(id, after.clone())),
                (Some(before), None) => changes.push(ModelChange::Deleted(id, before.clone())),
                (None, None) => {}
            }
        }
    }

    fn add_reset(&self, id: ResourceId, changes: &mut Vec<ModelChange>) {
        let Some(resource) = self.registry.get(id) else { return };
        let view = self.view(VersionedResource { id, version: 0 }, ObjectShape::Whole);
        changes.push(ModelChange::Reset(id, resource.clone(), view));
        let objects = self.collections.get(&id).map(Collection::live);
        let states = objects.into_iter().flat_map(Objects::values);
        changes.extend(states.map(|state| ModelChange::Written(id, state.clone())));
    }
}
