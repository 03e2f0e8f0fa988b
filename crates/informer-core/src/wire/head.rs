//! The head of an object: the metadata that the cache reads without decoding the object.
//!
//! Each encoding parses heads itself, and strictly: a head is either complete or the object is unreadable.
//! This file does not know how an object is encoded, nor the rest of its fields.

use super::labels::{Labels, Owners};
use crate::key::Key;
use crate::small_text::InlineText;
use crate::version::ResourceVersion;
use jiff::Timestamp;
use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroI64;
use std::ops::{Deref, Range};

/// The metadata of an object that is known without decoding it.
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
    /// `metadata.creationTimestamp`.
    pub(super) created: Stamp,
    /// `metadata.deletionTimestamp`: when the grace period of the requested deletion ends.
    pub(super) deleted: Stamp,
    /// The labels.
    pub labels: Labels,
    /// The owners.
    pub owners: Owners,
    /// The range of the value of `metadata` in the object's bytes.
    pub(crate) metadata: Range<u32>,
}

impl Head {
    /// Returns the generation, if the kind has one. Zero counts as none: servers count from one.
    pub fn generation(&self) -> Option<i64> {
        self.generation.map(NonZeroI64::get)
    }

    /// Returns the time of creation, with microsecond precision.
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        self.created.time()
    }

    /// Returns the time at which the grace period of the requested deletion ends, with microsecond precision.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.deleted.time()
    }

    /// Converts a range of an object's bytes to the compact form stored in a head.
    pub(super) fn compact_range(range: Range<usize>) -> Range<u32> {
        narrow(range.start)..narrow(range.end)
    }

    /// Heap size in bytes, as if no part of it were shared.
    pub(crate) fn heap_size(&self) -> usize {
        let texts = self.key.heap_size() + self.uid.0.heap_size() + self.version.heap_size();
        texts + self.labels.0.0.len() + self.owners.0.0.len()
    }
}

/// A uid as the server sent it. Nearly all have the usual 36 characters and are stored inline.
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

/// An optional time, in microseconds since 1970; servers send whole seconds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp(pub(super) i64);

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

/// The reason why a head could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// A required field is absent.
    #[error("metadata.{field} is missing")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("metadata.{field} is not {expected}")]
    Malformed {
        /// The name of the field.
        field: &'static str,
        /// The expected type of value.
        expected: &'static str,
    },
}

/// The fields of `metadata` that this crate knows; most are part of a head.
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
    // Not part of a head, but the readers look for an annotation of bookmarks.
    Annotations,
    Owners,
    // Not part of a head, but controllers depend on them.
    Finalizers,
    DeletionGracePeriod,
}

/// The fields with their names in JSON, in the order of the enum: [`Field::name`] uses the field as index.
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
    /// Number of known fields.
    pub(crate) const COUNT: usize = FIELDS.len();

    /// Returns the field with this name in JSON.
    pub(crate) fn from_name(name: &[u8]) -> Option<Self> {
        FIELDS.iter().find(|(_, known)| known.as_bytes() == name).map(|(field, _)| *field)
    }

    /// Whether a field filter must keep the field: it identifies the object, or a controller that does not
    /// see it would silently misbehave.
    pub(crate) fn is_protected(self) -> bool {
        !matches!(self, Self::Labels | Self::Annotations)
    }

    /// The name of the field in JSON.
    pub(super) fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }
}

/// Whether `text` can be part of a key: it contains no NUL and no slash.
pub(super) fn is_object_name(text: &str) -> bool {
    !text.bytes().any(|byte| matches!(byte, 0 | b'/'))
}

/// Converts an offset inside one object, which `wire::Limits` limits to far less than 4 GiB.
pub(super) fn narrow(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

/// Parses a JSON string in quotes. `None` if it is not a string or not UTF-8.
pub(crate) fn string(quoted: &[u8]) -> Option<Cow<'_, str>> {
    let inner = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice::<String>(quoted).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// Parses the name of a JSON member, given without its quotes. `None` if it is not a string or not UTF-8.
pub(crate) fn member_name(sent: &[u8]) -> Option<Cow<'_, str>> {
    if sent.contains(&b'\\') {
        let quoted = [b"\"".as_slice(), sent, b"\""].concat();
        return serde_json::from_slice::<String>(&quoted).ok().map(Cow::Owned);
    }
    std::str::from_utf8(sent).ok().map(Cow::Borrowed)
}
