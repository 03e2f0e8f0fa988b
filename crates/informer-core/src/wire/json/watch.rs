//! Incremental parsing of a watch stream.
//!
//! Frames are concatenated JSON values; line ends have no meaning. A frame whose object cannot be read is
//! produced as [`Frame::Unreadable`], and parsing continues. Bytes that are not a frame end the parsing with
//! an error. The reader buffers one frame.

use super::members::{Members, Step};
use super::object::ObjectReader;
use super::skip::ValueSkipper;
use crate::wire::error::{
    BodyElement, BodyErrorKind, BodyLocation, ObjectError, UnreadableObject, WireError,
};
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{Frame, FrameKind, INITIAL_EVENTS_END, MAX_TYPE_BYTES};
use crate::wire::status::Status;
use crate::wire::{Limits, TypeMeta, append_up_to};

impl FrameKind {
    /// Returns the frame type whose name is this JSON string.
    fn read(raw: &[u8]) -> Self {
        let inner = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\""));
        inner.map_or_else(|| Self::unknown(raw), Self::from_name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Members,
    Type,
    Object,
    Skipped,
}

/// An incremental parser of one watch stream in JSON.
#[derive(Debug)]
pub struct WatchReader {
    type_meta: TypeMeta,
    state: State,
    members: Members,
    object: ObjectReader,
    skipper: ValueSkipper,
    /// The value of `type`, as sent.
    frame_type: Vec<u8>,
    has_object: bool,
    location: BodyLocation,
    /// Offset of the current frame in the stream.
    frame_start: u64,
}

impl WatchReader {
    /// Creates a reader for a watch on objects of this type.
    pub fn new(type_meta: TypeMeta, limits: Limits) -> Self {
        Self {
            object: ObjectReader::new(&type_meta, limits.max_object_bytes),
            type_meta,
            state: State::Members,
            members: Members::new(),
            skipper: ValueSkipper::new(),
            frame_type: Vec::new(),
            has_object: false,
            location: BodyLocation { index: 0, byte: 0 },
            frame_start: 0,
        }
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
    /// If the stream is malformed.
    pub fn next(&mut self, chunk: &mut &[u8]) -> Result<Option<Frame>, WireError> {
        let (bytes, base) = (*chunk, self.location.byte);
        let mut at = 0;
        while at < bytes.len() {
            let result = self.step(bytes, &mut at, base);
            self.location.byte = base + at as u64;
            if let Some(frame) = result.map_err(|kind| self.error(kind))? {
                *chunk = &bytes[at..];
                return Ok(Some(frame));
            }
        }
        *chunk = &[];
        Ok(None)
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
        if self.members.is_at_start() { Ok(()) } else { Err(self.error(BodyErrorKind::Truncated)) }
    }

    fn error(&self, kind: BodyErrorKind) -> WireError {
        WireError { element: BodyElement::Frame, location: self.location, kind }
    }

    /// Performs one step; returns the frame that the step completes. `base` is the offset of `chunk` in the
    /// stream.
    fn step(&mut self, chunk: &[u8], at: &mut usize, base: u64) -> Result<Option<Frame>, BodyErrorKind> {
        match self.state {
            State::Members => {
                if self.members.is_at_start() {
                    if chunk[*at].is_ascii_whitespace() {
                        *at += 1;
                        return Ok(None);
                    }
                    self.frame_start = base + *at as u64;
                }
                match self.members.next(chunk, at)? {
                    Step::NeedMore => {}
                    Step::End => return Ok(Some(self.finish_frame())),
                    Step::Value => self.enter(chunk[*at]),
                }
            }
            State::Object => {
                if self.object.feed(chunk, at)? {
                    self.state = State::Members;
                }
            }
            State::Type | State::Skipped => {
                let rest = &chunk[*at..];
                let end = self.skipper.feed(rest);
                let part = &rest[..end.unwrap_or(rest.len())];
                if self.state == State::Type {
                    append_up_to(&mut self.frame_type, part, MAX_TYPE_BYTES);
                }
                *at += part.len();
                if end.is_some() {
                    self.state = State::Members;
                }
            }
        }
        Ok(None)
    }

    fn enter(&mut self, first: u8) {
        self.state = match self.members.name() {
            b"type" => {
                self.frame_type.clear();
                State::Type
            }
            b"object" if first == b'{' => {
                self.object.reset();
                self.has_object = true;
                // Bookmarks and errors are not filtered: the reader needs their annotations and status.
                self.object.set_filter_applies(self.should_filter());
                State::Object
            }
            _ => State::Skipped,
        };
    }

    fn finish_frame(&mut self) -> Frame {
        // If the type follows the object, the object was read without the filter. No server is known to send
        // this order, so parsing the object twice is fine.
        if self.has_object && self.should_filter() {
            self.object.filter_late();
        }
        let frame = self.frame();
        self.frame_type.clear();
        self.object.reset();
        self.has_object = false;
        self.location.index += 1;
        frame
    }

    /// Whether there is a field filter, and the type read so far is that of a change and not of a bookmark or
    /// an error.
    fn should_filter(&self) -> bool {
        self.object.has_field_filter()
            && matches!(
                FrameKind::read(&self.frame_type),
                FrameKind::Added | FrameKind::Modified | FrameKind::Deleted
            )
    }

    fn frame(&self) -> Frame {
        let kind = FrameKind::read(&self.frame_type);
        match kind {
            FrameKind::Error => Frame::Error(Status::from_json(self.object.bytes()).unwrap_or_default()),
            FrameKind::Bookmark => match self.object.check_type(&self.type_meta) {
                Ok(()) => Frame::Bookmark {
                    version: self.object.version(),
                    initial_events_end: self.object.annotation(INITIAL_EVENTS_END).as_deref() == Some("true"),
                },
                Err(error) => self.unreadable(kind, error),
            },
            _ if !self.has_object => self.unreadable(kind, ObjectError::NotAnObject),
            _ => match (self.object.to_object(&self.type_meta), &kind) {
                (Ok(object), FrameKind::Added) => Frame::Added(object),
                (Ok(object), FrameKind::Modified) => Frame::Modified(object),
                (Ok(object), FrameKind::Deleted) => Frame::Deleted(object),
                (Ok(_), _) => self.unreadable(kind, ObjectError::UnknownFrame),
                (Err(error), _) => self.unreadable(kind, error),
            },
        }
    }

    fn unreadable(&self, kind: FrameKind, error: ObjectError) -> Frame {
        let location = BodyLocation { index: self.location.index, byte: self.frame_start };
        let unreadable =
            UnreadableObject { key: self.object.key(), version: self.object.version(), location, error };
        Frame::Unreadable(kind, unreadable)
    }
}
