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
use crate::shared::{Selection, Shard};
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
    ///   ([`Context::stop_requested`](super::Context::stop_requested)), and are dropped after the
    ///   [shutdown timeout](Self::shutdown_timeout) of the controller or the
    ///   [release timeout](crate::shard::ShardGroupBuilder::release_timeout) of the group, whichever is shorter (both
    ///   30 s). When a range is lost, because the Lease was not renewed in time, they are dropped immediately.
    /// - Keys of other processes are ignored, also those of streams. So the mapper of [`watches`](Self::watches) must return
    ///   keys in the namespace of the object: a key in another namespace may belong to a process that does not cache it.
    /// - By uid, the unit is one incarnation of an object: while this process reconciles its deletion, another one may
    ///   reconcile the next incarnation. A reconcile that has read the next incarnation continues if only the range of
    ///   that one moves.
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
    /// Whether an informer is divided differently than the controller.
    has_other_ranges: Cell<bool>,
}

impl<'a> SourceFactory<'a> {
    pub(super) fn new(
        factory: &'a SharedInformerFactory,
        shard: Option<&'a ControllerShard>,
        deleted_keys: &'a Arc<DeletedKeys>,
    ) -> Self {
        let by_uid = shard.is_some_and(|shard| shard.property != ShardProperty::Namespace);
        deleted_keys.is_enabled.store(by_uid, Ordering::Relaxed);
        let (has_watched, has_other_ranges) = Default::default();
        Self { factory, shard, deleted_keys, has_watched, has_other_ranges }
    }

    /// Records that the controller has a source with this role.
    pub(super) fn record_role(&self, role: SourceRole) {
        self.has_watched.set(self.has_watched.get() || role == SourceRole::Watched);
    }

    /// Records how the informer of a source is divided; one that is not divided contains everything.
    pub(super) fn record_ranges(&self, role: SourceRole, cluster_scoped: bool, actual: Option<&Shard>) {
        let expected = self.shard.and_then(|shard| {
            let property = shard.property_of(role, cluster_scoped)?;
            Some(Shard { group: shard.group.clone(), property })
        });
        let is_other = actual.is_some_and(|actual| expected.as_ref() != Some(actual));
        self.has_other_ranges.set(self.has_other_ranges.get() || is_other);
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
        if by_uid && self.has_watched.get() {
            return Some(
                "a kind that is only watched cannot be divided by uid: its objects do not tell which process acts (use `owns`, or divide by namespace)",
            );
        }
        self.has_other_ranges.get().then_some(if self.shard.is_some() {
            "an informer is divided by another group or property than the controller (pass a factory and informers that are not sharded)"
        } else {
            "an informer is divided by a shard group, but the controller is not (call `.sharded(&group)`, and pass a factory that is not sharded)"
        })
    }
}

/// The hashes of the uids that objects had before they were deleted, by key, for groups that divide by uid.
///
/// The key of an object that does not exist does not tell which process acts for it.
#[derive(Debug, Default)]
pub(super) struct DeletedKeys {
    is_enabled: AtomicBool,
    records: Mutex<DeletedRecords>,
}

#[derive(Debug, Default)]
struct DeletedRecords {
    by_key: HashMap<Key, DeletedKey>,
    /// The number of the last record.
    last: u64,
}

/// A record of a key whose object may not exist any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeletedKey {
    /// The hash of its uid.
    pub(super) hash: u64,
    /// Differs from those of all other records.
    number: u64,
}

impl DeletedKeys {
    fn is_enabled(&self) -> bool {
        self.is_enabled.load(Ordering::Relaxed)
    }

    /// Records the uid of an object that may not exist any more, if the group divides by uid.
    ///
    /// The key must be queued afterwards: the record is removed when it is decided who acts for the key.
    pub(super) fn record(&self, key: &Key, uid: &str) {
        if self.is_enabled() {
            let mut records = self.lock();
            records.last += 1;
            let deleted = DeletedKey { hash: shard_hash(uid), number: records.last };
            records.by_key.insert(key.clone(), deleted);
        }
    }

    /// Returns the last record of a key.
    pub(super) fn get(&self, key: &Key) -> Option<DeletedKey> {
        self.lock().by_key.get(key).copied()
    }

    /// Removes a record of a key whose object exists, that was reconciled, or for which another process acts. A later
    /// record of the key stays.
    pub(super) fn remove(&self, key: &Key, record: DeletedKey) {
        let mut records = self.lock();
        if records.by_key.get(key) == Some(&record) {
            records.by_key.remove(key);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().by_key.len()
    }

    fn lock(&self) -> MutexGuard<'_, DeletedRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Outcome;
    use crate::event::Event;
    use crate::shard_view::ShardHandle;
    use informer_apiserver::ApiServer;
    use informer_core::shard::{HashRange, HashRanges};
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use serde_json::json;
    use std::convert::Infallible;
    use std::time::Duration;

    /// Bug: the uid of each deleted object was kept forever if a predicate ignored its deletion, and that of an owner
    /// for which another process acts, too.
    #[tokio::test(start_paused = true)]
    async fn deletions_that_are_not_reconciled_are_forgotten() {
        let server = ApiServer::new();
        let object = |kind: &str, name: &str| {
            let metadata = json!({"name": name, "namespace": "default"});
            json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
        };
        let group = ShardHandle::new("default/test", ShardProperty::Uid);
        group.set_acts_until(Some(tokio::time::Instant::now() + Duration::from_secs(1_000_000)));
        let mine = server.create(&object("ConfigMap", "mine")).unwrap();
        let hash = shard_hash(mine["metadata"]["uid"].as_str().unwrap());
        let held: HashRanges = HashRange::new(hash, hash).into_iter().collect();
        group.publish(|view| (view.held, view.is_settled) = (Arc::new(held), true));
        let factory = SharedInformerFactory::new(server.client());
        let (sender, mut reconciled) = tokio::sync::mpsc::unbounded_channel();
        let controller = Controller::new::<ConfigMap>(&factory)
            .with_predicate(|event| !matches!(event, Event::Deleted { .. }))
            // Not divided: the owners of the secrets belong to other processes.
            .owns_informer(factory.informer::<Secret>())
            .with_shard_handle(group)
            .reconcile(move |key, _| {
                let _received = sender.send(key).is_ok();
                async { Ok::<_, Infallible>(Outcome::Done) }
            });
        let stop = async {
            reconciled.recv().await.unwrap();
            let deleted = &controller.shared().deleted_keys;
            server.delete("v1", "configmaps", Some("default"), "mine").unwrap();
            for number in 0..20 {
                let mut secret = object("Secret", &format!("s{number}"));
                secret["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap",
                    "controller": true, "name": format!("owner{number}"), "uid": format!("uid{number}")}]);
                server.create(&secret).unwrap();
            }
            let secrets = factory.informer::<Secret>();
            let (maps, queue) =
                (&controller.shared().sources[0].engine.reader, || controller.queue_metrics());
            let settled = async {
                while secrets.snapshot().len() < 20
                    || maps.snapshot().list().next().is_some()
                    || queue().adds < 21
                    || queue().depth + queue().processing > 0
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(60), settled).await.expect("all events are handled");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!(deleted.len(), 0);
        };
        controller.run_until(stop).await.unwrap();
    }
}
