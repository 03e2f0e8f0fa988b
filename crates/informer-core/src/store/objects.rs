//! The objects of one state, apart by how often they change: which keys there are, and what is under them.
//!
//! Each key has a slot, a small number, for as long as it is there. An update changes the slot's entry and nothing else; only
//! an addition or a deletion touches the two ways from key to slot: a hash table for look-ups, a sorted sequence for walks. Both
//! hold slots alone, the key is in the entry. All three are persistent. Indexes hold slots, so an update leaves them alone too.

use super::pages::PagedVec;
use super::sorted::{self, SortedSeq};
use crate::key::Key;
use crate::object::Entry;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The number of a place in which one object lies.
pub(crate) type Slot = u32;

/// Copying a page takes a share of each entry on it, and a share is paid for where the entry lies: pages are kept small.
const ENTRIES: usize = 8;

/// Fields of the hash table; there are no shares to take in them.
const FIELDS: usize = 16;

/// Slots in a leaf of the order: few enough to be copied at once, many enough that the tree above them weighs nothing.
const SLOTS: usize = 64;

/// What is in each slot.
type Entries = PagedVec<Option<Arc<Entry>>, ENTRIES>;

/// The objects of one state. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    entries: Entries,
    table: Table,
    /// The slots that are taken, in the order of the keys in them. Invariant: each one's entry is there whenever two are compared.
    order: SortedSeq<Slot, SLOTS>,
}

/// The iterator over all entries of a snapshot, in key order.
pub struct EntryIter<'a> {
    slots: sorted::Iter<'a, Slot, SLOTS>,
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

    /// The object with this key, and its slot.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<(Slot, &Arc<Entry>)> {
        self.table.find(key.hash32(), |slot| self.at(slot).filter(|entry| entry.key() == key))
    }

    #[inline]
    pub(crate) fn at(&self, slot: Slot) -> Option<&Arc<Entry>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    /// Whether there may be objects in this slot or behind it.
    #[cfg(feature = "compression")]
    pub(crate) fn reaches(&self, slot: Slot) -> bool {
        self.entries.get(slot as usize).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The slots that are taken, in key order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.iter().copied()
    }

    /// Returns an iterator over the entries in key order.
    pub(crate) fn values(&self) -> EntryIter<'_> {
        EntryIter { slots: self.order.iter(), entries: &self.entries }
    }

    /// The objects from this key on, in order.
    pub(crate) fn from<'a>(&'a self, start: Bound<&Key>) -> impl Iterator<Item = &'a Arc<Entry>> + use<'a> {
        let slots = self.order.from(|slot| match start {
            Bound::Unbounded => false,
            Bound::Included(key) => compare(&self.entries, *slot, key).is_lt(),
            Bound::Excluded(key) => compare(&self.entries, *slot, key).is_le(),
        });
        slots.filter_map(|slot| self.at(*slot))
    }

    /// Calls `visit` with each slot whose entry is another one in `newer`, and that entry.
    pub(crate) fn each_difference(&self, newer: &Self, mut visit: impl FnMut(Slot, Option<&Arc<Entry>>)) {
        self.entries.each_apart(&newer.entries, |slot, old, new| {
            let (old, new) = (old.and_then(Option::as_ref), new.and_then(Option::as_ref));
            if old.map(Arc::as_ptr) != new.map(Arc::as_ptr) {
                visit(narrow(slot), new);
            }
        });
    }

    /// Puts another state into a slot that is taken by the same key.
    pub(super) fn update(&mut self, slot: Slot, entry: Arc<Entry>) {
        self.entries.set(slot as usize, Some(entry));
    }

    /// Puts an entry with a new key into a free slot.
    pub(super) fn add(&mut self, slot: Slot, entry: Arc<Entry>) {
        let key = entry.key();
        self.order.insert(slot, |known| compare(&self.entries, *known, key));
        self.table.add(key.hash32(), slot);
        self.entries.set(slot as usize, Some(entry));
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, key: &Key, slot: Slot) {
        // The entry goes last: until then the order looks at it.
        self.order.remove(|known| compare(&self.entries, *known, key));
        self.table.remove(key.hash32(), slot);
        self.entries.set(slot as usize, None);
    }

    /// Panics unless the three parts agree; `free` are the slots that are not taken.
    pub(super) fn check_invariants(&self, free: &[Slot]) {
        self.order.check_invariants(|left, right| {
            self.at(*right).map_or(Ordering::Equal, |entry| compare(&self.entries, *left, entry.key()))
        });
        for slot in self.slots() {
            let Some(key) = self.at(slot).map(|entry| entry.key()) else { panic!("slot {slot} is empty") };
            assert_eq!(self.find(key).map(|(found, _)| found), Some(slot), "{key}: table and order agree");
            assert!(!free.contains(&slot), "{key}: its slot is not free");
        }
        assert_eq!(self.table.taken, self.order.len(), "the table holds each key once");
        let slots = self.order.len() + free.len();
        assert!(self.at(narrow(slots)).is_none(), "slots are taken or free, without gaps");
    }
}

/// How the key in a slot orders against this one.
fn compare(entries: &Entries, slot: Slot, key: &Key) -> Ordering {
    let entry = entries.get(slot as usize).and_then(Option::as_ref);
    entry.map_or(Ordering::Less, |entry| entry.key().cmp(key))
}

/// Slots are as many as objects, which are far fewer than four billion.
fn narrow(slot: usize) -> Slot {
    Slot::try_from(slot).unwrap_or(Slot::MAX)
}

/// One field of the table. The default is an empty one.
#[derive(Clone, Copy, Default)]
struct Field {
    hash: u32,
    /// The slot, plus one; zero if the field is empty.
    behind: u32,
}

/// From hashes to slots, by open addressing: a key's slot lies in the field that its hash says, or in the next ones up to an empty one.
#[derive(Clone, Default)]
struct Table {
    fields: PagedVec<Field, FIELDS>,
    /// One less than the number of fields, which is a power of two. Invariant: a fifth of the fields is empty.
    mask: usize,
    taken: usize,
}

impl Table {
    /// The first slot with this hash for which `check` finds something.
    #[inline]
    fn find<R>(&self, hash: u32, check: impl Fn(Slot) -> Option<R>) -> Option<(Slot, R)> {
        let mut at = hash as usize & self.mask;
        loop {
            // As many fields as the page has: the way to a page is the costly part.
            for field in &self.fields.page(at / FIELDS)?[at % FIELDS..] {
                let slot = field.behind.checked_sub(1)?;
                if field.hash == hash
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
        if self.taken + self.taken / 4 >= self.mask {
            let old = std::mem::take(self);
            self.mask = (2 * old.mask + 1).max(FIELDS - 1);
            for field in (0..=old.mask).map(|at| old.field(at)).filter(|field| field.behind != 0) {
                self.insert(field);
            }
        }
        self.insert(Field { hash, behind: slot + 1 });
    }

    fn insert(&mut self, field: Field) {
        let mut at = field.hash as usize & self.mask;
        while self.field(at).behind != 0 {
            at = (at + 1) & self.mask;
        }
        self.fields.set(at, field);
        self.taken += 1;
    }

    fn remove(&mut self, hash: u32, slot: Slot) {
        let mut hole = hash as usize & self.mask;
        loop {
            match self.field(hole).behind {
                0 => return,
                behind if behind == slot + 1 => break,
                _ => hole = (hole + 1) & self.mask,
            }
        }
        self.taken -= 1;
        // Whoever could not lie in the hole, or before it, moves up: no look-up meets an empty field too early.
        let mut at = hole;
        loop {
            at = (at + 1) & self.mask;
            let field = self.field(at);
            if field.behind == 0 {
                break;
            }
            let wanted = field.hash as usize & self.mask;
            if (at.wrapping_sub(wanted) & self.mask) >= (at.wrapping_sub(hole) & self.mask) {
                self.fields.set(hole, field);
                hole = at;
            }
        }
        self.fields.set(hole, Field::default());
    }

    #[inline]
    fn field(&self, at: usize) -> Field {
        self.fields.get(at).copied().unwrap_or_default()
    }
}
