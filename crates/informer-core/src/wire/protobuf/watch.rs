//! Incremental parsing of a watch stream.
//!
//! A frame consists of its length in four bytes and a `WatchEvent` message: the frame's type (field 1) and a
//! `RawExtension` message (field 2) around the bytes of the object (field 1 there), which start with an
//! envelope. A frame whose object cannot be read is produced as [`Frame::Unreadable`], and parsing continues.
//! Bytes that are not a frame end the parsing with an error. The reader buffers one frame.

use super::envelope::{Envelope, Step as EnvelopeStep};
use super::message_of;
use super::object::{ObjectReader, check_type};
use super::status::status_fields;
use super::walk::{Shape, Step, Walk, take};
use crate::wire::error::{
    BodyElement, BodyErrorKind, BodyLocation, ObjectError, ProtobufError, UnreadableObject, WireError,
};
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{Frame, FrameKind, INITIAL_EVENTS_END, MAX_TYPE_BYTES};
use crate::wire::scanned::ScannedObject;
use crate::wire::status::Status;
use crate::wire::{Limits, TypeMeta, append_up_to};
use std::ops::ControlFlow;

/// Bytes that a frame may have in addition to the largest object: `managedFields`, and fields that a field
/// filter drops.
const MAX_FRAME_OVERHEAD_BYTES: usize = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the length, after this many bytes.
    Length(u8),
    /// In the `WatchEvent` message.
    Event,
    Type,
    /// In the `RawExtension` message.
    Extension,
    /// In the object's bytes.
    Object,
    /// In the value of an unknown field of the `WatchEvent`.
    SkippedEventValue,
    /// In the value of an unknown field of the `RawExtension`.
    SkippedExtensionValue,
}

/// The position in the object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectState {
    Envelope,
    Message,
    /// After the envelope, or after an error; further bytes are ignored.
    Done,
}

/// An incremental parser of one watch stream in protobuf.
#[derive(Debug)]
pub struct ProtobufWatchReader {
    type_meta: TypeMeta,
    max_frame_bytes: u64,
    state: State,
    object_state: ObjectState,
    /// The length of the current frame, as sent.
    length: [u8; 4],
    event: Walk,
    extension: Walk,
    /// Bytes remaining of the current value.
    remaining: u64,
    envelope: Envelope,
    object: ObjectReader,
    /// The frame's type, as sent.
    frame_type: Vec<u8>,
    has_object: bool,
    /// The error in the envelope of the current object.
    object_error: Option<ProtobufError>,
    location: BodyLocation,
    /// Offset of the current frame in the stream.
    frame_start: u64,
    /// The error that ended the stream: frame boundaries are unknown after it.
    stream_error: Option<ProtobufError>,
}

impl ProtobufWatchReader {
    /// Creates a reader for a watch on objects of this type; `None` if the kind has no protobuf.
    pub fn new(type_meta: TypeMeta, limits: Limits) -> Option<Self> {
        let message_type = message_of(&type_meta)?;
        Some(Self {
            max_frame_bytes: limits.max_object_bytes.saturating_add(MAX_FRAME_OVERHEAD_BYTES) as u64,
            object: ObjectReader::new(message_type, limits.max_object_bytes),
            type_meta,
            state: State::Length(0),
            object_state: ObjectState::Done,
            length: [0; 4],
            event: Walk::new(0),
            extension: Walk::new(0),
            remaining: 0,
            envelope: Envelope::new(0),
            frame_type: Vec::new(),
            has_object: false,
            object_error: None,
            location: BodyLocation { index: 0, byte: 0 },
            frame_start: 0,
            stream_error: None,
        })
    }

    /// Leaves out of each object the fields that the filter drops. Bookmarks and errors are not filtered.
    #[must_use]
    pub fn with_field_filter(mut self, field_filter: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(field_filter);
        self
    }

    /// Reads from the front of `chunk` up to the next frame, and returns it; `None` if the chunk is consumed.
    ///
    /// # Errors
    ///
    /// If the stream is malformed. Every later call returns the same error.
    pub fn next(&mut self, chunk: &mut &[u8]) -> Result<Option<Frame>, WireError> {
        if let Some(error) = self.stream_error {
            return Err(self.error(error.into()));
        }
        let (bytes, base) = (*chunk, self.location.byte);
        let mut at = 0;
        loop {
            let result = self.step(bytes, &mut at, base);
            self.location.byte = base + at as u64;
            match result {
                Ok(ControlFlow::Continue(())) => {}
                Ok(ControlFlow::Break(frame)) => {
                    *chunk = &bytes[at..];
                    return Ok(frame);
                }
                Err(error) => {
                    self.stream_error = Some(error);
                    return Err(self.error(error.into()));
                }
            }
        }
    }

    /// Reads a chunk and calls `visit` with each frame that the chunk completes.
    ///
    /// # Errors
    ///
    /// Like [`Self::next`].
    pub fn read(&mut self, mut chunk: &[u8], mut visit: impl FnMut(Frame)) -> Result<(), WireError> {
        while let Some(frame) = self.next(&mut chunk)? {
            visit(frame);
        }
        Ok(())
    }

    /// Checks that the stream may end here.
    ///
    /// # Errors
    ///
    /// If the stream ends inside a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.state == State::Length(0) { Ok(()) } else { Err(self.error(BodyErrorKind::Truncated)) }
    }

    fn error(&self, kind: BodyErrorKind) -> WireError {
        WireError { element: BodyElement::Frame, location: self.location, kind }
    }

    /// Performs one step; breaks with the frame that the step completes, or with `None` if the chunk is
    /// consumed. `base` is the offset of `chunk` in the stream.
    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
    ) -> Result<ControlFlow<Option<Frame>>, ProtobufError> {
        match self.state {
            State::Length(count) => {
                let Some(&byte) = chunk.get(*at) else { return Ok(ControlFlow::Break(None)) };
                if count == 0 {
                    self.frame_start = base + *at as u64;
                }
                *at += 1;
                self.length[usize::from(count)] = byte;
                let is_last = usize::from(count) + 1 == self.length.len();
                if is_last {
                    self.state = State::Event;
                    self.begin_frame()?;
                } else {
                    self.state = State::Length(count + 1);
                }
            }
            State::Event => match self.event.next(chunk, at)? {
                Step::NeedMore => return Ok(ControlFlow::Break(None)),
                Step::End => return Ok(ControlFlow::Break(Some(self.finish_frame()))),
                Step::Field(number, shape) => self.enter_event_field(number, shape),
            },
            State::Extension => match self.extension.next(chunk, at)? {
                Step::NeedMore => return Ok(ControlFlow::Break(None)),
                Step::End => self.state = State::Event,
                Step::Field(number, shape) => self.enter_extension_field(number, shape),
            },
            State::Type | State::SkippedEventValue | State::SkippedExtensionValue => {
                let part = take(&mut self.remaining, chunk, at);
                if self.state == State::Type {
                    append_up_to(&mut self.frame_type, part, MAX_TYPE_BYTES);
                }
                if self.remaining > 0 {
                    return Ok(ControlFlow::Break(None));
                }
                self.state =
                    if self.state == State::SkippedExtensionValue { State::Extension } else { State::Event };
            }
            State::Object => {
                let part = take(&mut self.remaining, chunk, at);
                self.read_object(part);
                if self.remaining > 0 {
                    return Ok(ControlFlow::Break(None));
                }
                self.state = State::Extension;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn begin_frame(&mut self) -> Result<(), ProtobufError> {
        let length = u32::from_be_bytes(self.length);
        if u64::from(length) > self.max_frame_bytes {
            return Err(ProtobufError::Frame(length));
        }
        self.event = Walk::new(u64::from(length));
        self.frame_type.clear();
        (self.has_object, self.object_error) = (false, None);
        // Discards the object of the previous frame, whose key would be reported if this frame has none.
        self.object.begin(0);
        Ok(())
    }

    fn enter_event_field(&mut self, number: u32, shape: Shape) {
        self.remaining = shape.length();
        self.state = match (number, shape) {
            (1, Shape::Data(_)) => {
                self.frame_type.clear();
                State::Type
            }
            (2, Shape::Data(length)) => {
                self.extension = Walk::new(length);
                State::Extension
            }
            _ => State::SkippedEventValue,
        };
    }

    fn enter_extension_field(&mut self, number: u32, shape: Shape) {
        self.remaining = shape.length();
        self.state = match (number, shape) {
            (1, Shape::Data(length)) => {
                (self.has_object, self.object_error) = (true, None);
                self.object_state = ObjectState::Envelope;
                self.envelope.reset(length);
                // An earlier object in this frame is discarded.
                self.object.begin(0);
                // Bookmarks and errors are not filtered: the reader needs their annotations and status.
                self.object.set_filter_applies(self.should_filter());
                State::Object
            }
            _ => State::SkippedExtensionValue,
        };
    }

    /// Continues reading the object's bytes. An error in them affects only this object.
    fn read_object(&mut self, part: &[u8]) {
        if let Err(error) = self.walk_object(part) {
            self.object_error = Some(error);
            self.object_state = ObjectState::Done;
        } else if self.remaining == 0 && self.object_state != ObjectState::Done {
            self.object_error = Some(ProtobufError::Short);
        }
    }

    fn walk_object(&mut self, part: &[u8]) -> Result<(), ProtobufError> {
        let mut at = 0;
        loop {
            match self.object_state {
                ObjectState::Done => return Ok(()),
                ObjectState::Envelope => match self.envelope.next(part, &mut at)? {
                    EnvelopeStep::NeedMore => return Ok(()),
                    EnvelopeStep::End => self.object_state = ObjectState::Done,
                    EnvelopeStep::Object(length) => {
                        self.object.begin(length);
                        self.object_state = ObjectState::Message;
                    }
                },
                ObjectState::Message => {
                    if !self.object.feed(part, &mut at) {
                        return Ok(());
                    }
                    self.object_state = ObjectState::Envelope;
                }
            }
        }
    }

    fn finish_frame(&mut self) -> Frame {
        // If the type follows the object, the object was read without the filter. No server is known to send
        // this order, so parsing the object twice is fine.
        if self.has_object && self.should_filter() {
            self.object.filter_late();
        }
        let frame = self.frame();
        self.location.index += 1;
        self.state = State::Length(0);
        frame
    }

    /// Whether there is a field filter, and the type read so far is that of a change and not of a bookmark or
    /// an error.
    fn should_filter(&self) -> bool {
        self.object.has_field_filter()
            && matches!(
                FrameKind::from_name(&self.frame_type),
                FrameKind::Added | FrameKind::Modified | FrameKind::Deleted
            )
    }

    fn frame(&mut self) -> Frame {
        let kind = FrameKind::from_name(&self.frame_type);
        match kind {
            FrameKind::Error => Frame::Error(self.status().unwrap_or_default()),
            FrameKind::Bookmark => {
                if self.has_object
                    && let Err(error) = check_type(&self.envelope.declared_type, &self.type_meta)
                {
                    return self.unreadable(kind, error);
                }
                Frame::Bookmark {
                    version: self.object.peek_identity().1,
                    initial_events_end: self.object.annotation(INITIAL_EVENTS_END) == Some("true"),
                }
            }
            _ if !self.has_object => self.unreadable(kind, ObjectError::NotAnObject),
            FrameKind::Added => self.change(kind, Frame::Added),
            FrameKind::Modified => self.change(kind, Frame::Modified),
            FrameKind::Deleted => self.change(kind, Frame::Deleted),
            FrameKind::Unknown(_) => {
                let error = self.check_envelope().and_then(|()| self.object.head()).err();
                self.unreadable(kind, error.unwrap_or(ObjectError::UnknownFrame))
            }
        }
    }

    /// Returns the frame that `to_frame` makes of the object, or an unreadable one.
    fn change(&mut self, kind: FrameKind, to_frame: fn(ScannedObject) -> Frame) -> Frame {
        match self.check_envelope().and_then(|()| self.object.take_object()) {
            Ok(object) => to_frame(object),
            Err(error) => self.unreadable(kind, error),
        }
    }

    /// Checks the envelope: it is valid and declares the cache's type.
    fn check_envelope(&self) -> Result<(), ObjectError> {
        match self.object_error {
            Some(error) => Err(ObjectError::MalformedProtobuf(error)),
            None => check_type(&self.envelope.declared_type, &self.type_meta),
        }
    }

    fn status(&self) -> Option<Status> {
        let is_status = self.envelope.declared_type.kind == "Status" && self.object_error.is_none();
        is_status.then(|| status_fields(self.object.bytes())).flatten().map(Status::from_fields)
    }

    fn unreadable(&self, kind: FrameKind, error: ObjectError) -> Frame {
        let location = BodyLocation { index: self.location.index, byte: self.frame_start };
        let (key, version) = self.object.peek_identity();
        Frame::Unreadable(kind, UnreadableObject { key, version, location, error })
    }
}
