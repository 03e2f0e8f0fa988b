//! The store: cached objects by key with their indexes, published as snapshots.
//!
//! One [`StoreWriter`] applies deltas and publishes a new snapshot after each batch. Any number of
//! [`StoreReader`]s read the newest [`StoreSnapshot`] without ever waiting (C5). The writer returns the exact
//! [`Change`]s after it has published the snapshot that contains them (C4). This module is not generic over
//! the kind and does not communicate with a server.

mod by_hand;
mod change;
mod index;
mod objects;
mod pages;
mod replace;
mod reshard;
mod restore;
mod rewrite;
mod snapshot;
mod sorted;
mod table;
mod writer;

pub use change::{BatchResult, Change};
pub use index::{Index, IndexHandle};
pub use objects::EntryIter;
pub use rewrite::Rewrite;
pub use snapshot::{BuiltIndex, StoreReader, StoreSnapshot};
pub use writer::StoreWriter;

#[cfg(test)]
mod tests;
