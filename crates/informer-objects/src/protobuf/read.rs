//! Reading of protobuf fields.
//!
//! The input is untrusted: lengths are checked against the remaining bytes, numbers against 64 bits, and
//! groups, which are obsolete, are skipped without recursion. The error texts are those of kube-apiserver's
//! decoders.

/// A reader of the fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// The name of the message, for errors.
    name: &'a str,
}

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Data(&'a [u8]),
    Group,
}

const UNEXPECTED_END: &str = "unexpected EOF";

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, name }
    }

    /// Returns the number of bytes left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Returns the number and the value of the next field; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Payload<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, wire_type) = (tag >> 3, tag & 7);
        if wire_type == 4 {
            return Err(format!("proto: {}: wiretype end group for non-group", self.name));
        }
        let number = low_32_bits(number);
        match u64::try_from(number) {
            Ok(number) if number > 0 => Ok(Some((number, self.payload(wire_type)?))),
            _ => Err(format!("proto: {}: illegal tag {number} (wire type {tag})", self.name)),
        }
    }

    /// Returns the next number of a packed list; `fixed64` means eight bytes per number, else varints.
    pub(super) fn packed(&mut self, fixed64: bool) -> Result<Option<Payload<'a>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        // The wire types are 1 for eight bytes and 0 for a varint.
        self.payload(u64::from(fixed64)).map(Some)
    }

    fn payload(&mut self, wire_type: u64) -> Result<Payload<'a>, String> {
        match wire_type {
            0 => self.varint().map(Payload::Varint),
            1 => {
                let bytes = self.rest.first_chunk::<8>().ok_or(UNEXPECTED_END)?;
                self.take(8)?;
                Ok(Payload::Fixed64(u64::from_le_bytes(*bytes)))
            }
            2 => {
                let length = self.varint()?;
                self.take(length).map(Payload::Data)
            }
            3 => self.skip_group().map(|()| Payload::Group),
            5 => self.take(4).map(|_| Payload::Fixed32),
            other => Err(format!("proto: illegal wireType {other}")),
        }
    }

    /// Skips a group with all nested groups.
    fn skip_group(&mut self) -> Result<(), String> {
        let mut depth = 1_u64;
        while depth > 0 {
            match self.varint()? & 7 {
                3 => depth += 1,
                4 => depth -= 1,
                other => {
                    self.payload(other)?;
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], String> {
        if length > i64::MAX.cast_unsigned() {
            return Err("proto: negative length found during unmarshaling".to_owned());
        }
        let length = usize::try_from(length).map_err(|_| UNEXPECTED_END)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(UNEXPECTED_END)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(UNEXPECTED_END)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return Ok(value);
            }
        }
        Err("proto: integer overflow".to_owned())
    }
}

impl Payload<'_> {
    /// Returns the wire type.
    pub(super) fn wire_type(self) -> u8 {
        match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Data(_) => 2,
            Payload::Group => 3,
            Payload::Fixed32 => 5,
        }
    }
}

/// Returns the low 32 bits of a number: Go truncates 32-bit fields.
pub(super) fn low_32_bits(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// The error of decoding an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectDecodeError {
    /// The type in the envelope (apiVersion, kind), if it could be decoded; it determines the error text of
    /// the response.
    pub type_meta: Option<(String, String)>,
    pub message: String,
}

/// Returns kube-apiserver's error for a field with another wire type.
pub(super) fn wrong_wire_type(payload: Payload<'_>, field: &str) -> String {
    format!("proto: wrong wireType = {} for field {field}", payload.wire_type())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, Payload<'_>)>, String> {
        let mut reader = Reader::new("Pod", bytes);
        let mut fields = Vec::new();
        while let Some(field) = reader.next()? {
            fields.push(field);
        }
        Ok(fields)
    }

    #[test]
    fn every_wire_type_is_decoded() {
        let bytes =
            [&[0x08, 0xac, 0x02, 0x11][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[0x1a, 1, 7, 0x25, 0, 0, 0, 0]]
                .concat();
        let expected = vec![
            (1, Payload::Varint(300)),
            (2, Payload::Fixed64(1)),
            (3, Payload::Data(&[7])),
            (4, Payload::Fixed32),
        ];
        assert_eq!(all(&bytes), Ok(expected));
        // Nested groups with a number inside.
        assert_eq!(all(&[0x0b, 0x13, 0x08, 1, 0x14, 0x0c, 0x08, 2]).map(|fields| fields.len()), Ok(2));
    }

    #[test]
    fn errors_equal_those_of_go() {
        for (bytes, expected) in [
            (&[0x0a, 5, 1][..], "unexpected EOF"),
            (&[0x80], "unexpected EOF"),
            (&[0x09, 1], "unexpected EOF"),
            (&[0x0b, 0x08], "unexpected EOF"),
            (&[0x0c], "proto: Pod: wiretype end group for non-group"),
            (&[0x00], "proto: Pod: illegal tag 0 (wire type 0)"),
            (&[0x0e], "proto: illegal wireType 6"),
            (&[0xff; 11], "proto: integer overflow"),
            (
                &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                "proto: negative length found during unmarshaling",
            ),
        ] {
            assert_eq!(all(bytes), Err(expected.to_owned()), "{bytes:?}");
        }
    }
}
