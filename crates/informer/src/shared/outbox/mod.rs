//! The outbox: the events pending for one handler.
//!
//! Two implementations behind one interface: [`coalescing`] (the default, at most one transition per key)
//! and [`uncoalesced`] (every event, up to a capacity). Both perform no I/O and read no clock: the pump
//! fills them, the listener empties them.

mod coalescing;
mod uncoalesced;

use crate::event::{Delivery, Untyped};
use coalescing::CoalescingOutbox;
use informer_core::{Change, Entry, Moment};
use std::sync::Arc;
use uncoalesced::UncoalescedOutbox;

/// The pending events of one handler, oldest first.
#[derive(Debug)]
pub(super) enum Outbox {
    Coalescing(CoalescingOutbox),
    Uncoalesced(UncoalescedOutbox),
}

impl Outbox {
    /// Creates an outbox that keeps every event up to `capacity`, or without a capacity one transition per
    /// key.
    ///
    /// `deliver_transient_deletes` delivers the deletion of an object whose addition was coalesced away.
    pub(super) fn new(capacity: Option<usize>, deliver_transient_deletes: bool) -> Self {
        match capacity {
            Some(capacity) => Self::Uncoalesced(UncoalescedOutbox::new(capacity, deliver_transient_deletes)),
            None => Self::Coalescing(CoalescingOutbox::new(deliver_transient_deletes)),
        }
    }

    /// Reserves capacity for additional changes. Growing in several steps would fragment the heap with the
    /// freed smaller buffers.
    pub(super) fn reserve(&mut self, changes: usize) {
        match self {
            Self::Coalescing(outbox) => outbox.reserve(changes),
            Self::Uncoalesced(outbox) => outbox.reserve(changes),
        }
    }

    /// Adds a change; `initial` marks an object of the initial list.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match self {
            Self::Coalescing(outbox) => outbox.add(change, initial, now),
            Self::Uncoalesced(outbox) => outbox.add(change, initial, now),
        }
    }

    /// Adds an object for a resync.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        match self {
            Self::Coalescing(outbox) => outbox.add_resync(entry, now),
            Self::Uncoalesced(outbox) => outbox.add_resync(entry, now),
        }
    }

    /// Marks everything added so far as the complete initial list; later calls have no effect.
    pub(super) fn mark_initial_list_complete(&mut self) {
        match self {
            Self::Coalescing(outbox) => outbox.mark_initial_list_complete(),
            Self::Uncoalesced(outbox) => outbox.mark_initial_list_complete(),
        }
    }

    /// Removes and returns the next delivery.
    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        match self {
            Self::Coalescing(outbox) => outbox.pop().map(Delivery::Event),
            Self::Uncoalesced(outbox) => outbox.pop(),
        }
    }

    /// Returns whether the initial list is complete and none of its events is pending.
    pub(super) fn initial_list_delivered(&mut self) -> bool {
        match self {
            Self::Coalescing(outbox) => outbox.initial_list_delivered(),
            Self::Uncoalesced(outbox) => outbox.initial_list_delivered(),
        }
    }

    /// Returns when the oldest pending event was added.
    pub(super) fn oldest(&mut self) -> Option<Moment> {
        match self {
            Self::Coalescing(outbox) => outbox.oldest(),
            Self::Uncoalesced(outbox) => outbox.oldest(),
        }
    }

    /// Returns the number of pending keys, or of pending events in an uncoalesced outbox.
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
