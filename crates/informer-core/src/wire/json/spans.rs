//! The positions of the head's fields in an object's bytes, and parsing of the head from these positions.
//!
//! Parsing is strict: a head is either complete or the object is unreadable. This file does not know the
//! rest of the object.

use super::members::{each_element, each_member};
use crate::key::Key;
use crate::small_text::PackedTextsBuilder;
use crate::version::ResourceVersion;
use crate::wire::head::{Field, Head, HeadError, Uid, is_object_name, member_name, string};
use crate::wire::labels::{Labels, Owner, Owners};
use jiff::Timestamp;
use std::borrow::Cow;
use std::num::NonZeroI64;
use std::ops::Range;

/// The positions of the head's fields in an object's bytes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Spans {
    /// The value of `metadata`. The end is zero until the value was read completely.
    pub(crate) metadata: Range<usize>,
    /// By [`Field`]; empty if the field is absent.
    fields: [Range<usize>; Field::COUNT],
}

impl Spans {
    pub(crate) fn set(&mut self, field: Field, span: Range<usize>) {
        self.fields[field as usize] = span;
    }

    /// Whether the field is present and was read completely.
    pub(crate) fn has(&self, field: Field) -> bool {
        !self.fields[field as usize].is_empty()
    }

    /// Whether `metadata` was read completely.
    pub(crate) fn metadata_is_complete(&self) -> bool {
        !self.metadata.is_empty()
    }

    /// Parses the head of the object `bytes`.
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
            metadata: Head::compact_range(self.metadata.clone()),
        })
    }

    /// Parses only the key.
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

    /// Parses only the version, `None` if it is absent or empty.
    pub(crate) fn version(&self, bytes: &[u8]) -> Result<Option<ResourceVersion>, HeadError> {
        let text = self.text(bytes, Field::Version)?;
        Ok(text.filter(|text| !text.is_empty()).map(|text| ResourceVersion::new(&text)))
    }

    /// Returns the value of an annotation.
    pub(crate) fn annotation(&self, bytes: &[u8], name: &str) -> Option<String> {
        let mut found = None;
        each_member(self.value(bytes, Field::Annotations)?, |sent, value| {
            if member_name(sent).as_deref() == Some(name) {
                found = string(value).map(Cow::into_owned);
            }
            found.is_none()
        })?;
        found
    }

    /// Returns the bytes of a field; `None` if it is absent or null.
    fn value<'a>(&self, bytes: &'a [u8], field: Field) -> Option<&'a [u8]> {
        bytes.get(self.fields[field as usize].clone()).filter(|value| !value.is_empty() && *value != b"null")
    }

    fn text<'a>(&self, bytes: &'a [u8], field: Field) -> Result<Option<Cow<'a, str>>, HeadError> {
        let malformed = HeadError::Malformed { field: field.name(), expected: "a string" };
        self.value(bytes, field).map(|value| string(value).ok_or(malformed)).transpose()
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
        let mut builder = PackedTextsBuilder::with_capacity(value.len());
        let mut all_strings = true;
        let walked = each_member(value, |name, value| {
            for piece in [member_name(name), string(value)] {
                all_strings &= piece.is_some();
                builder.push(&piece.unwrap_or_default());
            }
            all_strings
        });
        let malformed = HeadError::Malformed { field: Field::Labels.name(), expected: "a map of strings" };
        walked.filter(|()| all_strings).ok_or(malformed)?;
        Ok(Labels(builder.texts()))
    }

    fn owners(&self, bytes: &[u8]) -> Result<Owners, HeadError> {
        let Some(value) = self.value(bytes, Field::Owners) else { return Ok(Owners::default()) };
        let mut builder = PackedTextsBuilder::with_capacity(value.len());
        let mut is_readable = true;
        let walked =
            each_element(value, |element| is_readable &= push_owner(element, &mut builder).is_some());
        let expected = "a list of owner references";
        walked
            .filter(|()| is_readable)
            .ok_or(HeadError::Malformed { field: Field::Owners.name(), expected })?;
        Ok(Owners(builder.texts()))
    }
}

/// Appends an owner reference; `None` if it is malformed.
fn push_owner(element: &[u8], builder: &mut PackedTextsBuilder) -> Option<()> {
    let [mut api_version, mut kind, mut name, mut uid] = [const { Cow::Borrowed("") }; 4];
    let (mut controller, mut is_readable) = (false, true);
    each_member(element, |sent, value| {
        let field = match sent {
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
        match string(value) {
            Some(text) => *field = text,
            None => is_readable = false,
        }
        is_readable
    })?;
    let owner = Owner { api_version: &api_version, kind: &kind, name: &name, uid: &uid, controller };
    is_readable.then(|| owner.push_to(builder))
}
