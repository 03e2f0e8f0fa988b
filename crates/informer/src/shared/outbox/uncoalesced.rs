//! The outbox that keeps every event up to a capacity, and coalesces the events beyond it.
//!
//! The overflow is a coalescing outbox. Invariants: every event in the queue is older than every event in the
//! overflow; every change is delivered, pending, or counted as skipped. A resync is dropped if there is no
//! capacity, because it carries no new state.

use super::coalescing::CoalescingOutbox;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
#[cfg(feature = "persistence")]
use informer_core::Key;
use informer_core::{Change, Entry, Moment, Object};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pending events of one handler, coalesced only beyond a capacity, oldest first.
#[derive(Debug)]
pub(in crate::shared) struct UncoalescedOutbox {
    capacity: usize,
    queue: VecDeque<QueuedEvent>,
    /// Number of queued events that count against the capacity. Those of the initial list do not: there is
    /// only one per object.
    counted: usize,
    last_sequence: u64,
    /// Last sequence number of the initial list.
    initial_end: Option<u64>,
    /// Changes that arrived while the queue was full, coalesced.
    overflow: CoalescingOutbox,
    /// Changes added to `overflow`.
    overflowed: u64,
    /// Events delivered from `overflow`.
    overflow_delivered: u64,
    /// Changes reported as skipped by [`Delivery::Lagged`].
    skipped: u64,
}

#[derive(Debug)]
struct QueuedEvent {
    sequence: u64,
    added_at: Moment,
    counted: bool,
    delivery: Delivery<Untyped>,
}

impl UncoalescedOutbox {
    pub(super) fn new(capacity: usize, deliver_transient_deletes: bool) -> Self {
        Self {
            capacity: capacity.max(1),
            queue: VecDeque::new(),
            counted: 0,
            last_sequence: 0,
            initial_end: None,
            overflow: CoalescingOutbox::new(deliver_transient_deletes),
            overflowed: 0,
            overflow_delivered: 0,
            skipped: 0,
        }
    }

    /// Reserves memory for this many more changes of the initial list, which the capacity does not limit.
    pub(super) fn reserve(&mut self, changes: usize) {
        self.queue.reserve(changes);
    }

    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        let object = |entry: &Arc<Entry>| Object::new(Arc::clone(entry));
        let delivery = match change {
            Change::Added(entry) => Event::Added { object: object(entry), initial, previous: None }.into(),
            Change::Updated { old, new } => {
                Event::Updated { old: object(old), new: object(new), cause: UpdateCause::Change }.into()
            }
            Change::Deleted { last, observed } => {
                Event::Deleted { last: object(last), observed: *observed }.into()
            }
            Change::Released(last) => Delivery::Released { last: object(last) },
        };
        if self.has_capacity() || (initial && self.overflow.is_empty()) {
            let counted = !initial;
            return self.push(delivery, counted, now);
        }
        self.overflowed += 1;
        self.overflow.add(change, initial, now);
    }

    /// Adds a deletion; see `Outbox::add_earlier_deletion`.
    #[cfg(feature = "persistence")]
    pub(super) fn add_earlier_deletion(&mut self, last: &Arc<Entry>, now: Moment) {
        let (last, counted) = (Object::new(Arc::clone(last)), false);
        self.push(Event::Deleted { last, observed: false }.into(), counted, now);
    }

    /// Adds an object; see `Outbox::add_initial`.
    #[cfg(feature = "persistence")]
    pub(super) fn add_initial(&mut self, entry: &Arc<Entry>, previous: Option<&Arc<Entry>>, now: Moment) {
        let object = |entry: &Arc<Entry>| Object::new(Arc::clone(entry));
        let event = Event::Added { object: object(entry), initial: true, previous: previous.map(object) };
        let counted = false;
        self.push(event.into(), counted, now);
    }

    /// Records changes that were not added.
    #[cfg(feature = "persistence")]
    pub(super) fn add_skipped(&mut self, changes: u64) {
        self.overflowed += changes;
    }

    /// Calls `visit` for each pending event; see `Outbox::for_each_pending`.
    #[cfg(feature = "persistence")]
    pub(super) fn for_each_pending(&self, mut visit: impl FnMut(&Key, Option<&Arc<Entry>>)) {
        for QueuedEvent { delivery, .. } in &self.queue {
            let before = match delivery {
                Delivery::Event(Event::Added { previous, .. }) => previous.as_ref(),
                Delivery::Event(Event::Updated { old: before, .. } | Event::Deleted { last: before, .. })
                | Delivery::Released { last: before } => Some(before),
                Delivery::Lagged { .. } => None,
            };
            if let Some(object) = delivery.object() {
                visit(object.key(), before.map(Object::entry));
            }
        }
        self.overflow.for_each_pending(visit);
    }

    /// Adds an object for a resync, unless the outbox is full.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        if self.has_capacity() {
            let (old, new) = (Object::new(Arc::clone(entry)), Object::new(Arc::clone(entry)));
            let counted = true;
            self.push(Event::Updated { old, new, cause: UpdateCause::Resync }.into(), counted, now);
        }
    }

    pub(super) fn mark_initial_list_complete(&mut self) {
        self.initial_end.get_or_insert(self.last_sequence);
        self.overflow.mark_initial_list_complete();
    }

    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        if let Some(queued) = self.queue.pop_front() {
            self.counted -= usize::from(queued.counted);
            if self.queue.is_empty() {
                // Frees the memory of a burst, above all of the initial list, except for one batch of the
                // pump.
                self.queue.shrink_to(256);
            }
            return Some(queued.delivery);
        }
        // Skipped changes are reported before the events into which they were coalesced.
        let skipped = self.unreported_skips();
        if skipped > 0 {
            self.skipped += skipped;
            return Some(Delivery::Lagged { skipped });
        }
        let delivery = self.overflow.pop()?;
        self.overflow_delivered += 1;
        Some(delivery)
    }

    pub(super) fn initial_list_delivered(&mut self) -> bool {
        let front = self.queue.front().map(|queued| queued.sequence);
        let queue_delivered = self.initial_end.is_some_and(|end| front.is_none_or(|sequence| sequence > end));
        queue_delivered && self.overflow.initial_list_delivered()
    }

    pub(super) fn oldest_added_at(&mut self) -> Option<Moment> {
        self.queue.front().map(|queued| queued.added_at).or_else(|| self.overflow.oldest_added_at())
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.overflow.pending_events()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.overflow.is_empty() && self.unreported_skips() == 0
    }

    /// Returns the number of changes that were coalesced away and not yet reported as skipped.
    pub(super) fn unreported_skips(&self) -> u64 {
        self.overflowed - self.overflow_delivered - self.overflow.pending_events() as u64 - self.skipped
    }

    /// Returns whether an event may be queued: there must be capacity, and no overflow that it would
    /// overtake.
    fn has_capacity(&self) -> bool {
        self.overflow.is_empty() && self.counted < self.capacity
    }

    fn push(&mut self, delivery: Delivery<Untyped>, counted: bool, now: Moment) {
        self.last_sequence += 1;
        self.counted += usize::from(counted);
        self.queue.push_back(QueuedEvent { sequence: self.last_sequence, added_at: now, counted, delivery });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{added, deleted, text, updated};

    /// The argument `initial` of `add`.
    const INITIAL: bool = true;
    const NOT_INITIAL: bool = false;
    /// The argument `deliver_transient_deletes` of `new`.
    const DELIVER_TRANSIENT_DELETES: bool = true;
    const SKIP_TRANSIENT_DELETES: bool = false;

    fn now() -> Moment {
        Moment::default()
    }

    fn drain(outbox: &mut UncoalescedOutbox) -> String {
        std::iter::from_fn(|| outbox.pop()).map(|delivery| text(&delivery)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_state_is_delivered_up_to_the_capacity() {
        let mut outbox = UncoalescedOutbox::new(3, SKIP_TRANSIENT_DELETES);
        for change in [added("a", 1), updated("a", 1, 2), updated("a", 2, 3)] {
            outbox.add(&change, NOT_INITIAL, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 ~a@1>a@2 ~a@2>a@3");
        assert!(outbox.is_empty());
    }

    #[test]
    fn states_beyond_the_capacity_are_coalesced_and_counted() {
        let mut outbox = UncoalescedOutbox::new(2, SKIP_TRANSIENT_DELETES);
        let changes =
            [added("a", 1), updated("a", 1, 2), updated("a", 2, 3), updated("a", 3, 4), added("b", 5)];
        for change in &changes {
            outbox.add(change, NOT_INITIAL, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 ~a@1>a@2 lagged 1 ~a@2>a@4 +b@5");
        // The handler has caught up and receives every state again.
        outbox.add(&updated("a", 4, 6), NOT_INITIAL, now());
        outbox.add(&updated("a", 6, 7), NOT_INITIAL, now());
        assert_eq!(drain(&mut outbox), "~a@4>a@6 ~a@6>a@7");
    }

    #[test]
    fn object_that_was_added_and_deleted_counts_as_two_skipped_changes() {
        let mut outbox = UncoalescedOutbox::new(1, SKIP_TRANSIENT_DELETES);
        for change in [added("a", 1), added("b", 2), deleted("b", 3)] {
            outbox.add(&change, NOT_INITIAL, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 lagged 2");
        assert!(outbox.is_empty());
    }

    /// C8 for controllers: pending changes are coalesced, but no key is skipped.
    #[test]
    fn transient_deletes_are_delivered_on_request() {
        let mut outbox = UncoalescedOutbox::new(1, DELIVER_TRANSIENT_DELETES);
        for change in [added("a", 1), added("b", 2), updated("b", 2, 3), deleted("b", 4), added("c", 5)] {
            outbox.add(&change, NOT_INITIAL, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 lagged 2 -b@4 +c@5");
        // The next incarnation of b follows its deletion.
        for change in [added("a", 6), added("b", 7), deleted("b", 8), added("b", 9)] {
            outbox.add(&change, NOT_INITIAL, now());
        }
        assert_eq!(drain(&mut outbox), "+a@6 lagged 1 -b@8 +b@9");
        assert!(outbox.is_empty());
    }

    #[test]
    fn initial_list_does_not_count_against_the_capacity() {
        let mut outbox = UncoalescedOutbox::new(1, SKIP_TRANSIENT_DELETES);
        for name in ["a", "b", "c"] {
            outbox.add(&added(name, 1), INITIAL, now());
        }
        outbox.mark_initial_list_complete();
        outbox.add(&updated("a", 1, 2), NOT_INITIAL, now());
        assert!(!outbox.initial_list_delivered());
        assert_eq!(drain(&mut outbox), "+a@1! +b@1! +c@1! ~a@1>a@2");
        assert!(outbox.initial_list_delivered());
    }
}
