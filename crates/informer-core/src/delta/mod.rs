//! Deltas: what the reflector tells the store, in order, one at a time.
//!
//! A delta is not what a handler receives: the store turns deltas into changes, knowing what it held before.

mod fifo;

pub use fifo::{Batch, DeltaFifo, FifoCapacity, QueueClosed};

use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::sync::Arc;

/// One entry of the [`DeltaFifo`].
#[derive(Debug)]
pub enum Delta {
    /// The server said ADDED.
    Added(Arc<Entry>),
    /// The server said MODIFIED.
    Updated(Arc<Entry>),
    /// The server said DELETED.
    Deleted(Deleted),
    /// A complete list: what it does not contain is gone.
    Replaced(Replaced),
    /// The server has nothing newer up to this version.
    Bookmark(ResourceVersion),
    /// An object changed to something that could not be read.
    Unreadable(UnreadableObject),
}

/// A deletion that was observed.
#[derive(Debug)]
pub struct Deleted {
    /// What was deleted.
    pub key: Key,
    /// The version of the deletion, if it could be read.
    pub version: Option<ResourceVersion>,
    /// The last state as the server sent it, if it could be read.
    pub last: Option<Arc<Entry>>,
}

/// A complete list, swapped in whole.
#[derive(Debug)]
pub struct Replaced {
    /// What the list speaks for; objects outside are not touched.
    pub scope: Scope,
    /// The version of the list.
    pub version: ResourceVersion,
    /// Its objects, in any order; of two with one key the later counts.
    pub entries: Vec<Arc<Entry>>,
    /// Its objects that could not be read. They exist, so what the cache has of them stays.
    pub unreadable: Vec<UnreadableObject>,
    /// Whether it only checks the cache, at the very version that the cache has: whatever differs should not.
    pub audit: bool,
}

impl Delta {
    /// About how much memory the delta takes.
    pub fn memory_size(&self) -> usize {
        let payload = match self {
            Self::Added(entry) | Self::Updated(entry) => entry.memory_size(),
            Self::Deleted(deleted) => deleted.last.as_ref().map_or(0, |entry| entry.memory_size()),
            Self::Replaced(replaced) => replaced.entries.iter().map(|entry| entry.memory_size()).sum(),
            Self::Bookmark(_) | Self::Unreadable(_) => 0,
        };
        size_of::<Self>() + payload
    }

    /// Whether this delta is popped alone: it concerns the whole store.
    fn stands_alone(&self) -> bool {
        matches!(self, Self::Replaced(_))
    }
}
