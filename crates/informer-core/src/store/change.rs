//! The result of applying a batch: the changes to deliver, and counters of what else was found.

use crate::key::Key;
use crate::object::Entry;
use std::sync::Arc;

/// A change of one object in the store.
///
/// A batch may change an object several times; each change is reported, but only the last state is in the
/// snapshot that is published after the batch.
#[derive(Debug, Clone)]
pub enum Change {
    /// An object whose key was not in the store.
    Added(Arc<Entry>),
    /// A new state of an object that was in the store.
    Updated {
        /// The previous entry.
        old: Arc<Entry>,
        /// The current entry.
        new: Arc<Entry>,
    },
    /// An object that is no longer in the store.
    Deleted {
        /// The last known state of the object.
        last: Arc<Entry>,
        /// Whether the server reported the deletion. If `false`, the store inferred it, because a list no
        /// longer contained the object, or because a list or frame contained another incarnation.
        observed: bool,
    },
    /// An object that is no longer in the store, because the store does not contain its hash range any more. The object
    /// exists.
    Released(Arc<Entry>),
}

impl Change {
    /// Returns the key of the changed object.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added(entry)
            | Self::Updated { new: entry, .. }
            | Self::Deleted { last: entry, .. }
            | Self::Released(entry) => entry.key(),
        }
    }
}

/// The result of applying one batch of deltas.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BatchResult {
    /// Changes in the order in which they must be delivered. The published snapshot already contains each of
    /// them or a newer one (C4).
    pub changes: Vec<Change>,
    /// Number of deltas dropped because their version was not newer than the newest known version of the
    /// object (C1). A deletion is dropped only if its version is older.
    pub stale_deltas: u64,
    /// Number of deletions of keys that were not in the store.
    pub deletes_of_unknown: u64,
    /// Number of surplus items in lists that contained a key more than once.
    pub duplicates: u64,
    /// Number of unreadable objects.
    pub unreadable: u64,
    /// Whether a list had a lower version than its scope in the store (C1): the server was restored from a
    /// backup.
    pub server_rewound: bool,
    /// Number of changes found by an audit (a list requested at exactly the version of the cache): the cache
    /// had drifted from the server.
    pub drift: u64,
    /// Number of calls of index functions that panicked.
    pub index_panics: u64,
}

impl BatchResult {
    /// Adds the change from an entry of the store to a new one with the same key.
    pub(super) fn push_upsert(&mut self, old: Option<&Arc<Entry>>, new: &Arc<Entry>) {
        match old {
            // C3: a different uid means that the deletion in between was not observed.
            Some(old) if old.is_other_incarnation(new) => {
                self.changes.push(Change::Deleted { last: Arc::clone(old), observed: false });
                self.changes.push(Change::Added(Arc::clone(new)));
            }
            Some(old) => {
                self.changes.push(Change::Updated { old: Arc::clone(old), new: Arc::clone(new) });
            }
            None => self.changes.push(Change::Added(Arc::clone(new))),
        }
    }
}
