//! Retention: how the cache stores the bytes of each object, and which parts of heads (the metadata
//! read from each object without decoding it) are shared.
//!
//! With [`Retention::Compressed`](Retention), one `Compressor` per store trains a dictionary on the first
//! objects and compresses with it; the driver provides the thread for training. This module knows neither the
//! meaning of the bytes nor the time.

#[cfg(feature = "compression")]
mod dictionary;
mod intern;
#[cfg(feature = "compression")]
mod samples;

#[cfg(feature = "compression")]
pub(crate) use dictionary::CompressedBytes;
#[cfg(all(feature = "compression", feature = "persistence"))]
pub(crate) use dictionary::Dictionary;
#[cfg(all(feature = "compression", feature = "persistence"))]
pub use dictionary::SavedDictionary;
#[cfg(feature = "compression")]
pub(crate) use dictionary::{Codec, SizeTotals};
pub(crate) use intern::Interner;
#[cfg(feature = "compression")]
pub(crate) use samples::Samples;
use std::borrow::Cow;

/// How the cache stores objects: as received, decoded or compressed.
///
/// It does not affect how long objects are cached: until they are deleted or no longer selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retention {
    /// The bytes as received or transformed, by default without `managedFields`. A typed object is decoded on access and
    /// dropped with its last user.
    #[default]
    Bytes,
    /// The bytes as in [`Retention::Bytes`], and the typed objects, decoded when they arrive as the type of each
    /// informer handle, and as other types on their first use. For kinds that are read more often than they
    /// change, if memory allows.
    Decoded,
    /// The bytes as in [`Retention::Bytes`], and the typed objects that were used recently, decoded on their
    /// first use. For kinds of which a part is read often.
    RecentlyDecoded {
        /// The limit of the kept typed objects, as the total size of their bytes. Decoded, they take several
        /// times as much memory.
        max_encoded_bytes: usize,
    },
    /// The bytes as in [`Retention::Bytes`], compressed with a dictionary trained on objects of the cache. A
    /// typed object is decoded on access and dropped with its last user.
    ///
    /// For kinds with many objects of which few are read: reading one takes a few microseconds more. Requires
    /// the feature `compression`.
    #[cfg(feature = "compression")]
    Compressed,
}

/// The bytes of one entry.
#[derive(Clone)]
pub(crate) enum StoredBytes {
    /// The uncompressed bytes.
    Plain(Box<[u8]>),
    /// The bytes as a codec stored them.
    #[cfg(feature = "compression")]
    Compressed(CompressedBytes),
}

/// Compressed bytes that have changed since they were compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the compressed bytes are corrupted")]
pub(crate) struct CorruptedBytes;

impl StoredBytes {
    /// Returns the uncompressed bytes.
    #[cfg_attr(
        not(feature = "compression"),
        expect(clippy::unnecessary_wraps, reason = "only decompression can fail")
    )]
    pub(crate) fn bytes(&self) -> Result<Cow<'_, [u8]>, CorruptedBytes> {
        match self {
            Self::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
            #[cfg(feature = "compression")]
            Self::Compressed(compressed) => compressed.bytes(),
        }
    }

    /// Returns the number of bytes stored.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            #[cfg(feature = "compression")]
            Self::Compressed(compressed) => compressed.len(),
        }
    }

    /// Returns whether both have the same uncompressed bytes.
    ///
    /// Corrupted bytes equal only the same stored bytes of the same codec.
    pub(crate) fn is_equal(&self, other: &Self) -> bool {
        #[cfg(feature = "compression")]
        if let (Self::Compressed(left), Self::Compressed(right)) = (self, other)
            && left.is_same_compressed(right)
        {
            return true;
        }
        matches!((self.bytes(), other.bytes()), (Ok(left), Ok(right)) if left == right)
    }
}

#[cfg(feature = "compression")]
#[cfg(test)]
mod tests;
