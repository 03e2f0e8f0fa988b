//! Where keys live while anything is known of them: one entry each, found by key or by number.
//!
//! A number stays the same until its key is forgotten, so lists, the heap of delays and tickets hold numbers. Looking a key up
//! hashes it once; nothing else does.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::levels::Link;
use super::queue::Priority;
use crate::time::Moment;

/// The number of an entry.
pub(super) type Slot = u32;

/// What is known of a key.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) key: T,
    hash: u64,
    pub(super) stage: Stage,
    /// Which turn of the key this is: an old ticket is told from a new one by it.
    pub(super) turn: u32,
    /// Of the turn that is queued or to come; of the one that is held, while it is.
    pub(super) priority: Priority,
    /// When the turn that is queued or to come was asked for.
    pub(super) asked: Moment,
    /// When it was taken, while it is held.
    pub(super) taken: Moment,
    /// Its neighbours in the list it is in.
    pub(super) link: Link,
    /// Its place in the heap of delays.
    pub(super) due: Option<u32>,
}

/// Where a key is. A delay may run beside each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only delayed.
    Away,
    Queued,
    Held,
    /// Held, and asked for again.
    HeldAndDirty,
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<Slot>,
    by_key: HashTable<Slot>,
    hasher: DefaultHashBuilder,
}

impl<T: Eq + Hash> Slots<T> {
    pub(super) fn new() -> Self {
        Slots {
            entries: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// The entry of a key, and whether it is new: then it is away.
    pub(super) fn find_or_insert(&mut self, key: T) -> (Slot, bool) {
        let hash = self.hasher.hash_one(&key);
        if let Some(slot) = self.find_hashed(hash, &key) {
            return (slot, false);
        }
        let entry = Entry {
            key,
            hash,
            stage: Stage::Away,
            turn: 0,
            priority: Priority::default(),
            asked: Moment::default(),
            taken: Moment::default(),
            link: Link::default(),
            due: None,
        };
        let slot = if let Some(slot) = self.free.pop() {
            self.entries[slot as usize] = Some(entry);
            slot
        } else {
            let slot = Slot::try_from(self.entries.len()).unwrap_or(Slot::MAX);
            assert!(slot != Slot::MAX, "a queue holds fewer than four billion keys");
            self.entries.push(Some(entry));
            slot
        };
        let entries = &self.entries;
        self.by_key.insert_unique(hash, slot, |slot| hash_of(entries, *slot));
        (slot, true)
    }

    pub(super) fn find(&self, key: &T) -> Option<Slot> {
        self.find_hashed(self.hasher.hash_one(key), key)
    }

    fn find_hashed(&self, hash: u64, key: &T) -> Option<Slot> {
        let is_it = |slot: &Slot| self.get(*slot).is_some_and(|entry| entry.key == *key);
        self.by_key.find(hash, is_it).copied()
    }

    /// Forgets a key.
    pub(super) fn remove(&mut self, slot: Slot) {
        let Some(entry) = self.entries.get_mut(slot as usize).and_then(Option::take) else { return };
        if let Ok(found) = self.by_key.find_entry(entry.hash, |other| *other == slot) {
            found.remove();
        }
        self.free.push(slot);
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Entry<T>> {
        self.entries.get(slot as usize)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Entry<T>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }
}

fn hash_of<T>(entries: &[Option<Entry<T>>], slot: Slot) -> u64 {
    entries.get(slot as usize).and_then(Option::as_ref).map_or(0, |entry| entry.hash)
}
