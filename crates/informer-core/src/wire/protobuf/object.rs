//! Reading one object's message as its bytes arrive: what is kept, and where its metadata lies.
//!
//! One pass, but for an object that came whole (see [`super::whole`]). The fields of the object and of its `metadata` are walked; what they hold is copied or passed over by its length. What
//! is kept is written to one buffer in canonical form: the fields in the order in which they came, with lengths that fit, without
//! `metadata.managedFields` and what a [`FieldFilter`] leaves out. Nothing beyond the size limit is ever held, and nothing is made room for
//! before it is there. How long the object is was said before it, so one that is broken inside ends all the same.

use super::METADATA;
use super::fields::{DATA, VARINT, put_data, put_varint, tag, varint_length};
use super::head::{self, Rows, numbers};
use super::prune::prune;
use super::walk::{Shape, Step, Walk, take};
use super::whole::whole;
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::field_filter::{FieldFilter, Level, MemberAction};
use crate::wire::head::Head;
use crate::wire::problem::{ObjectError, ProtobufError};
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, TypeMeta};
use informer_schema::{Message, MessageId, Part};
use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Fields(Level),
    /// In a value, which is kept or not.
    Value(Level, bool),
}

/// Reads objects one after another; its buffer is used again.
#[derive(Debug)]
pub(super) struct ObjectReader {
    /// What the cache's objects are, and what their metadata is: a projection goes by their names.
    of: MessageId,
    metadata_of: Option<&'static Message>,
    limit: usize,
    field_filter: Option<FieldFilter>,
    /// Whether the projection is meant for the current object.
    filters: bool,
    at: At,
    object: Walk,
    metadata: Walk,
    /// How long the object is, and how much of it is still to come.
    length: u64,
    rest: u64,
    /// How much of the current value is.
    left: u64,
    kept: Vec<u8>,
    /// A buffer for objects that come in pieces, while `kept` is that of one that came whole.
    spare: Vec<u8>,
    rows: Rows,
    /// Where in `kept` the current field begins, and its value; and how the projection cuts it when it is complete.
    field_start: usize,
    value_start: usize,
    prune_by: Option<(usize, &'static Part, u32)>,
    /// What is left of a value that is being cut.
    remains: Vec<u8>,
    metadata_at: Option<MetadataAt>,
    /// Fields that did not fit; `kept` is then only a part.
    truncated: bool,
    /// The object did not fit, and what came before its metadata was given up for it: the head is worth more.
    lost: bool,
    broken: Option<ProtobufError>,
}

/// Where in `kept` the metadata lies.
#[derive(Debug, Clone, Copy)]
struct MetadataAt {
    start: usize,
    /// Known when it is over.
    end: Option<usize>,
    /// Whether it is over, and all there.
    whole: bool,
}

/// How much room is made for the length of `metadata`, which nearly always takes as much.
const RESERVED_LENGTH_BYTES: usize = 2;

impl ObjectReader {
    pub(super) fn new(of: MessageId, limit: usize) -> Self {
        Self {
            of,
            metadata_of: super::metadata_message(of).map(MessageId::get),
            limit,
            field_filter: None,
            filters: true,
            at: At::Fields(Level::Object),
            object: Walk::new(0),
            metadata: Walk::new(0),
            length: 0,
            rest: 0,
            left: 0,
            kept: Vec::new(),
            spare: Vec::new(),
            rows: Rows::default(),
            field_start: 0,
            value_start: 0,
            prune_by: None,
            remains: Vec::new(),
            metadata_at: None,
            truncated: false,
            lost: false,
            broken: None,
        }
    }

    pub(super) fn set_field_filter(&mut self, projection: Option<FieldFilter>) {
        self.field_filter = projection;
    }

    pub(super) fn has_field_filter(&self) -> bool {
        self.field_filter.is_some()
    }

    /// Says whether the projection is meant for the object to come.
    pub(super) fn set_filters(&mut self, projects: bool) {
        self.filters = projects;
    }

    /// Applies the projection to a complete object for which it did not seem to be meant.
    pub(super) fn filter_late(&mut self) {
        if self.filters || self.field_filter.is_none() || self.truncated || self.lost || self.broken.is_some()
        {
            return;
        }
        let kept = std::mem::take(&mut self.kept);
        self.begin(kept.len() as u64);
        self.filters = true;
        let complete = self.feed(&kept, &mut 0);
        debug_assert!(complete, "what was read once reads again");
    }

    /// Begins an object of so many bytes, keeping the buffer unless the last one was far above the usual.
    pub(super) fn begin(&mut self, length: u64) {
        const RETAINED_CAPACITY_BYTES: usize = 64 * 1024;
        self.at = At::Fields(Level::Object);
        self.object = Walk::new(length);
        (self.length, self.rest) = (length, length);
        let spare = std::mem::take(&mut self.spare);
        if self.kept.capacity() < spare.capacity() {
            self.kept = spare;
        }
        self.kept.clear();
        self.kept.shrink_to(RETAINED_CAPACITY_BYTES);
        self.remains.clear();
        self.remains.shrink_to(RETAINED_CAPACITY_BYTES);
        self.prune_by = None;
        self.metadata_at = None;
        (self.truncated, self.lost, self.broken) = (false, false, None);
    }

    /// Goes on from `bytes[*at]`; `true` when the object is complete. Then one of the `take_…` follows.
    pub(super) fn feed(&mut self, bytes: &[u8], at: &mut usize) -> bool {
        let part = take(&mut self.rest, bytes, at);
        if self.broken.is_none() && !self.keep_whole(part) {
            self.broken = self.walk(part).err();
        }
        self.rest == 0
    }

    /// Keeps an object that came in one piece and is as usual; `false` if it has to be walked through.
    fn keep_whole(&mut self, part: &[u8]) -> bool {
        if part.len() as u64 != self.length || (self.filters && self.field_filter.is_some()) {
            return false;
        }
        // While the metadata of one that came in pieces is read, its length may take more.
        let Some(found) = whole(part, self.limit.saturating_sub(RESERVED_LENGTH_BYTES)) else { return false };
        self.spare = std::mem::replace(&mut self.kept, found.bytes);
        let Range { start, end } = found.metadata;
        self.metadata_at = Some(MetadataAt { start, end: Some(end), whole: true });
        true
    }

    /// The complete object. It is gone from here.
    pub(super) fn take_object(&mut self) -> Result<ScannedObject, ObjectError> {
        let head = self.head()?;
        // The buffer of one that came in pieces has room to spare, and is used again.
        let fits = self.kept.len() == self.kept.capacity();
        let bytes = if fits { std::mem::take(&mut self.kept).into() } else { self.kept.as_slice().into() };
        self.metadata_at = None;
        Ok(ScannedObject { head, bytes, encoding: EntryEncoding::Protobuf(self.of) })
    }

    /// The head of the complete object.
    pub(super) fn head(&mut self) -> Result<Head, ObjectError> {
        if let Some(broken) = self.broken {
            return Err(ObjectError::MalformedProtobuf(broken));
        }
        if self.truncated || self.lost {
            return Err(ObjectError::TooLarge { limit: self.limit });
        }
        let at = self.metadata_range();
        Ok(head::read(&self.kept[at.clone()], at, &mut self.rows)?)
    }

    /// The key and the version, if that much reads.
    pub(super) fn peek_identity(&self) -> (Option<Key>, Option<ResourceVersion>) {
        let whole = self.metadata_at.is_some_and(|at| at.whole);
        head::peek_identity(&self.kept[self.metadata_range()], whole)
    }

    /// One annotation.
    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        head::annotation(&self.kept[self.metadata_range()], name)
    }

    /// What was kept so far; complete unless the object was too large or broken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.kept
    }

    /// Where in `kept` the metadata is, as far as it came.
    fn metadata_range(&self) -> Range<usize> {
        self.metadata_at.map_or(0..0, |at| at.start..at.end.unwrap_or(self.kept.len()))
    }

    fn walk(&mut self, part: &[u8]) -> Result<(), ProtobufError> {
        let mut at = 0;
        loop {
            match self.at {
                At::Fields(level) => {
                    let walk = if level == Level::Object { &mut self.object } else { &mut self.metadata };
                    match walk.next(part, &mut at)? {
                        Step::NeedMore => return Ok(()),
                        Step::Field(number, shape) => self.enter(level, number, shape)?,
                        Step::End if level == Level::Object => return Ok(()),
                        Step::End => self.finish_metadata(),
                    }
                }
                At::Value(level, keep) => {
                    let value = take(&mut self.left, part, &mut at);
                    if keep {
                        self.kept.extend_from_slice(value);
                    }
                    if self.left > 0 {
                        return Ok(());
                    }
                    self.at = At::Fields(level);
                    if let Some(by) = self.prune_by.take().filter(|_| keep) {
                        self.prune_value(by);
                    }
                }
            }
        }
    }

    fn enter(&mut self, level: Level, number: u32, shape: Shape) -> Result<(), ProtobufError> {
        if let (Level::Object, METADATA, Shape::Data(length)) = (level, number, shape) {
            return self.enter_metadata(length);
        }
        self.left = shape.length();
        let keep = self.admit(level, number, shape);
        self.at = At::Value(level, keep);
        Ok(())
    }

    fn enter_metadata(&mut self, length: u64) -> Result<(), ProtobufError> {
        // Protobuf would merge the two. Nobody sends that, and a head that is in two places is not worth having.
        if self.metadata_at.is_some() {
            return Err(ProtobufError::Twice);
        }
        if self.truncated {
            self.kept.clear();
            (self.truncated, self.lost) = (false, true);
        }
        put_varint(&mut self.kept, tag(METADATA, DATA));
        self.kept.extend_from_slice(&[0; RESERVED_LENGTH_BYTES]);
        self.metadata_at = Some(MetadataAt { start: self.kept.len(), end: None, whole: false });
        self.metadata = Walk::new(length);
        self.at = At::Fields(Level::Metadata);
        Ok(())
    }

    /// Writes the length of the metadata, which is known now.
    fn finish_metadata(&mut self) {
        self.at = At::Fields(Level::Object);
        let Some(MetadataAt { start, .. }) = self.metadata_at else { return };
        let length = (self.kept.len() - start) as u64;
        let (room, mut written) =
            (start - RESERVED_LENGTH_BYTES..start, Vec::with_capacity(RESERVED_LENGTH_BYTES + 1));
        put_varint(&mut written, length);
        let start = room.start + written.len();
        if written.len() == RESERVED_LENGTH_BYTES {
            self.kept[room].copy_from_slice(&written);
        } else {
            self.kept.splice(room, written);
        }
        let whole = !self.truncated;
        self.metadata_at = Some(MetadataAt { start, end: Some(self.kept.len()), whole });
        self.truncated |= self.kept.len() > self.limit;
    }

    /// Lets a field in, tag and length first; `false` if it is left out.
    fn admit(&mut self, level: Level, number: u32, shape: Shape) -> bool {
        if level == Level::Metadata && number == numbers::MANAGED {
            return false;
        }
        let part = self.part(level, number);
        let fate = self.action(level, part);
        if fate == MemberAction::Drop || self.truncated {
            return false;
        }
        let (layout, head) = match shape {
            Shape::Varint(value) => (VARINT, Some(value)),
            Shape::Data(length) => (DATA, Some(length)),
            Shape::Fixed(layout, _) => (layout, None),
        };
        let tag = tag(number, layout);
        let needs = varint_length(tag) + head.map_or(0, varint_length);
        let room = self.limit.checked_sub(self.kept.len() + needs);
        if room.is_none_or(|room| shape.length() > room as u64) {
            self.truncated = true;
            return false;
        }
        self.field_start = self.kept.len();
        put_varint(&mut self.kept, tag);
        if let Some(head) = head {
            put_varint(&mut self.kept, head);
        }
        self.value_start = self.kept.len();
        self.prune_by = match (fate, part) {
            (MemberAction::Prune(by), Some(part)) if layout == DATA => Some((by, part, number)),
            _ => None,
        };
        true
    }

    fn part(&self, level: Level, number: u32) -> Option<&'static Part> {
        self.field_filter.as_ref().filter(|_| self.filters)?;
        let of = if level == Level::Object { Some(self.of.get()) } else { self.metadata_of };
        of?.part(u64::from(number))
    }

    /// What the projection makes of a field. One that the table does not know is one that nobody can name.
    fn action(&self, level: Level, part: Option<&Part>) -> MemberAction {
        let projection = self.field_filter.as_ref().filter(|_| self.filters);
        projection
            .map_or(MemberAction::Keep, |by| by.action(level, part.map_or("", |part| part.name).as_bytes()))
    }

    /// Cuts the current value, which is complete.
    fn prune_value(&mut self, (by, part, number): (usize, &'static Part, u32)) {
        let Some(projection) = self.field_filter.as_ref() else { return };
        let (mode, paths) = projection.rule(by);
        self.remains.clear();
        let stays = prune(mode, &paths, part.wire, &self.kept[self.value_start..], &mut self.remains);
        self.kept.truncate(self.field_start);
        if stays {
            put_data(&mut self.kept, number, &self.remains);
        }
    }
}

/// Whether an object that says it is of some type may be in the cache.
pub(super) fn check_type(said: &super::envelope::EnvelopeType, types: &TypeMeta) -> Result<(), ObjectError> {
    if said.is_of(types) || types.also_accepted.as_deref().is_some_and(|other| said.is_of(other)) {
        return Ok(());
    }
    let found = format!("{} {}", said.api_version, said.kind);
    Err(ObjectError::OtherKind { found: found.trim().into() })
}
