//! Dictionaries of zstd, and bytes that were compressed with them.
//!
//! A [`Codec`] compresses; what it made needs only its [`Dictionary`] to be read, and shares it. Contexts are large, so they are used
//! again instead of being made for each object; there are as many as were ever needed at once, up to a bound. Nothing here
//! decides when a dictionary is learnt.

use super::CorruptedBytes;
use super::samples::Samples;
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use zstd::zstd_safe::{CCtx, CDict, DCtx, DDict, compress_bound, train_from_buffer};

/// Higher ones take twice the time for a few per cent.
const LEVEL: i32 = 3;
const DICTIONARY_BYTES: usize = 32 << 10;
/// A dictionary is at most this part of what it is learnt from: zstd finds nothing worth having in less.
const TRAINING_BYTES_PER_DICTIONARY_BYTE: usize = 16;
/// Learning from fewer objects gives nothing that helps others.
const MIN_TRAINING_OBJECTS: usize = 16;
/// Compressed bytes are kept if they are at most so many per cent.
const MAX_COMPRESSED_PERCENT: usize = 90;
/// More contexts than these are not kept for the next time.
const MAX_POOLED_CONTEXTS: usize = 8;
/// What an entry takes besides its bytes, about. Where little is left of the bytes, a little more of them is nothing.
const ENTRY_OVERHEAD_BYTES: usize = 256;
/// What a context keeps for its next object.
const MAX_POOLED_BUFFER_BYTES: usize = 64 << 10;

/// What it takes to read compressed bytes again.
pub(crate) struct Dictionary(Option<DDict<'static>>);

/// Compresses with one dictionary, or with none.
pub(crate) struct Codec {
    encoder: Option<CDict<'static>>,
    pub(super) dictionary: Arc<Dictionary>,
}

/// Bytes that a [`Codec`] had in hand.
pub(crate) struct CompressedBytes {
    bytes: Box<[u8]>,
    /// How long they are when they are not compressed; none if they are not, because it did not pay.
    length: Option<NonZeroU32>,
    dictionary: Arc<Dictionary>,
}

impl Codec {
    /// One without a dictionary, for what must not be learnt from, or cannot be.
    pub(crate) fn without_dictionary() -> Self {
        Self { encoder: None, dictionary: Arc::new(Dictionary(None)) }
    }

    /// Learns from samples. It takes a while. `None` if there is nothing to learn.
    pub(crate) fn train(samples: &Samples) -> Option<Self> {
        let (text, lengths) = samples.training_set();
        if samples.len() < MIN_TRAINING_OBJECTS {
            return None;
        }
        let mut dictionary =
            Vec::with_capacity(DICTIONARY_BYTES.min(text.len() / TRAINING_BYTES_PER_DICTIONARY_BYTE));
        train_from_buffer(&mut dictionary, text, lengths).ok()?;
        let (encoder, decoder) = (CDict::try_create(&dictionary, LEVEL)?, DDict::try_create(&dictionary)?);
        Some(Self { encoder: Some(encoder), dictionary: Arc::new(Dictionary(Some(decoder))) })
    }

    /// Compresses, where it pays.
    pub(crate) fn compress(&self, plain: Box<[u8]>) -> CompressedBytes {
        let dictionary = Arc::clone(&self.dictionary);
        let length = u32::try_from(plain.len()).ok().and_then(NonZeroU32::new);
        let worth = |packed: &[u8]| {
            (packed.len() <= plain.len() / 100 * MAX_COMPRESSED_PERCENT).then(|| packed.into())
        };
        match length.and_then(|_| self.with_compressed(&plain, worth).flatten()) {
            Some(bytes) => CompressedBytes { bytes, length, dictionary },
            None => CompressedBytes { bytes: plain, length: None, dictionary },
        }
    }

    /// What is left of these.
    pub(crate) fn measure<'a>(&self, objects: impl Iterator<Item = &'a [u8]>) -> SizeTotals {
        let mut share = SizeTotals::default();
        for object in objects {
            let packed = self.with_compressed(object, <[u8]>::len).unwrap_or(object.len());
            share.add(object.len(), packed.min(object.len()));
        }
        share
    }

    fn with_compressed<R>(&self, plain: &[u8], look: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let fresh = || Some((CCtx::try_create()?, Vec::new()));
        COMPRESSING.with(fresh, |(context, buffer)| {
            buffer.clear();
            buffer.reserve(compress_bound(plain.len()));
            let done = match &self.encoder {
                Some(encoder) => context.compress_using_cdict(buffer, plain, encoder),
                None => context.compress(buffer, plain, LEVEL),
            };
            let result = done.ok().map(|_| look(buffer));
            // One large object must not hold its room for ever.
            buffer.shrink_to(MAX_POOLED_BUFFER_BYTES);
            result
        })
    }
}

impl CompressedBytes {
    /// The bytes as they were before.
    pub(super) fn bytes(&self) -> Result<Cow<'_, [u8]>, CorruptedBytes> {
        let Some(length) = self.length else { return Ok(Cow::Borrowed(&self.bytes)) };
        let mut plain = Vec::with_capacity(length.get() as usize);
        let done = READING.with(DCtx::try_create, |context| match &self.dictionary.0 {
            Some(decoder) => context.decompress_using_ddict(&mut plain, &self.bytes, decoder).ok(),
            None => context.decompress(&mut plain, &self.bytes).ok(),
        });
        done.filter(|written| *written == length.get() as usize)
            .map(|_| Cow::Owned(plain))
            .ok_or(CorruptedBytes)
    }

    /// How many bytes are kept.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether this coder has had them in hand already.
    pub(crate) fn uses(&self, coder: &Codec) -> bool {
        Arc::ptr_eq(&self.dictionary, &coder.dictionary)
    }

    /// Does to the bytes what broken memory would.
    #[cfg(test)]
    pub(super) fn damage(&mut self, damage: impl FnOnce(&mut Box<[u8]>)) {
        damage(&mut self.bytes);
    }

    /// Whether both are the same bytes in the same form.
    pub(super) fn is_same_compressed(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dictionary, &other.dictionary)
            && self.length == other.length
            && self.bytes == other.bytes
    }
}

/// How much some objects take, of how much they would.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SizeTotals {
    pub(crate) objects: usize,
    plain: u64,
    compressed: u64,
}

impl SizeTotals {
    pub(crate) fn add(&mut self, plain: usize, packed: usize) {
        self.objects += 1;
        self.plain += plain as u64;
        self.compressed += (packed + ENTRY_OVERHEAD_BYTES) as u64;
    }

    /// Whether less than `per_cent` of what `other` takes is taken here.
    pub(crate) fn is_smaller_than_percent(&self, per_cent: usize, other: &Self) -> bool {
        let [own, others] = [(self, other, 100), (other, self, per_cent)]
            .map(|(one, by, factor)| u128::from(one.compressed) * u128::from(by.plain) * factor as u128);
        own < others
    }
}

/// Contexts that wait for the next object.
struct Pool<T>(Mutex<Vec<T>>);

static COMPRESSING: Pool<(CCtx<'static>, Vec<u8>)> = Pool(Mutex::new(Vec::new()));
static READING: Pool<DCtx<'static>> = Pool(Mutex::new(Vec::new()));

impl<T> Pool<T> {
    fn with<R>(
        &self,
        fresh: impl FnOnce() -> Option<T>,
        work: impl FnOnce(&mut T) -> Option<R>,
    ) -> Option<R> {
        let waiting = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = waiting().pop();
        let mut context = taken.or_else(fresh)?;
        let result = work(&mut context);
        let mut waiting = waiting();
        if waiting.len() < MAX_POOLED_CONTEXTS {
            waiting.push(context);
        }
        result
    }
}
