//! Keys in order: a list for each priority, first in, first out.
//!
//! The lists run through the entries themselves, so a key moves to another list, or leaves from the middle of one, at no cost.

use std::hash::Hash;

use super::queue::Priority;
use super::slots::{Slot, Slots};

/// Neighbours in a list; [`NONE`] at its ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link {
    before: Slot,
    after: Slot,
}

const NONE: Slot = Slot::MAX;

impl Default for Link {
    fn default() -> Self {
        Link { before: NONE, after: NONE }
    }
}

/// A list of entries.
#[derive(Debug, Clone, Copy)]
pub(super) struct List {
    first: Slot,
    last: Slot,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        List { first: NONE, last: NONE, len: 0 }
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<Slot> {
        (self.first != NONE).then_some(self.first)
    }

    pub(super) fn push<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot) {
        let link = Link { before: self.last, after: NONE };
        match slots.get_mut(self.last) {
            Some(last) => last.link.after = slot,
            None => self.first = slot,
        }
        if let Some(entry) = slots.get_mut(slot) {
            entry.link = link;
        }
        self.last = slot;
        self.len += 1;
    }

    pub(super) fn remove<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot) {
        let Some(entry) = slots.get_mut(slot) else { return };
        let Link { before, after } = std::mem::take(&mut entry.link);
        match slots.get_mut(before) {
            Some(entry) => entry.link.after = after,
            None => self.first = after,
        }
        match slots.get_mut(after) {
            Some(entry) => entry.link.before = before,
            None => self.last = before,
        }
        self.len -= 1;
    }

    pub(super) fn iter<'a, T: Eq + Hash>(&self, slots: &'a Slots<T>) -> impl Iterator<Item = Slot> + 'a {
        let step = |slot: &Slot| slots.get(*slot).map(|entry| entry.link.after).filter(|slot| *slot != NONE);
        std::iter::successors(self.first(), step)
    }
}

/// What is queued, the highest priority first.
#[derive(Debug, Default)]
pub(super) struct Levels {
    /// Sorted, the highest first. Most queues have one or two.
    levels: Vec<(Priority, List)>,
    len: usize,
}

/// Empty levels are kept up to as many, for those who use the same few.
const KEPT: usize = 8;

impl Levels {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a key at the end of the list of its priority.
    pub(super) fn push<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot) {
        let Some(priority) = slots.get(slot).map(|entry| entry.priority) else { return };
        self.list(priority).push(slots, slot);
        self.len += 1;
    }

    /// Takes a key out that is in a list.
    pub(super) fn remove<T: Eq + Hash>(&mut self, slots: &mut Slots<T>, slot: Slot) {
        let Some(priority) = slots.get(slot).map(|entry| entry.priority) else { return };
        self.list(priority).remove(slots, slot);
        self.len -= 1;
        if self.levels.len() > KEPT {
            self.levels.retain(|(_, list)| list.len() > 0);
        }
    }

    pub(super) fn first(&self) -> Option<Slot> {
        self.levels.iter().find_map(|(_, list)| list.first())
    }

    /// All of them, in the order in which they would be taken.
    pub(super) fn iter<'a, T: Eq + Hash>(&'a self, slots: &'a Slots<T>) -> impl Iterator<Item = Slot> + 'a {
        self.levels.iter().flat_map(|(_, list)| list.iter(slots))
    }

    fn list(&mut self, priority: Priority) -> &mut List {
        let place = match self.levels.binary_search_by(|(known, _)| priority.cmp(known)) {
            Ok(place) => place,
            Err(place) => {
                self.levels.insert(place, (priority, List::default()));
                place
            }
        };
        &mut self.levels[place].1
    }
}
