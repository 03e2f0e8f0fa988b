//! The single writer of a store.
//!
//! The writer works on persistent structures: a batch copies the nodes it changes and shares the rest with
//! the published snapshots. Memory of old snapshots is freed here, never on a reader's thread: a retired
//! snapshot is kept until no reader uses it.

use super::change::{BatchResult, Change};
use super::index::{IndexHandle, IndexWriter};
use super::objects::{Objects, Slot};
use super::snapshot::{BuiltIndex, State, StoreReader, StoreSnapshot, UnreadableMark};
use crate::delta::{Deleted, Delta};
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use imbl::OrdMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The writer of a store: applies deltas and publishes snapshots.
///
/// ```
/// # use informer_core::{Delta, ResourceVersion, Scope, StoreWriter};
///
/// let (mut writer, reader) = StoreWriter::new([Scope::All]);
/// assert_eq!(reader.snapshot().resource_version(), None);
/// writer.apply(&Scope::All, [Delta::Bookmark(ResourceVersion::new("7"))]);
/// assert_eq!(reader.snapshot().resource_version(), Some(&ResourceVersion::new("7")));
/// ```
#[derive(Debug)]
pub struct StoreWriter {
    /// The contents of the next snapshot. Its `indexes` are filled only when publishing.
    pub(super) state: State,
    pub(super) indexes: Vec<IndexWriter>,
    /// The slots that were used before and are free now. Invariant: with the occupied slots they are exactly
    /// the numbers below the total number of slots.
    free: Vec<Slot>,
    reader: StoreReader,
    /// Replaced snapshots that readers may still use.
    retired: Vec<StoreSnapshot>,
    /// Number of index panics that earlier batch results have reported.
    reported_panics: u64,
    /// Whether a scope without a version may contain restored entries.
    pub(super) has_restored: bool,
    /// Whether the store may contain only some hash ranges of its scopes.
    is_sharded: bool,
    /// The versions of released objects that are newer than their scope. Older states of these keys are dropped (C1):
    /// with ranges of uids, a range that lags behind may contain an earlier incarnation.
    pub(super) released: BTreeMap<Key, ResourceVersion>,
}

impl StoreWriter {
    /// Creates an empty store for these scopes, and its reader.
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> (Self, StoreReader) {
        let versions = scopes.into_iter().map(|scope| (scope, None)).collect();
        let (objects, indexes, unreadable) = (Objects::new(true), Vec::new(), OrdMap::new());
        let state = State { objects, indexes, versions, unreadable };
        let reader = StoreReader::new(state.clone());
        let (indexes, free, retired) = (Vec::new(), Vec::new(), Vec::new());
        let writer = Self {
            state,
            indexes,
            free,
            reader: reader.clone(),
            retired,
            reported_panics: 0,
            has_restored: false,
            is_sharded: false,
            released: BTreeMap::new(),
        };
        (writer, reader)
    }

    /// Makes the store one that may contain only some hash ranges: an unreadable object that is not cached is then
    /// ignored, because it may belong to another range.
    #[must_use]
    pub fn sharded(self) -> Self {
        Self { is_sharded: true, ..self }
    }

    /// Saves about 67 bytes per object, and makes lookups by key slower. Call this before the first delta.
    #[must_use]
    pub fn without_key_copies(mut self) -> Self {
        self.state.objects = Objects::new(false);
        self
    }

    /// Applies deltas of `scope`, publishes one snapshot, and returns the changes. A complete list is applied
    /// to its own scope.
    pub fn apply(&mut self, scope: &Scope, deltas: impl IntoIterator<Item = Delta>) -> BatchResult {
        let deltas = deltas.into_iter();
        let mut result =
            BatchResult { changes: Vec::with_capacity(deltas.size_hint().0), ..BatchResult::default() };
        for delta in deltas {
            match delta {
                Delta::Added(entry) | Delta::Updated(entry) => self.upsert(scope, entry, &mut result),
                Delta::Deleted(deleted) => self.delete(scope, deleted, &mut result),
                Delta::Replaced(replaced) => self.replace(replaced, &mut result),
                Delta::Bookmark(version) => self.advance(scope, Some(version)),
                Delta::Unreadable(unreadable) => self.apply_unreadable(scope, unreadable, &mut result),
                Delta::Gained(list) => self.gain(list, &mut result),
                Delta::Released(filter) => self.release_ranges(scope, &filter, &mut result),
            }
        }
        self.finish_batch(result)
    }

    /// Publishes the state after a batch and completes its result.
    pub(super) fn finish_batch(&mut self, mut result: BatchResult) -> BatchResult {
        self.publish();
        let panics = self.indexes.iter().map(|index| index.postings.handle.panics()).sum();
        // Panics that occurred while an index was built are reported with the next batch.
        result.index_panics = panics - std::mem::replace(&mut self.reported_panics, panics);
        result
    }

    /// Installs an index built from a snapshot, after applying what has changed since, and publishes it.
    ///
    /// If an index with the same rule (field, label or closure) is already installed, that index serves both
    /// handles and `built` is dropped.
    pub fn install_index(&mut self, built: BuiltIndex) {
        let BuiltIndex { mut index, base } = built;
        if self.indexes.iter().any(|known| known.postings.handle.is_same_rule(&index.postings.handle)) {
            return;
        }
        base.objects().for_each_difference(&self.state.objects, |slot, new| index.update(slot, new));
        self.indexes.push(index);
        self.publish();
    }

    /// Builds and installs an index on the caller's thread. Meant for stores that are still small.
    pub fn add_index(&mut self, handle: IndexHandle) {
        let built = self.reader.build_index(handle);
        self.install_index(built);
    }

    /// Frees old snapshots that no reader uses any more; returns whether some are still in use.
    ///
    /// Publishing does this as well. Call `release` when nothing is published for a while: without the call,
    /// a snapshot that a reader used during the last publication would stay in memory.
    ///
    /// ```
    /// # use informer_core::{Delta, ResourceVersion, Scope, StoreWriter};
    ///
    /// let (mut writer, reader) = StoreWriter::new([Scope::All]);
    /// let snapshot = reader.snapshot();
    /// writer.apply(&Scope::All, [Delta::Bookmark(ResourceVersion::new("7"))]);
    /// assert!(writer.release());
    /// drop(snapshot);
    /// assert!(!writer.release());
    /// ```
    pub fn release(&mut self) -> bool {
        self.retired.retain(|snapshot| !snapshot.is_unshared());
        !self.retired.is_empty()
    }

    /// Checks the invariants of the store; for tests and simulations.
    ///
    /// # Panics
    ///
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        self.state.objects.check_invariants(&self.free);
        for index in &self.indexes {
            index.check_invariants(&self.state.objects);
        }
        for key in self.state.unreadable.keys() {
            let is_stale = self.state.objects.get(key).is_none_or(|entry| entry.is_stale());
            assert!(is_stale, "{key}: the entry of an unreadable object must be stale");
        }
    }

    fn upsert(&mut self, scope: &Scope, new: Arc<Entry>, result: &mut BatchResult) {
        let version = new.head().version.clone();
        let cached = self.state.objects.find(new.key());
        let (slot, old) = (cached.map(|(slot, _)| slot), cached.map(|(_, old)| old));
        if self.is_not_newer(new.key(), old, &version) {
            result.stale_deltas += 1;
            return;
        }
        result.push_upsert(old, &new);
        self.insert_or_replace(slot, new);
        self.advance(scope, Some(version));
    }

    fn delete(&mut self, scope: &Scope, deleted: Deleted, result: &mut BatchResult) {
        let Deleted { key, version, last } = deleted;
        let old = self.state.objects.get(&key);
        let newest = self.newest_version(&key, old);
        let is_stale = match &version {
            // With hash ranges, the object may only have left one of them. Another one may contain just this state.
            Some(version) if self.is_sharded && last.is_none() => self.is_not_newer(&key, old, version),
            Some(version) => newest.is_some_and(|newest| version.is_before(newest)),
            None => false,
        };
        if is_stale {
            result.stale_deltas += 1;
            return;
        }
        let Some(old) = old else {
            self.state.unreadable.remove(&key);
            // With hash ranges, the reflector does not always know whether it was cached.
            result.deletes_of_unknown += u64::from(!self.is_sharded);
            return self.advance(scope, version);
        };
        // C3: a different uid means that the deleted incarnation was never cached, and that the deletion of
        // the cached one was not observed.
        let observed = last.as_ref().is_none_or(|last| !old.is_other_incarnation(last));
        let last = last.filter(|_| observed).unwrap_or_else(|| Arc::clone(old));
        result.changes.push(Change::Deleted { last, observed });
        self.remove(&key);
        self.advance(scope, version);
    }

    fn apply_unreadable(&mut self, scope: &Scope, unreadable: UnreadableObject, result: &mut BatchResult) {
        result.unreadable += 1;
        if let Some(key) = &unreadable.key {
            let old = self.state.objects.get(key);
            if unreadable.version.as_ref().is_some_and(|version| self.is_not_newer(key, old, version)) {
                result.stale_deltas += 1;
                return;
            }
            self.record_unreadable(key, &unreadable);
        }
        self.advance(scope, unreadable.version);
    }

    /// Records that the newest state of an object is unreadable, and marks its entry as stale.
    pub(super) fn record_unreadable(&mut self, key: &Key, unreadable: &UnreadableObject) {
        match self.state.objects.get(key) {
            Some(entry) => entry.set_stale(true),
            None if self.is_sharded => return,
            None => {}
        }
        let mark = UnreadableMark {
            version: unreadable.version.clone(),
            reason: unreadable.error.to_string().into(),
        };
        self.state.unreadable.insert(key.clone(), mark);
    }

    /// Returns the version of an object's newest state, readable or not.
    ///
    /// If the newest state is unreadable, the version of the cached entry is ignored: after the server was
    /// restored from a backup, the cached version may be higher than the current one.
    fn newest_version<'a>(
        &'a self,
        key: &Key,
        cached: Option<&'a Arc<Entry>>,
    ) -> Option<&'a ResourceVersion> {
        match self.state.unreadable.get(key) {
            Some(mark) => mark.version.as_ref(),
            None => cached.map(|entry| &entry.head().version).or_else(|| self.released.get(key)),
        }
    }

    /// Returns whether a version of an object is not newer than its newest known version (C1).
    ///
    /// Through a watch, comparable versions never go back, not even for another incarnation of the object.
    fn is_not_newer(&self, key: &Key, cached: Option<&Arc<Entry>>, version: &ResourceVersion) -> bool {
        // Equal opaque versions compare as `Equal`, but do not prove equal states.
        let newest = self.newest_version(key, cached).filter(|_| version.is_comparable());
        newest.and_then(|newest| version.compare(newest)).is_some_and(std::cmp::Ordering::is_le)
    }

    /// Stores an entry in the objects and in all indexes. `slot` is the slot of its key if the key is in the
    /// store.
    pub(super) fn insert_or_replace(&mut self, slot: Option<Slot>, entry: Arc<Entry>) {
        // The reflector reuses cached entries for unchanged objects of a list, so this entry may have been
        // marked as stale before.
        if entry.is_stale() {
            entry.set_stale(false);
        }
        self.place(slot, entry);
    }

    /// Stores an entry without changing it; see [`StoreWriter::insert_or_replace`].
    pub(super) fn place(&mut self, slot: Option<Slot>, entry: Arc<Entry>) {
        // Without free slots, the occupied ones are exactly the numbers below `len`.
        let next_slot = || Slot::try_from(self.state.objects.len()).unwrap_or(Slot::MAX);
        let target = slot.or_else(|| self.free.pop()).unwrap_or_else(next_slot);
        for index in &mut self.indexes {
            index.update(target, Some(&entry));
        }
        if !self.state.unreadable.is_empty() {
            self.state.unreadable.remove(entry.key());
        }
        if slot.is_some() {
            self.state.objects.update(target, entry);
        } else {
            self.state.objects.add(target, entry);
        }
    }

    /// Removes a key from the objects and from all indexes.
    pub(super) fn remove(&mut self, key: &Key) {
        self.state.unreadable.remove(key);
        let Some((slot, _)) = self.state.objects.find(key) else { return };
        for index in &mut self.indexes {
            index.update(slot, None);
        }
        self.state.objects.remove(key, slot);
        self.free.push(slot);
    }

    /// Records the version that a scope has reached; a lower version than the recorded one is ignored.
    pub(super) fn advance(&mut self, scope: &Scope, version: Option<ResourceVersion>) {
        let Some(version) = version else { return };
        self.forget_released(scope, &version);
        match self.state.versions.get_mut(scope) {
            Some(Some(known)) if version.is_before(known) => {}
            Some(known) => *known = Some(version),
            None => drop(self.state.versions.insert(scope.clone(), Some(version))),
        }
    }

    pub(super) fn publish(&mut self) {
        let indexes = self.indexes.iter().map(|index| index.postings.clone()).collect();
        let old = self.reader.publish(State { indexes, ..self.state.clone() });
        self.retired.push(old);
        self.release();
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} objects", self.objects.len())
    }
}
