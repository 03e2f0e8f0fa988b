//! The objects of one resource: current state and recent history.
//!
//! Every change has a sequence number: changes of the resource are numbered consecutively from 0, whereas
//! their versions have gaps, since all resources share one version counter.
//!
//! Invariants: the versions in `history` increase strictly. `history` contains every change whose version is
//! greater than `floor`. Replaying `history` on the objects at version `floor` results in `live`. So lists
//! cannot return a version before `floor`, and watches cannot start there; `watch_floor` and `storage_floor`
//! may exclude more versions. A collection does not interpret its objects, and does not know which watches
//! are open, only how many.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;

use super::resource::Resource;
use super::state::State;

/// Objects by key, in key order. Copies share structure with the original.
pub(crate) type Objects = OrdMap<Arc<str>, Arc<State>>;

/// Number of paged lists whose state is retained. Later pages of older lists are reconstructed from history.
const MAX_PINS: usize = 8;

/// Number of namespaces whose dropped changes are tracked one by one.
const MAX_DROPPED_NAMESPACES: usize = 10_000;

/// The objects of one resource, with history.
#[derive(Debug)]
pub(crate) struct Collection {
    live: Objects,
    history: VecDeque<Change>,
    /// The sequence number of the first change in `history`.
    first: u64,
    /// For each namespace, the sequence number of its last change that was dropped from `history`.
    dropped: HashMap<String, u64>,
    /// Watches that have not inspected the changes before this sequence number have missed changes, in
    /// whichever namespace. Used when `dropped` would become too large.
    dropped_everywhere: u64,
    /// The oldest version that can be reconstructed: all later changes are in `history`.
    floor: u64,
    /// The oldest version in the simulated watch cache, from which watches can start. At least `floor`.
    watch_floor: u64,
    /// The oldest version in the simulated etcd. An old version can be listed if the watch cache or etcd
    /// contains it, and it is not before `floor`.
    storage_floor: u64,
    /// Maximum number of changes in `history`.
    limit: usize,
    /// Total [`Change::weight`] of `history`.
    bytes: usize,
    /// States of lists that clients are paging through, so that not every page is reconstructed from history.
    pins: VecDeque<(u64, Objects)>,
    /// Number of times that all watches were ended.
    term: u64,
    /// The sequence number at which watches of earlier terms end.
    watch_end: u64,
    /// Whether the resource is no longer served.
    retired: bool,
    /// Number of open watches.
    watchers: usize,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    time: Timestamp,
    /// The previous state; `None` for a new object.
    pub(crate) before: Option<Arc<State>>,
    /// The new state; `None` for a deletion.
    pub(crate) after: Option<Arc<State>>,
}

impl Change {
    /// Returns the number of bytes that the change counts for: itself and its larger state. The other state
    /// usually belongs to another change too.
    fn weight(&self) -> usize {
        let size = |state: &Option<Arc<State>>| state.as_ref().map_or(0, |state| state.size());
        size_of::<Change>() + size(&self.after).max(size(&self.before))
    }
}

impl Collection {
    /// Creates a collection whose history starts at `floor`.
    pub(crate) fn new(live: Objects, floor: u64, limit: usize) -> Self {
        Collection {
            live,
            history: VecDeque::new(),
            first: 0,
            dropped: HashMap::new(),
            dropped_everywhere: 0,
            floor,
            watch_floor: floor,
            storage_floor: floor,
            limit,
            bytes: 0,
            pins: VecDeque::new(),
            term: 0,
            watch_end: 0,
            retired: false,
            watchers: 0,
        }
    }

    pub(crate) fn live(&self) -> &Objects {
        &self.live
    }

    /// Returns the oldest version that can be watched from.
    pub(crate) fn watch_floor(&self) -> u64 {
        self.watch_floor
    }

    /// Returns whether it is certain that no object has changed after a version.
    pub(crate) fn has_no_change_after(&self, version: u64) -> bool {
        match self.history.back() {
            Some(last) => last.version <= version,
            None => self.floor <= version,
        }
    }

    /// Stores a state; returns the size of the recorded change.
    pub(crate) fn put(&mut self, now: Timestamp, before: Option<Arc<State>>, after: Arc<State>) -> usize {
        self.live.insert(after.key().into(), after.clone());
        self.record(Change { version: after.version, time: now, before, after: Some(after) })
    }

    /// Removes an object; returns the size of the recorded change.
    pub(crate) fn remove(&mut self, now: Timestamp, before: Arc<State>, version: u64) -> usize {
        self.live.remove(before.key().as_str());
        self.record(Change { version, time: now, before: Some(before), after: None })
    }

    /// Returns the size of the history.
    pub(crate) fn history_bytes(&self) -> usize {
        self.bytes
    }

    /// Drops the oldest change. Versions before it can then be neither listed nor watched from.
    pub(crate) fn drop_oldest(&mut self) {
        if let Some(version) = self.drop_first() {
            self.floor = version;
            self.watch_floor = self.watch_floor.max(self.floor);
            // The states of a retained list are also in the history, unless its version was dropped.
            self.pins.retain(|(pinned, _)| *pinned >= version);
        }
    }

    /// Drops the changes that are older than `time`, except for the last `min_changes`.
    pub(crate) fn drop_before(&mut self, time: Timestamp, min_changes: usize) {
        while self.history.len() > min_changes
            && self.history.front().is_some_and(|oldest| oldest.time < time)
        {
            self.drop_oldest();
        }
    }

    /// Returns the objects at a version, or `None` if that version was dropped. For a version that is not
    /// reached yet, returns the current objects.
    pub(crate) fn objects_at(&self, version: u64) -> Option<Objects> {
        if version < self.floor.max(self.watch_floor.min(self.storage_floor)) {
            return None;
        }
        if self.history.back().is_none_or(|last| last.version <= version) {
            return Some(self.live.clone());
        }
        if let Some((_, pinned)) = self.pins.iter().find(|(pinned, _)| *pinned == version) {
            return Some(pinned.clone());
        }
        let mut objects = self.live.clone();
        for change in self.history.iter().rev().take_while(|change| change.version > version) {
            match (&change.before, &change.after) {
                (Some(before), _) => {
                    objects.insert(before.key().into(), before.clone());
                }
                (None, Some(after)) => {
                    objects.remove(after.key().as_str());
                }
                (None, None) => {}
            }
        }
        Some(objects)
    }

    /// Retains the objects of a list for its later pages.
    pub(crate) fn pin(&mut self, version: u64, objects: &Objects) {
        if self.pins.iter().any(|(pinned, _)| *pinned == version) {
            return;
        }
        if self.pins.len() == MAX_PINS {
            self.pins.pop_front();
        }
        self.pins.push_back((version, objects.clone()));
    }

    /// Encodes all objects, including those in `history`, again for a changed definition. Versions stay the
    /// same, and watches get no event.
    pub(crate) fn reencode(&mut self, before: &Resource, resource: &Resource) {
        // Several changes may share a state, which is then encoded only once.
        let mut encoded: HashMap<*const State, Arc<State>> = HashMap::new();
        let mut reencode = |state: &Arc<State>| {
            let new = encoded.entry(Arc::as_ptr(state));
            new.or_insert_with(|| Arc::new(state.reencode(before, resource))).clone()
        };
        for change in &mut self.history {
            change.before = change.before.as_ref().map(&mut reencode);
            change.after = change.after.as_ref().map(&mut reencode);
        }
        self.live = self.live.iter().map(|(key, state)| (key.clone(), reencode(state))).collect();
        self.pins.clear();
        self.bytes = self.history.iter().map(Change::weight).sum();
    }

    /// Drops all history. `version` is the current version of the server.
    pub(crate) fn compact(&mut self, version: u64) {
        while self.drop_first().is_some() {}
        self.pins.clear();
        self.floor = self.floor.max(version);
        self.watch_floor = self.watch_floor.max(version);
        self.storage_floor = self.storage_floor.max(version);
    }

    /// Drops the versions before `version` from storage, but not from the watch cache.
    pub(crate) fn compact_etcd(&mut self, version: u64) {
        self.storage_floor = self.storage_floor.max(version);
    }

    /// Drops the versions before `version` from the watch cache, but not from storage. Open watches continue.
    pub(crate) fn compact_watch_cache(&mut self, version: u64) {
        self.watch_floor = self.watch_floor.max(version);
    }

    /// Makes all open watches end after the changes recorded so far.
    pub(crate) fn end_watches(&mut self) {
        self.term += 1;
        self.watch_end = self.next_sequence();
    }

    /// Ends all watches like [`Collection::end_watches`], because the resource is no longer served.
    pub(crate) fn retire(&mut self) {
        self.end_watches();
        self.retired = true;
    }

    /// Counts a new watch; returns its term.
    pub(crate) fn add_watcher(&mut self) -> u64 {
        self.watchers += 1;
        self.term
    }

    /// Counts a closed watch; returns whether the collection is no longer needed.
    pub(crate) fn remove_watcher(&mut self) -> bool {
        self.watchers = self.watchers.saturating_sub(1);
        self.is_unused()
    }

    /// Returns whether the resource is no longer served and has no open watches.
    pub(crate) fn is_unused(&self) -> bool {
        self.retired && self.watchers == 0
    }

    /// Returns the sequence number of the next change.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.first + self.history.len() as u64
    }

    /// Returns the sequence number of the first change after a version.
    pub(crate) fn sequence_after(&self, version: u64) -> u64 {
        self.first + self.history.partition_point(|change| change.version <= version) as u64
    }

    /// Returns the sequence number at which a watch that was opened in `term` ends, or `None` if the term is
    /// not over.
    pub(crate) fn end_of_term(&self, term: u64) -> Option<u64> {
        (term != self.term).then_some(self.watch_end)
    }

    /// Returns the change with a sequence number, or `None` if it was dropped or has not happened.
    pub(crate) fn change(&self, sequence: u64) -> Option<&Change> {
        let index = sequence.checked_sub(self.first)?;
        self.history.get(usize::try_from(index).ok()?)
    }

    /// Returns whether a change of `namespace` with this or a later sequence number was dropped. An empty
    /// namespace stands for all.
    pub(crate) fn has_dropped_since(&self, sequence: u64, namespace: &str) -> bool {
        if namespace.is_empty() {
            return sequence < self.first;
        }
        if sequence < self.dropped_everywhere {
            return true;
        }
        self.dropped.get(namespace).is_some_and(|last| sequence <= *last)
    }

    /// Returns the first retained sequence number at or after `sequence`.
    pub(crate) fn next_retained(&self, sequence: u64) -> u64 {
        sequence.max(self.first)
    }

    fn record(&mut self, change: Change) -> usize {
        let weight = change.weight();
        self.bytes += weight;
        self.history.push_back(change);
        while self.history.len() > self.limit {
            self.drop_oldest();
        }
        weight
    }

    /// Drops the oldest change; returns its version.
    fn drop_first(&mut self) -> Option<u64> {
        let change = self.history.pop_front()?;
        self.bytes = self.bytes.saturating_sub(change.weight());
        if let Some(state) =
            change.after.as_ref().or(change.before.as_ref()).filter(|state| !state.namespace.is_empty())
        {
            match self.dropped.get_mut(&state.namespace) {
                Some(last) => *last = self.first,
                None => {
                    self.dropped.insert(state.namespace.clone(), self.first);
                }
            }
        }
        self.first += 1;
        if self.dropped.len() > MAX_DROPPED_NAMESPACES {
            self.dropped = HashMap::new();
            self.dropped_everywhere = self.first;
        }
        Some(change.version)
    }

    #[cfg(test)]
    pub(crate) fn dropped_namespaces(&self) -> usize {
        self.dropped.len()
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let versions: Vec<u64> = self.history.iter().map(|change| change.version).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "versions increase: {versions:?}");
        assert!(versions.first().is_none_or(|first| *first > self.floor), "history starts after the floor");
        assert!(self.watch_floor >= self.floor, "watches can start only where history is complete");
        assert_eq!(self.bytes, self.history.iter().map(Change::weight).sum::<usize>());
        let mut replayed = self.objects_at(self.floor).unwrap_or_default();
        for change in &self.history {
            match (&change.before, &change.after) {
                (_, Some(after)) => {
                    replayed.insert(after.key().into(), after.clone());
                }
                (Some(before), None) => {
                    replayed.remove(before.key().as_str());
                }
                (None, None) => {}
            }
        }
        let versions = |objects: &Objects| -> Vec<(String, u64)> {
            objects.iter().map(|(key, state)| (key.to_string(), state.version)).collect()
        };
        assert_eq!(
            versions(&replayed),
            versions(&self.live),
            "replaying the history yields the current objects"
        );
    }
}
