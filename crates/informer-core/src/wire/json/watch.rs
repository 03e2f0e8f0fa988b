//! Reading a watch stream as it arrives.
//!
//! Frames are JSON values, one behind the other; line ends mean nothing. A frame whose object cannot be read is handed out as
//! [`Frame::Unreadable`] and the next one is read; only bytes that are no frame at all end the stream. The reader holds one frame.

use super::members::{Members, Step};
use super::object::ObjectReader;
use super::skip::ValueSkipper;
use crate::wire::field_filter::FieldFilter;
use crate::wire::frame::{Frame, FrameKind, INITIAL_EVENTS_END, MAX_TYPE_BYTES};
use crate::wire::problem::{BodyErrorKind, BodyLocation, ObjectError, UnreadableObject, WireError};
use crate::wire::status::Status;
use crate::wire::{Limits, TypeMeta, keep_beginning};

impl FrameKind {
    /// The kind whose name is this JSON.
    fn read(raw: &[u8]) -> Self {
        let inner = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\""));
        inner.map_or_else(|| Self::unknown(raw), Self::named)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Members,
    Type,
    Object,
    Skipped,
}

/// Reads one watch stream.
#[derive(Debug)]
pub struct WatchReader {
    type_meta: TypeMeta,
    at: At,
    members: Members,
    object: ObjectReader,
    skipper: ValueSkipper,
    /// The value of `type`, as sent.
    kind: Vec<u8>,
    saw_object: bool,
    location: BodyLocation,
    /// Where the current frame began.
    frame_start: u64,
}

impl WatchReader {
    /// A reader for a watch on objects of this type.
    pub fn new(types: TypeMeta, limits: Limits) -> Self {
        Self {
            object: ObjectReader::new(&types, limits.max_object_bytes),
            type_meta: types,
            at: At::Members,
            members: Members::new(),
            skipper: ValueSkipper::new(),
            kind: Vec::new(),
            saw_object: false,
            location: BodyLocation { index: 0, byte: 0 },
            frame_start: 0,
        }
    }

    /// The same, leaving out of each object what the projection leaves out. Bookmarks and errors are read whole.
    #[must_use]
    pub fn with_field_filter(mut self, projection: Option<FieldFilter>) -> Self {
        self.object.set_field_filter(projection);
        self
    }

    /// Reads the next chunk, handing each frame it completes to `on`.
    pub fn read(&mut self, chunk: &[u8], mut on: impl FnMut(Frame)) -> Result<(), WireError> {
        let base = self.location.byte;
        let mut at = 0;
        while at < chunk.len() {
            let result = self.step(chunk, &mut at, base, &mut on);
            self.location.byte = base + at as u64;
            result.map_err(|problem| self.error(problem))?;
        }
        Ok(())
    }

    /// Says that the stream is over; an error if that happened inside a frame.
    pub fn finish(&self) -> Result<(), WireError> {
        if self.members.is_fresh() { Ok(()) } else { Err(self.error(BodyErrorKind::Truncated)) }
    }

    fn error(&self, problem: BodyErrorKind) -> WireError {
        WireError { what: "frame", location: self.location, kind: problem }
    }

    fn step(
        &mut self,
        chunk: &[u8],
        at: &mut usize,
        base: u64,
        on: &mut impl FnMut(Frame),
    ) -> Result<(), BodyErrorKind> {
        match self.at {
            At::Members => {
                if self.members.is_fresh() {
                    if chunk[*at].is_ascii_whitespace() {
                        *at += 1;
                        return Ok(());
                    }
                    self.frame_start = base + *at as u64;
                }
                match self.members.next(chunk, at)? {
                    Step::NeedMore => {}
                    Step::End => self.finish_frame(on),
                    Step::Value => self.enter(chunk[*at]),
                }
            }
            At::Object => {
                if self.object.feed(chunk, at)? {
                    self.at = At::Members;
                }
            }
            At::Type | At::Skipped => {
                let rest = &chunk[*at..];
                let end = self.skipper.feed(rest);
                let part = &rest[..end.unwrap_or(rest.len())];
                if self.at == At::Type {
                    keep_beginning(&mut self.kind, part, MAX_TYPE_BYTES);
                }
                *at += part.len();
                if end.is_some() {
                    self.at = At::Members;
                }
            }
        }
        Ok(())
    }

    fn enter(&mut self, first: u8) {
        self.at = match self.members.name() {
            b"type" => {
                self.kind.clear();
                At::Type
            }
            b"object" if first == b'{' => {
                self.object.reset();
                self.saw_object = true;
                // A bookmark's annotations and an error's status are for us.
                self.object.set_filters(self.is_change());
                At::Object
            }
            _ => At::Skipped,
        };
    }

    fn finish_frame(&mut self, on: &mut impl FnMut(Frame)) {
        // The type may stand behind the object; no server is known to do that, so reading twice then is no loss.
        if self.saw_object && self.is_change() {
            self.object.filter_late();
        }
        on(self.frame());
        self.kind.clear();
        self.object.reset();
        self.saw_object = false;
        self.location.index += 1;
    }

    /// Whether the frame is known to carry an object of the cache.
    fn is_change(&self) -> bool {
        self.object.has_field_filter()
            && matches!(
                FrameKind::read(&self.kind),
                FrameKind::Added | FrameKind::Modified | FrameKind::Deleted
            )
    }

    fn frame(&self) -> Frame {
        let kind = FrameKind::read(&self.kind);
        match kind {
            FrameKind::Error => Frame::Error(Status::from_json(self.object.bytes()).unwrap_or_default()),
            FrameKind::Bookmark => Frame::Bookmark {
                version: self.object.version(),
                initial_events_end: self.object.annotation(INITIAL_EVENTS_END).as_deref() == Some("true"),
            },
            _ if !self.saw_object => self.unreadable(kind, ObjectError::NotAnObject),
            _ => match (self.object.take_object(&self.type_meta), &kind) {
                (Ok(object), FrameKind::Added) => Frame::Added(object),
                (Ok(object), FrameKind::Modified) => Frame::Modified(object),
                (Ok(object), FrameKind::Deleted) => Frame::Deleted(object),
                (Ok(_), _) => self.unreadable(kind, ObjectError::UnknownFrame),
                (Err(problem), _) => self.unreadable(kind, problem),
            },
        }
    }

    fn unreadable(&self, kind: FrameKind, problem: ObjectError) -> Frame {
        let place = BodyLocation { index: self.location.index, byte: self.frame_start };
        let unreadable = UnreadableObject {
            key: self.object.key(),
            version: self.object.version(),
            location: place,
            error: problem,
        };
        Frame::Unreadable(kind, unreadable)
    }
}
