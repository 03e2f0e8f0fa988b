//! The default outbox: the pending changes of each key are coalesced (C8).
//!
//! For a handler that lags, the changes of a key are coalesced into one event that leads from the state the
//! handler saw last to the current state. An object that appeared and disappeared in between is not
//! delivered, unless the handler requested transient deletes. A deletion and a re-creation after it remain
//! two events, each with its own queue position, so that the deletions of a relist stay in front. A key
//! never has more than two pending events. Performs no I/O and reads no clock: the caller passes the time.
//!
//! Events are numbered in the order in which they are delivered (sequence number). Each key with pending
//! events has a slot: an index into the vector of pending keys.

use crate::event::{Delivery, Event, Untyped, UpdateCause};
use hashbrown::{DefaultHashBuilder, HashTable};
use informer_core::{Change, Entry, Key, Moment, Object};
use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Pending events of one handler, coalesced per key, oldest first.
#[derive(Debug, Default)]
pub(in crate::shared) struct CoalescingOutbox {
    /// Objects that a durable handler knows from an earlier process, and that no longer exist. Their deletions are
    /// delivered before all other events.
    earlier_deletions: VecDeque<(Arc<Entry>, Moment)>,
    /// Positions of the pending events, by ascending sequence number. May contain obsolete positions, whose
    /// event was delivered or dropped; they are skipped.
    order: VecDeque<QueuePosition>,
    /// The pending events of each key. Invariants: the sequence number of every event is in `order`; every
    /// key has an event.
    pending: Pending,
    /// Whether to deliver the deletion of an object whose addition was never delivered.
    deliver_transient_deletes: bool,
    /// Number of pending events.
    events: usize,
    last_sequence: u64,
    /// Last sequence number of the initial list; known once the informer has synced.
    initial_end: Option<u64>,
}

/// The position of an event in the queue, and when it was added.
#[derive(Debug)]
struct QueuePosition {
    sequence: u64,
    added_at: Moment,
    /// Slot of the event's key in `pending`; may belong to another key if the position is obsolete.
    slot: u32,
}

/// The pending events of all keys.
///
/// Keys are not copied: the whole initial list is stored here, and its entries contain their keys.
#[derive(Debug, Default)]
struct Pending {
    keys: Vec<PendingKey>,
    /// Slots of `keys` that are empty.
    free: Vec<u32>,
    /// Slots of `keys` that are in use, by key.
    slots: HashTable<u32>,
    // A fast hasher suffices: it hashes the hash in the key, which is seeded with a secret per process.
    hasher: DefaultHashBuilder,
}

/// The pending events of one key, in the order of delivery.
#[derive(Debug, Default)]
struct PendingKey {
    /// The deletion or release of the object that the handler saw last, or of one whose addition was coalesced away.
    removal: Option<PendingRemoval>,
    /// The addition or update of the object that exists now.
    upsert: Option<PendingUpsert>,
}

#[derive(Debug)]
struct PendingRemoval {
    sequence: u64,
    last: Arc<Entry>,
    kind: Removal,
}

/// The way in which an object left the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removal {
    Deleted {
        observed: bool,
    },
    /// It exists, in hash ranges of another process.
    Released,
}

#[derive(Debug)]
struct PendingUpsert {
    sequence: u64,
    /// The state that the handler saw last, or that it has acknowledged in an earlier process if `initial`; `None` if
    /// there is none.
    before: Option<Arc<Entry>>,
    after: Arc<Entry>,
    initial: bool,
    /// Whether the handler may have received the object in an earlier process.
    is_known: bool,
    cause: UpdateCause,
}

impl CoalescingOutbox {
    pub(super) fn new(deliver_transient_deletes: bool) -> Self {
        Self { deliver_transient_deletes, ..Self::default() }
    }

    /// Reserves memory for this many more changes.
    pub(super) fn reserve(&mut self, changes: usize) {
        self.order.reserve(changes);
        self.pending.reserve(changes);
    }

    /// Adds a change; `initial` marks an object of the initial list.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match change {
            Change::Added(entry) => self.add_upsert(None, entry, initial, UpdateCause::Change, now),
            Change::Updated { old, new } => {
                let initial = false;
                self.add_upsert(Some(old), new, initial, UpdateCause::Change, now);
            }
            Change::Deleted { last, observed } => {
                self.add_removal(last, Removal::Deleted { observed: *observed }, now);
            }
            Change::Released(last) => self.add_removal(last, Removal::Released, now),
        }
    }

    /// Adds a deletion; see `Outbox::add_earlier_deletion`.
    #[cfg(feature = "persistence")]
    pub(super) fn add_earlier_deletion(&mut self, last: &Arc<Entry>, now: Moment) {
        self.earlier_deletions.push_back((Arc::clone(last), now));
    }

    /// Adds an object; see `Outbox::add_initial`.
    #[cfg(feature = "persistence")]
    pub(super) fn add_initial(
        &mut self,
        entry: &Arc<Entry>,
        is_known: bool,
        previous: Option<&Arc<Entry>>,
        now: Moment,
    ) {
        let initial = true;
        self.add_upsert(previous, entry, initial, UpdateCause::Change, now);
        let slot = self.pending.slot_for(entry.key());
        if let Some(upsert) = &mut self.pending.keys[slot as usize].upsert {
            upsert.is_known = is_known;
        }
    }

    /// Calls `visit` for each key with pending events; see `Outbox::for_each_pending`.
    #[cfg(feature = "persistence")]
    pub(super) fn for_each_pending(&self, mut visit: impl FnMut(&Key, Option<&Arc<Entry>>)) {
        for (last, _) in &self.earlier_deletions {
            visit(last.key(), Some(last));
        }
        for pending in &self.pending.keys {
            if let Some(key) = pending.key() {
                let removed = pending.removal.as_ref().map(|removal| &removal.last);
                let before = || pending.upsert.as_ref().and_then(|upsert| upsert.before.as_ref());
                visit(key, removed.or_else(before));
            }
        }
    }

    /// Adds an object for a resync, unless its key has a pending event, which will deliver the same state
    /// or a newer one.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        if self.pending.find(entry.key()).is_none() {
            let initial = false;
            self.add_upsert(Some(entry), entry, initial, UpdateCause::Resync, now);
        }
    }

    /// Marks everything added so far as the complete initial list; later calls have no effect.
    pub(super) fn mark_initial_list_complete(&mut self) {
        self.initial_end.get_or_insert(self.last_sequence);
    }

    /// Removes and returns the oldest pending event.
    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        if let Some((last, _)) = self.earlier_deletions.pop_front() {
            return Some(Event::Deleted { last: Object::new(last), observed: false }.into());
        }
        loop {
            let Some(QueuePosition { sequence, slot, .. }) = self.order.pop_front() else {
                self.release_memory();
                return None;
            };
            if let Some(delivery) = self.pending.take(slot, sequence) {
                self.events -= 1;
                return Some(delivery);
            }
        }
    }

    /// Returns whether the initial list is complete and none of its events is pending.
    pub(super) fn initial_list_delivered(&mut self) -> bool {
        self.remove_obsolete_front();
        let oldest = self.order.front().map(|position| position.sequence);
        self.earlier_deletions.is_empty()
            && self.initial_end.is_some_and(|end| oldest.is_none_or(|oldest| oldest > end))
    }

    /// Returns when the oldest pending event was added.
    pub(super) fn oldest_added_at(&mut self) -> Option<Moment> {
        self.remove_obsolete_front();
        let earlier = self.earlier_deletions.front().map(|(_, added_at)| *added_at);
        earlier.or_else(|| self.order.front().map(|position| position.added_at))
    }

    /// Returns the number of pending events.
    pub(super) fn pending_events(&self) -> usize {
        self.earlier_deletions.len() + self.events
    }

    /// Returns the number of keys with pending events.
    pub(super) fn len(&self) -> usize {
        self.earlier_deletions.len() + self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.earlier_deletions.is_empty() && self.pending.is_empty()
    }

    fn add_upsert(
        &mut self,
        before: Option<&Arc<Entry>>,
        after: &Arc<Entry>,
        initial: bool,
        cause: UpdateCause,
        now: Moment,
    ) {
        let slot = self.pending.slot_for(after.key());
        let key = &mut self.pending.keys[slot as usize];
        if let Some(upsert) = &mut key.upsert {
            // Coalesced: the pending event keeps its queue position and its old state.
            upsert.after = Arc::clone(after);
            upsert.cause = cause;
            return;
        }
        self.last_sequence += 1;
        let sequence = self.last_sequence;
        key.upsert = Some(PendingUpsert {
            sequence,
            before: before.cloned(),
            after: Arc::clone(after),
            initial,
            is_known: false,
            cause,
        });
        self.events += 1;
        self.push_position(sequence, slot, now);
    }

    fn add_removal(&mut self, last: &Arc<Entry>, kind: Removal, now: Moment) {
        let slot = self.pending.slot_for(last.key());
        let key = &mut self.pending.keys[slot as usize];
        match key.upsert.take() {
            // The handler never saw this incarnation, so its addition and removal cancel out, unless
            // transient deletes are requested. A pending delete of the previous incarnation stays and
            // suffices.
            Some(PendingUpsert { before: None, is_known: false, .. })
                if !self.deliver_transient_deletes || key.removal.is_some() || kind == Removal::Released =>
            {
                self.events -= 1;
                match &mut key.removal {
                    None => self.pending.remove(slot, last.key()),
                    // The object was released, came back and was deleted: the handler must learn of the deletion.
                    Some(removal) if removal.kind == Removal::Released => {
                        (removal.last, removal.kind) = (Arc::clone(last), kind);
                    }
                    Some(_) => {}
                }
            }
            // The removal takes the queue position of the upsert.
            Some(PendingUpsert { sequence, .. }) => {
                key.removal = Some(PendingRemoval { sequence, last: Arc::clone(last), kind });
            }
            None => {
                self.last_sequence += 1;
                let sequence = self.last_sequence;
                key.removal = Some(PendingRemoval { sequence, last: Arc::clone(last), kind });
                self.events += 1;
                self.push_position(sequence, slot, now);
            }
        }
    }

    /// Appends the position of a new event. Removes obsolete positions once they are the majority.
    fn push_position(&mut self, sequence: u64, slot: u32, now: Moment) {
        self.order.push_back(QueuePosition { sequence, added_at: now, slot });
        if self.order.len() > 2 * self.events + 64 {
            self.order.retain(|position| self.pending.contains(position));
        }
    }

    /// Panics if the pending events and their positions are inconsistent.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let Pending { keys, free, slots, .. } = &self.pending;
        assert_eq!(slots.len() + free.len(), keys.len(), "every slot is either used or free");
        for slot in slots {
            let key = keys[*slot as usize].key().expect("a used slot has an event");
            assert_eq!(self.pending.find(key), Some(*slot), "{key} is found in its slot");
        }
        let sequences = keys.iter().flat_map(|key| {
            let removal = key.removal.as_ref().map(|removal| removal.sequence);
            removal.into_iter().chain(key.upsert.as_ref().map(|upsert| upsert.sequence))
        });
        let mut sequences: Vec<u64> = sequences.collect();
        sequences.sort_unstable();
        assert_eq!(sequences.len(), self.events, "events are counted");
        let positions = self.order.iter().filter(|position| self.pending.contains(position));
        assert!(
            positions.map(|position| position.sequence).eq(sequences),
            "each event has its position, in order"
        );
    }

    /// Frees the memory that a burst took, above all the initial list, so that an idle handler costs little.
    fn release_memory(&mut self) {
        /// Capacity that is kept: one batch of the pump.
        const RETAINED_CAPACITY: usize = 256;
        debug_assert!(self.pending.is_empty(), "every pending event has a position");
        self.earlier_deletions = VecDeque::new();
        self.order.shrink_to(RETAINED_CAPACITY);
        self.pending.clear(RETAINED_CAPACITY);
    }

    /// Removes obsolete positions from the front.
    fn remove_obsolete_front(&mut self) {
        while self.order.front().is_some_and(|position| !self.pending.contains(position)) {
            self.order.pop_front();
        }
    }
}

impl Pending {
    /// Returns the number of keys.
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn reserve(&mut self, additional: usize) {
        let Self { keys, slots, hasher, .. } = self;
        keys.reserve(additional);
        slots.reserve(additional, |slot| hash_of(keys, hasher, *slot));
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let has_key = |slot: &u32| self.keys[*slot as usize].key() == Some(key);
        self.slots.find(self.hasher.hash_one(key), has_key).copied()
    }

    /// Returns the slot of a key, allocating one if it has none. The caller must then store an event in it.
    fn slot_for(&mut self, key: &Key) -> u32 {
        if let Some(slot) = self.find(key) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.keys.push(PendingKey::default());
            // There are far fewer objects than four billion.
            u32::try_from(self.keys.len() - 1).unwrap_or(u32::MAX)
        });
        let Self { keys, slots, hasher, .. } = self;
        slots.insert_unique(hasher.hash_one(key), slot, |slot| hash_of(keys, hasher, *slot));
        slot
    }

    /// Removes a key that has no events any more and frees its slot.
    fn remove(&mut self, slot: u32, key: &Key) {
        let is_slot = |known: &u32| *known == slot;
        if let Ok(occupied) = self.slots.find_entry(self.hasher.hash_one(key), is_slot) {
            occupied.remove();
            self.free.push(slot);
        }
    }

    /// Takes the event with this sequence number, if it is still pending.
    fn take(&mut self, slot: u32, sequence: u64) -> Option<Delivery<Untyped>> {
        let key = self.keys.get_mut(slot as usize)?;
        let delivery = key.take(sequence)?;
        if key.key().is_none()
            && let Some(object) = delivery.object()
        {
            self.remove(slot, object.key());
        }
        Some(delivery)
    }

    /// Returns whether the event at this position is still pending.
    fn contains(&self, position: &QueuePosition) -> bool {
        self.keys.get(position.slot as usize).is_some_and(|key| {
            let removal = key.removal.as_ref().map(|removal| removal.sequence);
            let upsert = key.upsert.as_ref().map(|upsert| upsert.sequence);
            removal == Some(position.sequence) || upsert == Some(position.sequence)
        })
    }

    /// Removes all slots, none of which may be in use, and keeps at most this capacity.
    fn clear(&mut self, capacity: usize) {
        self.keys.clear();
        self.keys.shrink_to(capacity);
        self.free.clear();
        self.free.shrink_to(capacity);
        self.slots.clear();
        // The table is empty, so the hasher is never called.
        self.slots.shrink_to(capacity, |_| 0);
    }
}

/// Returns the hash of the key in a used slot.
fn hash_of(keys: &[PendingKey], hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    keys[slot as usize].key().map_or(0, |key| hasher.hash_one(key))
}

impl PendingKey {
    /// Returns the key of the events; `None` if there are no events.
    fn key(&self) -> Option<&Key> {
        let upsert = self.upsert.as_ref().map(|upsert| upsert.after.key());
        upsert.or_else(|| self.removal.as_ref().map(|removal| removal.last.key()))
    }

    /// Takes the event with this sequence number, if it is still pending.
    fn take(&mut self, sequence: u64) -> Option<Delivery<Untyped>> {
        let removal = self.removal.take_if(|removal| removal.sequence == sequence);
        if let Some(PendingRemoval { last, kind, .. }) = removal {
            let last = Object::new(last);
            return Some(match kind {
                Removal::Deleted { observed } => Event::Deleted { last, observed }.into(),
                Removal::Released => Delivery::Released { last },
            });
        }
        let PendingUpsert { before, after, initial, cause, .. } =
            self.upsert.take_if(|upsert| upsert.sequence == sequence)?;
        let after = Object::new(after);
        let before = before.map(Object::new);
        Some(Delivery::Event(match before {
            Some(old) if !initial => Event::Updated { old, new: after, cause },
            previous => Event::Added { object: after, initial, previous },
        }))
    }
}

#[cfg(test)]
#[path = "coalescing_tests.rs"]
mod tests;
