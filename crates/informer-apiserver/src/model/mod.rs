//! The state of a server and all its decisions, without I/O, so that runs are reproducible.
//!
//! One counter assigns a version to every write, of any kind, and each resource retains its recent changes.
//! Time is a parameter and ids come from a seed. The model knows no HTTP, no clock, no tokio and no waiting
//! tasks: after each operation, `shared` takes the notices of changed resources and wakes the tasks that wait
//! for these resources.

mod allocate;
mod builtin;
mod changes;
mod collection;
mod custom;
mod definitions;
mod delete;
mod encodings;
mod facts;
mod fields;
mod history;
mod ids;
mod initial_objects;
mod json;
mod json_edit;
mod kinds;
mod list;
mod merge;
mod meta;
pub(crate) mod patching;
mod representation;
mod resource;
mod selector;
mod shard_selector;
mod state;
mod subresources;
mod view;
mod watch;
mod write;
mod write_context;
mod write_pipeline;
mod write_target;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

pub(crate) use changes::{ChangePosition, ModelChange};
pub(crate) use collection::Objects;
pub(crate) use delete::{DeleteOptions, DeleteResponse, Policy};
pub use encodings::EncodingCounters;
pub(crate) use fields::{Filter, Selectors, selected_name};
pub(crate) use history::HistoryLimits;
pub(crate) use kinds::{GroupKind, Registry, ResourceId, VersionedResource};
pub(crate) use list::{Listing, Page, Paging, ReadVersion, Token, states_after};
pub(crate) use meta::NAMESPACES_DIFFER;
pub(crate) use resource::{Resource, Subresource};
pub(crate) use state::State;
pub(crate) use subresources::created_status;
pub(crate) use view::{ObjectShape, View};
pub(crate) use watch::{Cursor, Frame, Opened, Step, WatchStart};
pub(crate) use write::read_as;
pub(crate) use write_context::{WriteContext, WriteOrigin, WriteResult};
pub(crate) use write_target::WriteTarget;

use collection::Collection;
use history::TrimSchedule;
pub(crate) use ids::Ids;

/// Namespaces that cannot be deleted, as in kube-apiserver.
const PROTECTED_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

/// The whole state of a server.
#[derive(Debug)]
pub(crate) struct Model {
    /// The version of the last write.
    version: u64,
    /// Number of restores, including restarts. Watches of an earlier epoch are broken.
    epoch: u64,
    limits: HistoryLimits,
    trim_schedule: TrimSchedule,
    ids: Ids,
    registry: Registry,
    collections: BTreeMap<ResourceId, Collection>,
    /// Changes that were not yet taken by [`Model::take_notices`].
    notices: Vec<ChangeNotice>,
    /// Counts how often states were encoded.
    encoded: Arc<encodings::Counters>,
}

/// A change that concerns watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeNotice {
    pub(crate) id: ResourceId,
    /// The namespace of the changed object; `None` if every watch of the resource is concerned.
    pub(crate) namespace: Option<String>,
}

/// A copy of a server's objects without history, like a backup of etcd.
#[derive(Debug, Clone)]
pub(crate) struct ModelBackup {
    version: u64,
    registry: Registry,
    objects: BTreeMap<ResourceId, Objects>,
}

impl Model {
    #[cfg(test)]
    pub(crate) fn new(now: Timestamp, seed: u64, limits: HistoryLimits) -> Self {
        Model::serving(Registry::builtin(), now, seed, limits)
    }

    /// Creates a model with the objects of a new server, see `initial_objects`.
    pub(crate) fn serving(registry: Registry, now: Timestamp, seed: u64, limits: HistoryLimits) -> Self {
        let empty = || Collection::new(Objects::new(), 0, limits.changes);
        let collections = registry.iter().map(|(id, _)| (id, empty())).collect();
        let mut model = Model {
            version: 1,
            epoch: 0,
            limits,
            trim_schedule: TrimSchedule::new(now),
            ids: Ids::new(seed),
            registry,
            collections,
            notices: Vec::new(),
            encoded: Arc::default(),
        };
        model.create_initial_objects(now);
        model
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn get(&self, gvr: VersionedResource, namespace: &str, name: &str) -> Option<Arc<State>> {
        let collection = self.collections.get(&self.storage_id(gvr))?;
        collection.live().get(state::key(namespace, name).as_str()).cloned()
    }

    /// Returns how objects are shown in a version of a resource.
    pub(crate) fn view(&self, gvr: VersionedResource, shape: ObjectShape) -> View {
        View { shape, api_version: self.api_version_shown(gvr), representation: self.representation(gvr) }
    }

    /// Returns the apiVersion to show, or `None` if it is the one in the stored bytes.
    pub(crate) fn api_version_shown(&self, gvr: VersionedResource) -> Option<String> {
        let resource = self.registry.get(gvr.id)?;
        (gvr.version > 0 || resource.custom).then(|| resource.api_version(gvr.version))
    }

    /// Returns how often stored objects were encoded.
    pub(crate) fn encoding_counters(&self) -> EncodingCounters {
        self.encoded.read()
    }

    /// Drops all history.
    pub(crate) fn compact(&mut self) {
        for collection in self.collections.values_mut() {
            collection.compact(self.version);
        }
    }

    /// Drops the history in storage. A resource with a watch cache keeps the history in that cache.
    pub(crate) fn compact_etcd(&mut self) {
        for (id, collection) in &mut self.collections {
            if self.registry.get(*id).is_some_and(|resource| !resource.is_cached()) {
                collection.compact(self.version);
            } else {
                collection.compact_etcd(self.version);
            }
        }
    }

    /// Drops the versions before `version` from the watch cache of a resource. Open watches continue.
    pub(crate) fn compact_watch_cache(&mut self, gvr: VersionedResource, version: u64) {
        let storage_id = self.storage_id(gvr);
        if let Some(collection) = self.collections.get_mut(&storage_id) {
            collection.compact_watch_cache(version);
        }
    }

    pub(crate) fn backup(&self) -> ModelBackup {
        let objects = self.collections.iter().map(|(id, collection)| (*id, collection.live().clone()));
        ModelBackup { version: self.version, registry: self.registry.clone(), objects: objects.collect() }
    }

    /// Restores a backup, including its versions. Resource ids assigned since the backup are not reused.
    pub(crate) fn restore(&mut self, backup: &ModelBackup) {
        let mut registry = backup.registry.clone();
        registry.skip_ids_of(&self.registry);
        self.registry = registry;
        self.version = backup.version;
        self.epoch += 1;
        self.notices.extend(self.collections.keys().map(|id| ChangeNotice { id: *id, namespace: None }));
        let (version, max_changes) = (self.version, self.limits.changes);
        let objects = backup.objects.iter().filter(|(id, _)| self.registry.get(**id).is_some());
        self.collections =
            objects.map(|(id, live)| (*id, Collection::new(live.clone(), version, max_changes))).collect();
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_notices(&mut self) -> Vec<ChangeNotice> {
        std::mem::take(&mut self.notices)
    }

    /// Stores an object under the next version.
    fn store(
        &mut self,
        now: Timestamp,
        id: ResourceId,
        resource: &Resource,
        before: Option<Arc<State>>,
        object: &serde_json::Value,
    ) -> Arc<State> {
        self.version += 1;
        let state = Arc::new(State::encode(resource, self.version, object).counted(&self.encoded));
        if let Some(collection) = self.collections.get_mut(&id) {
            let recorded = collection.put(now, before, state.clone());
            self.trim_history(now, recorded);
        }
        self.notices.push(ChangeNotice { id, namespace: Some(state.namespace.clone()) });
        state
    }

    /// Removes an object under the next version.
    fn remove(&mut self, now: Timestamp, id: ResourceId, before: Arc<State>) {
        self.version += 1;
        self.notices.push(ChangeNotice { id, namespace: Some(before.namespace.clone()) });
        if let Some(collection) = self.collections.get_mut(&id) {
            let recorded = collection.remove(now, before, self.version);
            self.trim_history(now, recorded);
        }
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        for collection in self.collections.values() {
            collection.check_invariants();
            assert!(collection.live().values().all(|state| state.version <= self.version));
        }
    }
}
