//! How the sources of a controller are divided by a shard group.
//!
//! By namespace, all namespaced sources contain the same namespaces, and cluster-scoped ones everything. By uid, the
//! objects of the controller's kind are divided by their uid, and owned ones by that of their owner; other kinds are
//! not divided, so a changed object of theirs does not tell which process has to act. This file must not know which
//! ranges the process holds.

use super::Controller;
use crate::factory::SharedInformerFactory;
use crate::shard::ShardGroup;
use crate::shard_view::ShardHandle;
use crate::shared::Selection;
use informer_core::Key;
use informer_core::shard::{ShardProperty, shard_hash};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

impl<L: 'static, S> Controller<L, S> {
    /// Divides the keys among the processes of a shard group: this process reconciles only those for which it acts.
    ///
    /// - The informers of all sources cache the share of this process. Divided by namespace, cluster-scoped kinds are
    ///   cached completely, except the kind of the controller, which is then divided by uid. Divided by uid, owned
    ///   objects are divided by the uid of their owner, kinds that are only [read](Self::reads) are cached completely,
    ///   and [`watches`](Self::watches) is rejected when the controller runs. Informers that are passed to
    ///   `owns_informer` and `watches_informer` stay as they are.
    /// - When a range is gained, its objects are reconciled as after a start, once all sources contain them.
    /// - When a range is released, no further reconcile of it starts. Running ones are asked to end
    ///   ([`Context::stop_requested`](super::Context::stop_requested)), and are dropped after the [shutdown timeout](Self::shutdown_timeout). When a
    ///   range is lost, because the Lease was not renewed in time, they are dropped immediately.
    /// - Keys of other processes are ignored, also those of streams.
    /// - By uid, the unit is one incarnation of an object: while this process reconciles its deletion, another one may
    ///   reconcile the next incarnation.
    ///
    /// The group must run, for example with [`Manager::add_shard_group`](crate::manager::Manager::add_shard_group).
    pub fn sharded(self, group: &ShardGroup) -> Self {
        self.with_shard_handle(group.handle().clone())
    }

    /// Divides the keys by the views that a shard group publishes.
    pub(crate) fn with_shard_handle(mut self, group: ShardHandle) -> Self {
        self.spec.sharding = Some(group);
        self
    }
}

/// How the objects of a source relate to those of the controller's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SourceRole {
    Own,
    Owned,
    Watched,
    Read,
}

/// The group of a controller, and the property by which it divides the objects of the controller's kind.
#[derive(Clone, Debug)]
pub(super) struct ControllerShard {
    pub(super) group: ShardHandle,
    pub(super) property: ShardProperty,
}

impl ControllerShard {
    pub(super) fn new(group: ShardHandle, cluster_scoped: bool) -> Self {
        // Cluster-scoped objects have no namespace.
        let property = if cluster_scoped { ShardProperty::Uid } else { group.property() };
        Self { group, property }
    }

    /// Returns the property by which a source is divided; `None` if every process needs all of its objects.
    fn property_of(&self, role: SourceRole, cluster_scoped: bool) -> Option<ShardProperty> {
        match (self.property, role) {
            (property, SourceRole::Own) => Some(property),
            (ShardProperty::Namespace, _) => (!cluster_scoped).then_some(ShardProperty::Namespace),
            (_, SourceRole::Owned) => Some(ShardProperty::ControllerUid),
            (_, SourceRole::Watched | SourceRole::Read) => None,
        }
    }
}

/// Creates the informers of a controller's sources.
pub(super) struct SourceFactory<'a> {
    factory: &'a SharedInformerFactory,
    shard: Option<&'a ControllerShard>,
    deleted_keys: &'a Arc<DeletedKeys>,
    has_watched: Cell<bool>,
}

impl<'a> SourceFactory<'a> {
    pub(super) fn new(
        factory: &'a SharedInformerFactory,
        shard: Option<&'a ControllerShard>,
        deleted_keys: &'a Arc<DeletedKeys>,
    ) -> Self {
        let by_uid = shard.is_some_and(|shard| shard.property != ShardProperty::Namespace);
        deleted_keys.is_enabled.store(by_uid, Ordering::Relaxed);
        Self { factory, shard, deleted_keys, has_watched: Cell::new(false) }
    }

    /// Records that the controller has a source with this role.
    pub(super) fn record_role(&self, role: SourceRole) {
        self.has_watched.set(self.has_watched.get() || role == SourceRole::Watched);
    }

    /// Returns the factory for a kind.
    pub(super) fn view(&self, role: SourceRole, cluster_scoped: bool) -> SharedInformerFactory {
        let property = self.shard.and_then(|shard| shard.property_of(role, cluster_scoped));
        match self.shard.zip(property) {
            Some((shard, property)) => {
                self.factory.select(Selection::default().shard(shard.group.clone(), property))
            }
            None => self.factory.clone(),
        }
    }

    /// Returns where the deletions of a source are recorded, if they must be.
    pub(super) fn deleted_keys(&self, role: SourceRole) -> Option<Arc<DeletedKeys>> {
        (role == SourceRole::Own && self.deleted_keys.is_enabled()).then(|| Arc::clone(self.deleted_keys))
    }

    /// Returns why the sources cannot be divided, if so.
    pub(super) fn rejection(&self) -> Option<&'static str> {
        let by_uid = self.deleted_keys.is_enabled();
        (by_uid && self.has_watched.get()).then_some(
            "a kind that is only watched cannot be divided by uid: its objects do not tell which process acts (use `owns`, or divide by namespace)",
        )
    }
}

/// The hashes of the uids that objects had before they were deleted, by key, for groups that divide by uid.
///
/// The key of an object that does not exist does not tell which process acts for it.
#[derive(Debug, Default)]
pub(super) struct DeletedKeys {
    is_enabled: AtomicBool,
    hashes: Mutex<HashMap<Key, u64>>,
}

impl DeletedKeys {
    fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Records the uid of an object that may not exist any more, if the group divides by uid.
    pub(super) fn record(&self, key: &Key, uid: &str) {
        if self.is_enabled() {
            self.lock().insert(key.clone(), shard_hash(uid));
        }
    }

    /// Returns the hash of the uid of a key.
    pub(super) fn get(&self, key: &Key) -> Option<u64> {
        self.lock().get(key).copied()
    }

    /// Forgets a key whose object exists, or that was reconciled.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.hashes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
