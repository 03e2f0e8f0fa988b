//! The outbox: the events pending for one handler.
//!
//! Two implementations behind one interface: [`coalescing`] (the default: the pending changes of a key are
//! coalesced) and [`uncoalesced`] (every event up to a capacity; events beyond it are coalesced, and the
//! skipped ones are reported as [`Delivery::Lagged`]). Neither performs I/O or reads a clock. The pump, which
//! applies deltas to the store, fills them, or the task that saves the cache if the handler is durable; the
//! listener of the handler or event stream empties them.

mod coalescing;
mod uncoalesced;

use crate::event::{Delivery, Untyped};
use coalescing::CoalescingOutbox;
#[cfg(feature = "persistence")]
use informer_core::Key;
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
    /// Creates an uncoalesced outbox with this capacity (at least 1), or a coalescing one if it is `None`.
    ///
    /// `deliver_transient_deletes`: whether to deliver the deletion of an object whose addition was coalesced
    /// away.
    pub(super) fn new(capacity: Option<usize>, deliver_transient_deletes: bool) -> Self {
        match capacity {
            Some(capacity) => Self::Uncoalesced(UncoalescedOutbox::new(capacity, deliver_transient_deletes)),
            None => Self::Coalescing(CoalescingOutbox::new(deliver_transient_deletes)),
        }
    }

    /// Reserves memory for this many more changes in one step. Growing step by step would leave freed smaller
    /// buffers that fragment the heap.
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

    /// Adds the deletion of an object that a durable handler may know from an earlier process. Must be called before
    /// any other event is added.
    #[cfg(feature = "persistence")]
    pub(super) fn add_earlier_deletion(&mut self, last: &Arc<Entry>, now: Moment) {
        match self {
            Self::Coalescing(outbox) => outbox.add_earlier_deletion(last, now),
            Self::Uncoalesced(outbox) => outbox.add_earlier_deletion(last, now),
        }
    }

    /// Adds an object of the initial list of a durable handler, before any change. `is_known` if the handler may have
    /// received it in an earlier process: its deletion is then delivered even if the addition was not. `previous` is
    /// the state that the handler has acknowledged there.
    #[cfg(feature = "persistence")]
    pub(super) fn add_initial(
        &mut self,
        entry: &Arc<Entry>,
        is_known: bool,
        previous: Option<&Arc<Entry>>,
        now: Moment,
    ) {
        match self {
            Self::Coalescing(outbox) => outbox.add_initial(entry, is_known, previous, now),
            Self::Uncoalesced(outbox) => outbox.add_initial(entry, previous, now),
        }
    }

    /// Returns whether events were skipped, and the handler has not received that.
    #[cfg(feature = "persistence")]
    pub(super) fn has_unreported_skips(&self) -> bool {
        match self {
            Self::Coalescing(_) => false,
            Self::Uncoalesced(outbox) => outbox.unreported_skips() > 0,
        }
    }

    /// Records changes that are not added, because newer ones of the same objects are.
    #[cfg(feature = "persistence")]
    pub(super) fn add_skipped(&mut self, changes: u64) {
        if let Self::Uncoalesced(outbox) = self {
            outbox.add_skipped(changes);
        }
    }

    /// Calls `visit` with the key of each pending event, or of all pending events of that key together, and with the
    /// state that the handler saw before. The events of a key are visited in their order.
    #[cfg(feature = "persistence")]
    pub(super) fn for_each_pending(&self, visit: impl FnMut(&Key, Option<&Arc<Entry>>)) {
        match self {
            Self::Coalescing(outbox) => outbox.for_each_pending(visit),
            Self::Uncoalesced(outbox) => outbox.for_each_pending(visit),
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
            Self::Coalescing(outbox) => outbox.pop(),
            Self::Uncoalesced(outbox) => outbox.pop(),
        }
    }

    /// Returns whether the initial list is complete and none of its events is pending.
    ///
    /// Needs `&mut self` because a coalescing outbox first removes the queue positions at its front whose
    /// event is no longer pending.
    pub(super) fn initial_list_delivered(&mut self) -> bool {
        match self {
            Self::Coalescing(outbox) => outbox.initial_list_delivered(),
            Self::Uncoalesced(outbox) => outbox.initial_list_delivered(),
        }
    }

    /// Returns when the oldest pending event was added.
    ///
    /// Needs `&mut self` for the same reason as [`Outbox::initial_list_delivered`].
    pub(super) fn oldest_added_at(&mut self) -> Option<Moment> {
        match self {
            Self::Coalescing(outbox) => outbox.oldest_added_at(),
            Self::Uncoalesced(outbox) => outbox.oldest_added_at(),
        }
    }

    /// Returns the number of keys with pending events (coalescing), or of pending events (uncoalesced).
    ///
    /// A key with two pending events, its deletion and its re-creation, counts once in a coalescing outbox
    /// and twice in an uncoalesced one. A pending [`Delivery::Lagged`] is not counted.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Coalescing(outbox) => outbox.len(),
            Self::Uncoalesced(outbox) => outbox.len(),
        }
    }

    /// Returns whether [`Outbox::pop`] would return nothing.
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Coalescing(outbox) => outbox.is_empty(),
            Self::Uncoalesced(outbox) => outbox.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
