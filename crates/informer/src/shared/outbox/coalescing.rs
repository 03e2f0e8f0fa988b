//! At most one pending transition per key (C8).
//!
//! A handler that falls behind gets fewer, larger steps, never a wrong one: what is pending leads from what this handler last saw to what is
//! there now. Nothing is told about an object that came and went in between. A deletion and the re-creation after it keep a place
//! each, so that the deletions of a relist stay in front. Pure: the listener's task drives it.

use crate::event::{Event, Untyped, UpdateCause};
use hashbrown::{DefaultHashBuilder, HashTable};
use informer_core::{Change, Entry, Key, Moment, Object};
use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::sync::Arc;

/// Pending steps, oldest first.
#[derive(Debug, Default)]
pub(in crate::shared) struct CoalescingOutbox {
    /// The places of the steps, by ascending number. May hold places whose step is settled; those are skipped.
    order: VecDeque<QueuePosition>,
    /// What is pending for each key. Invariant: every step's number stands in `order`; no key is here without a step.
    pending: Pending,
    /// Whether the end of an object that came and went unseen is told.
    deliver_transient_deletes: bool,
    /// How many steps are pending.
    steps: usize,
    last_number: u64,
    /// Every number up to this one belongs to the initial set; known once the informer has synced.
    initial_end: Option<u64>,
}

/// Where a step stands, and since when.
#[derive(Debug)]
struct QueuePosition {
    number: u64,
    at: Moment,
    /// Of its key in `pending`; of another key by now if the step is settled.
    slot: u32,
}

/// The steps of keys. Keys are not copied: an initial set is here whole, and the entries have them.
#[derive(Debug, Default)]
struct Pending {
    steps: Vec<PendingKey>,
    /// Which of `steps` are empty.
    free: Vec<u32>,
    /// Which are not, by key.
    slots: HashTable<u32>,
    // Keys have a hash of their own, with a secret.
    hasher: DefaultHashBuilder,
}

/// The steps of one key, in this order.
#[derive(Debug, Default)]
struct PendingKey {
    /// The object that the handler knows is gone.
    delete: Option<PendingDelete>,
    /// An object is there, or changed.
    here: Option<PendingUpsert>,
}

#[derive(Debug)]
struct PendingDelete {
    number: u64,
    last: Arc<Entry>,
    observed: bool,
}

#[derive(Debug)]
struct PendingUpsert {
    number: u64,
    /// What the handler saw last; `None` if it does not know this object.
    before: Option<Arc<Entry>>,
    after: Arc<Entry>,
    initial: bool,
    cause: UpdateCause,
}

impl CoalescingOutbox {
    pub(super) fn new(brief: bool) -> Self {
        Self { deliver_transient_deletes: brief, ..Self::default() }
    }

    /// Makes room for so many changes.
    pub(super) fn reserve(&mut self, changes: usize) {
        self.order.reserve(changes);
        self.pending.reserve(changes);
    }

    /// Takes in a change. `initial` says that it belongs to the set that was there before the handler began.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match change {
            Change::Added(entry) => self.add_here(None, entry, initial, UpdateCause::Change, now),
            Change::Updated { old, new } => self.add_here(Some(old), new, false, UpdateCause::Change, now),
            Change::Deleted { last, observed } => self.add_delete(last, *observed, now),
        }
    }

    /// Takes in an object that is to be told again. What is pending will be told anyway, and is newer.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        if self.pending.find(entry.key()).is_none() {
            self.add_here(Some(entry), entry, false, UpdateCause::Resync, now);
        }
    }

    /// Says that everything of the initial set has been added.
    pub(super) fn mark_initial_list_complete(&mut self) {
        self.initial_end.get_or_insert(self.last_number);
    }

    /// The next thing to tell.
    pub(super) fn pop(&mut self) -> Option<Event<Untyped>> {
        loop {
            let Some(QueuePosition { number, slot, .. }) = self.order.pop_front() else {
                self.release_memory();
                return None;
            };
            if let Some(event) = self.pending.take(slot, number) {
                self.steps -= 1;
                return Some(event);
            }
        }
    }

    /// Whether the initial set is known and nothing of it is left.
    pub(super) fn initial_list_delivered(&mut self) -> bool {
        self.clear_front();
        let oldest = self.order.front().map(|place| place.number);
        self.initial_end.is_some_and(|end| oldest.is_none_or(|oldest| oldest > end))
    }

    /// When the oldest pending step was taken in.
    pub(super) fn oldest(&mut self) -> Option<Moment> {
        self.clear_front();
        self.order.front().map(|place| place.at)
    }

    /// How many steps are pending.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// How many keys have something pending.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn add_here(
        &mut self,
        before: Option<&Arc<Entry>>,
        after: &Arc<Entry>,
        initial: bool,
        cause: UpdateCause,
        now: Moment,
    ) {
        let slot = self.pending.slot(after.key());
        let steps = &mut self.pending.steps[slot as usize];
        if let Some(here) = &mut steps.here {
            here.after = Arc::clone(after);
            here.cause = cause;
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        steps.here =
            Some(PendingUpsert { number, before: before.cloned(), after: Arc::clone(after), initial, cause });
        self.steps += 1;
        self.place(number, slot, now);
    }

    fn add_delete(&mut self, last: &Arc<Entry>, observed: bool, now: Moment) {
        let slot = self.pending.slot(last.key());
        let steps = &mut self.pending.steps[slot as usize];
        match steps.here.take() {
            // The handler never saw it: there is nothing to tell. How the life before it ended is still to be told, if it is.
            Some(PendingUpsert { before: None, .. })
                if !self.deliver_transient_deletes || steps.delete.is_some() =>
            {
                self.steps -= 1;
                if steps.delete.is_none() {
                    self.pending.forget(slot, last.key());
                }
            }
            Some(PendingUpsert { number, .. }) => {
                steps.delete = Some(PendingDelete { number, last: Arc::clone(last), observed })
            }
            None => {
                self.last_number += 1;
                let number = self.last_number;
                steps.delete = Some(PendingDelete { number, last: Arc::clone(last), observed });
                self.steps += 1;
                self.place(number, slot, now);
            }
        }
    }

    /// Puts a new step at the end. Settled places are cleared away once they are the greater part.
    fn place(&mut self, number: u64, slot: u32, now: Moment) {
        self.order.push_back(QueuePosition { number, at: now, slot });
        if self.order.len() > 2 * self.steps + 64 {
            self.order.retain(|place| self.pending.has(place));
        }
    }

    /// Panics if what is pending and its places do not agree.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let Pending { steps, free, slots, .. } = &self.pending;
        assert_eq!(slots.len() + free.len(), steps.len(), "slots are used or free");
        for slot in slots {
            let key = steps[*slot as usize].key().expect("no key without a step");
            assert_eq!(self.pending.find(key), Some(*slot), "{key} is found where its steps are");
        }
        let numbers = steps.iter().flat_map(|steps| {
            let gone = steps.delete.as_ref().map(|gone| gone.number);
            gone.into_iter().chain(steps.here.as_ref().map(|here| here.number))
        });
        let mut numbers: Vec<u64> = numbers.collect();
        numbers.sort_unstable();
        assert_eq!(numbers.len(), self.steps, "steps are counted");
        let placed = self.order.iter().filter(|place| self.pending.has(place)).map(|place| place.number);
        assert!(placed.eq(numbers), "each step has its place, in order");
    }

    /// Gives back the memory that a burst took, the initial set above all: an idle handler must not cost what a busy one does.
    fn release_memory(&mut self) {
        /// What a batch of the pump brings stays in place.
        const RETAINED_CAPACITY: usize = 256;
        debug_assert!(self.pending.is_empty(), "every pending step has a place");
        self.order.shrink_to(RETAINED_CAPACITY);
        self.pending.empty(RETAINED_CAPACITY);
    }

    /// Takes away places in front whose step is settled.
    fn clear_front(&mut self) {
        while self.order.front().is_some_and(|place| !self.pending.has(place)) {
            self.order.pop_front();
        }
    }
}

impl Pending {
    /// How many keys there are.
    fn len(&self) -> usize {
        self.slots.len()
    }

    fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    fn reserve(&mut self, keys: usize) {
        let Self { steps, slots, hasher, .. } = self;
        steps.reserve(keys);
        slots.reserve(keys, |slot| hash_of(steps, hasher, *slot));
    }

    fn find(&self, key: &Key) -> Option<u32> {
        let is_it = |slot: &u32| self.steps[*slot as usize].key() == Some(key);
        self.slots.find(self.hasher.hash_one(key), is_it).copied()
    }

    /// Where the steps of a key are. If it had none, the caller puts one there.
    fn slot(&mut self, key: &Key) -> u32 {
        if let Some(slot) = self.find(key) {
            return slot;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.steps.push(PendingKey::default());
            // There are far fewer objects than four billion.
            u32::try_from(self.steps.len() - 1).unwrap_or(u32::MAX)
        });
        let Self { steps, slots, hasher, .. } = self;
        slots.insert_unique(hasher.hash_one(key), slot, |slot| hash_of(steps, hasher, *slot));
        slot
    }

    /// Lets a key go that has no steps any more.
    fn forget(&mut self, slot: u32, key: &Key) {
        let is_it = |known: &u32| *known == slot;
        if let Ok(found) = self.slots.find_entry(self.hasher.hash_one(key), is_it) {
            found.remove();
            self.free.push(slot);
        }
    }

    /// Takes the step with this number, if it is still pending.
    fn take(&mut self, slot: u32, number: u64) -> Option<Event<Untyped>> {
        let steps = self.steps.get_mut(slot as usize)?;
        let event = steps.take(number)?;
        if steps.key().is_none() {
            self.forget(slot, event.object().key());
        }
        Some(event)
    }

    /// Whether the step of this place is still to be told.
    fn has(&self, place: &QueuePosition) -> bool {
        self.steps.get(place.slot as usize).is_some_and(|steps| {
            let gone = steps.delete.as_ref().map(|gone| gone.number);
            let here = steps.here.as_ref().map(|here| here.number);
            gone == Some(place.number) || here == Some(place.number)
        })
    }

    /// Forgets which places were used, when none is, and keeps room for so many.
    fn empty(&mut self, room: usize) {
        self.steps.clear();
        self.steps.shrink_to(room);
        self.free.clear();
        self.free.shrink_to(room);
        self.slots.clear();
        self.slots.shrink_to(room, |_| 0);
    }
}

/// The hash under which a slot is found that has steps.
fn hash_of(steps: &[PendingKey], hasher: &DefaultHashBuilder, slot: u32) -> u64 {
    steps[slot as usize].key().map_or(0, |key| hasher.hash_one(key))
}

impl PendingKey {
    /// Whose they are; none if there are none.
    fn key(&self) -> Option<&Key> {
        let here = self.here.as_ref().map(|here| here.after.key());
        here.or_else(|| self.delete.as_ref().map(|gone| gone.last.key()))
    }

    /// Takes the step with this number, if it is still pending.
    fn take(&mut self, number: u64) -> Option<Event<Untyped>> {
        if let Some(PendingDelete { last, observed, .. }) = self.delete.take_if(|gone| gone.number == number)
        {
            return Some(Event::Deleted { last: Object::new(last), observed });
        }
        let PendingUpsert { before, after, initial, cause, .. } =
            self.here.take_if(|here| here.number == number)?;
        let after = Object::new(after);
        Some(match before {
            Some(old) => Event::Updated { old: Object::new(old), new: after, cause },
            None => Event::Added { object: after, initial },
        })
    }
}

#[cfg(test)]
#[path = "coalescing_tests.rs"]
mod tests;
