//! Snapshots: one published state of a cache, and the reader that gets at the newest.
//!
//! A snapshot never changes; taking one is a pointer. All answers of one snapshot agree with each other and with its version (C5).
//! This module only reads; [`super::StoreWriter`] makes snapshots.

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
use std::ops::Bound;
use std::sync::Arc;

/// The contents of one state.
#[derive(Clone, Default)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) indexes: Vec<Postings>,
    /// How far each scope has come; `None` until its first list.
    pub(crate) versions: BTreeMap<Scope, Option<ResourceVersion>>,
    /// Objects whose newest state could not be read.
    pub(crate) unreadable: OrdMap<Key, UnreadableMarks>,
}

/// What is known of a state that could not be read.
#[derive(Clone)]
pub(crate) struct UnreadableMarks {
    /// Its version, if that much could be read.
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) reason: Arc<str>,
}

/// One state of a cache, complete and unchanging. Cheap to clone.
#[derive(Clone)]
pub struct StoreSnapshot(Arc<State>);

impl StoreSnapshot {
    /// The object with this key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.0.objects.get(key)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> EntryIter<'_> {
        self.0.objects.values()
    }

    /// The objects whose keys come after this one, in order; all of them after `None`.
    pub fn after(&self, key: Option<&Key>) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.objects.from(key.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// About how much memory the objects take. Counted when asked for, object by object: the writer has better things to do.
    pub fn bytes(&self) -> usize {
        self.list().map(|entry| entry.memory_size()).sum()
    }

    /// The objects of one namespace, ordered by name.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        let wanted = Some(namespace).filter(|namespace| !namespace.is_empty());
        let rest = self.0.objects.from(Bound::Included(&Key::first_in(namespace)));
        rest.take_while(move |entry| entry.key().namespace() == wanted)
    }

    /// The objects that have this value in an index, in no particular order.
    ///
    /// If this snapshot does not hold the index (it was taken before the index was added), all objects are examined.
    pub fn by_index<'a>(
        &'a self,
        index: &'a IndexHandle,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let postings = self.postings(index);
        let scanned = postings.is_none().then(|| self.list());
        let indexed = postings.into_iter().flat_map(move |postings| postings.slots(value));
        let has_value = move |entry: &&Arc<Entry>| index.values(entry).iter().any(|known| known == value);
        indexed
            .filter_map(|slot| self.0.objects.at(slot))
            .chain(scanned.into_iter().flatten().filter(has_value))
    }

    /// The keys of the objects that have this value in an index, in order.
    pub fn index_keys(&self, index: &IndexHandle, value: &str) -> Vec<Key> {
        let mut keys: Vec<Key> = self.by_index(index, value).map(|entry| entry.key().clone()).collect();
        keys.sort_unstable();
        keys
    }

    /// The values that occur in an index, in order. They are computed if this snapshot does not hold the index.
    pub fn index_values<'a>(&'a self, index: &IndexHandle) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let postings = self.postings(index);
        let computed = if postings.is_some() { BTreeSet::new() } else { self.compute_values(index) };
        let indexed = postings.into_iter().flat_map(Postings::values);
        indexed.map(|value| Cow::Borrowed(&**value)).chain(computed.into_iter().map(Cow::Owned))
    }

    fn compute_values(&self, index: &IndexHandle) -> BTreeSet<String> {
        self.list().flat_map(|entry| index.values(entry)).collect()
    }

    /// Whether look-ups in this index need not walk the objects.
    pub fn has_index(&self, index: &IndexHandle) -> bool {
        self.postings(index).is_some()
    }

    /// The version this state stands for: the smallest of all scopes, `None` until every scope has synced. Versions of several
    /// scopes that do not compare have no smallest.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        let mut versions = self.0.versions.values();
        let first = versions.next()?.as_ref()?;
        versions.try_fold(first, |smallest, version| {
            let version = version.as_ref()?;
            Some(if version.compare(smallest)?.is_lt() { version } else { smallest })
        })
    }

    /// Whether every scope has synced.
    pub fn has_synced(&self) -> bool {
        self.0.versions.values().all(Option::is_some)
    }

    /// The version of one scope.
    pub fn scope_version(&self, scope: &Scope) -> Option<&ResourceVersion> {
        self.0.versions.get(scope)?.as_ref()
    }

    /// Objects whose newest state could not be read, with the reason. Some may not be in the cache at all.
    pub fn unreadable(&self) -> impl Iterator<Item = (&Key, &str)> {
        self.0.unreadable.iter().map(|(key, hidden)| (key, &*hidden.reason))
    }

    fn postings(&self, index: &IndexHandle) -> Option<&Postings> {
        self.0.indexes.iter().find(|postings| postings.handle.is_same_rule(index))
    }
}

impl fmt::Debug for StoreSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "snapshot of {} objects at {:?}", self.len(), self.resource_version())
    }
}

/// Reads a cache. Cheap to clone; never waits for the writer.
#[derive(Clone)]
pub struct StoreReader {
    published: Arc<Published<StoreSnapshot>>,
}

impl StoreReader {
    pub(crate) fn new(state: State) -> Self {
        Self { published: Arc::new(Published::new(StoreSnapshot(Arc::new(state)))) }
    }

    /// The newest state.
    pub fn snapshot(&self) -> StoreSnapshot {
        self.published.with(StoreSnapshot::clone)
    }

    /// One object of the newest state.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.published.with(|snapshot| snapshot.get(key).cloned())
    }

    /// Builds an index from the newest state, on the caller's thread. [`super::StoreWriter::install_index`] takes it over.
    pub fn build_index(&self, handle: IndexHandle) -> BuiltIndex {
        let seen = self.snapshot();
        let mut index = IndexWriter::new(handle);
        for slot in seen.objects().slots() {
            index.update(slot, seen.objects().at(slot));
        }
        BuiltIndex { index, seen }
    }

    pub(crate) fn publish(&self, state: State) -> StoreSnapshot {
        StoreSnapshot::clone(&self.published.swap(StoreSnapshot(Arc::new(state))))
    }
}

impl fmt::Debug for StoreReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.snapshot().fmt(f)
    }
}

/// An index built from a snapshot, waiting to be installed.
#[derive(Debug)]
pub struct BuiltIndex {
    pub(crate) index: IndexWriter,
    /// What it was built from; the writer adds what has changed since.
    pub(crate) seen: StoreSnapshot,
}

impl StoreSnapshot {
    pub(crate) fn objects(&self) -> &Objects {
        &self.0.objects
    }

    /// Whether nobody else holds this state.
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}
