//! Where keys live while anything is known of them: one entry each, found by key or by number.
//!
//! A number stays the same until its key is forgotten, so lists, the heap of delays and tickets hold numbers. Looking a key up
//! hashes it once; nothing else does. Keys lie apart from what is known of them: they never move, and lists and heap do not touch them.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use hashbrown::DefaultHashBuilder;

use super::priority::Priority;
use super::sampling::Stamp;
use super::slot::{NONE, Slot};
use super::table::Table;

/// What is known of a key.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    hash: u32,
    /// Which turn of the key this is: an old ticket is told from a new one by it.
    pub(super) generation: u32,
    /// Of the turn that is queued or to come; of the one that is held, while it is.
    pub(super) priority: Priority,
    /// When the turn that is queued or to come was asked for; none if it is not timed.
    pub(super) queued_at: Option<Stamp>,
    /// When it was taken, while it is held.
    pub(super) taken_at: Stamp,
    /// Its neighbours in the list it is in.
    pub(super) link: Link,
}

/// Neighbours in a list; [`NONE`] at its ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    pub(super) before: Slot,
    pub(super) after: Slot,
}

impl Default for Link {
    fn default() -> Self {
        Link { before: NONE, after: NONE }
    }
}

/// Where a key is. A delay may run beside each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only delayed; or nothing is known, and the number waits for another key.
    Idle,
    Queued,
    Processing,
    /// Held, and asked for again.
    ProcessingDirty,
}

/// All entries, by number.
#[derive(Debug, Default)]
pub(super) struct Entries(Vec<Entry>);

impl Index<Slot> for Entries {
    type Output = Entry;

    #[inline]
    fn index(&self, slot: Slot) -> &Entry {
        &self.0[slot as usize]
    }
}

impl IndexMut<Slot> for Entries {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Entry {
        &mut self.0[slot as usize]
    }
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) entries: Entries,
    /// As many as entries; none where the number is free.
    keys: Vec<Option<T>>,
    /// The last that became free is used first: it is still near.
    free: Vec<Slot>,
    by_key: Table,
    hasher: DefaultHashBuilder,
}

impl<T: Eq + Hash> Slots<T> {
    pub(super) fn new() -> Self {
        Slots {
            entries: Entries::default(),
            keys: Vec::new(),
            free: Vec::new(),
            by_key: Table::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    /// The entry of a key. If it is new it is away.
    pub(super) fn find_or_insert(&mut self, key: T) -> Slot {
        let hash = self.hash(&key);
        if let Some(slot) = self.find_hashed(hash, &key) {
            return slot;
        }
        let slot = if let Some(slot) = self.free.pop() {
            self.keys[slot as usize] = Some(key);
            self.entries[slot].hash = hash;
            slot
        } else {
            let slot = Slot::try_from(self.keys.len()).unwrap_or(NONE);
            assert!(slot != NONE, "a queue holds fewer than four billion keys");
            self.keys.push(Some(key));
            self.entries.0.push(Entry::new(hash));
            slot
        };
        self.by_key.insert(hash, slot);
        slot
    }

    pub(super) fn find(&self, key: &T) -> Option<Slot> {
        self.find_hashed(self.hash(key), key)
    }

    /// Forgets a key that is away.
    pub(super) fn remove(&mut self, slot: Slot) {
        if self.keys[slot as usize].take().is_some() {
            self.by_key.remove(self.entries[slot].hash, slot);
            self.free.push(slot);
        }
    }

    pub(super) fn key(&self, slot: Slot) -> Option<&T> {
        self.keys.get(slot as usize)?.as_ref()
    }

    /// How many keys are known.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    #[inline]
    fn find_hashed(&self, hash: u32, key: &T) -> Option<Slot> {
        self.by_key.find(hash, |slot| self.key(slot) == Some(key))
    }

    #[expect(clippy::cast_possible_truncation, reason = "any half of the hash will do")]
    fn hash(&self, key: &T) -> u32 {
        self.hasher.hash_one(key) as u32
    }
}

impl Entry {
    fn new(hash: u32) -> Self {
        Entry {
            stage: Stage::Idle,
            hash,
            generation: 0,
            priority: Priority::default(),
            queued_at: None,
            taken_at: Stamp::default(),
            link: Link::default(),
        }
    }
}
