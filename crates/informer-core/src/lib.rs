//! The sans-I/O core of `informer`: every decision, and nothing that waits.
//!
//! There is no I/O, clock, thread or async runtime in this crate: time and randomness are parameters, and
//! equal inputs produce equal outputs. The crate `informer` performs the I/O.
//!
//! [`wire`] parses response bodies, the state machine in [`reflector`] decides which request follows, the
//! resulting deltas queue up in a [`DeltaFifo`], and a [`StoreWriter`] applies them: it publishes snapshots
//! for readers and returns the changes.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backoff;
#[cfg(feature = "compression")]
pub mod compressor;
pub mod delta;
pub mod election;
pub mod error;
#[cfg(feature = "persistence")]
pub mod image;
pub mod key;
pub mod object;
pub mod random;
pub mod recorder;
pub mod reflector;
pub mod retention;
pub mod scope;
pub mod selector;
pub mod shard;
mod small_text;
pub mod store;
mod sync;
pub mod time;
pub mod transform;
pub mod version;
pub mod wire;
pub mod workqueue;

#[cfg(feature = "compression")]
pub use compressor::Compressor;
pub use delta::{Batch, Deleted, Delta, DeltaFifo, FifoCapacity, QueueClosed, Replaced};
pub use key::Key;
pub use object::{
    DecodeAhead, DecodeError, DecodedMetrics, Decoding, EncodeError, Entry, Object, Projection,
    ProjectionError, ProjectionMetrics, Projections, Typed,
};
pub use retention::Retention;
pub use scope::Scope;
pub use selector::{FieldSelector, LabelSelector};
pub use store::{
    BatchResult, BuiltIndex, Change, EntryIter, Index, IndexHandle, Rewrite, StoreReader, StoreSnapshot,
    StoreWriter,
};
pub use time::Moment;
pub use transform::{Transform, TransformFallback};
pub use version::ResourceVersion;
pub use wire::{EntryEncoding, FieldFilter, FieldPath, Labels, Owner, OwnerReference, Owners, TypeMeta};
