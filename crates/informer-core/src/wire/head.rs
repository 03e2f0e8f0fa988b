//! The head of an object: what the cache knows about it without decoding it.
//!
//! A head is read from the spans that [`super::json::object::ObjectReader`] noted while the object went by. It is
//! strict: a head either reads completely or the object is unreadable. It does not know what the rest
//! of the object looks like.

use super::json::members::{each_element, each_member};
use super::labels::{Labels, Owner, Owners};
use crate::key::Key;
use crate::text::{Row, Text};
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
    pub(crate) fn elsewhere(&self) -> usize {
        let texts = self.key.elsewhere() + self.uid.0.elsewhere() + self.version.elsewhere();
        texts + self.labels.0.0.len() + self.owners.0.0.len()
    }
}

/// A uid as the server wrote it; nearly always the usual 36 characters, which are kept in place.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Text<38>);

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self(Text::new(uid))
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
    Grace,
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
    (Field::Grace, "deletionGracePeriodSeconds"),
];

impl Field {
    /// The field with this name in the JSON.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        FIELDS.iter().find(|(_, known)| known.as_bytes() == name).map(|(field, _)| *field)
    }

    /// Whether an object is known by it, or a controller that does not see it goes wrong in silence.
    pub(crate) fn always_stays(self) -> bool {
        !matches!(self, Self::Labels | Self::Annotations)
    }

    fn name(self) -> &'static str {
        FIELDS[self as usize].1
    }
}

/// Where in an object's bytes the fields of its head lie.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    pub(crate) metadata: Range<usize>,
    fields: [Range<usize>; FIELDS.len()],
}

impl Spans {
    pub(crate) fn set(&mut self, field: Field, span: Range<usize>) {
        self.fields[field as usize] = span;
    }

    /// Whether a value was noted for this field.
    pub(crate) fn has(&self, field: Field) -> bool {
        !self.fields[field as usize].is_empty()
    }

    /// Whether `metadata` was read to its end.
    pub(crate) fn metadata_is_whole(&self) -> bool {
        !self.metadata.is_empty()
    }

    /// The head of the object whose bytes are `bytes`.
    pub(crate) fn head(&self, bytes: &[u8]) -> Result<Head, HeadError> {
        let key = self.key(bytes)?;
        let version = self.version(bytes)?.ok_or(HeadError::Missing { field: Field::Version.name() })?;
        Ok(Head {
            key,
            uid: Uid::from(&*self.text(bytes, Field::Uid)?.unwrap_or_default()),
            version,
            generation: self
                .parsed(bytes, Field::Generation, "an integer", |text| text.parse().ok())?
                .and_then(NonZeroI64::new),
            created: self.time(bytes, Field::Created)?.into(),
            deleted: self.time(bytes, Field::Deleted)?.into(),
            labels: self.labels(bytes)?,
            owners: self.owners(bytes)?,
            metadata: Head::range(self.metadata.clone()),
        })
    }

    /// The key alone.
    pub(crate) fn key(&self, bytes: &[u8]) -> Result<Key, HeadError> {
        let missing = HeadError::Missing { field: Field::Name.name() };
        let name = self.text(bytes, Field::Name)?.filter(|name| !name.is_empty()).ok_or(missing)?;
        let namespace = self.text(bytes, Field::Namespace)?.unwrap_or_default();
        for (field, text) in [(Field::Name, &name), (Field::Namespace, &namespace)] {
            if !is_object_name(text) {
                return Err(HeadError::Malformed { field: field.name(), expected: "an object name" });
            }
        }
        Ok(Key::new(&namespace, &name))
    }

    /// The version alone, `None` if it is absent or empty.
    pub(crate) fn version(&self, bytes: &[u8]) -> Result<Option<ResourceVersion>, HeadError> {
        let text = self.text(bytes, Field::Version)?;
        Ok(text.filter(|text| !text.is_empty()).map(|text| ResourceVersion::new(&text)))
    }

    /// One annotation.
    pub(crate) fn annotation(&self, bytes: &[u8], name: &str) -> Option<String> {
        let mut found = None;
        each_member(self.value(bytes, Field::Annotations)?, |known, value| {
            if string(known, false).as_deref() == Some(name) {
                found = string(value, true).map(Cow::into_owned);
            }
            found.is_none()
        })?;
        found
    }

    /// The bytes of a field; `None` if it is absent or null.
    fn value<'a>(&self, bytes: &'a [u8], field: Field) -> Option<&'a [u8]> {
        bytes.get(self.fields[field as usize].clone()).filter(|value| !value.is_empty() && *value != b"null")
    }

    fn text<'a>(&self, bytes: &'a [u8], field: Field) -> Result<Option<Cow<'a, str>>, HeadError> {
        let malformed = HeadError::Malformed { field: field.name(), expected: "a string" };
        self.value(bytes, field).map(|value| string(value, true).ok_or(malformed)).transpose()
    }

    fn parsed<T>(
        &self,
        bytes: &[u8],
        field: Field,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, HeadError> {
        let Some(value) = self.value(bytes, field) else { return Ok(None) };
        let parsed = std::str::from_utf8(value).ok().and_then(parse);
        parsed.map(Some).ok_or(HeadError::Malformed { field: field.name(), expected })
    }

    fn time(&self, bytes: &[u8], field: Field) -> Result<Option<Timestamp>, HeadError> {
        self.parsed(bytes, field, "a time", |text| text.trim_matches('"').parse().ok())
    }

    fn labels(&self, bytes: &[u8]) -> Result<Labels, HeadError> {
        let Some(value) = self.value(bytes, Field::Labels) else { return Ok(Labels::default()) };
        let mut row = Row::with_capacity(value.len());
        let mut all_strings = true;
        let walked = each_member(value, |name, value| {
            for piece in [string(name, false), string(value, true)] {
                all_strings &= piece.is_some();
                row.push(&piece.unwrap_or_default());
            }
            all_strings
        });
        let malformed = HeadError::Malformed { field: Field::Labels.name(), expected: "a map of strings" };
        walked.filter(|()| all_strings).ok_or(malformed)?;
        Ok(Labels(row.texts()))
    }

    fn owners(&self, bytes: &[u8]) -> Result<Owners, HeadError> {
        let Some(value) = self.value(bytes, Field::Owners) else { return Ok(Owners::default()) };
        let mut row = Row::with_capacity(value.len());
        let mut readable = true;
        let walked = each_element(value, |element| readable &= push_owner(element, &mut row).is_some());
        let expected = "a list of owner references";
        walked.filter(|()| readable).ok_or(HeadError::Malformed { field: Field::Owners.name(), expected })?;
        Ok(Owners(row.texts()))
    }
}

fn push_owner(element: &[u8], row: &mut Row) -> Option<()> {
    let [mut api_version, mut kind, mut name, mut uid] = [const { Cow::Borrowed("") }; 4];
    let (mut controller, mut readable) = (false, true);
    each_member(element, |known, value| {
        let field = match known {
            b"apiVersion" => &mut api_version,
            b"kind" => &mut kind,
            b"name" => &mut name,
            b"uid" => &mut uid,
            b"controller" => {
                controller = value == b"true";
                return true;
            }
            _ => return true,
        };
        match string(value, true) {
            Some(text) => *field = text,
            None => readable = false,
        }
        readable
    })?;
    let owner = Owner { api_version: &api_version, kind: &kind, name: &name, uid: &uid, controller };
    readable.then(|| owner.push_to(row))
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
