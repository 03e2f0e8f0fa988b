//! What one handler has still to be told.
//!
//! Two ways to keep it, with one face: [`merged`] (the default, at most one transition per key) and [`every_state`] (each one, up to a
//! bound). Both are pure: the pump fills them, the listener's task empties them.

mod coalescing;
mod uncoalesced;

use crate::event::{Delivery, Untyped};
use coalescing::CoalescingOutbox;
use informer_core::{Change, Entry, Moment};
use std::sync::Arc;
use uncoalesced::UncoalescedOutbox;

/// Pending events of one handler, oldest first.
#[derive(Debug)]
pub(super) enum Outbox {
    Coalescing(CoalescingOutbox),
    Uncoalesced(UncoalescedOutbox),
}

impl Outbox {
    /// Every state up to `bound` pending ones, or, with no bound, one transition per key. `brief` says that of an object that came and went
    /// unseen the end is told.
    pub(super) fn new(bound: Option<usize>, brief: bool) -> Self {
        match bound {
            Some(bound) => Self::Uncoalesced(UncoalescedOutbox::new(bound, brief)),
            None => Self::Coalescing(CoalescingOutbox::new(brief)),
        }
    }

    /// Makes room for so many changes that come now. A set that grows into its room step by step leaves holes of the same size behind.
    pub(super) fn reserve(&mut self, changes: usize) {
        match self {
            Self::Coalescing(outbox) => outbox.reserve(changes),
            Self::Uncoalesced(outbox) => outbox.reserve(changes),
        }
    }

    /// Takes in a change. `initial` says that it belongs to the set that was there before the handler began.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match self {
            Self::Coalescing(outbox) => outbox.add(change, initial, now),
            Self::Uncoalesced(outbox) => outbox.add(change, initial, now),
        }
    }

    /// Takes in an object that is to be told again.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        match self {
            Self::Coalescing(outbox) => outbox.add_resync(entry, now),
            Self::Uncoalesced(outbox) => outbox.add_resync(entry, now),
        }
    }

    /// Says that everything of the initial set has been added.
    pub(super) fn mark_initial_list_complete(&mut self) {
        match self {
            Self::Coalescing(outbox) => outbox.mark_initial_list_complete(),
            Self::Uncoalesced(outbox) => outbox.mark_initial_list_complete(),
        }
    }

    /// The next thing to tell.
    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        match self {
            Self::Coalescing(outbox) => outbox.pop().map(Delivery::Event),
            Self::Uncoalesced(outbox) => outbox.pop(),
        }
    }

    /// Whether the initial set is known and nothing of it is left.
    pub(super) fn initial_list_delivered(&mut self) -> bool {
        match self {
            Self::Coalescing(outbox) => outbox.initial_list_delivered(),
            Self::Uncoalesced(outbox) => outbox.initial_list_delivered(),
        }
    }

    /// When the oldest pending event was taken in.
    pub(super) fn oldest(&mut self) -> Option<Moment> {
        match self {
            Self::Coalescing(outbox) => outbox.oldest(),
            Self::Uncoalesced(outbox) => outbox.oldest(),
        }
    }

    /// How much is pending: keys, or states.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Coalescing(outbox) => outbox.len(),
            Self::Uncoalesced(outbox) => outbox.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Coalescing(outbox) => outbox.is_empty(),
            Self::Uncoalesced(outbox) => outbox.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
