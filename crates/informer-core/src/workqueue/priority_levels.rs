//! The queued keys: a first-in-first-out list per priority.
//!
//! The lists are linked through the entries, so moving a key to another list or removing it from the middle
//! of one takes constant time.

use super::priority::Priority;
use super::slot::{NONE, Slot};
use super::slots::{Entries, Link};

/// A doubly linked list of entries.
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

/// The queued keys, highest priority first.
#[derive(Debug, Default)]
pub(super) struct PriorityLevels {
    /// Highest priority first. Most queues have one or two levels.
    sorted: Vec<(Priority, List)>,
    len: usize,
    /// Number of takes of other keys, while a key of low priority (below [`Priority::NORMAL`]) was queued,
    /// since the last take of such a key.
    takes_without_low: u32,
}

/// One in this many takes returns a key below [`Priority::NORMAL`] if there is one, so that low priorities
/// are not starved.
const LOW_PRIORITY_SHARE: u32 = 16;

/// Number of levels above which empty ones are removed. Up to this number, they are kept for reuse.
const MAX_LEVELS_WITH_EMPTY: usize = 8;

impl PriorityLevels {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a key to the list of its priority.
    #[inline]
    pub(super) fn push(&mut self, entries: &mut Entries, slot: Slot) {
        self.list_or_insert(entries[slot].priority).push(entries, slot);
        self.len += 1;
    }

    /// Removes a key from the list of its priority.
    #[inline]
    pub(super) fn remove(&mut self, entries: &mut Entries, slot: Slot) {
        self.list_or_insert(entries[slot].priority).remove(entries, slot);
        self.len -= 1;
        if self.sorted.len() > MAX_LEVELS_WITH_EMPTY {
            self.sorted.retain(|(_, list)| list.len() > 0);
        }
    }

    /// Returns the first key of the highest priority.
    #[inline]
    pub(super) fn first(&self) -> Option<Slot> {
        self.sorted.iter().find_map(|(_, list)| list.first())
    }

    /// Returns the key to take next, which the caller removes. Each call counts as a take.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Slot> {
        let first = self.first()?;
        let mut low_levels = self.sorted.iter().skip_while(|(priority, _)| *priority >= Priority::NORMAL);
        let Some(low) = low_levels.find_map(|(_, list)| list.first()) else { return Some(first) };
        self.takes_without_low += 1;
        if first != low && self.takes_without_low < LOW_PRIORITY_SHARE {
            return Some(first);
        }
        self.takes_without_low = 0;
        Some(low)
    }

    /// Returns all keys, highest priority first.
    pub(super) fn iter<'a>(&'a self, entries: &'a Entries) -> impl Iterator<Item = Slot> + 'a {
        self.sorted.iter().flat_map(|(_, list)| list.iter(entries))
    }

    /// Returns the list of a priority, adding an empty one if there is none.
    #[inline]
    fn list_or_insert(&mut self, priority: Priority) -> &mut List {
        let position =
            self.sorted.iter().position(|(level, _)| *level <= priority).unwrap_or(self.sorted.len());
        if self.sorted.get(position).is_none_or(|(level, _)| *level != priority) {
            self.sorted.insert(position, (priority, List::default()));
        }
        &mut self.sorted[position].1
    }
}
