//! Recompression: replacing entries by equal ones that take less memory.
//!
//! The new entries are made from a snapshot on any thread; the writer only installs them. No change is
//! reported, installed indexes keep their contents, and snapshots that are still in use keep the old entries.
//! An index that is being built at the same time examines the new entries when it is installed.

use super::objects::Slot;
use super::snapshot::StoreSnapshot;
use super::writer::StoreWriter;
use crate::object::Entry;
use std::fmt;
use std::sync::Arc;

/// Entries that are ready to replace equal entries of the store.
pub struct Recompression {
    /// The slot, the entry to replace, and its replacement.
    entries: Vec<(Slot, Arc<Entry>, Arc<Entry>)>,
    next: Option<Slot>,
}

impl Recompression {
    /// Returns whether there is no entry to replace.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the slot at which the next slice starts, or `None` if this was the last one.
    pub fn next(&self) -> Option<u32> {
        self.next
    }
}

impl StoreSnapshot {
    /// Calls `recompress` for the entries in `max_slots` slots (at least one), starting at slot `from`, and
    /// collects the equal entries that it returns.
    ///
    /// An entry for which `recompress` returns `None` stays as it is. The call takes as long as all calls of
    /// `recompress`. Start at slot 0 and continue at [`Recompression::next`], with a new snapshot for each
    /// slice: a snapshot keeps all entries alive that have been replaced since it was taken.
    pub fn recompress(
        &self,
        from: u32,
        max_slots: u32,
        recompress: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>>,
    ) -> Recompression {
        let (objects, end) = (self.objects(), from.saturating_add(max_slots.max(1)));
        let occupied = (from..end).filter_map(|slot| Some((slot, objects.at(slot)?)));
        let entries =
            occupied.filter_map(|(slot, old)| Some((slot, Arc::clone(old), recompress(old)?))).collect();
        let next = Some(end).filter(|end| objects.reaches(*end));
        Recompression { entries, next }
    }
}

impl StoreWriter {
    /// Replaces entries by their recompressed equivalents, publishes a snapshot, and returns the number of
    /// replaced entries.
    ///
    /// Entries that were updated or deleted since the recompression are skipped.
    pub fn install_recompressed(&mut self, recompression: Recompression) -> usize {
        let mut count = 0;
        for (slot, old, new) in recompression.entries {
            if self.state.objects.at(slot).is_some_and(|current| Arc::ptr_eq(current, &old)) {
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

impl fmt::Debug for Recompression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "recompression of {} entries", self.entries.len())
    }
}
