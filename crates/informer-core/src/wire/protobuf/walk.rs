//! An incremental parser for the fields of one message.
//!
//! [`Walk`] parses tags, lengths and varints and stops before every other value; the caller decides what to
//! do with that value (skip it, copy it, or parse it with another [`Walk`]). Groups are rejected. This file
//! does not know Kubernetes.

use super::fields::{DATA, FIXED32, FIXED64, GROUP, GROUP_END, VARINT, Varint, split_tag};
use crate::wire::error::ProtobufError;

/// The result of one step of a [`Walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The chunk is consumed.
    NeedMore,
    /// A field with this number.
    Field(u32, Shape),
    /// The message is complete.
    End,
}

/// The form of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A number, which is already parsed.
    Varint(u64),
    /// This many bytes follow. The caller consumes all of them before the next step.
    Data(u64),
    /// A number of fixed size follows: its wire type, and its size, which is eight or four bytes. The caller
    /// consumes all of them before the next step.
    Fixed(u8, u64),
}

impl Shape {
    /// Number of bytes that follow.
    pub(super) fn length(self) -> u64 {
        match self {
            Self::Varint(_) => 0,
            Self::Data(length) | Self::Fixed(_, length) => length,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Tag,
    /// In the value of a field.
    Varint,
    Length,
}

/// An incremental parser of one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    state: State,
    varint: Varint,
    /// Number of the current field.
    number: u32,
    /// Bytes remaining of the message.
    remaining: u64,
}

impl Walk {
    /// Creates a parser for a message of `length` bytes; [`u64::MAX`] if the message ends with the body.
    pub(super) fn new(length: u64) -> Self {
        Self { state: State::Tag, varint: Varint::default(), number: 0, remaining: length }
    }

    /// Whether the next byte starts a field.
    pub(super) fn is_between_fields(&self) -> bool {
        self.state == State::Tag && self.varint.is_at_start()
    }

    /// Continues at `bytes[*at]` and advances `at` past the bytes it read.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, ProtobufError> {
        loop {
            if self.remaining == 0 {
                return if self.is_between_fields() { Ok(Step::End) } else { Err(ProtobufError::Short) };
            }
            let Some(&byte) = bytes.get(*at) else { return Ok(Step::NeedMore) };
            *at += 1;
            self.remaining -= 1;
            let Some(value) = self.varint.push(byte)? else { continue };
            self.varint = Varint::default();
            match std::mem::replace(&mut self.state, State::Tag) {
                State::Tag => {
                    let (number, wire_type) = split_tag(value)?;
                    self.number = number;
                    match wire_type {
                        VARINT => self.state = State::Varint,
                        DATA => self.state = State::Length,
                        FIXED64 => return self.pass_value(Shape::Fixed(wire_type, 8), ProtobufError::Short),
                        FIXED32 => return self.pass_value(Shape::Fixed(wire_type, 4), ProtobufError::Short),
                        GROUP | GROUP_END => return Err(ProtobufError::Group),
                        other => return Err(ProtobufError::WireType(other)),
                    }
                }
                State::Varint => return Ok(Step::Field(self.number, Shape::Varint(value))),
                State::Length => return self.pass_value(Shape::Data(value), ProtobufError::Length),
            }
        }
    }

    /// Returns a field whose value the caller consumes; `error` if the value exceeds the message.
    fn pass_value(&mut self, shape: Shape, error: ProtobufError) -> Result<Step, ProtobufError> {
        self.remaining = self.remaining.checked_sub(shape.length()).ok_or(error)?;
        Ok(Step::Field(self.number, shape))
    }
}

/// Returns the part of the next `remaining` bytes that is in this chunk, advances `at` past it and
/// decrements `remaining`.
#[inline]
pub(super) fn take<'a>(remaining: &mut u64, bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let rest = &bytes[*at..];
    let length = usize::try_from(*remaining).unwrap_or(usize::MAX).min(rest.len());
    *remaining -= length as u64;
    *at += length;
    &rest[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a message that arrives byte by byte.
    fn steps(bytes: &[u8]) -> Result<Vec<(u32, Shape)>, ProtobufError> {
        let (mut walk, mut found, mut skip) = (Walk::new(bytes.len() as u64), Vec::new(), 0);
        for byte in bytes {
            let (piece, mut at) = ([*byte], 0);
            loop {
                take(&mut skip, &piece, &mut at);
                match walk.next(&piece, &mut at)? {
                    Step::NeedMore | Step::End => break,
                    Step::Field(number, shape) => {
                        found.push((number, shape));
                        skip = shape.length();
                    }
                }
            }
        }
        Ok(found)
    }

    #[test]
    fn fields_are_parsed_from_single_bytes() {
        let bytes = [&[0x08, 0xac, 0x02, 0x11][..], &[9; 8], &[0x1a, 2, 7, 7, 0x25, 0, 0, 0, 0]].concat();
        let expected = [
            (1, Shape::Varint(300)),
            (2, Shape::Fixed(FIXED64, 8)),
            (3, Shape::Data(2)),
            (4, Shape::Fixed(FIXED32, 4)),
        ];
        assert_eq!(steps(&bytes).unwrap(), expected);
    }

    #[test]
    fn malformed_messages_are_rejected() {
        for (bytes, expected) in [
            (&[0x0a, 5, 1][..], ProtobufError::Length),
            (&[0x80], ProtobufError::Short),
            (&[0x09, 1], ProtobufError::Short),
            (&[0x25, 1], ProtobufError::Short),
            (&[0x0b, 0x0c], ProtobufError::Group),
            (&[0x0e], ProtobufError::WireType(6)),
            (&[0x00], ProtobufError::Number),
            (&[0xff; 12], ProtobufError::Varint),
        ] {
            assert_eq!(steps(bytes).unwrap_err(), expected, "{bytes:?}");
        }
    }
}
