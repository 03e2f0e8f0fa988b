//! Snapshots, and the reader that returns the newest one.
//!
//! A snapshot never changes, and taking one only increments a reference count. All results from one snapshot
//! are consistent with each other and with its version (C5). This module only reads; [`super::StoreWriter`]
//! creates snapshots.

use super::index::{IndexHandle, IndexWriter, Postings};
use super::objects::{EntryIter, Objects};
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::sync::Published;
use crate::version::ResourceVersion;
use imbl::OrdMap;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The contents of a snapshot.
#[derive(Clone)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) indexes: Vec<Postings>,
    /// The version that each scope has reached; `None` before the first delta of the scope, which is a list.
    pub(crate) versions: BTreeMap<Scope, Option<ResourceVersion>>,
    /// Objects whose newest state is unreadable.
    pub(crate) unreadable: OrdMap<Key, UnreadableMark>,
}

/// The known facts about an unreadable state.
#[derive(Clone)]
pub(crate) struct UnreadableMark {
    /// The version, if it could be read.
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) reason: Arc<str>,
}

/// A consistent, immutable view of a store. Cheap to clone.
#[derive(Clone)]
pub struct StoreSnapshot(Arc<State>);

impl StoreSnapshot {
    /// Returns the entry with this key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.0.objects.get(key)
    }

    /// Returns whether both are the same snapshot.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.0.objects.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects, ordered by namespace and name.
    pub fn list(&self) -> EntryIter<'_> {
        self.0.objects.values()
    }

    /// Returns the objects whose keys are greater than this one, in key order; all objects if it is `None`.
    pub fn after(&self, key: Option<&Key>) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.objects.iter_from(|own| key.is_some_and(|key| own <= key))
    }

    /// Returns the objects whose [`Key::as_bytes`] are not less than these bytes, in key order.
    #[cfg(feature = "persistence")]
    pub fn starting_at(&self, key: &[u8]) -> EntryIter<'_> {
        self.0.objects.iter_from(|own| own.as_bytes() < key)
    }

    /// Returns the approximate memory size of the objects in bytes.
    ///
    /// The size is computed on each call by visiting every object, so that the writer does not have to
    /// maintain it.
    pub fn bytes(&self) -> usize {
        self.list().map(|entry| entry.memory_size()).sum()
    }

    /// Returns the objects of one namespace, ordered by name.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        let expected = Some(namespace).filter(|namespace| !namespace.is_empty());
        let entries = self.0.objects.iter_from(|key| key.precedes_namespace(namespace));
        entries.take_while(move |entry| entry.key().namespace() == expected)
    }

    /// Returns the objects that have this value in an index, in no particular order.
    ///
    /// If the snapshot does not contain the index because it was taken before the index was installed, all
    /// objects are examined.
    pub fn by_index<'a>(
        &'a self,
        index: &'a IndexHandle,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.0.by_index(index, value)
    }

    /// Returns the keys of the objects that have this value in an index, in key order.
    pub fn index_keys(&self, index: &IndexHandle, value: &str) -> Vec<Key> {
        let mut keys: Vec<Key> = self.by_index(index, value).map(|entry| entry.key().clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the distinct values of an index in order. If the snapshot does not contain the index, all
    /// objects are examined.
    pub fn index_values<'a>(&'a self, index: &IndexHandle) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let postings = self.0.postings(index);
        let computed = if postings.is_some() { BTreeSet::new() } else { self.compute_values(index) };
        let indexed = postings.into_iter().flat_map(Postings::values);
        indexed.map(|value| Cow::Borrowed(&**value)).chain(computed.into_iter().map(Cow::Owned))
    }

    fn compute_values(&self, index: &IndexHandle) -> BTreeSet<String> {
        self.list().flat_map(|entry| index.values(entry)).collect()
    }

    /// Returns whether the snapshot contains this index, so that lookups need not examine every object.
    pub fn has_index(&self, index: &IndexHandle) -> bool {
        self.0.postings(index).is_some()
    }

    /// Returns the version that the snapshot represents: the lowest of all scopes.
    ///
    /// `None` until every scope has synced, and if the versions of several scopes cannot be compared.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        let mut versions = self.0.versions.values();
        let first = versions.next()?.as_ref()?;
        versions.try_fold(first, |lowest, version| {
            let version = version.as_ref()?;
            Some(if version.compare(lowest)?.is_lt() { version } else { lowest })
        })
    }

    /// Calls `visit` for each key whose entry differs from that in an earlier snapshot of the same store, with
    /// both entries, in no particular order.
    ///
    /// The cost depends on the number of differences, not on the number of objects. Entries that differ can
    /// have the same object state (see [`Rewrite`](super::Rewrite)).
    pub fn for_each_change(
        &self,
        earlier: &Self,
        mut visit: impl FnMut(&Key, Option<&Arc<Entry>>, Option<&Arc<Entry>>),
    ) {
        earlier.objects().for_each_difference(self.objects(), |slot, new| {
            // A slot may contain another key than before, and a key may be in another slot.
            let old = earlier.objects().at(slot);
            if let Some(new) = new {
                visit(new.key(), earlier.get(new.key()), Some(new));
            }
            if let Some(old) = old.filter(|old| self.get(old.key()).is_none()) {
                visit(old.key(), Some(old), None);
            }
        });
    }

    /// Returns whether every scope has synced.
    pub fn has_synced(&self) -> bool {
        self.0.versions.values().all(Option::is_some)
    }

    /// Returns whether the entry of this key is not a restored one that the server has not confirmed: its scope
    /// has a version.
    pub fn is_confirmed(&self, key: &Key) -> bool {
        self.0.versions.iter().all(|(scope, version)| version.is_some() || !scope.contains(key))
    }

    /// Returns the scopes of the store, in order.
    pub fn scopes(&self) -> impl Iterator<Item = &Scope> {
        self.0.versions.keys()
    }

    /// Returns the version of one scope.
    pub fn scope_version(&self, scope: &Scope) -> Option<&ResourceVersion> {
        self.0.versions.get(scope)?.as_ref()
    }

    /// Returns the keys of the objects whose newest state is unreadable, with the reason. Some may have no
    /// cached entry.
    pub fn unreadable(&self) -> impl Iterator<Item = (&Key, &str)> {
        self.0.unreadable.iter().map(|(key, mark)| (key, &*mark.reason))
    }

    /// Returns the version of an object's newest state if that state is unreadable and its version is known.
    pub fn unreadable_version(&self, key: &Key) -> Option<&ResourceVersion> {
        self.0.unreadable.get(key)?.version.as_ref()
    }
}

impl State {
    /// Returns the entries that have this value in an index, in no particular order.
    fn by_index<'a>(
        &'a self,
        index: &'a IndexHandle,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let postings = self.postings(index);
        let scanned = postings.is_none().then(|| self.objects.values());
        let indexed = postings.into_iter().flat_map(move |postings| postings.slots(value));
        let has_value = move |entry: &&Arc<Entry>| index.values(entry).iter().any(|own| own == value);
        indexed
            .filter_map(|slot| self.objects.at(slot))
            .chain(scanned.into_iter().flatten().filter(has_value))
    }

    fn postings(&self, index: &IndexHandle) -> Option<&Postings> {
        self.indexes.iter().find(|postings| postings.handle.is_same_rule(index))
    }
}

impl fmt::Debug for StoreSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot of {} objects at {:?}", self.len(), self.resource_version())
    }
}

/// A reader of a store. Cheap to clone; never waits for the writer.
#[derive(Clone)]
pub struct StoreReader {
    published: Arc<Published<State>>,
}

impl StoreReader {
    pub(crate) fn new(state: State) -> Self {
        Self { published: Arc::new(Published::new(state)) }
    }

    /// Returns the newest snapshot.
    pub fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot(self.published.with(Arc::clone))
    }

    /// Returns an entry from the newest snapshot.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.published.with(|state| state.objects.get_owned(key))
    }

    /// Returns the entries of the newest snapshot that have this value in an index, in key order.
    ///
    /// Like [`StoreSnapshot::by_index`], examines all objects if the snapshot does not contain the index.
    pub fn by_index(&self, index: &IndexHandle, value: &str) -> Vec<Arc<Entry>> {
        let mut entries: Vec<_> =
            self.published.with(|state| state.by_index(index, value).cloned().collect());
        entries.sort_unstable_by(|left, right| left.key().cmp(right.key()));
        entries
    }

    /// Builds an index from the newest snapshot, on the caller's thread, for
    /// [`super::StoreWriter::install_index`].
    pub fn build_index(&self, handle: IndexHandle) -> BuiltIndex {
        let base = self.snapshot();
        let mut index = IndexWriter::new(handle);
        for slot in base.objects().slots() {
            index.update(slot, base.objects().at(slot));
        }
        BuiltIndex { index, base }
    }

    /// Publishes a state as the newest snapshot; returns the snapshot that it replaces. Only the writer calls
    /// this method.
    pub(crate) fn publish(&self, state: State) -> StoreSnapshot {
        StoreSnapshot(self.published.swap(state))
    }
}

impl fmt::Debug for StoreReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// An index built from a snapshot and not yet installed.
#[derive(Debug)]
pub struct BuiltIndex {
    pub(crate) index: IndexWriter,
    /// The snapshot from which the index was built; the writer applies the changes since then.
    pub(crate) base: StoreSnapshot,
}

impl StoreSnapshot {
    pub(crate) fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// Returns whether this is the only reference to the snapshot.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
