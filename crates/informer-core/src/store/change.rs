//! What the writer reports after a batch: changes to tell, and what was refused.

use crate::key::Key;
use crate::object::Entry;
use std::sync::Arc;

/// One thing that became different in the cache, in the order in which it is to be told.
#[derive(Debug, Clone)]
pub enum Change {
    /// A key that was not there is there.
    Added(Arc<Entry>),
    /// A newer state of an object that was there.
    Updated {
        /// What was there.
        old: Arc<Entry>,
        /// What is there now.
        new: Arc<Entry>,
    },
    /// A key is gone.
    Deleted {
        /// Its last known state.
        last: Arc<Entry>,
        /// Whether the deletion itself was seen; otherwise it is inferred from an absence.
        observed: bool,
    },
}

impl Change {
    /// The key concerned.
    pub fn key(&self) -> &Key {
        match self {
            Self::Added(entry) | Self::Updated { new: entry, .. } | Self::Deleted { last: entry, .. } => {
                entry.key()
            }
        }
    }
}

/// What became of a batch.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct BatchResult {
    /// What to tell, in order. The published state already contains it all.
    pub changes: Vec<Change>,
    /// Deltas that were older than, or equal to, what the cache holds, and dropped (C1).
    pub stale_deltas: u64,
    /// Deletions of keys that the cache does not hold.
    pub deletes_of_unknown: u64,
    /// Items that a list contained more than once.
    pub duplicates: u64,
    /// Objects that could not be read.
    pub unreadable: u64,
    /// Whether a list lay behind what the cache had seen before (C1): the server was restored from a backup.
    pub server_rewound: bool,
    /// Changes that an audit found: the cache was not what the server had at the same version.
    pub drift: u64,
    /// Calls of index functions that panicked.
    pub index_panics: u64,
}
