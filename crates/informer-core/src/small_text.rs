//! Compact storage of short texts: inline in the struct, or several in one allocation.
//!
//! A cache has one head (the metadata read without decoding) per object, often a hundred thousand of them, so
//! each allocation in a head matters. This file does not know what the texts mean.

use std::fmt;
use std::sync::Arc;

/// A text that is stored inline up to `N` bytes; longer ones are on the heap and shared by clones.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum InlineText<const N: usize> {
    /// Invariant: the bytes after the text are zero, so that equal texts are equal arrays.
    Inline {
        length: u8,
        bytes: [u8; N],
    },
    Shared(Arc<str>),
}

impl<const N: usize> InlineText<N> {
    pub(crate) fn new(text: &str) -> Self {
        Self::concat([text])
    }

    /// Concatenates `pieces`.
    #[inline]
    pub(crate) fn concat<const P: usize>(pieces: [&str; P]) -> Self {
        const { assert!(N <= u8::MAX as usize, "the length is one byte") };
        let mut bytes = [0; N];
        let mut length = 0;
        for piece in pieces {
            let Some(target) = bytes.get_mut(length..length + piece.len()) else {
                return Self::Shared(pieces.concat().into());
            };
            target.copy_from_slice(piece.as_bytes());
            length += piece.len();
        }
        Self::Inline { length: u8::try_from(length).unwrap_or_default(), bytes }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Self::Shared(text) => text.as_bytes(),
        }
    }

    /// Heap size in bytes.
    pub(crate) fn heap_size(&self) -> usize {
        match self {
            Self::Inline { .. } => 0,
            Self::Shared(text) => text.len(),
        }
    }

    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        as_text(self.bytes())
    }
}

/// Any number of texts, concatenated in one allocation that clones share.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct PackedTexts(
    /// Each text is preceded by its length as a varint: groups of seven bits, low ones first, with the high
    /// bit set in all groups but the last.
    pub(crate) Arc<[u8]>,
);

impl PackedTexts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> Iter<'_> {
        Iter(&self.0)
    }

    /// Creates texts from the bytes of other texts; `None` if the bytes are malformed.
    #[cfg(feature = "persistence")]
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        const MAX_LENGTH_BYTES: usize = 4;
        let mut texts = Iter(bytes);
        while !texts.0.is_empty() {
            texts.0.iter().take(MAX_LENGTH_BYTES).find(|byte| **byte & 0x80 == 0)?;
            std::str::from_utf8(texts.next_bytes()?).ok()?;
        }
        Some(if bytes.is_empty() { Self::default() } else { Self(bytes.into()) })
    }
}

impl<'a> FromIterator<&'a str> for PackedTexts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        let mut builder = PackedTextsBuilder::default();
        texts.into_iter().for_each(|text| builder.push(text));
        builder.texts()
    }
}

impl fmt::Debug for PackedTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Capacity reserved by the first push. Fits the labels of most objects; their owners need less.
const INITIAL_CAPACITY_BYTES: usize = 256;

/// A builder of [`PackedTexts`].
#[derive(Debug, Clone, Default)]
pub(crate) struct PackedTextsBuilder(Vec<u8>);

impl PackedTextsBuilder {
    /// Creates a builder with capacity for `bytes` bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    #[expect(clippy::cast_possible_truncation, reason = "only the low seven bits are used")]
    pub(crate) fn push(&mut self, text: &str) {
        if self.0.capacity() == 0 {
            // Avoids growing step by step.
            self.0.reserve(INITIAL_CAPACITY_BYTES);
        }
        let mut length = text.len();
        while length > 0x7f {
            self.0.push(length as u8 | 0x80);
            length >>= 7;
        }
        self.0.push(length as u8);
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Removes all texts and keeps the buffer, up to four times the initial capacity.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.shrink_to(4 * INITIAL_CAPACITY_BYTES);
    }

    /// Returns a copy of the texts pushed so far.
    pub(crate) fn texts(&self) -> PackedTexts {
        if self.0.is_empty() { PackedTexts::default() } else { PackedTexts(self.0.as_slice().into()) }
    }
}

/// An iterator over the texts of a [`PackedTexts`].
#[derive(Debug, Clone)]
pub(crate) struct Iter<'a>(&'a [u8]);

impl<'a> Iter<'a> {
    /// Returns the next text as bytes, which are valid UTF-8.
    pub(crate) fn next_bytes(&mut self) -> Option<&'a [u8]> {
        let (mut length, mut shift) = (0_usize, 0);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        self.next_bytes().map(as_text)
    }
}

/// Converts bytes of this module back to text. The bytes were stored from a complete `str`, so they are valid
/// UTF-8.
#[inline]
pub(crate) fn as_text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_text_of_any_length_equals_its_source() {
        for length in [0, 1, 21, 22, 23, 300] {
            let text = "ž9".repeat(length).chars().take(length).collect::<String>();
            assert_eq!(InlineText::<22>::new(&text).as_str(), text);
            assert_eq!(InlineText::<22>::concat([&text, "\0", &text]).as_str(), format!("{text}\0{text}"));
        }
    }

    #[test]
    fn packed_texts_equal_the_pushed_texts() {
        let long = "ž".repeat(20_000);
        let texts = ["", "a", &long[..126], &long[..128], "", &long];
        assert!(PackedTexts::from_iter(texts).iter().eq(texts));
        assert!(PackedTexts::default().is_empty() && PackedTexts::from_iter([]).is_empty());
        assert!(!PackedTexts::from_iter([""]).is_empty());
        assert_ne!(PackedTexts::from_iter(["a", "b"]), PackedTexts::from_iter(["ab", ""]));
    }

    #[cfg(feature = "persistence")]
    #[test]
    fn malformed_bytes_are_no_packed_texts() {
        let texts = PackedTexts::from_iter(["", "a", &"ž".repeat(200)]);
        assert_eq!(PackedTexts::from_bytes(&texts.0), Some(texts.clone()));
        assert_eq!(PackedTexts::from_bytes(&[]), Some(PackedTexts::default()));
        assert_eq!(PackedTexts::from_bytes(&texts.0[..texts.0.len() - 1]), None);
        assert_eq!(PackedTexts::from_bytes(&[1, 0xff]), None);
        assert_eq!(PackedTexts::from_bytes(&[0xff; 40]), None);
    }
}
