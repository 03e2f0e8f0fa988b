//! Resource versions: comparable where the server makes them so, opaque otherwise.
//!
//! A version of digits only, not starting with zero, compares with another of its form: the longer is
//! greater, equal lengths compare as text, and there is no fixed width. Anything else is *opaque*: it is
//! equal to itself and says nothing about order. This module does not know which resource a version belongs to;
//! versions of different resources must not be compared.

use crate::small_text::InlineText;
use std::cmp::Ordering;
use std::fmt;

/// A `metadata.resourceVersion` as the server wrote it.
///
/// It has no `Ord`: two versions may be incomparable, and code that drops something because it is "older" must
/// ask [`ResourceVersion::compare`] and handle `None`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(InlineText<INLINE_BYTES>);

/// The longest text that is kept in the version itself. Nearly all are shorter; each object has one.
const INLINE_BYTES: usize = 22;

impl ResourceVersion {
    /// The version as the server wrote it.
    pub fn new(text: &str) -> Self {
        Self(InlineText::new(text))
    }

    /// The text to send back to the server.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// How much of it is not in place.
    pub(crate) fn heap_size(&self) -> usize {
        self.0.heap_size()
    }

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Whether this version has the comparable form (digits, the first of them not zero).
    pub fn is_comparable(&self) -> bool {
        let bytes = self.bytes();
        matches!(bytes.first(), Some(b'1'..=b'9')) && bytes.iter().all(u8::is_ascii_digit)
    }

    /// The order of two comparable versions; `None` unless both are comparable or they are equal.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            return Some(Ordering::Equal);
        }
        (self.is_comparable() && other.is_comparable()).then(|| {
            self.bytes().len().cmp(&other.bytes().len()).then_with(|| self.bytes().cmp(other.bytes()))
        })
    }

    /// Whether this version is known to come before `other`. Opaque versions never do.
    pub fn is_before(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Less)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(left: &str, right: &str, expected: Option<Ordering>) {
        assert_eq!(ResourceVersion::new(left).compare(&ResourceVersion::new(right)), expected);
    }

    #[test]
    fn longer_is_greater_and_equal_lengths_compare_as_text() {
        check("9", "10", Some(Ordering::Less));
        check("100", "99", Some(Ordering::Greater));
        check("123", "124", Some(Ordering::Less));
        check("7", "7", Some(Ordering::Equal));
    }

    #[test]
    fn there_is_no_fixed_width() {
        // 2^128 - 1, the largest that conformance asks for, and one digit more.
        check(
            "340282366920938463463374607431768211455",
            "3402823669209384634633746074317682114550",
            Some(Ordering::Less),
        );
    }

    #[test]
    fn opaque_versions_are_only_equal_or_incomparable() {
        check("abc", "abc", Some(Ordering::Equal));
        check("abc", "abd", None);
        check("12", "abc", None);
        check("", "1", None);
        check("0", "1", None); // "0" asks for any version; it is never an object's
        check("012", "13", None);
        check("-5", "3", None);
    }
}
