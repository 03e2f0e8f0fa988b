//! Rewriting: replacing entries with entries of the same object state that take less memory.
//!
//! Needed after a dictionary was trained (entries in the store are still uncompressed, or compressed without
//! the new dictionary), and after a projection was released (entries still have its values). The new entries
//! are created from a snapshot on any thread; the writer only installs them. No change is reported, installed
//! indexes keep their contents, and snapshots that are still in use keep the old entries. An index that is
//! being built meanwhile re-reads the replaced entries when it is installed.

use super::objects::Slot;
use super::snapshot::StoreSnapshot;
use super::writer::StoreWriter;
use crate::object::Entry;
use std::fmt;
use std::sync::Arc;

/// Replacements for entries of the store, created by [`StoreSnapshot::rewrite`] and not yet installed.
pub struct Rewrite {
    /// The slot, the entry to replace, and its replacement.
    entries: Vec<(Slot, Arc<Entry>, Arc<Entry>)>,
    next_slot: Option<Slot>,
}

impl Rewrite {
    /// Returns whether there is no entry to replace.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the slot at which to continue, or `None` if all slots have been visited.
    pub fn next_slot(&self) -> Option<u32> {
        self.next_slot
    }
}

impl StoreSnapshot {
    /// Calls `rewrite` for each entry in the slots `from..from + max_slots` and collects the replacements.
    ///
    /// `rewrite` must return the same object state, in a form that takes less memory, or `None` to keep the
    /// entry. A `max_slots` of 0 counts as 1. Runs on the calling thread; choose `max_slots` so that a call
    /// stays short.
    ///
    /// Start at slot 0 and continue at [`Rewrite::next_slot`], with a new snapshot for each call: a snapshot
    /// keeps alive all entries that have been replaced since it was taken.
    pub fn rewrite(
        &self,
        from: u32,
        max_slots: u32,
        rewrite: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>>,
    ) -> Rewrite {
        let (objects, end) = (self.objects(), from.saturating_add(max_slots.max(1)));
        let occupied = (from..end).filter_map(|slot| Some((slot, objects.at(slot)?)));
        let entries =
            occupied.filter_map(|(slot, old)| Some((slot, Arc::clone(old), rewrite(old)?))).collect();
        let next_slot = Some(end).filter(|end| objects.has_slots_from(*end));
        Rewrite { entries, next_slot }
    }
}

impl StoreWriter {
    /// Replaces entries with their replacements, publishes a snapshot, and returns the number of replaced
    /// entries.
    ///
    /// Entries that were updated or deleted since the rewritten snapshot was taken are skipped. Nothing is
    /// published if no entry is replaced.
    pub fn install_rewritten(&mut self, rewrite: Rewrite) -> usize {
        let mut count = 0;
        for (slot, old, new) in rewrite.entries {
            if self.state.objects.at(slot).is_some_and(|current| Arc::ptr_eq(current, &old)) {
                // The old entry may have become stale (a newer state of its object is unreadable), or current
                // again, after `new` was created from it.
                new.set_stale(old.is_stale());
                self.state.objects.update(slot, new);
                count += 1;
            }
        }
        if count > 0 {
            self.publish();
        }
        count
    }
}

impl fmt::Debug for Rewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rewrite of {} entries", self.entries.len())
    }
}
