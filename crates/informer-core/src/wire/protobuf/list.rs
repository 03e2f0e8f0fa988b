//! Incremental parsing of a list's body.
//!
//! The body is an envelope around a message with the list's metadata and items. Items are produced one by
//! one, and the list's own metadata as soon as it is complete, in any order (servers send the metadata
//! first). The reader buffers one item and the list's metadata.

use super::envelope::{Envelope, Step as EnvelopeStep};
use super::fields::{Fields, Payload};
use super::message_of;
use super::object::ObjectReader;
use super::walk::{Shape, Step, Walk, take};
use crate::version::ResourceVersion;
use crate::wire::error::{
    BodyElement, BodyErrorKind, BodyLocation, ObjectError, ProtobufError, UnreadableObject, WireError,
};
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{ListItem, ListMeta, MAX_METADATA_BYTES};
use crate::wire::{Limits, TypeMeta, append_up_to};
use std::ops::ControlFlow;

/// Field numbers of a list's metadata and items; a test compares them with the table of `informer-schema`.
const LIST_METADATA: u32 = 1;
const ITEMS: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Envelope,
    /// In the list's message.
    List,
    Metadata,
    Item,
    /// In an item that is not a message.
    OddItem,
    /// In the value of an unknown field.
    Skipped,
}

/// An incremental parser of one list body in protobuf.
#[derive(Debug)]
pub struct ProtobufListReader {
    type_meta: TypeMeta,
    state: State,
    envelope: Envelope,
    list: Walk,
    object: ObjectReader,
    /// Bytes remaining of the current value.
    remaining_bytes: u64,
    /// Buffer of the list's metadata.
    metadata: Vec<u8>,
    location: BodyLocation,
    /// Offset of the current item in the body.
    item_start: u64,
    has_meta: bool,
}

impl ProtobufListReader {
    /// Creates a reader for a list of objects of this type; `None` if the kind has no protobuf.
    pub fn new(type_meta: TypeMeta, limits: Limits) -> Option<Self> {
        let message_type = message_of(&type_meta)?;
        Some(Self {
            object: ObjectReader::new(message_type, limits.max_object_bytes),
            type_meta,
            state: State::Envelope,
            // The envelope ends with the body.
            envelope: Envelope::new(u64::MAX),
            list: Walk::new(0),
            remaining_bytes: 0,
            metadata: Vec::new(),
            location: BodyLocation { index: 0, byte: 0 },
            item_start: 0,
            has_meta: false,
        })
    }

    /// Leaves out of each object the fields that the filter drops.
    #[must_use]
    pub fn with_field_filter(mut self, field_filter: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(field_filter);
        self
    }

    /// Reads from the front of `chunk` up to the next item and returns it; `None` when the chunk is consumed.
    ///
    /// # Errors
    ///
    /// If the body is malformed or not a list of this type.
    pub fn next(&mut self, chunk: &mut &[u8]) -> Result<Option<ListItem>, WireError> {
        let (bytes, base) = (*chunk, self.location.byte);
        let mut at = 0;
        loop {
            let result = self.step(bytes, &mut at, base);
            self.location.byte = base + at as u64;
            if let ControlFlow::Break(item) = result.map_err(|kind| self.error(kind))? {
                *chunk = &bytes[at..];
                return Ok(item);
            }
        }
    }

    /// Reads a chunk and calls `visit` with each item that the chunk completes.
    ///
    /// # Errors
    ///
    /// Like [`Self::next`].
    pub fn read(&mut self, mut chunk: &[u8], mut visit: impl FnMut(ListItem)) -> Result<(), WireError> {
        while let Some(item) = self.next(&mut chunk)? {
            visit(item);
        }
        Ok(())
    }

    /// Checks that the body may end here.
    ///
    /// # Errors
    ///
    /// If the body is incomplete or has no metadata.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.state != State::Envelope || !self.envelope.is_complete() {
            return Err(self.error(BodyErrorKind::Truncated));
        }
        if !self.has_meta {
            return Err(self.error(BodyErrorKind::ListMeta { reason: "missing" }));
        }
        Ok(())
    }

    fn error(&self, kind: BodyErrorKind) -> WireError {
        let is_item = matches!(self.state, State::Item | State::OddItem);
        let element = if is_item { BodyElement::Item } else { BodyElement::List };
        WireError { element, location: self.location, kind }
    }

    /// Performs one step; breaks with the item that the step completes, or with `None` if the chunk is
    /// consumed. `base` is the offset of `chunk` in the body.
    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
    ) -> Result<ControlFlow<Option<ListItem>>, BodyErrorKind> {
        match self.state {
            State::Envelope => match self.envelope.next(chunk, at)? {
                EnvelopeStep::NeedMore | EnvelopeStep::End => return Ok(ControlFlow::Break(None)),
                EnvelopeStep::Object(length) => {
                    self.check_kind()?;
                    self.list = Walk::new(length);
                    self.state = State::List;
                }
            },
            State::List => match self.list.next(chunk, at)? {
                Step::NeedMore => return Ok(ControlFlow::Break(None)),
                Step::End => self.state = State::Envelope,
                Step::Field(number, shape) => self.enter(number, shape, base + *at as u64)?,
            },
            State::Metadata | State::OddItem | State::Skipped => {
                let part = take(&mut self.remaining_bytes, chunk, at);
                if self.state == State::Metadata {
                    append_up_to(&mut self.metadata, part, MAX_METADATA_BYTES);
                }
                if self.remaining_bytes > 0 {
                    return Ok(ControlFlow::Break(None));
                }
                if let Some(item) = self.finish_value()? {
                    return Ok(ControlFlow::Break(Some(item)));
                }
            }
            State::Item => {
                if !self.object.feed(chunk, at) {
                    return Ok(ControlFlow::Break(None));
                }
                let item = self.take_item();
                self.finish_item();
                return Ok(ControlFlow::Break(Some(item)));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Checks that the body is a list of the cache's kind. Without this check, a message of another kind
    /// could be misread, because it has other fields with the same numbers. Only built-in kinds have
    /// protobuf, and their lists are named after the kind.
    fn check_kind(&self) -> Result<(), BodyErrorKind> {
        let declared = &self.envelope.declared_type;
        if declared.is_list_of(&self.type_meta)
            || self.type_meta.also_accepted.as_deref().is_some_and(|other| declared.is_list_of(other))
        {
            return Ok(());
        }
        let found = match (&*declared.kind, &*declared.api_version) {
            ("", _) => "body without a kind".into(),
            (kind, "v1" | "") => kind.into(),
            (kind, api_version) => format!("{kind} of {api_version}").into(),
        };
        Err(if declared.kind.ends_with("List") {
            BodyErrorKind::OtherKind { found }
        } else {
            BodyErrorKind::NotAList { found }
        })
    }

    fn enter(&mut self, number: u32, shape: Shape, byte: u64) -> Result<(), BodyErrorKind> {
        self.remaining_bytes = shape.length();
        self.state = match (number, shape) {
            (LIST_METADATA, Shape::Data(_)) => {
                if self.has_meta {
                    return Err(BodyErrorKind::ListMeta { reason: "present twice" });
                }
                self.metadata.clear();
                State::Metadata
            }
            (ITEMS, Shape::Data(length)) => {
                self.item_start = byte;
                self.object.begin(length);
                State::Item
            }
            (ITEMS, _) => {
                self.item_start = byte;
                // Discards the previous object, whose key would be reported.
                self.object.begin(0);
                State::OddItem
            }
            _ => State::Skipped,
        };
        Ok(())
    }

    fn finish_value(&mut self) -> Result<Option<ListItem>, BodyErrorKind> {
        Ok(match std::mem::replace(&mut self.state, State::List) {
            State::Metadata => {
                let meta = read_meta(&self.metadata)?;
                self.has_meta = true;
                Some(ListItem::Meta(meta))
            }
            State::OddItem => {
                let item = ListItem::Unreadable(self.unreadable(ObjectError::NotAnObject));
                self.finish_item();
                Some(item)
            }
            _ => None,
        })
    }

    fn take_item(&mut self) -> ListItem {
        match self.object.take_object() {
            Ok(object) => ListItem::Object(object),
            Err(error) => ListItem::Unreadable(self.unreadable(error)),
        }
    }

    fn unreadable(&self, error: ObjectError) -> UnreadableObject {
        let location = BodyLocation { index: self.location.index, byte: self.item_start };
        let (key, version) = self.object.peek_identity();
        UnreadableObject { key, version, location, error }
    }

    fn finish_item(&mut self) {
        self.location.index += 1;
        self.state = State::List;
    }
}

fn read_meta(bytes: &[u8]) -> Result<ListMeta, BodyErrorKind> {
    let invalid = |reason| BodyErrorKind::ListMeta { reason };
    let (mut version, mut continue_token, mut remaining) = ("", "", None);
    let mut fields = Fields(bytes);
    let mut next = || fields.next().map_err(|_: ProtobufError| invalid("not a protobuf message"));
    while let Some((number, payload)) = next()? {
        let text = |payload| match payload {
            Payload::Data(bytes) => {
                std::str::from_utf8(bytes).map_err(|_| invalid("a field has the wrong type"))
            }
            _ => Err(invalid("a field has the wrong type")),
        };
        // A test compares the field numbers with the table of `informer-schema`.
        match (number, payload) {
            (2, payload) => version = text(payload)?,
            (3, payload) => continue_token = text(payload)?,
            (4, Payload::Varint(count)) => remaining = u64::try_from(count.cast_signed()).ok(),
            (4, _) => return Err(invalid("a field has the wrong type")),
            _ => {}
        }
    }
    if version.is_empty() {
        return Err(invalid("no resourceVersion"));
    }
    Ok(ListMeta {
        version: ResourceVersion::new(version),
        continue_token: Some(continue_token).filter(|token| !token.is_empty()).map(Into::into),
        remaining,
    })
}
