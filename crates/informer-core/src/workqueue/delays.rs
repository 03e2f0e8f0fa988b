//! The delayed keys, ordered by due time.
//!
//! A heap that stores the position of each key, so that a delay can be shortened or cancelled without a
//! search. Keys that are due at the same moment are returned in the order in which they were delayed. With a
//! million keys, memory access dominates, so heap nodes are small: sixteen bytes per key, plus four for its
//! position.

use super::sampling::Stamp;
use super::slot::{NONE, Slot};

/// The heap of delayed keys.
#[derive(Debug, Default)]
pub(super) struct Delays {
    heap: Vec<Due>,
    /// The position of each slot in the heap, or [`NONE`]. Slots beyond the end are not in the heap.
    positions: Vec<u32>,
    /// Number of delays set, which orders keys that are due at the same moment.
    count: u32,
}

/// A node of the heap. The order of the fields defines the order of the heap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Stamp,
    sequence: u32,
    slot: Slot,
}

/// Number of children per node. Four need fewer levels than two, and siblings are adjacent in memory.
const CHILDREN_PER_NODE: usize = 4;

impl Delays {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Returns the moment at which the first key is due.
    #[inline]
    pub(super) fn next_due(&self) -> Option<Stamp> {
        self.heap.first().map(|due| due.at)
    }

    /// Returns whether a key is delayed.
    #[inline]
    pub(super) fn contains(&self, slot: Slot) -> bool {
        self.position(slot).is_some()
    }

    /// Returns all delayed keys, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, Stamp)> + '_ {
        self.heap.iter().map(|due| (due.slot, due.at))
    }

    /// Delays a key until `at`. If the key is already delayed, the earlier of both moments counts. Returns
    /// whether `at` counts.
    pub(super) fn set(&mut self, slot: Slot, at: Stamp) -> bool {
        if self.count == u32::MAX {
            self.renumber();
        }
        self.count += 1;
        let due = Due { at, sequence: self.count, slot };
        if let Some(position) = self.position(slot) {
            let is_earlier = at < self.heap[position].at;
            if is_earlier {
                self.sift_up(position, due);
            }
            return is_earlier;
        }
        if self.positions.len() <= slot as usize {
            self.positions.resize(slot as usize + 1, NONE);
        }
        self.heap.push(due);
        self.sift_up(self.heap.len() - 1, due);
        true
    }

    /// Removes and returns the next key that is due.
    pub(super) fn pop(&mut self, now: Stamp) -> Option<Slot> {
        let slot = self.heap.first().filter(|due| due.at <= now)?.slot;
        self.cancel(slot);
        Some(slot)
    }

    /// Removes a key; returns whether it was delayed.
    pub(super) fn cancel(&mut self, slot: Slot) -> bool {
        let Some(position) = self.position(slot) else { return false };
        self.positions[slot as usize] = NONE;
        let Some(last) = self.heap.pop() else { return false };
        if position < self.heap.len() {
            // The last node usually belongs near the bottom: the gap moves down without comparing with it,
            // then the node moves up from there.
            let gap = self.sift_gap_down(position);
            self.sift_up(gap, last);
        }
        true
    }

    /// Removes and returns all keys.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Slot> + use<> {
        self.positions.clear();
        std::mem::take(&mut self.heap).into_iter().map(|due| due.slot)
    }

    #[inline]
    fn position(&self, slot: Slot) -> Option<usize> {
        self.positions
            .get(slot as usize)
            .filter(|position| **position != NONE)
            .map(|position| *position as usize)
    }

    /// Stores a node at the gap, or above it where the order requires.
    fn sift_up(&mut self, mut gap: usize, due: Due) {
        while gap > 0 {
            let parent = (gap - 1) / CHILDREN_PER_NODE;
            if self.heap[parent] <= due {
                break;
            }
            self.store(gap, self.heap[parent]);
            gap = parent;
        }
        self.store(gap, due);
    }

    /// Moves a gap down by filling it with its least child repeatedly; returns the final position of the gap.
    fn sift_gap_down(&mut self, mut gap: usize) -> usize {
        loop {
            let first = gap * CHILDREN_PER_NODE + 1;
            let children = first..(first + CHILDREN_PER_NODE).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { return gap };
            self.store(gap, self.heap[least]);
            gap = least;
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "there are no more positions than slots")]
    fn store(&mut self, position: usize, due: Due) {
        self.heap[position] = due;
        self.positions[due.slot as usize] = position as u32;
    }

    /// Renumbers all nodes from the lowest sequence number, in the same order. A sorted vector is a valid
    /// heap.
    fn renumber(&mut self) {
        self.heap.sort_unstable();
        self.count = 0;
        for position in 0..self.heap.len() {
            self.count += 1;
            self.heap[position].sequence = self.count;
            self.store(position, self.heap[position]);
        }
    }

    #[cfg(test)]
    pub(super) fn check(&self) {
        for (position, due) in self.heap.iter().enumerate() {
            assert_eq!(self.position(due.slot), Some(position), "the position of every node is recorded");
            assert!(
                position == 0 || self.heap[(position - 1) / CHILDREN_PER_NODE] <= *due,
                "no node is less than its parent"
            );
        }
        let recorded = self.positions.iter().filter(|position| **position != NONE).count();
        assert_eq!(recorded, self.heap.len(), "only positions of nodes are recorded");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Moment;
    use std::time::Duration;

    /// Sequence numbers have 32 bits; a queue that runs for months exhausts them.
    #[test]
    fn order_of_equal_moments_survives_renumbering() {
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
