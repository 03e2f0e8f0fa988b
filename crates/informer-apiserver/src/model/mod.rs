//! The server's state and everything that decides: pure, so that a run can be repeated.
//!
//! One counter gives every write its version, whatever its kind, and each kind keeps what happened to it lately. Time is a
//! parameter, ids come from a seed. The model knows no HTTP, no clock, no tokio, and nobody who waits: after an
//! operation it says which resources changed, and the shell wakes who is interested.

mod allocate;
mod builtin;
mod collection;
mod custom;
mod definitions;
mod delete;
mod encodings;
mod facts;
mod fields;
mod forms;
mod ids;
mod json;
mod json_edit;
mod kinds;
mod list;
mod merge;
mod meta;
pub(crate) mod patching;
mod resource;
mod selector;
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

pub(crate) use collection::Objects;
pub(crate) use delete::{DeleteOptions, Deleted, Policy};
pub use encodings::EncodingCounters;
pub(crate) use fields::{Filter, selected_name};
pub(crate) use kinds::{GroupKind, Registry, ResourceId, VersionedResource};
pub(crate) use list::{Listing, Page, ReadVersion, Token, states_after};
pub(crate) use meta::NAMESPACES_DIFFER;
pub(crate) use resource::{Resource, Subresource};
pub(crate) use state::State;
pub(crate) use subresources::created_status;
pub(crate) use view::{ObjectShape, View};
pub(crate) use watch::{Cursor, Frame, From, Step};
pub(crate) use write::read_as;
pub(crate) use write_context::{WriteContext, WriteOrigin, WriteResult};
pub(crate) use write_target::WriteTarget;

use collection::Collection;
pub(crate) use ids::Ids;

/// Namespaces that are always there.
const NAMESPACES: &[&str] = &["kube-system", "kube-public", "default", "kube-node-lease"];

/// Namespaces that cannot be deleted.
const PROTECTED_NAMESPACES: &[&str] = &["default", "kube-public", "kube-system"];

/// The whole state of a server.
#[derive(Debug)]
pub(crate) struct Model {
    /// The version of the last write.
    version: u64,
    /// How often the server was put back; watches of an earlier epoch are broken.
    epoch: u64,
    history_limit: usize,
    ids: Ids,
    registry: Registry,
    collections: BTreeMap<ResourceId, Collection>,
    /// What has news since the shell last asked.
    touched: Vec<ChangeNotice>,
    /// How often states were encoded.
    encoded: Arc<encodings::Counters>,
}

/// Something that watchers have to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChangeNotice {
    pub(crate) id: ResourceId,
    /// Where the object is that changed; none if it concerns everybody who watches the resource.
    pub(crate) namespace: Option<String>,
}

/// A copy of a server's objects, as a backup of etcd is one: no history.
#[derive(Debug, Clone)]
pub(crate) struct ModelBackup {
    version: u64,
    registry: Registry,
    objects: BTreeMap<ResourceId, Objects>,
}

impl Model {
    #[cfg(test)]
    pub(crate) fn new(now: Timestamp, seed: u64, history: usize) -> Self {
        Model::serving(Registry::builtin(), now, seed, history)
    }

    /// A server with nothing but the usual namespaces, keeping `history` changes of each resource.
    pub(crate) fn serving(registry: Registry, now: Timestamp, seed: u64, history: usize) -> Self {
        let collections =
            registry.iter().map(|(id, _)| (id, Collection::new(Objects::new(), 0, history))).collect();
        let mut model = Model {
            version: 1,
            epoch: 0,
            history_limit: history,
            ids: Ids::new(seed),
            registry,
            collections,
            touched: Vec::new(),
            encoded: Arc::default(),
        };
        if let Some(namespaces) = model.registry.place("", "v1", "namespaces") {
            for name in NAMESPACES {
                let object = serde_json::json!({"metadata": {"name": name}});
                let created = model.create(
                    &WriteContext::at(now, "kube-apiserver"),
                    namespaces,
                    "",
                    object,
                    WriteOrigin::Internal,
                );
                debug_assert!(created.is_ok(), "{name}: {created:?}");
            }
        }
        model.create_priority_classes(now);
        model
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    pub(crate) fn get(&self, place: VersionedResource, namespace: &str, name: &str) -> Option<Arc<State>> {
        let collection = self.collections.get(&self.home(place))?;
        collection.live().get(state::key(namespace, name).as_str()).cloned()
    }

    /// How a place shows objects.
    pub(crate) fn view(&self, place: VersionedResource, shape: ObjectShape) -> View {
        View { shape, api_version: self.api_version_shown(place), representation: self.representation(place) }
    }

    /// How a place shows objects: `None` for the version whose name is in the stored bytes.
    pub(crate) fn api_version_shown(&self, place: VersionedResource) -> Option<String> {
        let resource = self.registry.get(place.id)?;
        (place.version > 0 || resource.custom).then(|| resource.api_version(place.version))
    }

    /// How often stored objects were encoded.
    pub(crate) fn encoding_counters(&self) -> EncodingCounters {
        self.encoded.read()
    }

    /// Forgets all history up to now.
    pub(crate) fn compact(&mut self) {
        for collection in self.collections.values_mut() {
            collection.compact(self.version);
        }
    }

    /// Storage forgets all history up to now. Where there is a cache, that still has it.
    pub(crate) fn compact_etcd(&mut self) {
        for (id, collection) in &mut self.collections {
            if self.registry.get(*id).is_some_and(|resource| !resource.is_cached()) {
                collection.compact(self.version);
            } else {
                collection.compact_etcd(self.version);
            }
        }
    }

    /// The cache of a resource forgets everything before a version.
    pub(crate) fn expire_watches(&mut self, place: VersionedResource, version: u64) {
        let home = self.home(place);
        if let Some(collection) = self.collections.get_mut(&home) {
            collection.expire_watches(version);
        }
    }

    pub(crate) fn backup(&self) -> ModelBackup {
        let objects = self.collections.iter().map(|(id, collection)| (*id, collection.live().clone()));
        ModelBackup { version: self.version, registry: self.registry.clone(), objects: objects.collect() }
    }

    /// Goes back to a copy: versions too, while ids go on.
    pub(crate) fn restore(&mut self, copy: &ModelBackup) {
        let mut registry = copy.registry.clone();
        registry.skip_ids_of(&self.registry);
        self.registry = registry;
        self.version = copy.version;
        self.epoch += 1;
        self.touched.extend(self.collections.keys().map(|id| ChangeNotice { id: *id, namespace: None }));
        let (version, history) = (self.version, self.history_limit);
        let objects = copy.objects.iter().filter(|(id, _)| self.registry.get(**id).is_some());
        self.collections =
            objects.map(|(id, live)| (*id, Collection::new(live.clone(), version, history))).collect();
    }

    /// What has news since this was last called.
    pub(crate) fn take_touched(&mut self) -> Vec<ChangeNotice> {
        std::mem::take(&mut self.touched)
    }

    /// Stores a state under the next version.
    fn store(
        &mut self,
        id: ResourceId,
        resource: &Resource,
        before: Option<Arc<State>>,
        object: &serde_json::Value,
    ) -> Arc<State> {
        self.version += 1;
        let state = Arc::new(State::encode(resource, self.version, object).counted(&self.encoded));
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.put(before, state.clone());
        }
        self.touched.push(ChangeNotice { id, namespace: Some(state.namespace.clone()) });
        state
    }

    /// Removes an object under the next version.
    fn remove(&mut self, id: ResourceId, before: Arc<State>) {
        self.version += 1;
        self.touched.push(ChangeNotice { id, namespace: Some(before.namespace.clone()) });
        if let Some(collection) = self.collections.get_mut(&id) {
            collection.remove(before, self.version);
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
