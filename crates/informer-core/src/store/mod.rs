//! The cache: objects by key, indexes beside them, published as snapshots.
//!
//! One [`StoreWriter`] applies deltas and publishes a new state after each batch; any number of [`StoreReader`]s look at the newest
//! state, or hold a [`StoreSnapshot`] of it, without ever waiting (C5). The writer says exactly what changed, as [`Change`]s, after the state
//! that contains the change is published (C4). Nothing here is generic over the kind, and nothing here talks to a server.

mod change;
mod index;
mod objects;
mod pages;
#[cfg(feature = "compression")]
mod recompress;
mod replace;
mod snapshot;
mod sorted;
mod writer;

pub use change::{BatchResult, Change};
pub use index::{Index, IndexHandle};
pub use objects::EntryIter;
#[cfg(feature = "compression")]
pub use recompress::Recompression;
pub use snapshot::{BuiltIndex, StoreReader, StoreSnapshot};
pub use writer::StoreWriter;

#[cfg(test)]
mod tests;
