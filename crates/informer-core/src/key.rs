//! The identity of an object inside one cache: namespace and name, ordered by namespace first.
//!
//! The uid is not part of a key: a deleted and re-created object has the same key. This module does not know
//! which kind a key belongs to; a cache holds one kind.

use crate::error::{ParseError, ParseErrorKind};
use crate::small_text::{InlineText, as_text};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::str::FromStr;
use std::sync::LazyLock;

/// Length up to which the text is stored inside the key itself. Most keys are this short, and comparing them
/// needs no access to other memory.
const INLINE_BYTES: usize = 54;

/// Namespace and name of an object. Cheap to clone.
///
/// Keys order by namespace, then by name; cluster-scoped objects (no namespace) come first.
///
/// ```
/// # extern crate informer_core as informer;
/// use informer::Key;
///
/// let key = Key::new("kube-system", "dns");
/// assert_eq!(key.to_string(), "kube-system/dns");
/// assert_eq!("kube-system/dns".parse(), Ok(key));
/// assert_eq!(Key::cluster("node-1").namespace(), None);
/// ```
#[derive(Clone, Eq)]
pub struct Key {
    /// Namespace, a NUL, name. The NUL sorts before every character of a name, so that one comparison of
    /// the texts compares the namespaces first.
    text: InlineText<INLINE_BYTES>,
    /// Index of the NUL. Invariant: `text.bytes()[split] == 0`.
    split: u32,
    /// Hash of the text, computed once: caches look up keys far more often than they create them.
    hash: u32,
}

impl Key {
    /// Creates the key of a namespaced object; an empty namespace means a cluster-scoped one.
    pub fn new(namespace: &str, name: &str) -> Self {
        let text = InlineText::concat([namespace, "\0", name]);
        let split = u32::try_from(namespace.len()).unwrap_or(u32::MAX);
        Self { hash: hash(text.bytes()), text, split }
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: &str) -> Self {
        Self::new("", name)
    }

    /// Returns whether the key sorts before all keys of `namespace`, to find the first of them.
    pub(crate) fn precedes_namespace(&self, namespace: &str) -> bool {
        // Compares the text with the namespace and a NUL.
        let (text, namespace) = (self.text.bytes(), namespace.as_bytes());
        match text.split_at_checked(namespace.len()) {
            Some((start, rest)) => start < namespace || (start == namespace && rest.is_empty()),
            None => text < namespace,
        }
    }

    /// Returns the namespace, `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        (self.split > 0).then(|| as_text(&self.text.bytes()[..self.split as usize]))
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        as_text(&self.text.bytes()[self.split as usize + 1..])
    }

    /// Returns the namespace, a NUL and the name. Keys order as these bytes do.
    #[cfg(feature = "persistence")]
    pub fn as_bytes(&self) -> &[u8] {
        self.text.bytes()
    }

    /// Creates a key from [`Key::as_bytes`]; `None` if the bytes are not those of a key.
    #[cfg(feature = "persistence")]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (namespace, name) = std::str::from_utf8(bytes).ok()?.split_once('\0')?;
        let is_valid = !name.is_empty() && !name.contains('\0');
        is_valid.then(|| Self::new(namespace, name))
    }

    /// Heap size in bytes.
    pub(crate) fn heap_size(&self) -> usize {
        self.text.heap_size()
    }

    /// A hash of the whole key.
    ///
    /// It differs between processes, so no observable behaviour may depend on it.
    pub(crate) fn hash32(&self) -> u32 {
        self.hash
    }
}

#[expect(clippy::cast_possible_truncation, reason = "either half of the hash is good enough")]
pub(crate) fn hash(text: &[u8]) -> u32 {
    // Users choose the names of their objects. Without a secret, a user could choose names that all fall into
    // the same hash bucket.
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one(text) as u32
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.text == other.text && self.split == other.split
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u32(self.hash);
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        // A name with a NUL can make equal texts with different splits.
        self.text.bytes().cmp(other.text.bytes()).then(self.split.cmp(&other.split))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Key {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        let is_invalid =
            text.starts_with('/') || name.is_empty() || name.contains('/') || text.contains('\0');
        if is_invalid {
            return Err(ParseError::new(ParseErrorKind::Key, text, "`name` or `namespace/name`"));
        }
        Ok(Self::new(namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_namespace_then_name() {
        // As plain text "a-b/x" would come before "a/x", since '-' sorts before '/'.
        let mut keys = [Key::new("a-b", "x"), Key::new("a", "y"), Key::cluster("z"), Key::new("a", "x")];
        keys.sort();
        let texts: Vec<_> = keys.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["z", "a/x", "a/y", "a-b/x"]);
    }

    #[test]
    fn parse_accepts_what_display_prints_and_nothing_else() {
        for good in ["name", "ns/name", "a.b/c-d"] {
            assert_eq!(good.parse::<Key>().unwrap().to_string(), good);
        }
        for bad in ["", "/", "/x", "x/", "a/b/c", "a\0b"] {
            assert!(bad.parse::<Key>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn keys_precede_the_namespaces_that_sort_after_theirs() {
        let names = ["", "a", "a-b", "ab", "b"];
        for (at, own) in names.iter().enumerate() {
            for (other_at, other) in names.iter().enumerate() {
                let key = Key::new(own, "x");
                assert_eq!(key.precedes_namespace(other), at < other_at, "{key} and {other:?}");
                assert_eq!(key.precedes_namespace(other), key < Key::new(other, ""), "{key} and {other:?}");
            }
        }
    }
}
