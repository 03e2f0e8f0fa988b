//! The pure heart of `informer`: everything that decides, and nothing that waits.
//!
//! No I/O, no clock, no threads, no async runtime: time and randomness come in as parameters, and the same inputs
//! give the same outputs. The crate `informer` drives it.
//!
//! Bytes go in at [`wire`], are steered by the [`reflector`] machine, queue up as deltas in a [`DeltaFifo`], and are applied by a
//! [`StoreWriter`], which publishes snapshots for readers and says what changed.

pub mod backoff;
#[cfg(feature = "compressed")]
pub mod compressor;
pub mod delta;
pub mod key;
pub mod lease;
pub mod object;
pub mod random;
pub mod recorder;
pub mod reflector;
pub mod retention;
pub mod scope;
pub mod selector;
pub mod store;
mod sync;
mod text;
pub mod time;
pub mod transform;
pub mod version;
pub mod wire;
pub mod workqueue;

#[cfg(feature = "compressed")]
pub use compressor::Compressor;
pub use delta::{Batch, Closed, Deleted, Delta, DeltaFifo, FifoLimits, Replaced};
pub use key::{Key, ParseKeyError};
pub use object::{DecodeError, Entry, Object, Typed};
pub use retention::Retention;
pub use scope::Scope;
pub use selector::{FieldSelector, LabelSelector, SelectorError};
#[cfg(feature = "compressed")]
pub use store::Rewrite;
pub use store::{
    Applied, BuiltIndex, Change, EntryIter, Index, IndexHandle, StoreReader, StoreSnapshot, StoreWriter,
};
pub use time::Moment;
pub use transform::{OnTransformError, Transform};
pub use version::ResourceVersion;
pub use wire::{
    Encoding, FieldPath, FieldPathError, Labels, Owner, OwnerReference, Owners, Projection, ProjectionError,
    TypeMeta,
};
