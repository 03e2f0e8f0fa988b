//! Walking the fields of one message as its bytes arrive.
//!
//! [`Walk`] reads tags, lengths and numbers and stops in front of everything that has a length; what happens to that is its owner's choice
//! (skip it, copy it, or go inside with another walk). It knows nothing about Kubernetes.

use super::fields::{DATA, FIXED32, FIXED64, GROUP, GROUP_END, VARINT, Varint, split_tag};
use crate::wire::problem::ProtobufError;

/// What the walk met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The bytes are used up.
    NeedMore,
    /// A field.
    Field(u32, Shape),
    /// The message is over.
    End,
}

/// What a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A number, which was read.
    Varint(u64),
    /// As many bytes, which come next. The owner takes all of them before it walks on.
    Data(u64),
    /// Likewise, with a layout of eight or four bytes.
    Fixed(u8, u64),
}

impl Shape {
    /// How many bytes come next.
    pub(super) fn length(self) -> u64 {
        match self {
            Self::Varint(_) => 0,
            Self::Data(length) | Self::Fixed(_, length) => length,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Tag,
    Number,
    Length,
}

/// Walks one message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    at: At,
    varint: Varint,
    number: u32,
    /// How much of the message was not met yet.
    left: u64,
}

impl Walk {
    /// A walk through a message of so many bytes; one that ends with its body has [`u64::MAX`].
    pub(super) fn new(length: u64) -> Self {
        Self { at: At::Tag, varint: Varint::default(), number: 0, left: length }
    }

    /// Whether it stands before a field.
    pub(super) fn is_between_fields(&self) -> bool {
        self.at == At::Tag && self.varint.is_fresh()
    }

    /// Goes on from `bytes[*at]`, moving `at` behind what was read.
    #[inline]
    pub(super) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, ProtobufError> {
        loop {
            if self.left == 0 {
                return if self.is_between_fields() { Ok(Step::End) } else { Err(ProtobufError::Short) };
            }
            let Some(&byte) = bytes.get(*at) else { return Ok(Step::NeedMore) };
            *at += 1;
            self.left -= 1;
            let Some(value) = self.varint.push(byte)? else { continue };
            self.varint = Varint::default();
            match std::mem::replace(&mut self.at, At::Tag) {
                At::Tag => {
                    let (number, layout) = split_tag(value)?;
                    self.number = number;
                    match layout {
                        VARINT => self.at = At::Number,
                        DATA => self.at = At::Length,
                        FIXED64 => return self.skip(Shape::Fixed(layout, 8), ProtobufError::Short),
                        FIXED32 => return self.skip(Shape::Fixed(layout, 4), ProtobufError::Short),
                        GROUP | GROUP_END => return Err(ProtobufError::Group),
                        other => return Err(ProtobufError::Layout(other)),
                    }
                }
                At::Number => return Ok(Step::Field(self.number, Shape::Varint(value))),
                At::Length => return self.skip(Shape::Data(value), ProtobufError::Length),
            }
        }
    }

    /// Leaves what has a length to the owner.
    fn skip(&mut self, shape: Shape, or: ProtobufError) -> Result<Step, ProtobufError> {
        self.left = self.left.checked_sub(shape.length()).ok_or(or)?;
        Ok(Step::Field(self.number, shape))
    }
}

/// The part of the next `left` bytes that is here; moves `at` behind it, and counts.
#[inline]
pub(super) fn take<'a>(left: &mut u64, bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let rest = &bytes[*at..];
    let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
    *left -= length as u64;
    *at += length;
    &rest[..length]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is met in a message that arrives byte by byte.
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
    fn fields_are_met_however_they_are_cut() {
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
    fn what_is_no_message_is_refused() {
        for (bytes, expected) in [
            (&[0x0a, 5, 1][..], ProtobufError::Length),
            (&[0x80], ProtobufError::Short),
            (&[0x09, 1], ProtobufError::Short),
            (&[0x25, 1], ProtobufError::Short),
            (&[0x0b, 0x0c], ProtobufError::Group),
            (&[0x0e], ProtobufError::Layout(6)),
            (&[0x00], ProtobufError::Number),
            (&[0xff; 12], ProtobufError::Varint),
        ] {
            assert_eq!(steps(bytes).unwrap_err(), expected, "{bytes:?}");
        }
    }
}
