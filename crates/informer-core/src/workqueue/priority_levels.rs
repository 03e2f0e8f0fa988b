//! Keys in order: a list for each priority, first in, first out.
//!
//! The lists run through the entries themselves, so a key moves to another list, or leaves from the middle of one, at no cost.

use super::priority::Priority;
use super::slot::{NONE, Slot};
use super::slots::{Entries, Link};

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
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Slot> {
        (self.first != NONE).then_some(self.first)
    }

    #[inline]
    pub(super) fn push(&mut self, entries: &mut Entries, slot: Slot) {
        match self.last {
            NONE => self.first = slot,
            last => entries[last].link.after = slot,
        }
        entries[slot].link = Link { before: self.last, after: NONE };
        self.last = slot;
        self.len += 1;
    }

    #[inline]
    pub(super) fn remove(&mut self, entries: &mut Entries, slot: Slot) {
        let Link { before, after } = entries[slot].link;
        match before {
            NONE => self.first = after,
            before => entries[before].link.after = after,
        }
        match after {
            NONE => self.last = before,
            after => entries[after].link.before = before,
        }
        self.len -= 1;
    }

    pub(super) fn iter<'a>(&self, entries: &'a Entries) -> impl Iterator<Item = Slot> + 'a {
        let step = |slot: &Slot| Some(entries[*slot].link.after).filter(|slot| *slot != NONE);
        std::iter::successors(self.first(), step)
    }
}

/// What is queued, the highest priority first.
#[derive(Debug, Default)]
pub(super) struct PriorityLevels {
    /// The highest first. Most queues have one or two.
    sorted: Vec<(Priority, List)>,
    len: usize,
    /// How often something was taken while a key below the usual priority waited.
    passed: u32,
}

/// One take of so many is for a key below the usual priority, if there is one: it may wait long, and not for ever.
const LOW_PRIORITY_SHARE: u32 = 16;

/// Empty levels are kept up to as many, for those who use the same few.
const MAX_EMPTY_LEVELS: usize = 8;

impl PriorityLevels {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Puts a key at the end of the list of its priority.
    #[inline]
    pub(super) fn push(&mut self, entries: &mut Entries, slot: Slot) {
        self.list(entries[slot].priority).push(entries, slot);
        self.len += 1;
    }

    /// Takes a key out that is in a list.
    #[inline]
    pub(super) fn remove(&mut self, entries: &mut Entries, slot: Slot) {
        self.list(entries[slot].priority).remove(entries, slot);
        self.len -= 1;
        if self.sorted.len() > MAX_EMPTY_LEVELS {
            self.sorted.retain(|(_, list)| list.len() > 0);
        }
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Slot> {
        self.sorted.iter().find_map(|(_, list)| list.first())
    }

    /// Which one is to be taken now. Each call counts as a take.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Slot> {
        let first = self.first()?;
        let mut below = self.sorted.iter().skip_while(|(priority, _)| *priority >= Priority::NORMAL);
        let Some(below) = below.find_map(|(_, list)| list.first()) else { return Some(first) };
        self.passed += 1;
        if first != below && self.passed < LOW_PRIORITY_SHARE {
            return Some(first);
        }
        self.passed = 0;
        Some(below)
    }

    /// All of them, the highest priority first.
    pub(super) fn iter<'a>(&'a self, entries: &'a Entries) -> impl Iterator<Item = Slot> + 'a {
        self.sorted.iter().flat_map(|(_, list)| list.iter(entries))
    }

    #[inline]
    fn list(&mut self, priority: Priority) -> &mut List {
        let place = self.sorted.iter().position(|(known, _)| *known <= priority).unwrap_or(self.sorted.len());
        if self.sorted.get(place).is_none_or(|(known, _)| *known != priority) {
            self.sorted.insert(place, (priority, List::default()));
        }
        &mut self.sorted[place].1
    }
}
