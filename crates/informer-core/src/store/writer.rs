//! The single writer of a cache.
//!
//! It works on persistent maps: a batch copies what it touches and shares the rest with the states that readers hold. Old states
//! are taken apart here, never on a reader's thread: a retired state is kept until nobody else holds it.

use super::change::{BatchResult, Change};
use super::index::{IndexHandle, IndexWriter};
use super::objects::Slot;
use super::snapshot::{BuiltIndex, State, StoreReader, StoreSnapshot, UnreadableMarks};
use crate::delta::{Deleted, Delta};
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::sync::Arc;

/// Applies deltas and publishes states.
///
/// ```
/// use informer_core::{Delta, ResourceVersion, Scope, StoreWriter};
///
/// let (mut writer, reader) = StoreWriter::new([Scope::All]);
/// assert_eq!(reader.snapshot().resource_version(), None);
/// writer.apply(&Scope::All, [Delta::Bookmark(ResourceVersion::new("7"))]);
/// assert_eq!(reader.snapshot().resource_version(), Some(&ResourceVersion::new("7")));
/// ```
#[derive(Debug)]
pub struct StoreWriter {
    /// The state as it will be published next. Its `indexes` are filled only when publishing.
    pub(super) state: State,
    pub(super) indexes: Vec<IndexWriter>,
    /// Slots that objects have left. Invariant: they and the taken ones are all numbers up to their count.
    free: Vec<Slot>,
    reader: StoreReader,
    /// States that were replaced while somebody still held them.
    retired: Vec<StoreSnapshot>,
    /// Panics of index functions that were told.
    reported_panics: u64,
}

impl StoreWriter {
    /// An empty cache fed by these scopes, and its reader.
    pub fn new(scopes: impl IntoIterator<Item = Scope>) -> (Self, StoreReader) {
        let versions = scopes.into_iter().map(|scope| (scope, None)).collect();
        let state = State { versions, ..State::default() };
        let reader = StoreReader::new(state.clone());
        let (indexes, free, retired) = (Vec::new(), Vec::new(), Vec::new());
        (Self { state, indexes, free, reader: reader.clone(), retired, reported_panics: 0 }, reader)
    }

    /// Applies deltas that concern `scope`, publishes once, and says what changed.
    pub fn apply(&mut self, scope: &Scope, deltas: impl IntoIterator<Item = Delta>) -> BatchResult {
        let deltas = deltas.into_iter();
        let mut applied =
            BatchResult { changes: Vec::with_capacity(deltas.size_hint().0), ..BatchResult::default() };
        for delta in deltas {
            match delta {
                Delta::Added(entry) | Delta::Updated(entry) => self.upsert(scope, entry, &mut applied),
                Delta::Deleted(deleted) => self.delete(scope, deleted, &mut applied),
                Delta::Replaced(replaced) => self.replace(replaced, &mut applied),
                Delta::Bookmark(version) => self.advance(scope, Some(version)),
                Delta::Unreadable(unreadable) => self.mark_unreadable(scope, unreadable, &mut applied),
            }
        }
        self.publish();
        let panics = self.indexes.iter().map(|index| index.postings.handle.panics()).sum();
        // Those while an index was built are told with the next batch.
        applied.index_panics = panics - std::mem::replace(&mut self.reported_panics, panics);
        applied
    }

    /// Takes over an index that was built from a snapshot, adding what has changed since, and publishes it. If an index by the
    /// same field or label is there already, that one stays and serves both.
    pub fn install_index(&mut self, built: BuiltIndex) {
        let BuiltIndex { mut index, seen } = built;
        if self.indexes.iter().any(|known| known.postings.handle.is_same_rule(&index.postings.handle)) {
            return;
        }
        seen.objects().each_difference(&self.state.objects, |slot, new| index.update(slot, new));
        self.indexes.push(index);
        self.publish();
    }

    /// Adds an index before the cache is used: built and installed in one go.
    pub fn add_index(&mut self, handle: IndexHandle) {
        let built = self.reader.build_index(handle);
        self.install_index(built);
    }

    /// Takes apart the old states that nobody holds any more; returns whether some are still held. Publishing does the same: this is
    /// for quiet times, in which a state that somebody held across a relist would otherwise stay.
    ///
    /// ```
    /// use informer_core::{Delta, ResourceVersion, Scope, StoreWriter};
    ///
    /// let (mut writer, reader) = StoreWriter::new([Scope::All]);
    /// let held = reader.snapshot();
    /// writer.apply(&Scope::All, [Delta::Bookmark(ResourceVersion::new("7"))]);
    /// assert!(writer.release());
    /// drop(held);
    /// assert!(!writer.release());
    /// ```
    pub fn release(&mut self) -> bool {
        self.retired.retain(|state| !state.is_unshared());
        !self.retired.is_empty()
    }

    /// Panics if the cache contradicts itself; for tests and simulations.
    pub fn check_invariants(&self) {
        self.state.objects.check_invariants(&self.free);
        for index in &self.indexes {
            index.check_invariants(&self.state.objects);
        }
        for key in self.state.unreadable.keys() {
            let stale = self.state.objects.get(key).is_none_or(|entry| entry.is_stale());
            assert!(stale, "{key}: the cached state of an unreadable object is stale");
        }
    }

    fn upsert(&mut self, scope: &Scope, new: Arc<Entry>, applied: &mut BatchResult) {
        let version = new.head().version.clone();
        let found = self.state.objects.find(new.key());
        let (slot, old) = (found.map(|(slot, _)| slot), found.map(|(_, old)| old));
        if self.is_known(new.key(), old, &version) {
            applied.stale_deltas += 1;
            return;
        }
        match old {
            // C3: another uid means that a deletion was not seen.
            Some(old) if old.is_other_incarnation(&new) => {
                applied.changes.push(Change::Deleted { last: Arc::clone(old), observed: false });
                applied.changes.push(Change::Added(Arc::clone(&new)));
            }
            Some(old) => {
                applied.changes.push(Change::Updated { old: Arc::clone(old), new: Arc::clone(&new) });
            }
            None => applied.changes.push(Change::Added(Arc::clone(&new))),
        }
        self.insert_or_replace(slot, new);
        self.advance(scope, Some(version));
    }

    fn delete(&mut self, scope: &Scope, deleted: Deleted, applied: &mut BatchResult) {
        let Deleted { key, version, last } = deleted;
        let old = self.state.objects.get(&key);
        let newest = self.newest_version(&key, old);
        if version.as_ref().zip(newest).is_some_and(|(version, newest)| version.is_before(newest)) {
            applied.stale_deltas += 1;
            return;
        }
        let Some(old) = old else {
            self.state.unreadable.remove(&key);
            applied.deletes_of_unknown += 1;
            return self.advance(scope, version);
        };
        // C3: another uid means that what is known here ended unseen, and what ended now was never known.
        let observed = last.as_ref().is_none_or(|last| !old.is_other_incarnation(last));
        let last = last.filter(|_| observed).unwrap_or_else(|| Arc::clone(old));
        applied.changes.push(Change::Deleted { last, observed });
        self.remove(&key);
        self.advance(scope, version);
    }

    fn mark_unreadable(&mut self, scope: &Scope, unreadable: UnreadableObject, applied: &mut BatchResult) {
        applied.unreadable += 1;
        if let Some(key) = &unreadable.key {
            let old = self.state.objects.get(key);
            if unreadable.version.as_ref().is_some_and(|version| self.is_known(key, old, version)) {
                applied.stale_deltas += 1;
                return;
            }
            self.note_unreadable(key, &unreadable);
        }
        self.advance(scope, unreadable.version);
    }

    /// Remembers that the newest state of an object is not the cached one.
    pub(super) fn note_unreadable(&mut self, key: &Key, unreadable: &UnreadableObject) {
        if let Some(entry) = self.state.objects.get(key) {
            entry.set_stale(true);
        }
        let hidden = UnreadableMarks {
            version: unreadable.version.clone(),
            reason: unreadable.error.to_string().into(),
        };
        self.state.unreadable.insert(key.clone(), hidden);
    }

    /// The version of an object's newest state, readable or not. The cached state of an object that became unreadable says nothing
    /// about it: after a restore it may well carry a higher version than what there is now.
    fn newest_version<'a>(
        &'a self,
        key: &Key,
        cached: Option<&'a Arc<Entry>>,
    ) -> Option<&'a ResourceVersion> {
        match self.state.unreadable.get(key) {
            Some(hidden) => hidden.version.as_ref(),
            None => cached.map(|entry| &entry.head().version),
        }
    }

    /// C1: from a watch a comparable version never goes back, whatever life of the object it belongs to.
    fn is_known(&self, key: &Key, cached: Option<&Arc<Entry>>, version: &ResourceVersion) -> bool {
        let newest = self.newest_version(key, cached).filter(|_| version.is_comparable());
        newest.and_then(|newest| version.compare(newest)).is_some_and(std::cmp::Ordering::is_le)
    }

    /// Puts an entry under its key, in the cache and in all indexes. `slot` is where the key is now.
    pub(super) fn insert_or_replace(&mut self, slot: Option<Slot>, entry: Arc<Entry>) {
        // An entry that is used again may have been overtaken by something unreadable in its first life.
        if entry.is_stale() {
            entry.set_stale(false);
        }
        let next = || Slot::try_from(self.state.objects.len()).unwrap_or(Slot::MAX);
        let place = slot.or_else(|| self.free.pop()).unwrap_or_else(next);
        for index in &mut self.indexes {
            index.update(place, Some(&entry));
        }
        if !self.state.unreadable.is_empty() {
            self.state.unreadable.remove(entry.key());
        }
        if slot.is_some() {
            self.state.objects.update(place, entry);
        } else {
            self.state.objects.add(place, entry);
        }
    }

    /// Takes a key out of the cache and all indexes.
    pub(super) fn remove(&mut self, key: &Key) {
        self.state.unreadable.remove(key);
        let Some((slot, _)) = self.state.objects.find(key) else { return };
        for index in &mut self.indexes {
            index.update(slot, None);
        }
        self.state.objects.remove(key, slot);
        self.free.push(slot);
    }

    /// Notes how far a scope has come; a watch never takes it back.
    fn advance(&mut self, scope: &Scope, version: Option<ResourceVersion>) {
        let Some(version) = version else { return };
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
