//! The head of an object: what the cache knows about it without decoding it.
//!
//! Each form reads heads in its own way, and strictly: a head either reads completely or the object is unreadable. This file must not know
//! how an object is written, nor what the rest of it looks like.

use super::labels::{Labels, Owners};
use crate::key::Key;
use crate::small_text::InlineText;
use crate::version::ResourceVersion;
use jiff::Timestamp;
use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroI64;
use std::ops::{Deref, Range};

/// What is known of an object without decoding it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[repr(C)] // the key first: see `Entry`
pub struct Head {
    /// Namespace and name.
    pub key: Key,
    /// The uid; empty if the server sent none.
    pub uid: Uid,
    /// The resource version.
    pub version: ResourceVersion,
    pub(super) generation: Option<NonZeroI64>,
    pub(super) created: Stamp,
    pub(super) deleted: Stamp,
    /// Its labels.
    pub labels: Labels,
    /// Its owners.
    pub owners: Owners,
    /// Where in the object's bytes the value of `metadata` lies.
    pub(crate) metadata: Range<u32>,
}

impl Head {
    /// The generation, where the kind has one. Servers count from one.
    pub fn generation(&self) -> Option<i64> {
        self.generation.map(NonZeroI64::get)
    }

    /// When it was created, to the microsecond.
    pub fn created(&self) -> Option<Timestamp> {
        self.created.time()
    }

    /// When its deletion was asked for, to the microsecond.
    pub fn deleted(&self) -> Option<Timestamp> {
        self.deleted.time()
    }

    /// A range of an object's bytes, as a head notes it.
    pub(super) fn range(range: Range<usize>) -> Range<u32> {
        narrow(range.start)..narrow(range.end)
    }

    /// How much memory it takes beyond its own size, as if nothing of it were shared.
    pub(crate) fn heap_size(&self) -> usize {
        let texts = self.key.heap_size() + self.uid.0.heap_size() + self.version.heap_size();
        texts + self.labels.0.0.len() + self.owners.0.0.len()
    }
}

/// A uid as the server wrote it; nearly always the usual 36 characters, which are kept in place.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(InlineText<38>);

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self(InlineText::new(uid))
    }
}

impl Deref for Uid {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_str()
    }
}

impl AsRef<str> for Uid {
    fn as_ref(&self) -> &str {
        self
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for Uid {
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

/// A time that may be none, in microseconds since 1970; servers write whole seconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(i64);

impl Stamp {
    const NONE: Self = Self(i64::MIN);

    fn time(self) -> Option<Timestamp> {
        Some(self)
            .filter(|stamp| *stamp != Self::NONE)
            .and_then(|stamp| Timestamp::from_microsecond(stamp.0).ok())
    }
}

impl From<Option<Timestamp>> for Stamp {
    fn from(time: Option<Timestamp>) -> Self {
        time.map_or(Self::NONE, |time| Self(time.as_microsecond()))
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.time().fmt(f)
    }
}

/// Why a head does not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// A field that every object has is absent.
    #[error("metadata.{field} is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field is not what it has to be.
    #[error("metadata.{field} is not {expected}")]
    Malformed {
        /// Its name.
        field: &'static str,
        /// What it has to be.
        expected: &'static str,
    },
}

/// The fields of `metadata` that something goes by: most make up a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field {
    Name,
    Namespace,
    Uid,
    Version,
    Generation,
    Created,
    Deleted,
    Labels,
    Annotations,
    Owners,
    // Not in a head, but controllers go by them.
    Finalizers,
    DeletionGracePeriod,
}

const FIELDS: [(Field, &str); 12] = [
    (Field::Name, "name"),
    (Field::Namespace, "namespace"),
    (Field::Uid, "uid"),
    (Field::Version, "resourceVersion"),
    (Field::Generation, "generation"),
    (Field::Created, "creationTimestamp"),
    (Field::Deleted, "deletionTimestamp"),
    (Field::Labels, "labels"),
    (Field::Annotations, "annotations"),
    (Field::Owners, "ownerReferences"),
    (Field::Finalizers, "finalizers"),
    (Field::DeletionGracePeriod, "deletionGracePeriodSeconds"),
];

impl Field {
    /// How many there are.
    pub(crate) const COUNT: usize = FIELDS.len();

    /// The field with this name in the JSON.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        FIELDS.iter().find(|(_, known)| known.as_bytes() == name).map(|(field, _)| *field)
    }

    /// Whether an object is known by it, or a controller that does not see it goes wrong in silence.
    pub(crate) fn always_stays(self) -> bool {
        !matches!(self, Self::Labels | Self::Annotations)
    }

    /// Its name in the JSON.
    pub(super) fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }
}

/// Whether a key can be made of it.
pub(super) fn is_object_name(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, 0 | b'/'))
}

/// Offsets inside one object; objects are limited to far less than 4 GiB by `wire::Limits`.
pub(super) fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// A JSON string, with or without its quotes. `None` if it is no string or not UTF-8.
pub(crate) fn string(raw: &[u8], quoted: bool) -> Option<Cow<'_, str>> {
    let inner = if quoted { raw.strip_prefix(b"\"")?.strip_suffix(b"\"")? } else { raw };
    if inner.contains(&b'\\') {
        let whole = if quoted { Cow::Borrowed(raw) } else { Cow::Owned([b"\"", raw, b"\""].concat()) };
        return serde_json::from_slice::<String>(&whole).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}
