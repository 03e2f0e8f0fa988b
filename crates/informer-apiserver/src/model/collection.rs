//! The objects of one resource: what is there now, what happened lately, and what was there before.
//!
//! Invariants: versions of `history` rise strictly; every change after `floor` is in it; `live` is what results from
//! all of them. So any version from `floor` on can be listed and watched from, and nothing before. A collection does
//! not know what is inside its objects, nor who watches.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use imbl::OrdMap;

use super::resource::Resource;
use super::state::State;

/// Objects by key, in key order. A copy shares everything with the original.
pub(crate) type Objects = OrdMap<Arc<str>, Arc<State>>;

/// How many pages of lists may be under way before the oldest has to be worked out from history.
const PINS: usize = 8;

/// How many bytes of objects the history of a resource keeps, whatever its limit says: one large object that changes all the time
/// must not fill the memory.
const HISTORY_BYTES: usize = 64 * 1024 * 1024;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Collection {
    live: Objects,
    history: VecDeque<Change>,
    /// The sequence number of the first change in `history`.
    first: u64,
    /// The last change of each namespace that is not in `history` any more.
    forgotten: HashMap<String, u64>,
    floor: u64,
    /// What the cache reaches back to: watches begin at it or later. At least `floor`.
    watch_floor: u64,
    /// What storage reaches back to. Lists of old versions are served by whoever of the two still can.
    storage_floor: u64,
    limit: usize,
    /// How many bytes the changes in `history` keep.
    bytes: usize,
    /// States of lists that are being paged through, so that each page need not undo history.
    pins: VecDeque<(u64, Objects)>,
    /// Watches opened under an earlier term end at `cut_at`.
    term: u64,
    cut_at: u64,
    retired: bool,
    watchers: usize,
}

/// One change of one object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    /// What it was; none for a new object.
    pub(crate) before: Option<Arc<State>>,
    /// What it became; none for a deletion.
    pub(crate) after: Option<Arc<State>>,
}

impl Change {
    /// How many bytes it keeps: those of the larger of the two states.
    fn weight(&self) -> usize {
        let length = |state: &Option<Arc<State>>| state.as_ref().map_or(0, |state| state.len());
        length(&self.after).max(length(&self.before))
    }
}

impl Collection {
    /// A collection whose past begins at `floor`.
    pub(crate) fn new(live: Objects, floor: u64, limit: usize) -> Self {
        Collection {
            live,
            history: VecDeque::new(),
            first: 0,
            forgotten: HashMap::new(),
            floor,
            watch_floor: floor,
            storage_floor: floor,
            limit,
            bytes: 0,
            pins: VecDeque::new(),
            term: 0,
            cut_at: 0,
            retired: false,
            watchers: 0,
        }
    }

    pub(crate) fn live(&self) -> &Objects {
        &self.live
    }

    /// The oldest version that can be watched from.
    pub(crate) fn watch_floor(&self) -> u64 {
        self.watch_floor
    }

    pub(crate) fn put(&mut self, before: Option<Arc<State>>, after: Arc<State>) {
        self.live.insert(after.key().into(), after.clone());
        self.record(Change { version: after.version, before, after: Some(after) });
    }

    pub(crate) fn remove(&mut self, before: Arc<State>, version: u64) {
        self.live.remove(before.key().as_str());
        self.record(Change { version, before: Some(before), after: None });
    }

    /// What was there at a version; none if that is forgotten. Versions that are not reached yet mean now.
    pub(crate) fn at(&self, version: u64) -> Option<Objects> {
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

    /// Remembers the state of a list that goes on.
    pub(crate) fn pin(&mut self, version: u64, objects: &Objects) {
        if self.pins.iter().any(|(pinned, _)| *pinned == version) {
            return;
        }
        if self.pins.len() == PINS {
            self.pins.pop_front();
        }
        self.pins.push_back((version, objects.clone()));
    }

    /// Shows every object, past ones too, as a resource has them that was defined anew. Versions stay, and nobody is told.
    pub(crate) fn encode_again(&mut self, before: &Resource, resource: &Resource) {
        // A state stands in several places and is made again once.
        let mut made: HashMap<*const State, Arc<State>> = HashMap::new();
        let mut again = |state: &Arc<State>| {
            let new = made.entry(Arc::as_ptr(state));
            new.or_insert_with(|| Arc::new(state.again(before, resource))).clone()
        };
        for change in &mut self.history {
            change.before = change.before.as_ref().map(&mut again);
            change.after = change.after.as_ref().map(&mut again);
        }
        self.live = self.live.iter().map(|(key, state)| (key.clone(), again(state))).collect();
        self.pins.clear();
        self.bytes = self.history.iter().map(Change::weight).sum();
        self.trim();
    }

    /// Forgets everything before a version.
    pub(crate) fn compact(&mut self, version: u64) {
        while self.forget_first().is_some() {}
        self.pins.clear();
        self.floor = self.floor.max(version);
        self.watch_floor = self.watch_floor.max(version);
        self.storage_floor = self.storage_floor.max(version);
    }

    /// Storage forgets everything before a version; the cache does not.
    pub(crate) fn compact_etcd(&mut self, version: u64) {
        self.storage_floor = self.storage_floor.max(version);
    }

    /// The cache forgets everything before a version; storage does not.
    pub(crate) fn expire_watches(&mut self, version: u64) {
        self.watch_floor = self.watch_floor.max(version);
    }

    /// Ends the watches that are open, after what has happened so far.
    pub(crate) fn cut(&mut self) {
        self.term += 1;
        self.cut_at = self.end();
    }

    /// Ends the watches for good: there will be nothing more.
    pub(crate) fn retire(&mut self) {
        self.cut();
        self.retired = true;
    }

    /// Counts a watch in; the term under which it is open.
    pub(crate) fn watcher_came(&mut self) -> u64 {
        self.watchers += 1;
        self.term
    }

    /// Counts a watch out; whether nobody needs the collection any more.
    pub(crate) fn watcher_left(&mut self) -> bool {
        self.watchers = self.watchers.saturating_sub(1);
        self.is_abandoned()
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.retired && self.watchers == 0
    }

    /// The sequence number of the next change.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.history.len() as u64
    }

    /// The sequence number of the first change after a version.
    pub(crate) fn after(&self, version: u64) -> u64 {
        self.first + self.history.partition_point(|change| change.version <= version) as u64
    }

    /// Where a watch of a term ends; none if it goes on.
    pub(crate) fn end_of(&self, term: u64) -> Option<u64> {
        (term != self.term).then_some(self.cut_at)
    }

    /// The change with a sequence number; none if it is forgotten or has not happened.
    pub(crate) fn change(&self, sequence: u64) -> Option<&Change> {
        let place = sequence.checked_sub(self.first)?;
        self.history.get(usize::try_from(place).ok()?)
    }

    /// Whether changes from a sequence number on are forgotten that concern a namespace; an empty one stands for all.
    pub(crate) fn is_forgotten(&self, sequence: u64, namespace: &str) -> bool {
        if namespace.is_empty() {
            return sequence < self.first;
        }
        self.forgotten.get(namespace).is_some_and(|last| sequence <= *last)
    }

    /// Where to go on from a sequence number, if nothing that matters is forgotten.
    pub(crate) fn next_known(&self, sequence: u64) -> u64 {
        sequence.max(self.first)
    }

    fn record(&mut self, change: Change) {
        self.bytes += change.weight();
        self.history.push_back(change);
        self.trim();
    }

    /// Forgets what is too much.
    fn trim(&mut self) {
        while (self.history.len() > self.limit || self.bytes > HISTORY_BYTES)
            && let Some(dropped) = self.forget_first()
        {
            self.floor = dropped;
            self.watch_floor = self.watch_floor.max(self.floor);
        }
    }

    /// Forgets the oldest change; its version.
    fn forget_first(&mut self) -> Option<u64> {
        let change = self.history.pop_front()?;
        self.bytes = self.bytes.saturating_sub(change.weight());
        if let Some(state) =
            change.after.as_ref().or(change.before.as_ref()).filter(|state| !state.namespace.is_empty())
        {
            match self.forgotten.get_mut(&state.namespace) {
                Some(last) => *last = self.first,
                None => {
                    self.forgotten.insert(state.namespace.clone(), self.first);
                }
            }
        }
        self.first += 1;
        Some(change.version)
    }

    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let versions: Vec<u64> = self.history.iter().map(|change| change.version).collect();
        assert!(versions.is_sorted_by(|a, b| a < b), "versions rise: {versions:?}");
        assert!(versions.first().is_none_or(|first| *first > self.floor), "history begins after the floor");
        assert!(self.watch_floor >= self.floor, "watches need their changes");
        assert_eq!(self.bytes, self.history.iter().map(Change::weight).sum::<usize>());
        let mut replayed = self.at(self.floor).unwrap_or_default();
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
        assert_eq!(versions(&replayed), versions(&self.live), "history leads to what is there");
    }
}
