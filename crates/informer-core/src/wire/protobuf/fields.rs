//! The fields of a message whose bytes are complete.
//!
//! Input is untrusted: a length must not exceed the bytes, and a varint has at most ten bytes. This file
//! does not know what a field means.

use crate::wire::error::ProtobufError;

/// The unread fields of a message. Cheap to copy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    /// Four bytes, which no known field has.
    Fixed32,
    Data(&'a [u8]),
    /// A group, the deprecated way to nest messages. Kubernetes does not use groups. [`Fields`] skips them;
    /// [`super::walk::Walk`] rejects them.
    Group,
}

/// Wire types, the low three bits of a field's tag.
pub(super) const VARINT: u8 = 0;
pub(super) const FIXED64: u8 = 1;
pub(super) const DATA: u8 = 2;
pub(super) const GROUP: u8 = 3;
pub(super) const GROUP_END: u8 = 4;
pub(super) const FIXED32: u8 = 5;

/// The maximum field number.
const MAX_NUMBER: u64 = (1 << 29) - 1;

impl<'a> Fields<'a> {
    /// Returns the number and value of the next field; `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        // Fast path: nearly all fields have a tag of one byte and a length or number of one byte. Tags
        // below 8 are invalid: their field number is zero.
        if let [tag @ 8..0x80, second @ ..0x80, rest @ ..] = self.0 {
            let number = u32::from(tag >> 3);
            match tag & 7 {
                VARINT => {
                    self.0 = rest;
                    return Ok(Some((number, Payload::Varint(u64::from(*second)))));
                }
                DATA => {
                    let (data, rest) =
                        rest.split_at_checked(usize::from(*second)).ok_or(ProtobufError::Length)?;
                    self.0 = rest;
                    return Ok(Some((number, Payload::Data(data))));
                }
                _ => {}
            }
        }
        self.next_general()
    }

    fn next_general(&mut self) -> Result<Option<(u32, Payload<'a>)>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let (number, wire_type) = split_tag(self.varint()?)?;
        Ok(Some((number, self.payload(wire_type)?)))
    }

    /// Returns the next number of a list that is packed into one field: eight bytes if `is_fixed`,
    /// otherwise a varint.
    pub(super) fn next_packed(&mut self, is_fixed: bool) -> Result<Option<Payload<'a>>, ProtobufError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.payload(if is_fixed { FIXED64 } else { VARINT }).map(Some)
    }

    #[inline]
    fn payload(&mut self, wire_type: u8) -> Result<Payload<'a>, ProtobufError> {
        match wire_type {
            VARINT => self.varint().map(Payload::Varint),
            DATA => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| ProtobufError::Length)?;
                self.take(length).map(Payload::Data)
            }
            FIXED64 => {
                let bytes = self.0.first_chunk().ok_or(ProtobufError::Short)?;
                self.take(8)?;
                Ok(Payload::Fixed64(u64::from_le_bytes(*bytes)))
            }
            FIXED32 => self.take(4).map(|_| Payload::Fixed32).map_err(|_| ProtobufError::Short),
            GROUP => self.skip_group().map(|()| Payload::Group),
            other => Err(ProtobufError::WireType(other)),
        }
    }

    /// Skips the rest of a group, whose tag was read, and all groups in it, without recursion.
    fn skip_group(&mut self) -> Result<(), ProtobufError> {
        let mut depth = 1_u64;
        while depth > 0 {
            match split_tag(self.varint()?)?.1 {
                GROUP => depth += 1,
                GROUP_END => depth -= 1,
                other => {
                    self.payload(other)?;
                }
            }
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtobufError> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(ProtobufError::Length)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, ProtobufError> {
        match self.0 {
            // Fast path: nearly all varints have one byte.
            [byte, rest @ ..] if *byte < 0x80 => {
                self.0 = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, ProtobufError> {
        let mut varint = Varint::default();
        loop {
            let (byte, rest) = self.0.split_first().ok_or(ProtobufError::Short)?;
            self.0 = rest;
            if let Some(value) = varint.push(*byte)? {
                return Ok(value);
            }
        }
    }
}

/// Splits a tag into field number and wire type.
#[inline]
pub(super) fn split_tag(tag: u64) -> Result<(u32, u8), ProtobufError> {
    match tag >> 3 {
        0 => Err(ProtobufError::Number),
        number if number > MAX_NUMBER => Err(ProtobufError::Number),
        number => Ok((u32::try_from(number).unwrap_or_default(), (tag & 7) as u8)),
    }
}

/// An incremental varint parser: seven bits per byte, the lowest first; the high bit is set in all bytes
/// but the last.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// Adds a byte; returns the number if it was the last.
    #[inline]
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, ProtobufError> {
        if self.shift > 63 {
            return Err(ProtobufError::Varint);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        self.shift += 7;
        Ok((byte < 0x80).then_some(self.value))
    }

    /// Whether no byte was added yet.
    pub(super) fn is_at_start(self) -> bool {
        self.shift == 0
    }
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Appends a field with bytes.
pub(super) fn put_data(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    put_varint(out, tag(number, DATA));
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Number of bytes that [`put_varint`] appends.
pub(super) fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Returns the tag of a field.
pub(super) fn tag(number: u32, wire_type: u8) -> u64 {
    u64::from(number) << 3 | u64::from(wire_type)
}

/// Returns the low 32 bits of a varint, as Go does for 32-bit fields.
pub(super) fn low_32_bits(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, ProtobufError> {
        let (mut fields, mut found) = (Fields(bytes), Vec::new());
        while let Some(field) = fields.next()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn every_wire_type_is_parsed() {
        let bytes =
            [&[0x08, 0xac, 0x02, 0x11][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0x1a, 1, 7, 0x25, 0, 0, 0, 0]]
                .concat();
        let expected = [
            (1, Payload::Varint(300)),
            (2, Payload::Fixed64(1)),
            (3, Payload::Data(&[7])),
            (4, Payload::Fixed32),
        ];
        assert_eq!(all(&bytes).unwrap(), expected);
        // A group in a group, with a number inside.
        assert_eq!(all(&[0x0b, 0x13, 0x08, 1, 0x14, 0x0c, 0x08, 2]).unwrap().len(), 2);
    }

    #[test]
    fn malformed_fields_are_rejected() {
        for (bytes, expected) in [
            (&[0x0a, 5, 1][..], ProtobufError::Length),
            (&[0x80], ProtobufError::Short),
            (&[0x09, 1], ProtobufError::Short),
            (&[0x0b, 0x08], ProtobufError::Short),
            (&[0x0c], ProtobufError::WireType(4)),
            (&[0x0e], ProtobufError::WireType(6)),
            (&[0x00], ProtobufError::Number),
            (&[0x80, 0x80, 0x80, 0x80, 0x10], ProtobufError::Number),
            (&[0xff; 11], ProtobufError::Varint),
            (&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], ProtobufError::Length),
        ] {
            assert_eq!(all(bytes).unwrap_err(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn written_varint_parses_to_itself() {
        for value in [0, 1, 127, 128, 300, 1 << 20, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!((bytes.len(), Fields(&bytes).varint()), (varint_length(value), Ok(value)));
        }
    }
}
