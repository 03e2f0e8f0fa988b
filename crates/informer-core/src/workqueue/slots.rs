//! The known keys and their entries, accessible by key or by slot.
//!
//! A slot number stays valid until its key is removed, so lists, the heap of delays and work tokens contain
//! slots. Only a lookup by key hashes the key, once. Keys are stored separately from their entries,
//! because lists and heap do not read them.

use std::hash::{BuildHasher, Hash};
use std::ops::{Index, IndexMut};

use hashbrown::DefaultHashBuilder;

use super::priority::Priority;
use super::sampling::Stamp;
use super::slot::{NONE, Slot};
use super::table::Table;

/// The state of a key in the queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) stage: Stage,
    hash: u32,
    /// The generation of the current work token, which distinguishes it from tokens of earlier takes.
    pub(super) generation: u32,
    /// The priority with which the key is queued, delayed or added again. While the key is only processing,
    /// the priority with which it was taken.
    pub(super) priority: Priority,
    /// When the key was added; `None` if this add is not sampled.
    pub(super) queued_at: Option<Stamp>,
    /// When the key was taken, while it is processing.
    pub(super) taken_at: Stamp,
    /// Whether the delay of the key is that of a retry; only if the key is delayed.
    pub(super) is_delayed_retry: bool,
    /// Whether the key is queued or processing as a retry that counts towards the retry limit.
    pub(super) is_limited_retry: bool,
    /// The neighbours in the list that contains the key.
    pub(super) link: Link,
}

/// The neighbours of an entry in a list; [`NONE`] at the ends.
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

/// The processing stage of a key. In each stage, the key may also be delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Only delayed, or unknown and the slot is free.
    Idle,
    /// A retry that is due and waits for the retry limit.
    Held,
    Queued,
    Processing,
    /// Processing, and added again.
    ProcessingDirty,
}

/// All entries, by slot.
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

/// The table of keys and their entries.
#[derive(Debug)]
pub(super) struct Slots<T> {
    pub(super) entries: Entries,
    /// The key of each slot; `None` if the slot is free. As long as `entries`.
    keys: Vec<Option<T>>,
    /// The free slots. The one freed last is reused first, because it is likely in the CPU cache.
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

    /// Returns the slot of a key, adding the key as idle if it is new.
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
            assert!(slot != NONE, "a queue can contain at most 2^32 - 1 keys");
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

    /// Removes an idle key.
    pub(super) fn remove(&mut self, slot: Slot) {
        if self.keys[slot as usize].take().is_some() {
            self.by_key.remove(self.entries[slot].hash, slot);
            self.free.push(slot);
        }
    }

    pub(super) fn key(&self, slot: Slot) -> Option<&T> {
        self.keys.get(slot as usize)?.as_ref()
    }

    /// Returns the number of known keys.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    #[inline]
    fn find_hashed(&self, hash: u32, key: &T) -> Option<Slot> {
        self.by_key.find(hash, |slot| self.key(slot) == Some(key))
    }

    #[expect(clippy::cast_possible_truncation, reason = "any half of the hash is sufficient")]
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
            is_delayed_retry: false,
            is_limited_retry: false,
            link: Link::default(),
        }
    }
}
