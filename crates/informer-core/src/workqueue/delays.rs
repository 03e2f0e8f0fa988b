//! Keys that come later, the earliest first.
//!
//! A heap whose entries know their places in it, so that a delay can be shortened or cancelled without searching. Keys that are due at
//! the same moment come in the order in which they were delayed.

use std::hash::Hash;

use super::slots::{Slot, Slots};
use crate::time::Moment;

#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Due>,
    /// Counts delays, for the order among equal moments.
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Moment,
    number: u64,
    slot: Slot,
}

/// How many children an entry has: fewer levels than two would give, and siblings lie side by side.
const CHILDREN: usize = 4;

impl Delays {
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next(&self) -> Option<Moment> {
        self.heap.first().map(|due| due.at)
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Moment)> + '_ {
        self.heap.iter().map(|due| (due.slot, due.at))
    }

    /// Delays a key, or shortens its delay: the earlier moment counts.
    pub(super) fn set<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot, at: Moment) {
        let Some(entry) = slots.get(slot) else { return };
        self.count += 1;
        let due = Due { at, number: self.count, slot };
        if let Some(place) = entry.due {
            let place = place as usize;
            if self.heap.get(place).is_some_and(|known| at < known.at) {
                self.heap[place] = due;
                self.rise(slots, place);
            }
        } else {
            self.heap.push(due);
            self.rise(slots, self.heap.len() - 1);
        }
    }

    /// The next key that is due, no longer delayed.
    pub(super) fn pop<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, now: Moment) -> Option<Slot> {
        let slot = self.heap.first().filter(|due| due.at <= now)?.slot;
        self.cancel(slots, slot);
        Some(slot)
    }

    /// Takes a key out; whether it was delayed.
    pub(super) fn cancel<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot) -> bool {
        let Some(place) = slots.get_mut(slot).and_then(|entry| entry.due.take()) else { return false };
        let place = place as usize;
        self.heap.swap_remove(place);
        if place < self.heap.len() {
            // What came from the end may belong above or below.
            self.rise(slots, place);
            self.sink(slots, place);
        }
        true
    }

    /// Moves an entry up as far as it belongs, and tells it where it is.
    fn rise<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, mut place: usize) {
        let due = self.heap[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.heap[parent] <= due {
                break;
            }
            self.put(slots, place, self.heap[parent]);
            place = parent;
        }
        self.put(slots, place, due);
    }

    /// Moves an entry down as far as it belongs, and tells it where it is.
    fn sink<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, mut place: usize) {
        let due = self.heap[place];
        loop {
            let first = place * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if due <= self.heap[least] {
                break;
            }
            self.put(slots, place, self.heap[least]);
            place = least;
        }
        self.put(slots, place, due);
    }

    fn put<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, place: usize, due: Due) {
        self.heap[place] = due;
        if let Some(entry) = slots.get_mut(due.slot) {
            entry.due = u32::try_from(place).ok();
        }
    }

    #[cfg(test)]
    pub(super) fn check<T: Eq + Hash>(&self, slots: &Slots<T>) {
        for (place, due) in self.heap.iter().enumerate() {
            assert_eq!(
                slots.get(due.slot).unwrap().due,
                u32::try_from(place).ok(),
                "entries know their places"
            );
            assert!(place == 0 || self.heap[(place - 1) / CHILDREN] <= *due, "parents come first");
        }
    }
}
