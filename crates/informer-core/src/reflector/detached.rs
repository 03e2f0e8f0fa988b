//! A complete state of a scope that is not in the store yet, and to which frames are applied meanwhile: a saved one that
//! the server has not confirmed, or that of hash ranges that are being gained.

use super::phase::EntryByKey;
use crate::delta::{Deleted, Delta};
use crate::key::Key;
use crate::object::Entry;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A complete state of a scope outside of the store.
#[derive(Debug)]
pub(super) struct DetachedState {
    pub(super) entries: BTreeSet<EntryByKey>,
    unreadable: BTreeMap<Key, UnreadableObject>,
}

impl DetachedState {
    /// Creates the state from a list.
    pub(super) fn new(
        entries: impl IntoIterator<Item = Arc<Entry>>,
        unreadable: impl IntoIterator<Item = UnreadableObject>,
    ) -> Self {
        let unreadable = unreadable.into_iter().filter_map(|object| Some((object.key.clone()?, object)));
        Self { entries: entries.into_iter().map(EntryByKey).collect(), unreadable: unreadable.collect() }
    }

    /// Applies a frame, or returns a list. As in the store, versions do not go back (C1).
    pub(super) fn apply(&mut self, delta: Delta) -> Option<Delta> {
        match delta {
            Delta::Added(entry) | Delta::Updated(entry) => {
                if !self.is_not_newer(entry.key(), &entry.head().version) {
                    self.unreadable.remove(entry.key());
                    self.entries.replace(EntryByKey(entry));
                }
            }
            Delta::Deleted(Deleted { key, version, .. }) => {
                let newest = self.newest_version(&key);
                if !version.zip(newest).is_some_and(|(version, newest)| version.is_before(newest)) {
                    self.entries.remove(&key);
                    self.unreadable.remove(&key);
                }
            }
            Delta::Unreadable(unreadable) => {
                if let Some(key) = unreadable.key.clone()
                    && !unreadable.version.as_ref().is_some_and(|version| self.is_not_newer(&key, version))
                {
                    self.unreadable.insert(key, unreadable);
                }
            }
            Delta::Bookmark(_) => {}
            Delta::Released(released) => {
                self.entries.retain(|EntryByKey(entry)| !released.contains(entry.head()));
            }
            passed @ (Delta::Replaced(_) | Delta::Gained(_)) => return Some(passed),
        }
        None
    }

    fn newest_version(&self, key: &Key) -> Option<&ResourceVersion> {
        match self.unreadable.get(key) {
            Some(unreadable) => unreadable.version.as_ref(),
            None => self.entries.get(key).map(|EntryByKey(entry)| &entry.head().version),
        }
    }

    fn is_not_newer(&self, key: &Key, version: &ResourceVersion) -> bool {
        let newest = self.newest_version(key).filter(|_| version.is_comparable());
        newest.and_then(|newest| version.compare(newest)).is_some_and(std::cmp::Ordering::is_le)
    }

    /// Returns the entries and the unreadable objects, in key order.
    pub(super) fn into_parts(self) -> (Vec<Arc<Entry>>, Vec<UnreadableObject>) {
        let entries = self.entries.into_iter().map(|EntryByKey(entry)| entry).collect();
        (entries, self.unreadable.into_values().collect())
    }
}
