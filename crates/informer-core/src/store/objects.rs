//! The objects of one snapshot, in persistent structures (clones share memory) that change at different
//! rates.
//!
//! Each key has a slot, a small number, for as long as it is in the store. An update replaces the entry in
//! the slot and nothing else. Only additions and deletions change the two structures that map keys to slots:
//! a hash table for lookups and a sorted sequence for iteration. Both contain only slots; the key is in the
//! entry, and in uncompressed caches also in an array of keys by slot. Indexes refer to slots, so an update does
//! not touch them either unless the indexed values changed.

use super::pages::{CACHE_LINE_BYTES, PagedVec};
use super::sorted::{self, SortedSeq};
use super::table::Table;
use crate::key::Key;
use crate::object::Entry;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The number under which an object is stored for as long as its key is in the store.
pub(crate) type Slot = u32;

/// Number of entries per page.
///
/// Pages are small, because copying a page increments the reference count of each entry on it, which touches
/// each entry's memory.
const ENTRIES_PER_PAGE: usize = 4;

/// Number of children of a branch above the entries. As with pages, copying a branch changes the reference
/// count of each child; with 32, a change increments about half as many counts more than with 16, and a lookup
/// in 50,000 objects passes one level less.
const ENTRIES_FANOUT: usize = 32;

/// Number of keys per page, and of children of a branch above them: only additions and deletions copy them.
const KEYS_PER_PAGE: usize = 32;
const KEYS_FANOUT: usize = 64;

/// Number of slots per leaf of the sorted sequence: few enough for a cheap copy of a leaf, and enough to make
/// the memory of the tree above the leaves negligible.
const SLOTS_PER_LEAF: usize = 64;

/// The entry in each slot; `None` if the slot is free.
type Entries = PagedVec<Option<Arc<Entry>>, ENTRIES_PER_PAGE, ENTRIES_FANOUT>;

/// The key in each slot.
type Keys = PagedVec<KeyCopy, KEYS_PER_PAGE, KEYS_FANOUT>;

/// The key in a slot; `None` if the slot is free. Fills one cache line.
#[derive(Clone, Default)]
#[repr(align(64))]
struct KeyCopy(Option<Key>);

const _: () = assert!(size_of::<KeyCopy>() == CACHE_LINE_BYTES, "a key copy fills one cache line");
const _: () =
    assert!(size_of::<Option<Arc<Entry>>>() * ENTRIES_PER_PAGE <= CACHE_LINE_BYTES, "pages are small");

/// The objects of one snapshot. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Objects {
    entries: Entries,
    /// Copies of the keys, unless the store saves memory. Entries lie between the bytes of objects, so comparing
    /// the key in an entry costs a cache miss and a page walk of the processor; these copies lie close together.
    keys: Option<Keys>,
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
    /// Creates an empty set. With `key_copies`, lookups are faster, and each object takes about 67 bytes more.
    pub(crate) fn new(key_copies: bool) -> Self {
        Self {
            entries: Entries::default(),
            keys: key_copies.then(Keys::default),
            table: Table::default(),
            order: SortedSeq::default(),
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        self.find(key).map(|(_, entry)| entry)
    }

    /// Returns the entry with this key, with its reference count incremented.
    ///
    /// An x86 processor starts an atomic increment only after all earlier instructions, so the cache miss of the
    /// count would follow that of the key. Reading the count first lets both be fetched at the same time.
    pub(crate) fn get_owned(&self, key: &Key) -> Option<Arc<Entry>> {
        let keys = self.keys.as_ref();
        let found = self.table.find(key.hash32(), |slot| {
            let entry = self.at(slot)?;
            std::hint::black_box(Arc::strong_count(entry));
            let own = keys.map_or(Some(entry.key()), |keys| keys.get(slot as usize)?.0.as_ref());
            (own == Some(key)).then_some(entry)
        });
        found.map(|(_, entry)| Arc::clone(entry))
    }

    /// Returns the entry with this key, and its slot.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(Slot, &Arc<Entry>)> {
        self.table.find(key.hash32(), |slot| match &self.keys {
            Some(keys) if keys.get(slot as usize)?.0.as_ref() != Some(key) => None,
            Some(_) => self.at(slot),
            None => self.at(slot).filter(|entry| entry.key() == key),
        })
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

    /// Returns the entries in key order, starting with the first one for whose key `before` returns `false`.
    pub(crate) fn iter_from(&self, before: impl Fn(&Key) -> bool) -> EntryIter<'_> {
        let slots = self.order.iter_from(|slot| self.at(*slot).is_none_or(|entry| before(entry.key())));
        EntryIter { slots, entries: &self.entries }
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
        if let Some(keys) = &mut self.keys {
            keys.set(slot as usize, KeyCopy(Some(key.clone())));
        }
        self.entries.set(slot as usize, Some(entry));
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, key: &Key, slot: Slot) {
        // The entry is removed last, because `order` reads the key from it.
        self.order.remove(|known| compare(&self.entries, *known, key));
        self.table.remove(key.hash32(), slot);
        if let Some(keys) = &mut self.keys {
            keys.set(slot as usize, KeyCopy(None));
        }
        self.entries.set(slot as usize, None);
    }

    /// Checks the invariants; `free` are the free slots.
    ///
    /// # Panics
    ///
    /// If the structures disagree.
    pub(super) fn check_invariants(&self, free: &[Slot]) {
        self.order.check_invariants(|left, right| {
            self.at(*right).map_or(Ordering::Equal, |entry| compare(&self.entries, *left, entry.key()))
        });
        for slot in self.slots() {
            let Some(entry) = self.at(slot) else { panic!("slot {slot} is empty") };
            let key = entry.key();
            assert!(self.get_owned(key).is_some_and(|found| Arc::ptr_eq(&found, entry)), "{key}: get_owned");
            assert_eq!(self.find(key).map(|(found, _)| found), Some(slot), "{key}: the table finds its slot");
            assert!(!free.contains(&slot), "{key}: its slot is not in the free list");
            let copy =
                self.keys.as_ref().map(|keys| keys.get(slot as usize).and_then(|copy| copy.0.as_ref()));
            assert!(copy.is_none_or(|copy| copy == Some(key)), "{key}: the copy of its key");
        }
        assert_eq!(self.table.len(), self.order.len(), "the table contains each key once");
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
