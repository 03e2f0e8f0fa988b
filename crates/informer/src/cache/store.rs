//! [`Store`]: an indexed store that the program fills itself.
//!
//! A thin layer over the store of an informer: a mutex serialises the writers, and readers never wait (C5).

use super::delta::Delta;
use crate::error::ParseError;
use crate::event::{Event, UpdateCause};
use crate::lister::{IndexHandle, Lister, Snapshot};
use informer_core::{
    BatchResult, Change, Entry, Index, Key, Object, Projection, Projections, StoreReader, StoreWriter,
};
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The default limit of the estimated memory of a projection's values, in bytes.
const PROJECTION_LIMIT: usize = 1 << 30;

/// An indexed store of objects that the program fills itself; client-go's `NewStore` and `NewIndexer`.
///
/// Every write returns what it changed, as the [`Event`]s that a handler would receive, and publishes one
/// snapshot: readers see all of a write or nothing of it (C5). Writers wait for each other; readers wait for
/// nothing. A store is a handle: it is cheap to clone, and all clones are the same store.
///
/// [`insert`](Self::insert), [`remove`](Self::remove) and [`replace`](Self::replace) take what they are given,
/// as in client-go: an object replaces the stored one with the same key, whatever their resource versions. The
/// deltas of a server are written with [`apply`](Self::apply), which drops outdated states.
///
/// ```
/// use informer::cache::Store;
/// use informer::{Event, Index, Key, Object};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let pod = |name: &str, node: &str| -> Result<Object<Pod>, Box<dyn std::error::Error>> {
///     let json = serde_json::json!({"metadata": {"name": name, "namespace": "shop"},
///         "spec": {"nodeName": node, "containers": []}});
///     Ok(Object::from_typed(serde_json::from_value(json)?)?) // an error for an object without a name
/// };
///
/// let store = Store::new();
/// let by_node = store.add_index(Index::field("spec.nodeName"))?;
/// store.insert([pod("a", "node-1")?, pod("b", "node-1")?]);
///
/// let events = store.insert([pod("b", "node-2")?]);
/// assert!(matches!(&events[..], [Event::Updated { old, .. }]
///     if old.field("spec.nodeName").as_deref() == Some("node-1")));
///
/// let lister = store.lister(); // the reading half: live, cheap to clone, and cannot write
/// assert_eq!(lister.by_index(&by_node, "node-1").len(), 1);
/// let snapshot = store.snapshot(); // one state that never changes
/// store.remove([&Key::new("shop", "a")]);
/// assert_eq!((snapshot.len(), lister.len()), (2, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`has_synced`](Lister::has_synced) of its listers and snapshots is always `true`, and their
/// [`resource_version`](Lister::resource_version) is that of the applied deltas: `None` for a store that is
/// filled by hand. The memory of an old state is freed by the first write after its last snapshot was dropped.
pub struct Store<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

struct Shared {
    writer: Mutex<StoreWriter>,
    reader: StoreReader,
    projections: Projections,
}

impl<K> Store<K> {
    /// Creates an empty store.
    pub fn new() -> Self {
        let (writer, reader) = StoreWriter::new([]);
        let shared = Shared { writer: Mutex::new(writer), reader, projections: Projections::default() };
        Self { shared: Arc::new(shared), kind: PhantomData }
    }

    /// Stores objects, in order, and returns the changes.
    ///
    /// An object with the key of a stored one replaces it, also if its resource version is older; an object
    /// with another uid is another object, reported as deleted and added. An object that is equal to the
    /// stored one is no change.
    pub fn insert(&self, objects: impl IntoIterator<Item = Object<K>>) -> Vec<Event<K>> {
        let entries = prepare(&self.shared.projections, objects);
        let result = self.lock().insert_unversioned(entries);
        events(result, false)
    }

    /// Removes objects by their keys, and returns the changes. A key that is not in the store is no change.
    pub fn remove<'a>(&self, keys: impl IntoIterator<Item = &'a Key>) -> Vec<Event<K>> {
        let keys: Vec<_> = keys.into_iter().collect();
        let result = self.lock().remove_unversioned(keys);
        events(result, false)
    }

    /// Makes the store equal to a list, and returns the changes: first the deletions of keys that the list does
    /// not contain, then the rest in the order of their keys. A re-created object, one with another uid, is deleted
    /// and added at its place in that order. If a key occurs more than once, its last object counts.
    pub fn replace(&self, objects: impl IntoIterator<Item = Object<K>>) -> Vec<Event<K>> {
        let entries = prepare(&self.shared.projections, objects);
        let result = self.lock().replace_unversioned(entries);
        events(result, false)
    }

    /// Applies the deltas of a [reflector](super::Reflector) or a [delta FIFO](super::DeltaFifo), and returns
    /// the changes.
    ///
    /// The store then behaves as the cache of an informer: a state that is not newer than the stored one is
    /// dropped if the versions can be compared (C1), a deletion found by a list is reported as not observed,
    /// and an object whose new state is unreadable [is stale](Object::is_stale). The objects of the first list
    /// are marked as initial.
    ///
    /// Deltas of the same [scope](Delta::Replaced) that follow each other are published together. A delta without
    /// a key, a bookmark or an unreadable object without a name, names no namespace: with
    /// the lists of several namespaces in the store it has no effect, and the
    /// [`resource_version`](Snapshot::resource_version) advances with the next change.
    ///
    /// Only changes are returned. What an informer counts in its
    /// [status](crate::status::CacheCounters), such as dropped outdated states and duplicates, is not kept.
    pub fn apply(&self, deltas: impl IntoIterator<Item = Delta<K>>) -> Vec<Event<K>> {
        let mut source = deltas.into_iter();
        let deltas: Vec<_> = source.by_ref().collect();
        for object in deltas.iter().flat_map(Delta::objects) {
            self.shared.projections.prepare(object.entry());
        }
        let (mut writer, mut all, mut deltas) = (self.lock(), Vec::new(), deltas.into_iter().peekable());
        while let Some(first) = deltas.next() {
            let snapshot = self.shared.reader.snapshot();
            let Some(scope) = first.scope_in(&snapshot) else { continue };
            let is_list = matches!(first, Delta::Replaced { .. });
            let initial = is_list && snapshot.scope_version(&scope).is_none();
            let mut batch = vec![first.into_core()];
            // After the first list of a scope the snapshot, from which scopes are looked up, is outdated.
            while let Some(next) =
                deltas.next_if(|next| !initial && next.scope_in(&snapshot).as_ref() == Some(&scope))
            {
                batch.push(next.into_core());
            }
            drop(snapshot); // so that the writer can free it
            all.extend(events(writer.apply(&scope, batch), initial));
        }
        // Not earlier: the deltas of a delta FIFO count as processed when their iterator is dropped.
        drop(source);
        all
    }

    /// Adds an index, and returns its handle for look-ups in listers and snapshots. The objects in the store
    /// are indexed before this returns.
    ///
    /// Adding an index by the same field or label again shares the existing index.
    ///
    /// # Errors
    ///
    /// Returns an error if the field path of the index cannot be parsed.
    pub fn add_index(&self, index: Index) -> Result<IndexHandle<K>, ParseError> {
        let handle = index.build()?;
        self.lock().add_index(handle.clone());
        Ok(IndexHandle::new(handle))
    }

    /// Adds a projection: a part of each object, decoded once and read by reference with
    /// [`Object::projected`].
    ///
    /// Objects are decoded when they are stored, those in the store when they are first read. The values take
    /// at most about 1 GiB. A value is freed with its object. See
    /// [`SharedInformer::add_projection`](crate::SharedInformer::add_projection). Unlike an informer, a store has
    /// no diagnostics: objects that do not fit `P` are counted in [`Projection::metrics`], and
    /// [`Object::projected`] returns the error.
    pub fn add_projection<P: DeserializeOwned + Send + Sync + 'static>(&self) -> Projection<P> {
        self.add_projection_with_limit(PROJECTION_LIMIT)
    }

    /// Adds a projection whose values take at most about `memory_limit` bytes; see
    /// [`SharedInformer::add_projection_with_limit`](crate::SharedInformer::add_projection_with_limit).
    pub fn add_projection_with_limit<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        memory_limit: usize,
    ) -> Projection<P> {
        self.shared.projections.add(memory_limit, || {})
    }

    /// Returns a lister, the live view of the store.
    pub fn lister(&self) -> Lister<K> {
        Lister::from_reader(self.shared.reader.clone())
    }

    /// Returns a snapshot of the newest state.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::new(self.shared.reader.snapshot())
    }

    fn lock(&self) -> MutexGuard<'_, StoreWriter> {
        // The closures of indexes are called under the lock, but their panics are caught.
        self.shared.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the entries of objects, with the values of all projections.
fn prepare<K>(projections: &Projections, objects: impl IntoIterator<Item = Object<K>>) -> Vec<Arc<Entry>> {
    let entries = objects.into_iter().map(|object| Arc::clone(object.entry()));
    entries.inspect(|entry| projections.prepare(entry)).collect()
}

/// Returns the changes of a batch as events.
fn events<K>(result: BatchResult, initial: bool) -> Vec<Event<K>> {
    let event = |change| {
        Some(match change {
            Change::Added(entry) => Event::Added { object: Object::new(entry), initial, previous: None },
            Change::Updated { old, new } => {
                Event::Updated { old: Object::new(old), new: Object::new(new), cause: UpdateCause::Change }
            }
            Change::Deleted { last, observed } => Event::Deleted { last: Object::new(last), observed },
            // Only with sharding.
            Change::Released(_) => return None,
        })
    };
    result.changes.into_iter().filter_map(event).collect()
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "store with {} objects", self.shared.reader.snapshot().len())
    }
}
