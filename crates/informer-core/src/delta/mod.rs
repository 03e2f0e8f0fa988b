//! Deltas: the input of the store, which the reflector produces and the store applies in order.
//!
//! A handler does not receive deltas: the store compares them with its previous content and derives changes
//! from them.

mod fifo;

pub use fifo::{Batch, DeltaFifo, FifoCapacity, QueueClosed};

use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use crate::shard::ShardFilter;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::sync::Arc;

/// One element of the [`DeltaFifo`]: a frame (an event of a watch as the server sends it), or a complete
/// list.
#[derive(Debug)]
pub enum Delta {
    /// An `ADDED` frame.
    Added(Arc<Entry>),
    /// A `MODIFIED` frame.
    Updated(Arc<Entry>),
    /// A `DELETED` frame.
    Deleted(Deleted),
    /// A complete list: objects that it does not contain no longer exist.
    Replaced(Replaced),
    /// A bookmark: there are no further changes up to this version.
    Bookmark(ResourceVersion),
    /// An object whose new state could not be read.
    Unreadable(UnreadableObject),
    /// The complete list of hash ranges that the scope did not contain before. It is added to the scope. The scope has
    /// the lower version of both then.
    Gained(Replaced),
    /// Hash ranges that the scope does not contain any more: their objects leave the store, although they exist.
    Released(ShardFilter),
}

/// A deletion reported by the watch.
#[derive(Debug)]
pub struct Deleted {
    /// The key of the deleted object.
    pub key: Key,
    /// The version of the deletion, if it could be read.
    pub version: Option<ResourceVersion>,
    /// The last state as the server sent it, if it could be read.
    pub last: Option<Arc<Entry>>,
}

/// A complete list, which replaces the content of its scope in the store atomically.
#[derive(Debug)]
pub struct Replaced {
    /// The scope of the list; objects outside it are not affected.
    pub scope: Scope,
    /// The version of the list.
    pub version: ResourceVersion,
    /// The objects of the list, in any order; of several with the same key, the last one counts.
    pub entries: Vec<Arc<Entry>>,
    /// The unreadable objects of the list. They exist, so their cached state stays.
    pub unreadable: Vec<UnreadableObject>,
    /// Whether the list is an audit: it was requested at exactly the version of the cache. Any difference is
    /// then drift, an error in the cache, and not a change on the server.
    pub audit: bool,
}

impl Delta {
    /// Returns the approximate memory use of the delta, in bytes.
    pub fn memory_size(&self) -> usize {
        let payload = match self {
            Self::Added(entry) | Self::Updated(entry) => entry.memory_size(),
            Self::Deleted(deleted) => deleted.last.as_ref().map_or(0, |entry| entry.memory_size()),
            Self::Replaced(list) | Self::Gained(list) => {
                list.entries.iter().map(|entry| entry.memory_size()).sum()
            }
            Self::Bookmark(_) | Self::Unreadable(_) | Self::Released(_) => 0,
        };
        size_of::<Self>() + payload
    }

    /// Returns whether this delta is popped in a batch of its own, because it affects the whole store.
    fn is_popped_alone(&self) -> bool {
        matches!(self, Self::Replaced(_) | Self::Gained(_) | Self::Released(_))
    }
}
