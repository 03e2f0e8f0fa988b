//! The objects of one state, apart by how often they change: which keys there are, and what is under them.
//!
//! Each key has a slot, a small number, for as long as it is there. An update changes the slot's entry and nothing else; only
//! an addition or a deletion touches the two ways from key to slot: a hash table for look-ups, an ordered map for walks. All
//! three are persistent. Indexes hold slots, so an update leaves them alone too.

use super::pages::Pages;
use crate::key::Key;
use crate::object::Entry;
use imbl::OrdMap;
use std::ops::RangeBounds;
use std::sync::Arc;

/// The number of a place in which one object lies.
pub(crate) type Slot = u32;

/// Copying a page takes a share of each entry on it, and a share is paid for where the entry lies: pages are kept small.
const ENTRIES: usize = 8;

/// Fields of the hash table; there are no shares to take in them.
const FIELDS: usize = 16;

/// The objects of one state. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Objects {
    entries: Pages<Option<Arc<Entry>>, ENTRIES>,
    table: Table,
    order: OrdMap<Key, Slot>,
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
    #[cfg(feature = "compressed")]
    pub(crate) fn reaches(&self, slot: Slot) -> bool {
        self.entries.get(slot as usize).is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The slots that are taken, in key order.
    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot> {
        self.order.values().copied()
    }

    /// In key order.
    pub(crate) fn values(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.order.values().filter_map(|slot| self.at(*slot))
    }

    /// The objects with keys in this range, in order.
    pub(crate) fn range(&self, range: impl RangeBounds<Key>) -> impl Iterator<Item = &Arc<Entry>> {
        self.order.range(range).filter_map(|(_, slot)| self.at(*slot))
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
        let (hash, key) = (entry.key().hash32(), entry.key().clone());
        self.order.insert(key, slot);
        self.entries.set(slot as usize, Some(entry));
        self.table.add(hash, slot);
    }

    /// Frees a slot.
    pub(super) fn remove(&mut self, key: &Key, slot: Slot) {
        self.order.remove(key);
        self.entries.set(slot as usize, None);
        self.table.remove(key.hash32(), slot);
    }

    /// Panics unless the three parts agree; `free` are the slots that are not taken.
    pub(super) fn check_invariants(&self, free: &[Slot]) {
        for (key, slot) in self.order.iter().map(|(key, slot)| (key, *slot)) {
            let entry = self.at(slot);
            assert_eq!(entry.map(|entry| entry.key()), Some(key), "an entry lies under its own key");
            assert_eq!(self.find(key).map(|(found, _)| found), Some(slot), "{key}: table and order agree");
            assert!(!free.contains(&slot), "{key}: its slot is not free");
        }
        assert_eq!(self.table.taken, self.order.len(), "the table holds each key once");
        let slots = self.order.len() + free.len();
        assert!(self.at(narrow(slots)).is_none(), "slots are taken or free, without gaps");
    }
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
    fields: Pages<Field, FIELDS>,
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
