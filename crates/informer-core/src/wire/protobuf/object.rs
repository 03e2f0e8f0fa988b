//! Incremental parsing of one object's message: copies the bytes to keep, and records the position of its
//! metadata.
//!
//! One pass, except for an object that arrived in one chunk (see [`super::single_chunk`]). The fields of
//! the object and of its `metadata` are parsed; their values are copied or skipped by length. The output is
//! written to one buffer in canonical form: the fields in the order in which they were sent, with tags and
//! lengths of minimal size, without `metadata.managedFields` and the fields that a [`FieldFilter`] leaves
//! out. The output stops growing at the size limit, and no memory is reserved for bytes that have not
//! arrived. The length of the object is known in advance, so the end of a malformed object is known as
//! well.

use super::METADATA;
use super::fields::{DATA, VARINT, put_data, put_varint, tag, varint_length};
use super::head::{self, HeadBuffers, numbers};
use super::prune::prune;
use super::single_chunk::without_managed_fields;
use super::walk::{Shape, Step, Walk, take};
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::error::{ObjectError, ProtobufError};
use crate::wire::field_filter::{FieldFilter, Level, ManagedFields, MemberAction};
use crate::wire::head::Head;
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, TypeMeta};
use informer_schema::{Message, MessageId, Part};
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Fields(Level),
    /// In the value of a field.
    Value {
        level: Level,
        is_copied: bool,
    },
}

/// Parses objects one after another and reuses its buffers.
#[derive(Debug)]
pub(super) struct ObjectReader {
    /// The message type of the cache's objects.
    message_type: MessageId,
    /// The message type of their `metadata`.
    metadata_type: Option<&'static Message>,
    limit: usize,
    field_filter: Option<FieldFilter>,
    /// Whether the field filter applies to the current object.
    filter_applies: bool,
    state: State,
    object: Walk,
    metadata: Walk,
    /// Length of the object in bytes.
    length: u64,
    /// Bytes remaining of the object.
    object_remaining: u64,
    /// Bytes remaining of the current value.
    value_remaining: u64,
    output: Vec<u8>,
    /// The reusable buffer, while `output` is the exactly sized buffer of an object that arrived in one
    /// chunk.
    spare_buffer: Vec<u8>,
    buffers: HeadBuffers,
    /// Start of the current field in `output`.
    field_start: usize,
    /// Start of the current value in `output`.
    value_start: usize,
    /// The rule of the field filter that prunes the current value once it is complete, with the part and the
    /// number of the current field.
    prune_rule: Option<(usize, &'static Part, u32)>,
    /// Buffer for a value that is being pruned.
    pruned: Vec<u8>,
    metadata_span: Option<MetadataSpan>,
    /// Whether fields did not fit, so that `output` is incomplete.
    truncated: bool,
    /// Whether the fields before the metadata did not fit and were discarded to keep the head.
    early_fields_discarded: bool,
    error: Option<ProtobufError>,
}

/// The position of the metadata in `output`.
#[derive(Debug, Clone, Copy)]
struct MetadataSpan {
    start: usize,
    /// Known once the metadata is complete.
    end: Option<usize>,
    /// Whether the metadata was read to its end and nothing was truncated.
    complete: bool,
}

/// Bytes reserved for the length of `metadata`, which is known only at its end. Nearly all lengths take two
/// bytes.
const RESERVED_LENGTH_BYTES: usize = 2;

impl ObjectReader {
    pub(super) fn new(message_type: MessageId, limit: usize) -> Self {
        Self {
            message_type,
            metadata_type: super::metadata_message(message_type).map(MessageId::get),
            limit,
            field_filter: None,
            filter_applies: true,
            state: State::Fields(Level::Object),
            object: Walk::new(0),
            metadata: Walk::new(0),
            length: 0,
            object_remaining: 0,
            value_remaining: 0,
            output: Vec::new(),
            spare_buffer: Vec::new(),
            buffers: HeadBuffers::default(),
            field_start: 0,
            value_start: 0,
            prune_rule: None,
            pruned: Vec::new(),
            metadata_span: None,
            truncated: false,
            early_fields_discarded: false,
            error: None,
        }
    }

    pub(super) fn set_field_filter(&mut self, field_filter: Option<FieldFilter>) {
        self.field_filter = field_filter;
    }

    pub(super) fn has_field_filter(&self) -> bool {
        self.field_filter.is_some()
    }

    /// Sets whether the field filter applies to the next object.
    pub(super) fn set_filter_applies(&mut self, applies: bool) {
        self.filter_applies = applies;
    }

    /// Applies the field filter to a complete object that was read without it. Does nothing if the filter was
    /// applied already, or if the object is too large or malformed.
    pub(super) fn filter_late(&mut self) {
        if self.filter_applies
            || self.field_filter.is_none()
            || self.truncated
            || self.early_fields_discarded
            || self.error.is_some()
        {
            return;
        }
        let output = std::mem::take(&mut self.output);
        self.begin(output.len() as u64);
        self.filter_applies = true;
        let complete = self.feed(&output, &mut 0);
        debug_assert!(complete, "a canonical object can be parsed again");
    }

    /// Starts an object of `length` bytes and keeps the buffers, up to 64 KiB each.
    pub(super) fn begin(&mut self, length: u64) {
        const RETAINED_CAPACITY_BYTES: usize = 64 * 1024;
        self.state = State::Fields(Level::Object);
        self.object = Walk::new(length);
        (self.length, self.object_remaining) = (length, length);
        let spare_buffer = std::mem::take(&mut self.spare_buffer);
        if self.output.capacity() < spare_buffer.capacity() {
            self.output = spare_buffer;
        }
        self.output.clear();
        self.output.shrink_to(RETAINED_CAPACITY_BYTES);
        self.pruned.clear();
        self.pruned.shrink_to(RETAINED_CAPACITY_BYTES);
        self.prune_rule = None;
        self.metadata_span = None;
        (self.truncated, self.early_fields_discarded, self.error) = (false, false, None);
    }

    /// Continues at `bytes[*at]`; `true` when the object is complete. The caller then reads the result.
    pub(super) fn feed(&mut self, bytes: &[u8], at: &mut usize) -> bool {
        let part = take(&mut self.object_remaining, bytes, at);
        if self.error.is_none() && !self.try_read_single_chunk(part) {
            self.error = self.walk(part).err();
        }
        self.object_remaining == 0
    }

    /// Reads an object that arrived in one chunk and is in canonical form. Returns `false`, and reads
    /// nothing, if `part` has to be parsed field by field.
    fn try_read_single_chunk(&mut self, part: &[u8]) -> bool {
        let is_filtered = self.filter_applies && self.field_filter.is_some();
        if part.len() as u64 != self.length || is_filtered || !self.drops_managed_fields() {
            return false;
        }
        // Field-by-field parsing reserves bytes for the length of the metadata and may not use all of them.
        // Whether an object fits must not depend on how it arrived, so an object this close to the limit is
        // parsed field by field.
        let Some(stripped) = without_managed_fields(part, self.limit.saturating_sub(RESERVED_LENGTH_BYTES))
        else {
            return false;
        };
        self.spare_buffer = std::mem::replace(&mut self.output, stripped.bytes);
        let Range { start, end } = stripped.metadata;
        self.metadata_span = Some(MetadataSpan { start, end: Some(end), complete: true });
        true
    }

    /// Returns the complete object and removes it from the reader.
    pub(super) fn take_object(&mut self) -> Result<ScannedObject, ObjectError> {
        let head = self.head()?;
        // An exactly sized buffer is moved; a reusable one is copied.
        let is_exact = self.output.len() == self.output.capacity();
        let bytes =
            if is_exact { std::mem::take(&mut self.output).into() } else { self.output.as_slice().into() };
        self.metadata_span = None;
        Ok(ScannedObject { head, bytes, encoding: EntryEncoding::Protobuf(self.message_type) })
    }

    /// Parses the head of the complete object.
    pub(super) fn head(&mut self) -> Result<Head, ObjectError> {
        if let Some(error) = self.error {
            return Err(ObjectError::MalformedProtobuf(error));
        }
        if self.truncated || self.early_fields_discarded {
            return Err(ObjectError::TooLarge { limit: self.limit });
        }
        let range = self.metadata_range();
        Ok(head::read(&self.output[range.clone()], range, &mut self.buffers)?)
    }

    /// The key and the resource version, each if it could be read.
    pub(super) fn peek_identity(&self) -> (Option<Key>, Option<ResourceVersion>) {
        let complete = self.metadata_span.is_some_and(|span| span.complete);
        head::peek_identity(&self.output[self.metadata_range()], complete)
    }

    /// Returns the value of an annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        head::annotation(&self.output[self.metadata_range()], name)
    }

    /// The output so far; complete unless the object was too large or malformed.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.output
    }

    /// The range of the metadata in `output`, as far as it was read.
    fn metadata_range(&self) -> Range<usize> {
        self.metadata_span.map_or(0..0, |span| span.start..span.end.unwrap_or(self.output.len()))
    }

    fn walk(&mut self, part: &[u8]) -> Result<(), ProtobufError> {
        let mut at = 0;
        loop {
            match self.state {
                State::Fields(level) => {
                    let walk = if level == Level::Object { &mut self.object } else { &mut self.metadata };
                    match walk.next(part, &mut at)? {
                        Step::NeedMore => return Ok(()),
                        Step::Field(number, shape) => self.enter(level, number, shape)?,
                        Step::End if level == Level::Object => return Ok(()),
                        Step::End => self.finish_metadata(),
                    }
                }
                State::Value { level, is_copied } => {
                    let value = take(&mut self.value_remaining, part, &mut at);
                    if is_copied {
                        self.output.extend_from_slice(value);
                    }
                    if self.value_remaining > 0 {
                        return Ok(());
                    }
                    self.state = State::Fields(level);
                    if let Some(rule) = self.prune_rule.take().filter(|_| is_copied) {
                        self.prune_value(rule);
                    }
                }
            }
        }
    }

    fn enter(&mut self, level: Level, number: u32, shape: Shape) -> Result<(), ProtobufError> {
        if let (Level::Object, METADATA, Shape::Data(length)) = (level, number, shape) {
            return self.enter_metadata(length);
        }
        self.value_remaining = shape.length();
        let is_copied = self.start_field(level, number, shape);
        self.state = State::Value { level, is_copied };
        Ok(())
    }

    fn enter_metadata(&mut self, length: u64) -> Result<(), ProtobufError> {
        // Protobuf merges repeated messages. No server repeats `metadata`, and a head in two places is not
        // supported.
        if self.metadata_span.is_some() {
            return Err(ProtobufError::Twice);
        }
        if self.truncated {
            // The object is too large. Without the fields so far, there is space for the head, which names the
            // object in the error.
            self.output.clear();
            (self.truncated, self.early_fields_discarded) = (false, true);
        }
        put_varint(&mut self.output, tag(METADATA, DATA));
        self.output.extend_from_slice(&[0; RESERVED_LENGTH_BYTES]);
        self.metadata_span = Some(MetadataSpan { start: self.output.len(), end: None, complete: false });
        self.metadata = Walk::new(length);
        self.state = State::Fields(Level::Metadata);
        Ok(())
    }

    /// Writes the length of the metadata, which is known now.
    fn finish_metadata(&mut self) {
        self.state = State::Fields(Level::Object);
        let Some(MetadataSpan { start, .. }) = self.metadata_span else { return };
        let length = (self.output.len() - start) as u64;
        let (reserved, mut written) =
            (start - RESERVED_LENGTH_BYTES..start, Vec::with_capacity(RESERVED_LENGTH_BYTES + 1));
        put_varint(&mut written, length);
        let start = reserved.start + written.len();
        if written.len() == RESERVED_LENGTH_BYTES {
            self.output[reserved].copy_from_slice(&written);
        } else {
            self.output.splice(reserved, written);
        }
        let complete = !self.truncated;
        self.metadata_span = Some(MetadataSpan { start, end: Some(self.output.len()), complete });
        self.truncated |= self.output.len() > self.limit;
    }

    /// Writes the tag of a field, and its length or number; `false` if the field is left out.
    fn start_field(&mut self, level: Level, number: u32, shape: Shape) -> bool {
        if level == Level::Metadata && number == numbers::MANAGED && self.drops_managed_fields() {
            return false;
        }
        let part = self.part(level, number);
        let action = self.action(level, part);
        if action == MemberAction::Drop || self.truncated {
            return false;
        }
        let (wire_type, varint) = match shape {
            Shape::Varint(value) => (VARINT, Some(value)),
            Shape::Data(length) => (DATA, Some(length)),
            Shape::Fixed(wire_type, _) => (wire_type, None),
        };
        let tag = tag(number, wire_type);
        let needed = varint_length(tag) + varint.map_or(0, varint_length);
        let available = self.limit.checked_sub(self.output.len() + needed);
        if available.is_none_or(|available| shape.length() > available as u64) {
            self.truncated = true;
            return false;
        }
        self.field_start = self.output.len();
        put_varint(&mut self.output, tag);
        if let Some(varint) = varint {
            put_varint(&mut self.output, varint);
        }
        self.value_start = self.output.len();
        self.prune_rule = match (action, part) {
            (MemberAction::Prune(rule), Some(part)) if wire_type == DATA => Some((rule, part, number)),
            _ => None,
        };
        true
    }

    /// Whether managed fields are left out, also of objects to which the filter does not apply yet.
    fn drops_managed_fields(&self) -> bool {
        FieldFilter::managed_fields(self.field_filter.as_ref()) == ManagedFields::Drop
    }

    /// Returns the part of a field; `None` if the table does not know it, or if no field filter needs it.
    fn part(&self, level: Level, number: u32) -> Option<&'static Part> {
        self.field_filter.as_ref().filter(|_| self.filter_applies)?;
        let message_type =
            if level == Level::Object { Some(self.message_type.get()) } else { self.metadata_type };
        message_type?.part(u64::from(number))
    }

    /// Returns how the field filter treats a field. A field that the table does not know has no name, so no
    /// path names it.
    fn action(&self, level: Level, part: Option<&Part>) -> MemberAction {
        let field_filter = self.field_filter.as_ref().filter(|_| self.filter_applies);
        field_filter.map_or(MemberAction::Keep, |filter| {
            filter.action(level, part.map_or("", |part| part.name).as_bytes())
        })
    }

    /// Prunes the current value, which is complete.
    fn prune_value(&mut self, (rule, part, number): (usize, &'static Part, u32)) {
        let Some(field_filter) = self.field_filter.as_ref() else { return };
        let (mode, paths) = field_filter.rule(rule);
        self.pruned.clear();
        let is_kept = prune(mode, &paths, part.wire, &self.output[self.value_start..], &mut self.pruned);
        self.output.truncate(self.field_start);
        if is_kept {
            put_data(&mut self.output, number, &self.pruned);
        }
    }
}

/// Checks that an object of the declared type belongs in the cache.
pub(super) fn check_type(
    declared: &super::envelope::EnvelopeType,
    type_meta: &TypeMeta,
) -> Result<(), ObjectError> {
    if declared.is_of(type_meta)
        || type_meta.also_accepted.as_deref().is_some_and(|other| declared.is_of(other))
    {
        return Ok(());
    }
    let found = format!("{} {}", declared.api_version, declared.kind);
    Err(ObjectError::OtherKind { found: found.trim().into() })
}
