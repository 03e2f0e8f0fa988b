//! Parsing of an object's head from the bytes of its metadata.
//!
//! As strict as in JSON: a head is either complete or the object is unreadable.

use super::decode::{Time, time_of};
use super::fields::{Fields, Payload};
use crate::key::Key;
use crate::small_text::PackedTextsBuilder;
use crate::version::ResourceVersion;
use crate::wire::head::{Head, HeadError, Uid, is_object_name};
use crate::wire::labels::{Labels, Owner, Owners};
use jiff::Timestamp;
use std::num::NonZeroI64;
use std::ops::Range;

/// Field numbers in `metadata`; a test compares them with the table of `informer-schema`.
pub(super) mod numbers {
    pub(crate) const NAME: u32 = 1;
    pub(crate) const NAMESPACE: u32 = 3;
    pub(crate) const UID: u32 = 5;
    pub(crate) const VERSION: u32 = 6;
    pub(crate) const GENERATION: u32 = 7;
    pub(crate) const CREATED: u32 = 8;
    pub(crate) const DELETED: u32 = 9;
    pub(crate) const LABELS: u32 = 11;
    pub(crate) const ANNOTATIONS: u32 = 12;
    pub(crate) const OWNERS: u32 = 13;
    pub(crate) const MANAGED: u32 = 17;
}

const TEXT: &str = "a string";

/// Buffers in which labels and owners are collected, reused for the next object.
#[derive(Debug, Default)]
pub(super) struct HeadBuffers {
    labels: PackedTextsBuilder,
    owners: PackedTextsBuilder,
}

/// Parses the head from `bytes`, the object's metadata. Its position in the object is `metadata`.
pub(super) fn read(
    bytes: &[u8],
    metadata: Range<usize>,
    buffers: &mut HeadBuffers,
) -> Result<Head, HeadError> {
    buffers.labels.clear();
    buffers.owners.clear();
    let mut fields = HeadFields::default();
    fields.read(bytes, buffers)?;
    let version = fields.version.filter(|version| !version.is_empty());
    Ok(Head {
        key: fields.key()?,
        uid: Uid::from(fields.uid),
        version: ResourceVersion::new(version.ok_or(HeadError::Missing { field: "resourceVersion" })?),
        generation: fields.generation,
        created: fields.created.into(),
        deleted: fields.deleted.into(),
        labels: Labels(buffers.labels.texts()),
        owners: Owners(buffers.owners.texts()),
        metadata: Head::compact_range(metadata),
    })
}

/// Parses key and version from metadata, which is truncated unless `complete`. The key is `None` if the
/// missing bytes could change it, that is, if they could contain a namespace.
pub(super) fn peek_identity(bytes: &[u8], complete: bool) -> (Option<Key>, Option<ResourceVersion>) {
    let (mut name, mut namespace, mut version) = (None, None, None);
    let mut fields = Fields(bytes);
    while let Ok(Some((number, payload))) = fields.next() {
        let Payload::Data(bytes) = payload else { continue };
        match number {
            numbers::NAME => name = Some(bytes),
            numbers::NAMESPACE => namespace = Some(bytes),
            numbers::VERSION => version = Some(bytes),
            _ => {}
        }
    }
    let is_certain = complete || namespace.is_some();
    let namespace = std::str::from_utf8(namespace.unwrap_or_default()).ok();
    let name = name.filter(|_| is_certain).and_then(|name| std::str::from_utf8(name).ok());
    let version = version.and_then(|version| std::str::from_utf8(version).ok());
    let key = name.zip(namespace).and_then(|(name, namespace)| key(namespace, name).ok());
    (key, version.filter(|text| !text.is_empty()).map(ResourceVersion::new))
}

/// Returns the value of an annotation.
pub(super) fn annotation<'a>(metadata: &'a [u8], name: &str) -> Option<&'a str> {
    let (mut fields, mut found) = (Fields(metadata), None);
    while let Ok(Some((number, payload))) = fields.next() {
        if let (numbers::ANNOTATIONS, Payload::Data(bytes)) = (number, payload) {
            found = entry(bytes).filter(|(known, _)| *known == name).map(|(_, value)| value).or(found);
        }
    }
    found
}

/// The fields of a head, except labels and owners.
#[derive(Default)]
struct HeadFields<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
    version: Option<&'a str>,
    generation: Option<NonZeroI64>,
    created: Option<Timestamp>,
    deleted: Option<Timestamp>,
}

impl<'a> HeadFields<'a> {
    /// Parses the metadata. Of a repeated field the last value counts; lists and maps are extended.
    fn read(&mut self, metadata: &'a [u8], buffers: &mut HeadBuffers) -> Result<(), HeadError> {
        let mut fields = Fields(metadata);
        // The object reader has already parsed these bytes, so `next` does not fail.
        while let Ok(Some((number, payload))) = fields.next() {
            match number {
                numbers::NAME => self.name = text(payload, "name")?,
                numbers::NAMESPACE => self.namespace = text(payload, "namespace")?,
                numbers::UID => self.uid = text(payload, "uid")?,
                numbers::VERSION => self.version = Some(text(payload, "resourceVersion")?),
                numbers::GENERATION => self.generation = generation(payload)?,
                numbers::CREATED => self.created = time(payload, "creationTimestamp")?,
                numbers::DELETED => self.deleted = time(payload, "deletionTimestamp")?,
                numbers::LABELS => buffers.push_label(payload)?,
                numbers::OWNERS => buffers.push_owner(payload)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn key(&self) -> Result<Key, HeadError> {
        key(self.namespace, self.name)
    }
}

impl HeadBuffers {
    fn push_label(&mut self, payload: Payload<'_>) -> Result<(), HeadError> {
        let read = data(payload).and_then(entry);
        let (name, value) = read.ok_or(malformed("labels", "a map of strings"))?;
        self.labels.push(name);
        self.labels.push(value);
        Ok(())
    }

    fn push_owner(&mut self, payload: Payload<'_>) -> Result<(), HeadError> {
        let owner = data(payload).and_then(owner);
        owner.ok_or(malformed("ownerReferences", "a list of owner references"))?.push_to(&mut self.owners);
        Ok(())
    }
}

fn key(namespace: &str, name: &str) -> Result<Key, HeadError> {
    if name.is_empty() {
        return Err(HeadError::Missing { field: "name" });
    }
    for (field, text) in [("name", name), ("namespace", namespace)] {
        if !is_object_name(text) {
            return Err(malformed(field, "an object name"));
        }
    }
    Ok(Key::new(namespace, name))
}

fn malformed(field: &'static str, expected: &'static str) -> HeadError {
    HeadError::Malformed { field, expected }
}

fn data(payload: Payload<'_>) -> Option<&[u8]> {
    match payload {
        Payload::Data(bytes) => Some(bytes),
        _ => None,
    }
}

fn text<'a>(payload: Payload<'a>, field: &'static str) -> Result<&'a str, HeadError> {
    data(payload).and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or(malformed(field, TEXT))
}

/// Parses the generation; zero means none, as in JSON.
fn generation(payload: Payload<'_>) -> Result<Option<NonZeroI64>, HeadError> {
    match payload {
        Payload::Varint(value) => Ok(NonZeroI64::new(value.cast_signed())),
        _ => Err(malformed("generation", "an integer")),
    }
}

fn time(payload: Payload<'_>, field: &'static str) -> Result<Option<Timestamp>, HeadError> {
    let read = |bytes: &[u8]| match time_of(bytes).ok()? {
        Some(Time { seconds, nanoseconds }) => Timestamp::new(seconds, nanoseconds).ok().map(Some),
        None => Some(None),
    };
    data(payload).and_then(read).ok_or(malformed(field, "a time"))
}

/// Parses an entry of a map from strings to strings.
fn entry(bytes: &[u8]) -> Option<(&str, &str)> {
    let (mut name, mut value) = ("", "");
    let mut fields = Fields(bytes);
    while let Some((number, payload)) = fields.next().ok()? {
        match number {
            1 => name = std::str::from_utf8(data(payload)?).ok()?,
            2 => value = std::str::from_utf8(data(payload)?).ok()?,
            _ => {}
        }
    }
    Some((name, value))
}

fn owner(bytes: &[u8]) -> Option<Owner<'_>> {
    let mut owner = Owner::default();
    let mut fields = Fields(bytes);
    while let Some((number, payload)) = fields.next().ok()? {
        let field = match number {
            1 => &mut owner.kind,
            3 => &mut owner.name,
            4 => &mut owner.uid,
            5 => &mut owner.api_version,
            6 => {
                let Payload::Varint(value) = payload else { return None };
                owner.controller = value != 0;
                continue;
            }
            _ => continue,
        };
        *field = std::str::from_utf8(data(payload)?).ok()?;
    }
    Some(owner)
}
