//! Putting equal entries in the place of others: the same objects in a form that takes less memory.
//!
//! The new entries are made from a snapshot, on any thread; the writer only puts them in. Nothing changes for anybody: there is nothing to tell,
//! indexes stay as they are (one that is being built meanwhile looks at the new entries again), and a snapshot that somebody holds keeps what it had.

use super::objects::Slot;
use super::snapshot::StoreSnapshot;
use super::writer::StoreWriter;
use crate::object::Entry;
use std::fmt;
use std::sync::Arc;

/// Entries that can take the place of equal ones.
pub struct Recompression {
    /// Where, instead of which, and which.
    entries: Vec<(Slot, Arc<Entry>, Arc<Entry>)>,
    next: Option<Slot>,
}

impl Recompression {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Where the next one begins; `None` if this was the last.
    pub fn next(&self) -> Option<u32> {
        self.next
    }
}

impl StoreSnapshot {
    /// Calls `pack` with the entries in the next `most` slots from `from` on, and collects the equal entries that it returns; `None` keeps
    /// the old one.
    ///
    /// This takes as long as `pack` does. Begin at 0, continue at [`Recompression::next`], and do not hold the snapshot until the end: it keeps
    /// everything alive that was rewritten since.
    pub fn recompress(
        &self,
        from: u32,
        most: u32,
        pack: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>>,
    ) -> Recompression {
        let (objects, end) = (self.objects(), from.saturating_add(most.max(1)));
        let places = (from..end).filter_map(|slot| Some((slot, objects.at(slot)?)));
        let entries = places.filter_map(|(slot, old)| Some((slot, Arc::clone(old), pack(old)?))).collect();
        let next = Some(end).filter(|end| objects.reaches(*end));
        Recompression { entries, next }
    }
}

impl StoreWriter {
    /// Puts entries in the place of equal ones, and publishes. Those that have made way for something newer meanwhile are left out. Returns how
    /// many were put in.
    pub fn install_recompressed(&mut self, rewrite: Recompression) -> usize {
        let mut count = 0;
        for (slot, old, new) in rewrite.entries {
            if self.state.objects.at(slot).is_some_and(|there| Arc::ptr_eq(there, &old)) {
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
        write!(f, "rewrite of {} entries", self.entries.len())
    }
}
