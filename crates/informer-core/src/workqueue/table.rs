//! A hash table from key hashes to slots, with open addressing in one allocation.
//!
//! A bucket contains a slot and the hash of its key. The low bits of the hash select the home bucket; if that
//! is occupied, the next free bucket is used. So a lookup usually accesses the memory of the table once,
//! whereas tables with separate control bytes access theirs twice. In a queue of a million keys, memory
//! access is most of the cost. This module does not know keys.

use super::slot::{NONE, Slot};

/// A slot and the hash of its key; the slot is [`NONE`] if the bucket is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bucket {
    slot: Slot,
    hash: u32,
}

const EMPTY: Bucket = Bucket { slot: NONE, hash: 0 };

/// Minimum number of buckets. Like every capacity, a power of two.
const MIN_CAPACITY: usize = 16;

/// The hash table.
#[derive(Debug)]
pub(super) struct Table {
    buckets: Vec<Bucket>,
    len: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Table { buckets: vec![EMPTY; MIN_CAPACITY], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot with this hash for which `matches` returns `true`.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut matches: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let mut at = self.home(hash);
        loop {
            let bucket = self.buckets[at];
            if bucket.slot == NONE {
                return None;
            }
            if bucket.hash == hash && matches(bucket.slot) {
                return Some(bucket.slot);
            }
            at = self.next(at);
        }
    }

    /// Adds a slot that is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        // At most half full, so that a free bucket is near.
        if self.len * 2 >= self.buckets.len() {
            self.grow();
        }
        self.insert_bucket(Bucket { slot, hash });
        self.len += 1;
    }

    /// Removes a slot if it is in the table.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        let mut gap = self.home(hash);
        while self.buckets[gap].slot != slot {
            if self.buckets[gap].slot == NONE {
                return;
            }
            gap = self.next(gap);
        }
        self.len -= 1;
        // Moves later buckets into the gap, unless that would put one before its home bucket.
        let mut at = gap;
        loop {
            at = self.next(at);
            let bucket = self.buckets[at];
            if bucket.slot == NONE {
                break;
            }
            if self.distance(self.home(bucket.hash), at) >= self.distance(gap, at) {
                self.buckets[gap] = bucket;
                gap = at;
            }
        }
        self.buckets[gap] = EMPTY;
    }

    #[inline]
    fn insert_bucket(&mut self, bucket: Bucket) {
        let mut at = self.home(bucket.hash);
        while self.buckets[at].slot != NONE {
            at = self.next(at);
        }
        self.buckets[at] = bucket;
    }

    #[cold]
    fn grow(&mut self) {
        let larger = vec![EMPTY; self.buckets.len() * 2];
        let buckets = std::mem::replace(&mut self.buckets, larger);
        buckets
            .into_iter()
            .filter(|bucket| bucket.slot != NONE)
            .for_each(|bucket| self.insert_bucket(bucket));
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.buckets.len() - 1)
    }

    /// Returns the number of steps from one bucket to another.
    #[inline]
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeMap;

    /// Returns a random number below `bound`.
    fn below(random: &mut Random, bound: u64) -> u32 {
        u32::try_from(random.below(bound)).unwrap()
    }

    /// Compares random operations with a map. Few distinct hashes cause collisions, also across the end of
    /// the table.
    #[test]
    fn inserted_slots_are_found_after_random_operations() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut table, mut model) = (Table::new(), BTreeMap::new());
            // The low bits select the home bucket; some of these are the last ones.
            let hashes: Vec<u32> = (0..8)
                .map(|_| below(&mut random, 4).wrapping_sub(2) ^ (below(&mut random, 3) << 9))
                .collect();
            for step in 0..600 {
                let slot = below(&mut random, 300);
                let hash = hashes[slot as usize % hashes.len()];
                let grows = below(&mut random, 600) > step / 2;
                if grows && model.insert(slot, hash).is_none() {
                    table.insert(hash, slot);
                } else if !grows {
                    // Also removes slots that are not in the table.
                    model.remove(&slot);
                    table.remove(hash, slot);
                }
                assert_eq!(table.len(), model.len(), "seed {seed}");
            }
            for slot in 0..300 {
                let hash = hashes[slot as usize % hashes.len()];
                let found = table.find(hash, |other| other == slot);
                assert_eq!(found, model.contains_key(&slot).then_some(slot), "seed {seed}");
            }
            assert_eq!(table.buckets.iter().filter(|bucket| bucket.slot != NONE).count(), model.len());
        }
    }
}
