//! zstd dictionaries, and bytes compressed with them.
//!
//! A [`Codec`] compresses. Compressed bytes hold a reference to its [`Dictionary`] and can be read without
//! the codec. zstd contexts (working memory) are large, so they are pooled instead of created per object; the
//! pool grows to the number of concurrent operations, up to a bound. This module does not decide when a
//! dictionary is trained.

use super::CorruptedBytes;
use super::samples::Samples;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, train_from_buffer};

/// The zstd compression level. Higher levels take twice the time and save a few percent.
const LEVEL: i32 = 3;
/// Maximum size of a dictionary.
const DICTIONARY_BYTES: usize = 32 << 10;
/// Minimum number of training bytes per dictionary byte. From a smaller training set zstd gains nothing.
const TRAINING_BYTES_PER_DICTIONARY_BYTE: usize = 16;
/// Minimum number of samples, including the held-out ones. A dictionary trained on fewer does not help other
/// objects.
const MIN_TRAINING_OBJECTS: usize = 16;
/// Maximum compressed size, in percent of the plain size, at which the compressed bytes are stored.
const MAX_COMPRESSED_PERCENT: usize = 90;
/// Maximum number of contexts per pool.
const MAX_POOLED_CONTEXTS: usize = 8;
/// Approximate memory size of an entry without its bytes.
///
/// It is included in compression ratios, so that differences of a few bytes in small entries do not count.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// Maximum capacity of the output buffer that a pooled context retains.
const MAX_POOLED_BUFFER_BYTES: usize = 64 << 10;

/// A dictionary in the form that decompression needs.
pub(crate) struct Dictionary {
    /// `None` without a dictionary.
    decoder: Option<DDict<'static>>,
    /// The trained bytes, for files; empty without a dictionary.
    #[cfg(feature = "persistence")]
    pub(crate) bytes: Box<[u8]>,
}

/// A zstd encoder with one dictionary, or without any.
pub(crate) struct Codec {
    encoder: Option<CDict<'static>>,
    pub(super) dictionary: Arc<Dictionary>,
}

/// A dictionary that was saved and loaded again.
#[cfg(feature = "persistence")]
#[derive(Clone)]
pub struct SavedDictionary(pub(crate) Arc<Codec>);

#[cfg(feature = "persistence")]
impl std::fmt::Debug for SavedDictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SavedDictionary").finish_non_exhaustive()
    }
}

/// Bytes as stored by a [`Codec`].
#[derive(Clone)]
pub(crate) struct CompressedBytes {
    bytes: Box<[u8]>,
    /// The plain length; `None` if the bytes are stored plain.
    length: Option<NonZeroU32>,
    dictionary: Arc<Dictionary>,
}

impl Codec {
    /// Creates a codec without a dictionary, for objects that must not or cannot be used for training.
    pub(crate) fn without_dictionary() -> Self {
        Self { encoder: None, dictionary: Arc::new(Dictionary::new(None, &[])) }
    }

    /// Trains a dictionary on samples, which is slow. Returns `None` if the samples do not yield one.
    pub(crate) fn train(samples: &Samples) -> Option<Self> {
        let (text, lengths) = samples.training_set();
        if samples.len() < MIN_TRAINING_OBJECTS {
            return None;
        }
        let mut dictionary =
            Vec::with_capacity(DICTIONARY_BYTES.min(text.len() / TRAINING_BYTES_PER_DICTIONARY_BYTE));
        train_from_buffer(&mut dictionary, text, lengths).ok()?;
        Self::with_dictionary(&dictionary)
    }

    /// Creates a codec with a trained dictionary. Returns `None` if its bytes are invalid.
    pub(crate) fn with_dictionary(bytes: &[u8]) -> Option<Self> {
        let (encoder, decoder) = (CDict::try_create(bytes, LEVEL)?, DDict::try_create(bytes)?);
        Some(Self { encoder: Some(encoder), dictionary: Arc::new(Dictionary::new(Some(decoder), bytes)) })
    }

    /// Returns the dictionary.
    #[cfg(feature = "persistence")]
    pub(crate) fn dictionary(&self) -> Arc<Dictionary> {
        Arc::clone(&self.dictionary)
    }

    /// Compresses the bytes, or stores them plain if compression does not save enough.
    pub(crate) fn compress(&self, plain: Box<[u8]>) -> CompressedBytes {
        let dictionary = Arc::clone(&self.dictionary);
        let length = u32::try_from(plain.len()).ok().and_then(NonZeroU32::new);
        let accept = |compressed: &[u8]| {
            (compressed.len() <= plain.len() / 100 * MAX_COMPRESSED_PERCENT).then(|| compressed.into())
        };
        match length.and_then(|_| self.with_compressed(&plain, accept).flatten()) {
            Some(bytes) => CompressedBytes { bytes, length, dictionary },
            None => CompressedBytes { bytes: plain, length: None, dictionary },
        }
    }

    /// Returns the total sizes of objects before and after compression.
    pub(crate) fn measure<'a>(&self, objects: impl Iterator<Item = &'a [u8]>) -> SizeTotals {
        let mut totals = SizeTotals::default();
        for object in objects {
            let compressed = self.with_compressed(object, <[u8]>::len).unwrap_or(object.len());
            totals.add(object.len(), compressed.min(object.len()));
        }
        totals
    }

    /// Returns the result of `inspect` for the compressed bytes; `None` if compression fails.
    fn with_compressed<R>(&self, plain: &[u8], inspect: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let create = || Some((CCtx::try_create()?, Vec::new()));
        COMPRESSION_CONTEXTS.with(create, |(context, buffer)| {
            buffer.clear();
            buffer.reserve(compress_bound(plain.len()));
            let written = match &self.encoder {
                Some(encoder) => context.compress_using_cdict(buffer, plain, encoder),
                None => context.compress(buffer, plain, LEVEL),
            };
            let result = written.ok().map(|_| inspect(buffer));
            // A single large object must not occupy memory forever.
            buffer.shrink_to(MAX_POOLED_BUFFER_BYTES);
            result
        })
    }
}

#[cfg(feature = "persistence")]
impl std::fmt::Debug for Dictionary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "dictionary of {} bytes", self.bytes.len())
    }
}

impl Dictionary {
    #[cfg_attr(not(feature = "persistence"), expect(unused_variables, reason = "only files need the bytes"))]
    fn new(decoder: Option<DDict<'static>>, bytes: &[u8]) -> Self {
        Self {
            decoder,
            #[cfg(feature = "persistence")]
            bytes: bytes.into(),
        }
    }
}

impl CompressedBytes {
    /// Creates compressed bytes as [`CompressedBytes::parts`] returned them.
    #[cfg(feature = "persistence")]
    pub(crate) fn from_parts(bytes: &[u8], length: NonZeroU32, dictionary: &Arc<Dictionary>) -> Self {
        Self { bytes: bytes.into(), length: Some(length), dictionary: Arc::clone(dictionary) }
    }

    /// Returns the compressed bytes, the plain length and the dictionary; no length if the bytes are stored
    /// plain.
    #[cfg(feature = "persistence")]
    pub(crate) fn parts(&self) -> (&[u8], Option<NonZeroU32>, &Arc<Dictionary>) {
        (&self.bytes, self.length, &self.dictionary)
    }

    /// Returns the plain bytes.
    pub(super) fn bytes(&self) -> Result<Cow<'_, [u8]>, CorruptedBytes> {
        let Some(length) = self.length else { return Ok(Cow::Borrowed(&self.bytes)) };
        let mut plain = Vec::with_capacity(length.get() as usize);
        let decompressed =
            DECOMPRESSION_CONTEXTS.with(DCtx::try_create, |context| match &self.dictionary.decoder {
                Some(decoder) => context.decompress_using_ddict(&mut plain, &self.bytes, decoder).ok(),
                None => context.decompress(&mut plain, &self.bytes).ok(),
            });
        decompressed
            .filter(|written| *written == length.get() as usize)
            .map(|_| Cow::Owned(plain))
            .ok_or(CorruptedBytes)
    }

    /// Returns the number of bytes stored.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns whether these bytes were stored by this codec.
    pub(crate) fn uses(&self, codec: &Codec) -> bool {
        Arc::ptr_eq(&self.dictionary, &codec.dictionary)
    }

    /// Corrupts the bytes as a memory error would.
    #[cfg(test)]
    pub(super) fn corrupt(&mut self, change: impl FnOnce(&mut Box<[u8]>)) {
        change(&mut self.bytes);
    }

    /// Returns whether both are the same stored bytes of the same codec.
    pub(super) fn is_same_compressed(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dictionary, &other.dictionary)
            && self.length == other.length
            && self.bytes == other.bytes
    }
}

/// The total plain and compressed sizes of some objects. The compressed size includes the overhead of
/// entries.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SizeTotals {
    pub(crate) objects: usize,
    plain: u64,
    compressed: u64,
}

impl SizeTotals {
    pub(crate) fn add(&mut self, plain: usize, compressed: usize) {
        self.objects += 1;
        self.plain += plain as u64;
        self.compressed += (compressed + ENTRY_OVERHEAD_BYTES) as u64;
    }

    /// Returns whether the compression ratio (compressed size divided by plain size) is less than `percent` %
    /// of the ratio of `other`.
    pub(crate) fn is_smaller_than_percent(&self, percent: usize, other: &Self) -> bool {
        // Both sides are multiplied by the plain sizes, because a plain size may be zero.
        let [own, limit] = [(self, other, 100), (other, self, percent)].map(|(totals, other, factor)| {
            u128::from(totals.compressed) * u128::from(other.plain) * factor as u128
        });
        own < limit
    }
}

/// Contexts that can be reused for the next object.
struct Pool<T>(Mutex<Vec<T>>);

static COMPRESSION_CONTEXTS: Pool<(CCtx<'static>, Vec<u8>)> = Pool(Mutex::new(Vec::new()));
static DECOMPRESSION_CONTEXTS: Pool<DCtx<'static>> = Pool(Mutex::new(Vec::new()));

impl<T> Pool<T> {
    /// Runs an operation with a pooled context, or a new one if the pool is empty. `None` if the new context
    /// cannot be created or the operation fails.
    fn with<R>(
        &self,
        create: impl FnOnce() -> Option<T>,
        operation: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reused = lock().pop();
        let mut context = reused.or_else(create)?;
        let result = operation(&mut context);
        let mut pooled = lock();
        if pooled.len() < MAX_POOLED_CONTEXTS {
            pooled.push(context);
        }
        result
    }
}
