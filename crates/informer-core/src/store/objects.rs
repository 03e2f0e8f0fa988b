//! The objects of one snapshot, in three persistent structures (clones share memory) that change at different
//! rates.
//!
//! Each key has a slot, a small number, for as long as it is in the store. An update replaces the entry in
//! the slot and nothing else. Only additions and deletions change the two structures that map keys to slots:
//! a hash table for lookups and a sorted sequence for iteration. Both contain only slots; the key is in the
//! entry. Indexes refer to slots, so an update does not touch them either unless the indexed values changed.

use super::pages::PagedVec;
use super::sorted::{self, SortedSeq};
use crate::key::Key;
use crate::object::Entry;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The number under which an object is stored for as long as its key is in the store.
pub(crate) type Slot = u32;

/// Number of entries per page.
///
/// Pages are small, because copying a page increments the reference count of each entry on it, which touches
/// each entry's memory.
const ENTRIES_PER_PAGE: usize = 8;

/// Number of hash table buckets per page. Copying a bucket changes no reference count.
const BUCKETS_PER_PAGE: usize = 16;

/// Number of slots per leaf of the sorted sequence: few enough for a cheap copy of a leaf, and enough to make
/// the memory of the tree above the leaves negligible.
const SLOTS_PER_LEAF: usize = 64;

/// The entry in each slot; `None` if the slot is free.
type Entries = PagedVec<Option<Arc<Entry>>, ENTRIES_PER_PAGE>;

/// The objects of one snapshot. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    entries: Entries,
    table: Table,
    /// The occupied slots, ordered by the keys of their entries. Invariant: a slot that is compared contains
    /// its entry.
    order: SortedSeq<Slot, SLOTS_PER_LEAF>,
}

/// An iterator over all entries of a snapshot, in key order.
pub struct EntryIter<'a> {
    slots: sorted::Iter<'a, Slot, SLOTS_PER_LEAF>,
    entries: &'a Entries,
}

impl<'a> Iterator for EntryIter<'a> {
    type Item = &'a Arc<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        let Self { slots, entries } = self;
        slots.find_map(|slot| entries.get(*slot as usize)?.as_ref())
    }
}

impl fmt::Debug for EntryIter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntryIter").finish_non_exhaustive()
    }
}

impl Objects {
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// Returns the entry with this key, and its slot.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(Slot, &Arc<Entry>)> {
        self.table.find(key.hash32(), |slot| self.at(slot).filter(|entry| entry.key() == key))
    }

    #[inline]
    pub(crate) fn at(&self, slot: Slot) -> Option<&Arc<Entry>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    /// Returns whether this slot or a later one may contain an object; `false` means that none does.
    pub(crate) fn has_slots_from(&self, slot: Slot) -> bool {
        self.entries.get(slot as usize).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the occupied slots in key order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.iter().copied()
    }

    /// Returns an iterator over the entries in key order.
    pub(crate) fn values(&self) -> EntryIter<'_> {
        EntryIter { slots: self.order.iter(), entries: &self.entries }
    }

    /// Returns the entries from this bound on, in key order.
    pub(crate) fn iter_from<'a>(
        &'a self,
        start: Bound<&Key>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let slots = self.order.iter_from(|slot| match start {
            Bound::Unbounded => false,
            Bound::Included(key) => compare(&self.entries, *slot, key).is_lt(),
            Bound::Excluded(key) => compare(&self.entries, *slot, key).is_le(),
        });
        slots.filter_map(|slot| self.at(*slot))
    }

    /// Calls `visit` with each slot whose entry differs in `newer`, and with the entry in `newer`; `None` if
    /// the slot is free there.
    pub(crate) fn for_each_difference(&self, newer: &Self, mut visit: impl FnMut(Slot, Option<&Arc<Entry>>)) {
        self.entries.for_each_unshared(&newer.entries, |slot, old, new| {
            let (old, new) = (old.and_then(Option::as_ref), new.and_then(Option::as_ref));
            if old.map(Arc::as_ptr) != new.map(Arc::as_ptr) {
                visit(to_slot(slot), new);
            }
        });
    }

    /// Replaces the entry of an occupied slot with one that has the same key.
    pub(super) fn update(&mut self, slot: Slot, entry: Arc<Entry>) {
        self.entries.set(slot as usize, Some(entry));
    }

    /// Stores an entry with a new key in a free slot.
    pub(super) fn add(&mut self, slot: Slot, entry: Arc<Entry>) {
        let key = entry.key();
        self.order.insert(slot, |known| compare(&self.entries, *known, key));
        self.table.add(key.hash32(), slot);
        self.entries.set(slot as usize, Some(entry));
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, key: &Key, slot: Slot) {
        // The entry is removed last, because `order` reads the key from it.
        self.order.remove(|known| compare(&self.entries, *known, key));
        self.table.remove(key.hash32(), slot);
        self.entries.set(slot as usize, None);
    }

    /// Checks the invariants; `free` are the free slots.
    ///
    /// # Panics
    ///
    /// If the three structures disagree.
    pub(super) fn check_invariants(&self, free: &[Slot]) {
        self.order.check_invariants(|left, right| {
            self.at(*right).map_or(Ordering::Equal, |entry| compare(&self.entries, *left, entry.key()))
        });
        for slot in self.slots() {
            let Some(key) = self.at(slot).map(|entry| entry.key()) else { panic!("slot {slot} is empty") };
            assert_eq!(self.find(key).map(|(found, _)| found), Some(slot), "{key}: the table finds its slot");
            assert!(!free.contains(&slot), "{key}: its slot is not in the free list");
        }
        assert_eq!(self.table.occupied, self.order.len(), "the table contains each key once");
        let slots = self.order.len() + free.len();
        assert!(self.at(to_slot(slots)).is_none(), "every slot below the total is occupied or free");
    }
}

/// Compares the key in a slot with `key`.
fn compare(entries: &Entries, slot: Slot, key: &Key) -> Ordering {
    let entry = entries.get(slot as usize).and_then(Option::as_ref);
    entry.map_or(Ordering::Less, |entry| entry.key().cmp(key))
}

/// Converts an index into the entries to a slot.
///
/// There are never more slots than objects that existed simultaneously, far fewer than `u32::MAX`.
fn to_slot(slot: usize) -> Slot {
    Slot::try_from(slot).unwrap_or(Slot::MAX)
}

/// A bucket of the hash table, by default an empty one.
#[derive(Clone, Copy, Default)]
struct Bucket {
    hash: u32,
    /// The slot plus one; zero if the bucket is empty.
    slot_plus_one: u32,
}

/// A hash table from key hashes to slots with linear probing: the slot of a key is in the bucket selected by
/// its hash, or in one of the following buckets before the first empty one.
#[derive(Clone, Default)]
struct Table {
    buckets: PagedVec<Bucket, BUCKETS_PER_PAGE>,
    /// The number of buckets, a power of two, minus one. Invariant: at least a fifth of the buckets is empty.
    mask: usize,
    occupied: usize,
}

impl Table {
    /// Returns the first slot with this hash for which `check` returns a value, and that value.
    #[inline]
    fn find<R>(&self, hash: u32, check: impl Fn(Slot) -> Option<R>) -> Option<(Slot, R)> {
        let mut at = hash as usize & self.mask;
        loop {
            // Examines all buckets on the page, because finding a page is more expensive than reading it.
            for bucket in &self.buckets.page(at / BUCKETS_PER_PAGE)?[at % BUCKETS_PER_PAGE..] {
                // An empty bucket ends the search.
                let slot = bucket.slot_plus_one.checked_sub(1)?;
                if bucket.hash == hash
                    && let Some(found) = check(slot)
                {
                    return Some((slot, found));
                }
                at += 1;
            }
            at &= self.mask;
        }
    }

    fn add(&mut self, hash: u32, slot: Slot) {
        if self.occupied + self.occupied / 4 >= self.mask {
            let old = std::mem::take(self);
            self.mask = (2 * old.mask + 1).max(BUCKETS_PER_PAGE - 1);
            for bucket in (0..=old.mask).map(|at| old.bucket(at)).filter(|bucket| bucket.slot_plus_one != 0) {
                self.insert(bucket);
            }
        }
        self.insert(Bucket { hash, slot_plus_one: slot + 1 });
    }

    fn insert(&mut self, bucket: Bucket) {
        let mut at = bucket.hash as usize & self.mask;
        while self.bucket(at).slot_plus_one != 0 {
            at = (at + 1) & self.mask;
        }
        self.buckets.set(at, bucket);
        self.occupied += 1;
    }

    fn remove(&mut self, hash: u32, slot: Slot) {
        let mut hole = hash as usize & self.mask;
        loop {
            match self.bucket(hole).slot_plus_one {
                0 => return,
                slot_plus_one if slot_plus_one == slot + 1 => break,
                _ => hole = (hole + 1) & self.mask,
            }
        }
        self.occupied -= 1;
        // Moves later buckets into the hole if their probe sequence passes it, so that no lookup stops at an
        // empty bucket too early.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let bucket = self.bucket(at);
            if bucket.slot_plus_one == 0 {
                break;
            }
            let first = bucket.hash as usize & self.mask;
            if (at.wrapping_sub(first) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                self.buckets.set(hole, bucket);
                hole = at;
            }
        }
        self.buckets.set(hole, Bucket::default());
    }

    #[inline]
    fn bucket(&self, at: usize) -> Bucket {
        self.buckets.get(at).copied().unwrap_or_default()
    }
}
