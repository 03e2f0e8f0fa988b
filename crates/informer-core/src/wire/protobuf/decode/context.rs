//! A value during decoding: its bytes, and the context passed on to the values inside it.
//!
//! Invariant: the remaining depth only decreases on the way down. This file does not know how values become
//! types.

use super::error::Error;
use crate::wire::protobuf::fields::Payload;
use std::cell::Cell;

/// The encoded form of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum RawValue<'de> {
    /// Absent on the wire, and `null` in JSON.
    Null,
    Varint(u64),
    Fixed64(u64),
    Data(&'de [u8]),
    /// All fields of a list or map: their bytes including tags, their field number, and how many there are.
    Run(&'de [u8], u32, usize),
}

/// The context passed on to the values inside a value.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    /// Remaining nesting depth.
    depth: u8,
    /// Whether errors record the field path.
    pub(super) track_path: TrackPath,
    /// Set when fields are not ordered by number.
    pub(super) unordered: &'c Cell<bool>,
}

/// Whether decoding errors record the field path. Checking every result for an error costs more than decoding
/// most values, so paths are recorded only when an object is decoded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrackPath {
    No,
    Yes,
}

/// Maximum nesting depth, as in `serde_json`.
const MAX_DEPTH: u8 = 128;

impl<'c> Context<'c> {
    /// Creates the context of a top-level message.
    pub(super) fn new(track_path: TrackPath, unordered: &'c Cell<bool>) -> Self {
        Self { depth: MAX_DEPTH, track_path, unordered }
    }

    /// Returns the context of the values one level deeper, or an error at the maximum depth.
    pub(super) fn deeper(self) -> Result<Self, Error> {
        match self.depth {
            0 | 1 => Err(Error::new("recursion limit exceeded")),
            depth => Ok(Self { depth: depth - 1, ..self }),
        }
    }
}

impl<'de> RawValue<'de> {
    /// Converts the value of a field. No known field is a group or has four bytes.
    #[inline]
    pub(super) fn of(payload: Payload<'de>) -> Result<Self, Error> {
        match payload {
            Payload::Varint(value) => Ok(Self::Varint(value)),
            Payload::Data(bytes) => Ok(Self::Data(bytes)),
            Payload::Fixed64(bits) => Ok(Self::Fixed64(bits)),
            Payload::Fixed32 | Payload::Group => Err(wrong_wire_type()),
        }
    }
}

#[cold]
pub(super) fn wrong_wire_type() -> Error {
    Error::new("the wire type does not match the type of the field")
}
