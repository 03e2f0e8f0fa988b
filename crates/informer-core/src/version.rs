//! Resource versions: comparable if they are decimal numbers, opaque otherwise.
//!
//! A version that consists of digits and does not start with zero compares with another of this form: the
//! longer one is greater, equal lengths compare as text, and the width is not limited. Any other version is
//! *opaque*: equal to itself and not ordered. This module does not know which resource a version belongs
//! to; versions of different resources must not be compared.

use crate::small_text::InlineText;
use std::cmp::Ordering;
use std::fmt;

/// A `metadata.resourceVersion` as the server sent it.
///
/// It does not implement `Ord`, because two versions may be incomparable: [`ResourceVersion::compare`]
/// returns `None` for them, and neither [is before](ResourceVersion::is_before) the other.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(InlineText<INLINE_BYTES>);

/// Length up to which the text is stored inside the version itself. Nearly all versions are shorter.
const INLINE_BYTES: usize = 22;

impl ResourceVersion {
    /// Creates a version from the server's text.
    pub fn new(text: &str) -> Self {
        Self(InlineText::new(text))
    }

    /// Returns the text to send back to the server.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Heap size in bytes.
    pub(crate) fn heap_size(&self) -> usize {
        self.0.heap_size()
    }

    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    /// Returns whether this version has the comparable form: digits, the first of them not zero.
    pub fn is_comparable(&self) -> bool {
        let bytes = self.bytes();
        matches!(bytes.first(), Some(b'1'..=b'9')) && bytes.iter().all(u8::is_ascii_digit)
    }

    /// Returns the order of two versions; `None` unless they are equal or both comparable.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        if self == other {
            return Some(Ordering::Equal);
        }
        (self.is_comparable() && other.is_comparable()).then(|| {
            self.bytes().len().cmp(&other.bytes().len()).then_with(|| self.bytes().cmp(other.bytes()))
        })
    }

    /// Returns whether this version is older than `other`. Never true for opaque versions.
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
    fn longer_version_is_greater_and_equal_lengths_compare_as_text() {
        check("9", "10", Some(Ordering::Less));
        check("100", "99", Some(Ordering::Greater));
        check("123", "124", Some(Ordering::Less));
        check("7", "7", Some(Ordering::Equal));
    }

    #[test]
    fn width_is_not_limited() {
        // 2^128 - 1, the largest version in the conformance tests, and one digit more.
        check(
            "340282366920938463463374607431768211455",
            "3402823669209384634633746074317682114550",
            Some(Ordering::Less),
        );
    }

    #[test]
    fn opaque_versions_are_equal_or_incomparable() {
        check("abc", "abc", Some(Ordering::Equal));
        check("abc", "abd", None);
        check("12", "abc", None);
        check("", "1", None);
        check("0", "1", None); // "0" in a request means any version; no object has it
        check("012", "13", None);
        check("-5", "3", None);
    }
}
