//! Keys that come later, the earliest first.
//!
//! A heap that knows each key's place in it, so that a delay can be shortened or cancelled without searching. Keys that are due at
//! the same moment come in the order in which they were delayed. With a million of them it is memory that takes the time, so what the
//! heap moves is small: sixteen bytes a key, and four for its place.

use super::sampling::Stamp;
use super::slot::{NONE, Slot};

#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Due>,
    /// By slot: its place in the heap, or [`NONE`]. As long as the highest slot needs that was ever delayed.
    places: Vec<u32>,
    /// Counts delays, for the order among equal moments.
    count: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Stamp,
    number: u32,
    slot: Slot,
}

/// How many children an entry has: fewer levels than two would give, and siblings lie side by side.
const CHILDREN: usize = 4;

impl Delays {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    #[inline]
    pub(super) fn next(&self) -> Option<Stamp> {
        self.heap.first().map(|due| due.at)
    }

    /// Whether a key comes later.
    #[inline]
    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.place(slot).is_some()
    }

    /// All of them, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Stamp)> + '_ {
        self.heap.iter().map(|due| (due.slot, due.at))
    }

    /// Delays a key, or shortens its delay: the earlier moment counts.
    pub(super) fn set(&mut self, slot: Slot, at: Stamp) {
        if self.count == u32::MAX {
            self.renumber();
        }
        self.count += 1;
        let due = Due { at, number: self.count, slot };
        if let Some(place) = self.place(slot) {
            if at < self.heap[place].at {
                self.rise(place, due);
            }
            return;
        }
        if self.places.len() <= slot as usize {
            self.places.resize(slot as usize + 1, NONE);
        }
        self.heap.push(due);
        self.rise(self.heap.len() - 1, due);
    }

    /// The next key that is due, no longer delayed.
    pub(super) fn pop(&mut self, now: Stamp) -> Option<Slot> {
        let slot = self.heap.first().filter(|due| due.at <= now)?.slot;
        self.cancel(slot);
        Some(slot)
    }

    /// Takes a key out; whether it was delayed.
    pub(super) fn cancel(&mut self, slot: Slot) -> bool {
        let Some(place) = self.place(slot) else { return false };
        self.places[slot as usize] = NONE;
        let Some(last) = self.heap.pop() else { return false };
        if place < self.heap.len() {
            // What was last belongs far down, mostly: the gap sinks to the bottom without asking, and the last rises from there.
            let gap = self.sink(place);
            self.rise(gap, last);
        }
        true
    }

    /// Takes all of them out.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Slot> + use<> {
        self.places.clear();
        std::mem::take(&mut self.heap).into_iter().map(|due| due.slot)
    }

    #[inline]
    fn place(&self, slot: Slot) -> Option<usize> {
        self.places.get(slot as usize).filter(|place| **place != NONE).map(|place| *place as usize)
    }

    /// Puts an entry where there is a gap, or above it, where it belongs.
    fn rise(&mut self, mut gap: usize, due: Due) {
        while gap > 0 {
            let parent = (gap - 1) / CHILDREN;
            if self.heap[parent] <= due {
                break;
            }
            self.put(gap, self.heap[parent]);
            gap = parent;
        }
        self.put(gap, due);
    }

    /// Fills a gap with the least of its children, and so on; where the gap is in the end.
    fn sink(&mut self, mut gap: usize) -> usize {
        loop {
            let first = gap * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { return gap };
            self.put(gap, self.heap[least]);
            gap = least;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are no more places than slots")]
    fn put(&mut self, place: usize, due: Due) {
        self.heap[place] = due;
        self.places[due.slot as usize] = place as u32;
    }

    /// Gives the lowest numbers out again, in the same order. A sorted heap is a heap.
    fn renumber(&mut self) {
        self.heap.sort_unstable();
        self.count = 0;
        for place in 0..self.heap.len() {
            self.count += 1;
            self.heap[place].number = self.count;
            self.put(place, self.heap[place]);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        for (place, due) in self.heap.iter().enumerate() {
            assert_eq!(self.place(due.slot), Some(place), "places are known");
            assert!(place == 0 || self.heap[(place - 1) / CHILDREN] <= *due, "parents come first");
        }
        let known = self.places.iter().filter(|place| **place != NONE).count();
        assert_eq!(known, self.heap.len(), "and nothing else is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;
    use std::time::Duration;

    /// Numbers have four bytes; a queue that runs for months gets through them.
    #[test]
    fn the_order_among_equals_outlives_the_numbers() {
        let at = |millis| Stamp::from(Moment::at(Duration::from_millis(millis)));
        let mut delays = Delays { count: u32::MAX - 2, ..Delays::default() };
        for (slot, millis) in [(7, 20), (3, 10), (5, 10), (1, 10), (0, 5)] {
            delays.set(slot, at(millis));
            delays.check();
        }
        let order: Vec<Slot> = std::iter::from_fn(|| delays.pop(at(30))).collect();
        assert_eq!(order, [0, 3, 5, 1, 7]);
    }
}
