//! The cache as the reflector sees it: what it holds already, and whether it was ever complete.
//!
//! Invariant: it is synced exactly when there is a position. This file must not know how the store works.

use super::position::Position;
use crate::object::Entry;
use crate::store::StoreReader;
use std::sync::Arc;

/// The cache that the reflector feeds.
#[derive(Debug)]
pub(super) struct Cached {
    /// What the cache holds already: an equal entry is used again instead of a second copy.
    store: Option<StoreReader>,
    synced: bool,
}

impl Cached {
    pub(super) fn new(known: Option<StoreReader>) -> Self {
        Self { store: known, synced: false }
    }

    /// The entry in the cache that is identical to this one.
    pub(super) fn identical(&self, new: &Entry) -> Option<Arc<Entry>> {
        let known = self.store.as_ref().and_then(|known| known.get(new.key()));
        known.filter(|known| known.is_same_state(new))
    }

    /// Whether a complete set was handed on.
    pub(super) fn is_synced(&self) -> bool {
        self.synced
    }

    /// Notes that a complete set was handed on.
    pub(super) fn note_set(&mut self) {
        self.synced = true;
    }

    /// Panics if it contradicts the position.
    pub(super) fn check(&self, position: &Position) {
        assert_eq!(self.synced, position.version().is_some(), "synced exactly when there is a position");
    }
}
