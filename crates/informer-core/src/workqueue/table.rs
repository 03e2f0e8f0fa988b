//! From the hash of a key to its number: an open table in one piece.
//!
//! A place holds a number and its hash side by side, and what does not find its own place free lies in the next one that is. So looking for a key
//! goes to memory once, where tables that keep their marks apart go twice, and of a queue of a million keys that is most of the cost.
//! Of keys themselves nothing is known here.

use super::slot::{NONE, Slot};

/// A number and its hash; [`NONE`] where nothing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    slot: Slot,
    hash: u32,
}

const EMPTY: Place = Place { slot: NONE, hash: 0 };

/// How many places there are at least. A power of two, as always.
const MIN_CAPACITY: usize = 16;

#[derive(Debug)]
pub(super) struct Table {
    places: Vec<Place>,
    len: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Table { places: vec![EMPTY; MIN_CAPACITY], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The number with this hash that is the one.
    #[inline]
    pub(super) fn find(&self, hash: u32, mut is_it: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let mut at = self.home(hash);
        loop {
            let place = self.places[at];
            if place.slot == NONE {
                return None;
            }
            if place.hash == hash && is_it(place.slot) {
                return Some(place.slot);
            }
            at = self.next(at);
        }
    }

    /// Adds a number that is not there.
    #[inline]
    pub(super) fn insert(&mut self, hash: u32, slot: Slot) {
        // At most half full, so that the way to a free place is short.
        if self.len * 2 >= self.places.len() {
            self.grow();
        }
        self.put(Place { slot, hash });
        self.len += 1;
    }

    /// Takes a number out, if it is there.
    #[inline]
    pub(super) fn remove(&mut self, hash: u32, slot: Slot) {
        let mut free = self.home(hash);
        while self.places[free].slot != slot {
            if self.places[free].slot == NONE {
                return;
            }
            free = self.next(free);
        }
        self.len -= 1;
        // Those behind move up, unless that would put one before its own place.
        let mut at = free;
        loop {
            at = self.next(at);
            let place = self.places[at];
            if place.slot == NONE {
                break;
            }
            if self.way(self.home(place.hash), at) >= self.way(free, at) {
                self.places[free] = place;
                free = at;
            }
        }
        self.places[free] = EMPTY;
    }

    #[inline]
    fn put(&mut self, place: Place) {
        let mut at = self.home(place.hash);
        while self.places[at].slot != NONE {
            at = self.next(at);
        }
        self.places[at] = place;
    }

    #[cold]
    fn grow(&mut self) {
        let more = vec![EMPTY; self.places.len() * 2];
        let places = std::mem::replace(&mut self.places, more);
        places.into_iter().filter(|place| place.slot != NONE).for_each(|place| self.put(place));
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.places.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    /// How many places there are from one to another.
    #[inline]
    fn way(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::collections::BTreeMap;

    /// The next number below a bound.
    fn below(random: &mut Random, bound: u64) -> u32 {
        u32::try_from(random.below(bound)).unwrap()
    }

    /// Numbers come and go under few hashes, so that they lie in each other's way, also around the end of the table; a map says who is there.
    #[test]
    fn what_is_there_is_found_whoever_came_and_went() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let (mut table, mut twin) = (Table::new(), BTreeMap::new());
            // The low bits are the place: some of these are the last ones.
            let hashes: Vec<u32> = (0..8)
                .map(|_| below(&mut random, 4).wrapping_sub(2) ^ (below(&mut random, 3) << 9))
                .collect();
            for step in 0..600 {
                let slot = below(&mut random, 300);
                let hash = hashes[slot as usize % hashes.len()];
                let grows = below(&mut random, 600) > step / 2;
                if grows && twin.insert(slot, hash).is_none() {
                    table.insert(hash, slot);
                } else if !grows {
                    // Also what is not there.
                    twin.remove(&slot);
                    table.remove(hash, slot);
                }
                assert_eq!(table.len(), twin.len(), "seed {seed}");
            }
            for slot in 0..300 {
                let hash = hashes[slot as usize % hashes.len()];
                let found = table.find(hash, |other| other == slot);
                assert_eq!(found, twin.contains_key(&slot).then_some(slot), "seed {seed}");
            }
            assert_eq!(table.places.iter().filter(|place| place.slot != NONE).count(), twin.len());
        }
    }
}
