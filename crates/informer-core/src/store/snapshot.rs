//! Snapshots: one published state of a cache, and the reader that gets at the newest.
//!
//! A snapshot never changes; taking one is a pointer. All answers of one snapshot agree with each other and with its version (C5).
//! This module only reads; [`super::StoreWriter`] makes snapshots.

use super::index::{IndexHandle, IndexWriter, Postings};
use super::objects::Objects;
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::sync::Published;
use crate::version::ResourceVersion;
use imbl::OrdMap;
use std::collections::BTreeMap;
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
    pub(crate) unreadable: OrdMap<Key, Hidden>,
}

/// What is known of a state that could not be read.
#[derive(Clone)]
pub(crate) struct Hidden {
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
    pub fn list(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.objects.values()
    }

    /// The objects whose keys come after this one, in order; all of them after `None`.
    pub fn after(&self, key: Option<&Key>) -> impl Iterator<Item = &Arc<Entry>> {
        self.0.objects.from(key.map_or(Bound::Unbounded, Bound::Excluded))
    }

    /// About how much memory the objects take. Counted when asked for, object by object: the writer has better things to do.
    pub fn bytes(&self) -> usize {
        self.list().map(|entry| entry.cost()).sum()
    }

    /// The objects of one namespace, ordered by name.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        let wanted = Some(namespace).filter(|namespace| !namespace.is_empty());
        let rest = self.0.objects.from(Bound::Included(&Key::first_in(namespace)));
        rest.take_while(move |entry| entry.key().namespace() == wanted)
    }

    /// The objects that have this value in an index, in key order.
    pub fn by<'a>(
        &'a self,
        index: &IndexHandle,
        value: &'a str,
    ) -> Box<dyn Iterator<Item = &'a Arc<Entry>> + 'a> {
        if let Some(postings) = self.postings(index) {
            let mut found: Vec<_> =
                postings.slots(value).filter_map(|slot| self.0.objects.at(slot)).collect();
            found.sort_unstable_by(|left, right| left.key().cmp(right.key()));
            Box::new(found.into_iter())
        } else {
            let index = index.clone();
            Box::new(self.list().filter(move |entry| index.values(entry).iter().any(|known| known == value)))
        }
    }

    /// The keys of the objects that have this value in an index.
    pub fn index_keys(&self, index: &IndexHandle, value: &str) -> Vec<Key> {
        self.by(index, value).map(|entry| entry.key().clone()).collect()
    }

    /// The values that occur in an index, in order.
    pub fn index_values(&self, index: &IndexHandle) -> Vec<Arc<str>> {
        if let Some(postings) = self.postings(index) {
            return postings.values().cloned().collect();
        }
        let mut values: Vec<Arc<str>> =
            self.list().flat_map(|entry| index.values(entry)).map(Into::into).collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Whether look-ups in this index need not walk the objects.
    pub fn has_index(&self, index: &IndexHandle) -> bool {
        self.postings(index).is_some()
    }

    /// The version this state stands for: the smallest of all scopes, `None` until every scope has synced. Versions of several
    /// scopes that do not compare have no smallest.
    pub fn version(&self) -> Option<&ResourceVersion> {
        let mut versions = self.0.versions.values();
        let first = versions.next()?.as_ref()?;
        versions.try_fold(first, |smallest, version| {
            let version = version.as_ref()?;
            Some(if version.compare(smallest)?.is_lt() { version } else { smallest })
        })
    }

    /// Whether every scope has synced.
    pub fn is_synced(&self) -> bool {
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
        write!(f, "snapshot of {} objects at {:?}", self.len(), self.version())
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
