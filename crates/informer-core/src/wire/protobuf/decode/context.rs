//! What is known of a value while it is decoded: its bytes, and what is passed on to the values inside it.
//!
//! Invariant: the depth only shrinks on the way down. This file must not know how values become types.

use super::error::Error;
use crate::wire::protobuf::fields::Payload;
use std::cell::Cell;

/// What is there of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Given<'de> {
    /// JSON says `null`.
    Null,
    Varint(u64),
    Fixed64(u64),
    Data(&'de [u8]),
    /// All fields of one number, tags included, that number, and how many there are; of a list or a map.
    Run(&'de [u8], u32, usize),
}

/// What is passed on to values inside of values.
#[derive(Clone, Copy)]
pub(super) struct Context<'c> {
    /// How much deeper it may go.
    depth: u8,
    /// Whether errors note where they are. That is left to a second reading: to look at every result costs more than to read the value.
    pub(super) places: bool,
    /// Set when fields are not in the order of their numbers.
    pub(super) disordered: &'c Cell<bool>,
}

/// As deep as `serde_json` goes.
const MAX_DEPTH: u8 = 128;

impl<'c> Context<'c> {
    /// The context of a message as a whole.
    pub(super) fn new(places: bool, disordered: &'c Cell<bool>) -> Self {
        Self { depth: MAX_DEPTH, places, disordered }
    }

    pub(super) fn deeper(self) -> Result<Self, Error> {
        match self.depth {
            0 | 1 => Err(Error::new("recursion limit exceeded")),
            depth => Ok(Self { depth: depth - 1, ..self }),
        }
    }
}

impl<'de> Given<'de> {
    /// What a field holds; nothing that we know of is a group or has four bytes.
    #[inline]
    pub(super) fn of(payload: Payload<'de>) -> Result<Self, Error> {
        match payload {
            Payload::Varint(value) => Ok(Self::Varint(value)),
            Payload::Data(bytes) => Ok(Self::Data(bytes)),
            Payload::Fixed64(bits) => Ok(Self::Fixed64(bits)),
            Payload::Fixed32 | Payload::Group => Err(wrong_layout()),
        }
    }
}

#[cold]
pub(super) fn wrong_layout() -> Error {
    Error::new("the value is laid out as one of another type")
}
