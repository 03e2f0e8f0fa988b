//! The cache as the reflector sees it: its entries, whether it has ever been complete, and a saved state that
//! the server has not confirmed yet.
//!
//! Invariant: there is a position, the version from which a watch resumes, exactly when the cache is synced or
//! there is a saved state. This file must not know how the store works, nor which requests are open.

use super::detached::DetachedState;
use super::phase::EntryByKey;
use super::position::Position;
use crate::delta::Delta;
use crate::object::Entry;
use crate::store::StoreReader;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use jiff::Timestamp;
use std::sync::Arc;

/// A saved state of one scope, from which [`Reflector::restore`](super::Reflector::restore) starts.
#[derive(Debug)]
pub struct SavedScope {
    /// The version of the state.
    pub version: ResourceVersion,
    /// When it was saved, by the clock of the process that saved it.
    pub saved_at: Timestamp,
    /// The objects, in any order.
    pub entries: Vec<Arc<Entry>>,
    /// The objects whose newest state was unreadable; each must have a key. An older state may be among
    /// `entries`.
    pub unreadable: Vec<UnreadableObject>,
}

/// The cache that the reflector feeds.
#[derive(Debug)]
pub(super) struct Cached {
    /// The store, from which equal entries are reused instead of allocating a second copy.
    store: Option<StoreReader>,
    synced: bool,
    /// The saved state, until the server has confirmed it or a full list has replaced it.
    saved: Option<Saved>,
}

/// A saved state and the changes since.
#[derive(Debug)]
pub(super) struct Saved {
    as_of: Timestamp,
    state: DetachedState,
    /// The version that has to be reached; `None` until the server has been asked.
    goal: Option<ResourceVersion>,
    /// Number of watches that ended regularly before the goal was reached.
    watches: u32,
}

impl Cached {
    pub(super) fn new(store: Option<StoreReader>) -> Self {
        Self { store, synced: false, saved: None }
    }

    /// Sets the saved state.
    pub(super) fn restore(&mut self, saved: SavedScope) {
        let SavedScope { saved_at, entries, unreadable, .. } = saved;
        self.saved = Some(Saved {
            as_of: saved_at,
            state: DetachedState::new(entries, unreadable),
            goal: None,
            watches: 0,
        });
    }

    /// Returns the cached or saved entry that has the same state as `new`.
    pub(super) fn find_same_state(&self, new: &Entry) -> Option<Arc<Entry>> {
        let saved = self.saved.as_ref().and_then(|saved| saved.state.entries.get(new.key()));
        let cached = match saved {
            Some(EntryByKey(saved)) => Some(Arc::clone(saved)),
            None => self.store.as_ref().and_then(|store| store.get(new.key())),
        };
        cached.filter(|cached| cached.is_same_state(new))
    }

    /// Returns whether a full list or a confirmed state has been passed to the store.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Returns when the saved state was saved that the server has not confirmed; `None` if there is none.
    pub(super) fn unconfirmed_since(&self) -> Option<Timestamp> {
        self.saved.as_ref().map(|saved| saved.as_of)
    }

    /// Returns whether there is a saved state, and the version that has to be reached is unknown.
    pub(super) fn needs_goal(&self) -> bool {
        self.saved.as_ref().is_some_and(|saved| saved.goal.is_none())
    }

    pub(super) fn set_goal(&mut self, goal: ResourceVersion) {
        if let Some(saved) = &mut self.saved {
            saved.goal = Some(goal);
        }
    }

    /// Counts a watch that ended before the goal was reached; returns the number of such watches.
    pub(super) fn count_confirmation_watch(&mut self) -> u32 {
        let Some(saved) = &mut self.saved else { return 0 };
        saved.watches += 1;
        saved.watches
    }

    /// Applies a delta to the saved state; returns it if there is none.
    pub(super) fn apply_to_saved(&mut self, delta: Delta) -> Option<Delta> {
        match &mut self.saved {
            Some(saved) => saved.state.apply(delta),
            None => Some(delta),
        }
    }

    /// Removes and returns the saved state if the position has reached its goal. The cache counts as synced
    /// from then on.
    pub(super) fn take_confirmed(&mut self, position: &ResourceVersion) -> Option<DetachedState> {
        let goal = self.saved.as_ref()?.goal.as_ref()?;
        if position.compare(goal).is_none_or(std::cmp::Ordering::is_lt) {
            return None;
        }
        self.synced = true;
        self.saved.take().map(|saved| saved.state)
    }

    /// Returns the saved entries of objects that exist, but could not be read in a list: as in the store, the last
    /// state that could be read is kept.
    pub(super) fn saved_entries<'a>(
        &'a self,
        unreadable: &'a [UnreadableObject],
    ) -> impl Iterator<Item = Arc<Entry>> + 'a {
        let keys = unreadable.iter().filter_map(|object| object.key.as_ref());
        let saved = self.saved.as_ref();
        keys.filter_map(move |key| saved?.state.entries.get(key).map(|EntryByKey(entry)| Arc::clone(entry)))
    }

    /// Records that a full list was passed to the store.
    pub(super) fn record_full_list(&mut self) {
        self.synced = true;
        self.saved = None;
    }

    /// Panics unless there is a position exactly when the cache is synced or there is a saved state.
    pub(super) fn check(&self, position: &Position) {
        let expected = self.synced || self.saved.is_some();
        assert_eq!(expected, position.version().is_some(), "a position exactly when synced or restored");
        assert!(!(self.synced && self.saved.is_some()), "a synced cache has no saved state");
    }
}
