//! What a cache keeps of each object: the choice, the form in which an entry holds its bytes, and what heads share.
//!
//! With [`Retention::Compressed`](Retention) a `Compressor` per cache learns a dictionary from the first objects and compresses with it; whoever
//! drives it has the thread on which it learns. Nothing here knows what the bytes mean, nor when anything happens.

#[cfg(feature = "compression")]
mod dictionary;
mod intern;
#[cfg(feature = "compression")]
mod samples;

#[cfg(feature = "compression")]
use dictionary::CompressedBytes;
#[cfg(feature = "compression")]
pub(crate) use dictionary::{Codec, SizeTotals};
pub(crate) use intern::Interner;
#[cfg(feature = "compression")]
pub(crate) use samples::Samples;
use std::borrow::Cow;

/// What a cache keeps of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Retention {
    /// The bytes; a typed view lives as long as somebody holds it.
    #[default]
    Bytes,
    /// The bytes, and each typed view from its first use on. For small kinds that are read all the time.
    Decoded,
    /// The bytes, compressed with a dictionary that is learnt from the first objects; a typed view lives as long as somebody holds
    /// it. For kinds with many objects of which few are looked at: looking takes some microseconds more. With the feature `compression`.
    #[cfg(feature = "compression")]
    Compressed,
}

/// The bytes of one entry.
pub(crate) enum StoredBytes {
    /// As they are.
    Plain(Box<[u8]>),
    /// As a compressor left them.
    #[cfg(feature = "compression")]
    Compressed(CompressedBytes),
}

/// Compressed bytes that are not what they were when they were compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the compressed bytes are damaged")]
pub(crate) struct CorruptedBytes;

impl StoredBytes {
    /// The bytes as they were read.
    #[cfg_attr(
        not(feature = "compression"),
        expect(clippy::unnecessary_wraps, reason = "plain ones never fail")
    )]
    pub(crate) fn bytes(&self) -> Result<Cow<'_, [u8]>, CorruptedBytes> {
        match self {
            Self::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
            #[cfg(feature = "compression")]
            Self::Compressed(packed) => packed.bytes(),
        }
    }

    /// How many bytes are kept.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Plain(bytes) => bytes.len(),
            #[cfg(feature = "compression")]
            Self::Compressed(packed) => packed.len(),
        }
    }

    /// Whether both were the same bytes when they were read. What is damaged equals nothing.
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
