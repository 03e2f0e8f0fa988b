//! How objects are stored in the cache, and what a cached entry offers besides its typed value.

pub use informer_core::wire::{BodyEncoding as Encoding, Head, Uid};
pub use informer_core::{Entry, FieldPath, Labels, Owner, Owners, Retention, TransformFallback};
