//! The state with which a file was saved last, and its differences from a snapshot.

use super::knowledge::ChangedKey;
use informer_core::{Entry, Key, StoreSnapshot};
use std::sync::Arc;

/// The state with which a file was saved last.
pub(crate) enum Base {
    /// These entries, in key order.
    Entries(Vec<Arc<Entry>>),
    Snapshot(StoreSnapshot),
}

impl Default for Base {
    fn default() -> Self {
        Self::Entries(Vec::new())
    }
}

impl Base {
    /// Returns the entry with this key.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Entry>> {
        match self {
            Self::Entries(entries) => {
                let index = entries.binary_search_by(|entry| entry.key().cmp(key)).ok()?;
                entries.get(index)
            }
            Self::Snapshot(snapshot) => snapshot.get(key),
        }
    }

    /// Returns the keys whose object differs in a later snapshot.
    pub(crate) fn changes(&self, snapshot: &StoreSnapshot) -> Vec<ChangedKey> {
        let mut changes = Vec::new();
        self.for_each_change(snapshot, |_, old, new| {
            changes.push(ChangedKey { old: old.cloned(), new: new.cloned() });
        });
        changes
    }

    /// Calls `visit` with each entry.
    pub(crate) fn for_each(&self, visit: impl FnMut(&Arc<Entry>)) {
        match self {
            Self::Entries(entries) => entries.iter().for_each(visit),
            Self::Snapshot(snapshot) => snapshot.list().for_each(visit),
        }
    }

    /// Calls `visit` for each key whose object differs, with the entries of this state and of the snapshot.
    ///
    /// Entries of the same object state, such as recompressed ones, are no difference.
    pub(crate) fn for_each_change(
        &self,
        snapshot: &StoreSnapshot,
        mut visit: impl FnMut(&Key, Option<&Arc<Entry>>, Option<&Arc<Entry>>),
    ) {
        let is_same = |old: &Arc<Entry>, new: &Arc<Entry>| Arc::ptr_eq(old, new) || old.is_same_state(new);
        match self {
            Self::Snapshot(earlier) => snapshot.for_each_change(earlier, |key, old, new| match (old, new) {
                (Some(old), Some(new)) if is_same(old, new) => {}
                _ => visit(key, old, new),
            }),
            Self::Entries(entries) => {
                let mut saved = entries.iter().peekable();
                for new in snapshot.list() {
                    while let Some(old) = saved.next_if(|old| old.key() < new.key()) {
                        visit(old.key(), Some(old), None);
                    }
                    match saved.next_if(|old| old.key() == new.key()) {
                        Some(old) if is_same(old, new) => {}
                        old => visit(new.key(), old, Some(new)),
                    }
                }
                saved.for_each(|old| visit(old.key(), Some(old), None));
            }
        }
    }
}
