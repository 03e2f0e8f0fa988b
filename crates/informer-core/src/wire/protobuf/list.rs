//! Reading the body of a list as it arrives.
//!
//! An envelope around a message of the list's metadata and the items. Items are handed out one by one, the list's own metadata as soon as it
//! has gone by; neither needs the other, but a server sends the metadata first. What the reader holds is one item and the list's metadata.

use super::envelope::{Envelope, Step as Opened};
use super::fields::{Fields, Payload};
use super::message_of;
use super::object::ObjectReader;
use super::walk::{Shape, Step, Walk, take};
use crate::version::ResourceVersion;
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{ListItem, ListMeta, MAX_METADATA_BYTES};
use crate::wire::problem::{
    BodyErrorKind, BodyLocation, ObjectError, ProtobufError, UnreadableObject, WireError,
};
use crate::wire::{Limits, TypeMeta, keep_beginning};

/// Where every list has its metadata and its items; a test holds them against the table.
const LIST_METADATA: u32 = 1;
const ITEMS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Envelope,
    /// In the list's message.
    List,
    Metadata,
    Item,
    /// In a value that is passed over; `true` if it stands where an item should.
    Other(bool),
}

/// Reads one list body in protobuf.
#[derive(Debug)]
pub struct ProtobufListReader {
    type_meta: TypeMeta,
    at: At,
    envelope: Envelope,
    list: Walk,
    object: ObjectReader,
    /// What is left of the value that is being read.
    left: u64,
    /// The list's metadata.
    value: Vec<u8>,
    location: BodyLocation,
    /// Where the current item began.
    item_start: u64,
    saw_meta: bool,
}

impl ProtobufListReader {
    /// A reader for a list of objects of this type; `None` if the kind has no protobuf.
    pub fn new(types: TypeMeta, limits: Limits) -> Option<Self> {
        let of = message_of(&types)?;
        Some(Self {
            object: ObjectReader::new(of, limits.max_object_bytes),
            type_meta: types,
            at: At::Envelope,
            envelope: Envelope::new(u64::MAX),
            list: Walk::new(0),
            left: 0,
            value: Vec::new(),
            location: BodyLocation { index: 0, byte: 0 },
            item_start: 0,
            saw_meta: false,
        })
    }

    /// The same, leaving out of each object what the projection leaves out.
    #[must_use]
    pub fn with_field_filter(mut self, projection: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(projection);
        self
    }

    /// Reads the next chunk, handing what it completes to `on`.
    pub fn read(&mut self, chunk: &[u8], mut on: impl FnMut(ListItem)) -> Result<(), WireError> {
        let base = self.location.byte;
        let mut at = 0;
        loop {
            let result = self.step(chunk, &mut at, base, &mut on);
            self.location.byte = base + at as u64;
            if !result.map_err(|problem| self.error(problem))? {
                return Ok(());
            }
        }
    }

    /// Says that the body is over.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.at != At::Envelope || !self.envelope.is_complete() {
            return Err(self.error(BodyErrorKind::Truncated));
        }
        if !self.saw_meta {
            return Err(self.error(BodyErrorKind::ListMeta { reason: "it is missing" }));
        }
        Ok(())
    }

    fn error(&self, problem: BodyErrorKind) -> WireError {
        WireError { what: "item", location: self.location, kind: problem }
    }

    /// `false` if the chunk is used up.
    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
        on: &mut impl FnMut(ListItem),
    ) -> Result<bool, BodyErrorKind> {
        match self.at {
            At::Envelope => match self.envelope.next(chunk, at)? {
                Opened::NeedMore | Opened::End => return Ok(false),
                Opened::Object(length) => {
                    self.check_kind()?;
                    self.list = Walk::new(length);
                    self.at = At::List;
                }
            },
            At::List => match self.list.next(chunk, at)? {
                Step::NeedMore => return Ok(false),
                Step::End => self.at = At::Envelope,
                Step::Field(number, shape) => self.enter(number, shape, base + *at as u64)?,
            },
            At::Metadata | At::Other(_) => {
                let part = take(&mut self.left, chunk, at);
                if self.at == At::Metadata {
                    keep_beginning(&mut self.value, part, MAX_METADATA_BYTES);
                }
                if self.left > 0 {
                    return Ok(false);
                }
                self.finish_value(on)?;
            }
            At::Item => {
                if !self.object.feed(chunk, at) {
                    return Ok(false);
                }
                on(self.take_item());
                self.finish_item();
            }
        }
        Ok(true)
    }

    /// Lists of built-in kinds are called after them, and what is no such list has other fields under the same numbers.
    fn check_kind(&self) -> Result<(), BodyErrorKind> {
        let said = &self.envelope.declared_type;
        if said.is_list_of(&self.type_meta)
            || self.type_meta.also_accepted.as_deref().is_some_and(|other| said.is_list_of(other))
        {
            return Ok(());
        }
        let found = match (&*said.kind, &*said.api_version) {
            ("", _) => "body without a kind".into(),
            (kind, "v1" | "") => kind.into(),
            (kind, api_version) => format!("{kind} of {api_version}").into(),
        };
        Err(BodyErrorKind::NotAList { found })
    }

    fn enter(&mut self, number: u32, shape: Shape, byte: u64) -> Result<(), BodyErrorKind> {
        self.left = shape.length();
        self.at = match (number, shape) {
            (LIST_METADATA, Shape::Data(_)) => {
                if self.saw_meta {
                    return Err(BodyErrorKind::ListMeta { reason: "it comes twice" });
                }
                self.value.clear();
                At::Metadata
            }
            (ITEMS, Shape::Data(length)) => {
                self.item_start = byte;
                self.object.begin(length);
                At::Item
            }
            (ITEMS, _) => {
                self.item_start = byte;
                self.object.begin(0);
                At::Other(true)
            }
            _ => At::Other(false),
        };
        Ok(())
    }

    fn finish_value(&mut self, on: &mut impl FnMut(ListItem)) -> Result<(), BodyErrorKind> {
        match std::mem::replace(&mut self.at, At::List) {
            At::Metadata => {
                on(ListItem::Meta(read_meta(&self.value)?));
                self.saw_meta = true;
            }
            At::Other(true) => {
                on(ListItem::Unreadable(self.unreadable(ObjectError::NotAnObject)));
                self.finish_item();
            }
            _ => {}
        }
        Ok(())
    }

    fn take_item(&mut self) -> ListItem {
        match self.object.take_object() {
            Ok(object) => ListItem::Object(object),
            Err(problem) => ListItem::Unreadable(self.unreadable(problem)),
        }
    }

    fn unreadable(&self, problem: ObjectError) -> UnreadableObject {
        let place = BodyLocation { index: self.location.index, byte: self.item_start };
        let (key, version) = self.object.peek_identity();
        UnreadableObject { key, version, location: place, error: problem }
    }

    fn finish_item(&mut self) {
        self.location.index += 1;
        self.at = At::List;
    }
}

fn read_meta(bytes: &[u8]) -> Result<ListMeta, BodyErrorKind> {
    let broken = |reason| BodyErrorKind::ListMeta { reason };
    let (mut version, mut continue_token, mut remaining) = ("", "", None);
    let mut fields = Fields(bytes);
    let mut next = || fields.next().map_err(|_: ProtobufError| broken("it is no message"));
    while let Some((number, payload)) = next()? {
        let text = |payload| match payload {
            Payload::Data(bytes) => {
                std::str::from_utf8(bytes).map_err(|_| broken("its fields have the wrong types"))
            }
            _ => Err(broken("its fields have the wrong types")),
        };
        match (number, payload) {
            (2, payload) => version = text(payload)?,
            (3, payload) => continue_token = text(payload)?,
            (4, Payload::Varint(count)) => remaining = u64::try_from(count.cast_signed()).ok(),
            (4, _) => return Err(broken("its fields have the wrong types")),
            _ => {}
        }
    }
    if version.is_empty() {
        return Err(broken("it has no resourceVersion"));
    }
    Ok(ListMeta {
        version: ResourceVersion::new(version),
        continue_token: Some(continue_token).filter(|token| !token.is_empty()).map(Into::into),
        remaining,
    })
}
