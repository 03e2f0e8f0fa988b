//! The cache as the reflector sees it: its entries, and whether it has ever been complete.
//!
//! Invariant: the cache is synced exactly when there is a position, the version from which a watch resumes.
//! This file must not know how the store works.

use super::position::Position;
use crate::object::Entry;
use crate::store::StoreReader;
use std::sync::Arc;

/// The cache that the reflector feeds.
#[derive(Debug)]
pub(super) struct Cached {
    /// The store, from which equal entries are reused instead of allocating a second copy.
    store: Option<StoreReader>,
    synced: bool,
}

impl Cached {
    pub(super) fn new(store: Option<StoreReader>) -> Self {
        Self { store, synced: false }
    }

    /// Returns the cached entry that has the same state as `new`.
    pub(super) fn find_same_state(&self, new: &Entry) -> Option<Arc<Entry>> {
        let cached = self.store.as_ref().and_then(|store| store.get(new.key()));
        cached.filter(|cached| cached.is_same_state(new))
    }

    /// Returns whether a full list has been passed to the store.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Records that a full list was passed to the store.
    pub(super) fn record_full_list(&mut self) {
        self.synced = true;
    }

    /// Panics unless the cache is synced exactly when there is a position.
    pub(super) fn check(&self, position: &Position) {
        assert_eq!(self.synced, position.version().is_some(), "synced exactly when there is a position");
    }
}
