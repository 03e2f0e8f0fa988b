//! Reading a watch stream as it arrives.
//!
//! A frame is its length in four bytes and a message with the type of the event and the object, which has an envelope of its own. A frame
//! whose object cannot be read is handed out as [`Frame::Unreadable`] and the next one is read; only what is no frame at all ends the stream.
//! The reader holds one frame.

use super::envelope::{Envelope, Step as Opened};
use super::message_of;
use super::object::{ObjectReader, check_type};
use super::status::status_of;
use super::walk::{Shape, Step, Walk, take};
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{Frame, FrameKind, INITIAL_EVENTS_END, MAX_TYPE_BYTES};
use crate::wire::problem::{
    BodyErrorKind, BodyLocation, ObjectError, ProtobufError, UnreadableObject, WireError,
};
use crate::wire::scanned::ScannedObject;
use crate::wire::status::Status;
use crate::wire::{Limits, TypeMeta, keep_beginning};

/// What a frame may have beyond the largest object: `managedFields`, and what a projection drops.
const MAX_FRAME_OVERHEAD_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// So many bytes of the length were read.
    Length(u8),
    /// In the event.
    Event,
    Type,
    /// In the message around the object's bytes.
    Extension,
    /// In the object's bytes.
    Object,
    /// In a value that is passed over, of the event or of the extension.
    EventValue,
    ExtensionValue,
}

/// How far reading the object's bytes has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    Envelope,
    Message,
    /// Nothing more is wanted of them.
    Over,
}

/// Reads one watch stream in protobuf.
#[derive(Debug)]
pub struct ProtobufWatchReader {
    type_meta: TypeMeta,
    max_frame_bytes: u64,
    at: At,
    inside: Inside,
    length: [u8; 4],
    event: Walk,
    extension: Walk,
    /// What is left of the value that is being read.
    left: u64,
    envelope: Envelope,
    object: ObjectReader,
    /// The event's type.
    kind: Vec<u8>,
    saw_object: bool,
    /// What is wrong with the bytes around the object.
    broken: Option<ProtobufError>,
    location: BodyLocation,
    /// Where the current frame began.
    frame_start: u64,
    /// What ended it: frames cannot be told apart any more.
    failed: Option<ProtobufError>,
}

impl ProtobufWatchReader {
    /// A reader for a watch on objects of this type; `None` if the kind has no protobuf.
    pub fn new(types: TypeMeta, limits: Limits) -> Option<Self> {
        let of = message_of(&types)?;
        Some(Self {
            max_frame_bytes: limits.max_object_bytes.saturating_add(MAX_FRAME_OVERHEAD_BYTES) as u64,
            object: ObjectReader::new(of, limits.max_object_bytes),
            type_meta: types,
            at: At::Length(0),
            inside: Inside::Over,
            length: [0; 4],
            event: Walk::new(0),
            extension: Walk::new(0),
            left: 0,
            envelope: Envelope::new(0),
            kind: Vec::new(),
            saw_object: false,
            broken: None,
            location: BodyLocation { index: 0, byte: 0 },
            frame_start: 0,
            failed: None,
        })
    }

    /// The same, leaving out of each object what the projection leaves out. Bookmarks and errors are read whole.
    #[must_use]
    pub fn with_field_filter(mut self, projection: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(projection);
        self
    }

    /// Reads the next chunk, handing each frame it completes to `on`. What ends it ends it for good: nothing is read after an error.
    pub fn read(&mut self, chunk: &[u8], mut on: impl FnMut(Frame)) -> Result<(), WireError> {
        if let Some(problem) = self.failed {
            return Err(self.error(problem.into()));
        }
        let base = self.location.byte;
        let mut at = 0;
        loop {
            let result = self.step(chunk, &mut at, base, &mut on);
            self.location.byte = base + at as u64;
            match result {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(problem) => {
                    self.failed = Some(problem);
                    return Err(self.error(problem.into()));
                }
            }
        }
    }

    /// Says that the stream is over; an error if that happened inside a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.at == At::Length(0) { Ok(()) } else { Err(self.error(BodyErrorKind::Truncated)) }
    }

    fn error(&self, problem: BodyErrorKind) -> WireError {
        WireError { what: "frame", location: self.location, kind: problem }
    }

    /// `false` if the chunk is used up.
    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
        on: &mut impl FnMut(Frame),
    ) -> Result<bool, ProtobufError> {
        match self.at {
            At::Length(have) => {
                let Some(&byte) = chunk.get(*at) else { return Ok(false) };
                if have == 0 {
                    self.frame_start = base + *at as u64;
                }
                *at += 1;
                self.length[usize::from(have)] = byte;
                if have == 3 {
                    self.at = At::Event;
                    self.begin_frame()?;
                } else {
                    self.at = At::Length(have + 1);
                }
            }
            At::Event => match self.event.next(chunk, at)? {
                Step::NeedMore => return Ok(false),
                Step::End => self.finish_frame(on),
                Step::Field(number, shape) => self.enter_event_field(number, shape),
            },
            At::Extension => match self.extension.next(chunk, at)? {
                Step::NeedMore => return Ok(false),
                Step::End => self.at = At::Event,
                Step::Field(number, shape) => self.enter_extension_field(number, shape),
            },
            At::Type | At::EventValue | At::ExtensionValue => {
                let part = take(&mut self.left, chunk, at);
                if self.at == At::Type {
                    keep_beginning(&mut self.kind, part, MAX_TYPE_BYTES);
                }
                if self.left > 0 {
                    return Ok(false);
                }
                self.at = if self.at == At::ExtensionValue { At::Extension } else { At::Event };
            }
            At::Object => {
                let part = take(&mut self.left, chunk, at);
                self.read_object(part);
                if self.left > 0 {
                    return Ok(false);
                }
                self.at = At::Extension;
            }
        }
        Ok(true)
    }

    fn begin_frame(&mut self) -> Result<(), ProtobufError> {
        let length = u32::from_be_bytes(self.length);
        if u64::from(length) > self.max_frame_bytes {
            return Err(ProtobufError::Frame(length));
        }
        self.event = Walk::new(u64::from(length));
        self.kind.clear();
        (self.saw_object, self.broken) = (false, None);
        self.object.begin(0);
        Ok(())
    }

    fn enter_event_field(&mut self, number: u32, shape: Shape) {
        self.left = shape.length();
        self.at = match (number, shape) {
            (1, Shape::Data(_)) => {
                self.kind.clear();
                At::Type
            }
            (2, Shape::Data(length)) => {
                self.extension = Walk::new(length);
                At::Extension
            }
            _ => At::EventValue,
        };
    }

    fn enter_extension_field(&mut self, number: u32, shape: Shape) {
        self.left = shape.length();
        self.at = match (number, shape) {
            (1, Shape::Data(length)) => {
                (self.saw_object, self.broken) = (true, None);
                self.inside = Inside::Envelope;
                self.envelope.reset(length);
                // Of what came before in this frame nothing counts.
                self.object.begin(0);
                // A bookmark's annotations and an error's status are for us.
                self.object.set_filters(self.is_change());
                At::Object
            }
            _ => At::ExtensionValue,
        };
    }

    /// Reads on in the object's bytes. What is wrong in them is the object's trouble alone.
    fn read_object(&mut self, part: &[u8]) {
        if let Err(broken) = self.walk_object(part) {
            self.broken = Some(broken);
            self.inside = Inside::Over;
        } else if self.left == 0 && self.inside != Inside::Over {
            self.broken = Some(ProtobufError::Short);
        }
    }

    fn walk_object(&mut self, part: &[u8]) -> Result<(), ProtobufError> {
        let mut at = 0;
        loop {
            match self.inside {
                Inside::Over => return Ok(()),
                Inside::Envelope => match self.envelope.next(part, &mut at)? {
                    Opened::NeedMore => return Ok(()),
                    Opened::End => self.inside = Inside::Over,
                    Opened::Object(length) => {
                        self.object.begin(length);
                        self.inside = Inside::Message;
                    }
                },
                Inside::Message => {
                    if !self.object.feed(part, &mut at) {
                        return Ok(());
                    }
                    self.inside = Inside::Envelope;
                }
            }
        }
    }

    fn finish_frame(&mut self, on: &mut impl FnMut(Frame)) {
        // The type may stand behind the object; no server is known to do that, so reading twice then is no loss.
        if self.saw_object && self.is_change() {
            self.object.filter_late();
        }
        on(self.frame());
        self.location.index += 1;
        self.at = At::Length(0);
    }

    /// Whether the frame is known to carry an object of the cache.
    fn is_change(&self) -> bool {
        self.object.has_field_filter()
            && matches!(
                FrameKind::named(&self.kind),
                FrameKind::Added | FrameKind::Modified | FrameKind::Deleted
            )
    }

    fn frame(&mut self) -> Frame {
        let kind = FrameKind::named(&self.kind);
        match kind {
            FrameKind::Error => Frame::Error(self.status().unwrap_or_default()),
            FrameKind::Bookmark => Frame::Bookmark {
                version: self.object.peek_identity().1,
                initial_events_end: self.object.annotation(INITIAL_EVENTS_END) == Some("true"),
            },
            _ if !self.saw_object => self.unreadable(kind, ObjectError::NotAnObject),
            FrameKind::Added => self.change(kind, Frame::Added),
            FrameKind::Modified => self.change(kind, Frame::Modified),
            FrameKind::Deleted => self.change(kind, Frame::Deleted),
            FrameKind::Unknown(_) => {
                let problem = self.check().and_then(|()| self.object.head()).err();
                self.unreadable(kind, problem.unwrap_or(ObjectError::UnknownFrame))
            }
        }
    }

    fn change(&mut self, kind: FrameKind, frame: fn(ScannedObject) -> Frame) -> Frame {
        match self.check().and_then(|()| self.object.take_object()) {
            Ok(object) => frame(object),
            Err(problem) => self.unreadable(kind, problem),
        }
    }

    /// Whether what is around the object says that it is one of the cache's.
    fn check(&self) -> Result<(), ObjectError> {
        match self.broken {
            Some(broken) => Err(ObjectError::MalformedProtobuf(broken)),
            None => check_type(&self.envelope.declared_type, &self.type_meta),
        }
    }

    fn status(&self) -> Option<Status> {
        let is_status = self.envelope.declared_type.kind == "Status" && self.broken.is_none();
        is_status.then(|| status_of(self.object.bytes())).flatten().map(Status::of_fields)
    }

    fn unreadable(&self, kind: FrameKind, problem: ObjectError) -> Frame {
        let place = BodyLocation { index: self.location.index, byte: self.frame_start };
        let (key, version) = self.object.peek_identity();
        Frame::Unreadable(kind, UnreadableObject { key, version, location: place, error: problem })
    }
}
