//! Bytes of protobuf, field by field.
//!
//! Nothing is trusted: lengths end within the bytes, numbers within 64 bits, and groups, which nobody writes any more, are passed over
//! without recursion. The texts of errors are those of the real server's readers.

/// The fields of a message.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// The message's name, for errors.
    name: &'a str,
}

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Payload<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Data(&'a [u8]),
    Group,
}

const END: &str = "unexpected EOF";

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, bytes: &'a [u8]) -> Self {
        Reader { rest: bytes, name }
    }

    /// How many bytes were not read yet.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next field's number and what it holds; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Payload<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let (number, layout) = (tag >> 3, tag & 7);
        if layout == 4 {
            return Err(format!("proto: {}: wiretype end group for non-group", self.name));
        }
        let number = low(number);
        match u64::try_from(number) {
            Ok(number) if number > 0 => Ok(Some((number, self.payload(layout)?))),
            _ => Err(format!("proto: {}: illegal tag {number} (wire type {tag})", self.name)),
        }
    }

    /// The next number of a list that was packed into one field.
    pub(super) fn packed(&mut self, fixed: bool) -> Result<Option<Payload<'a>>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        self.payload(u64::from(fixed)).map(Some)
    }

    fn payload(&mut self, layout: u64) -> Result<Payload<'a>, String> {
        match layout {
            0 => self.varint().map(Payload::Varint),
            1 => {
                let bytes = self.rest.first_chunk::<8>().ok_or(END)?;
                self.take(8)?;
                Ok(Payload::Fixed64(u64::from_le_bytes(*bytes)))
            }
            2 => {
                let length = self.varint()?;
                self.take(length).map(Payload::Data)
            }
            3 => self.pass_group().map(|()| Payload::Group),
            5 => self.take(4).map(|_| Payload::Fixed32),
            other => Err(format!("proto: illegal wireType {other}")),
        }
    }

    /// Passes over a group and all groups in it.
    fn pass_group(&mut self) -> Result<(), String> {
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
        let length = usize::try_from(length).map_err(|_| END)?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(END)?;
        self.rest = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(END)?;
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
    /// How it was laid out.
    pub(super) fn layout(self) -> u8 {
        match self {
            Payload::Varint(_) => 0,
            Payload::Fixed64(_) => 1,
            Payload::Data(_) => 2,
            Payload::Group => 3,
            Payload::Fixed32 => 5,
        }
    }
}

/// The low 32 bits of a number, which are all that Go keeps where it wants no more.
pub(super) fn low(value: u64) -> i32 {
    let [a, b, c, d, ..] = value.to_le_bytes();
    i32::from_le_bytes([a, b, c, d])
}

/// Why an object could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectDecodeError {
    /// What it said it is (apiVersion, kind), if it came to that: a real server words its refusal by it.
    pub of: Option<(String, String)>,
    pub why: String,
}

/// What a real server says of a field that is laid out in another way.
pub(super) fn wrong(payload: Payload<'_>, field: &str) -> String {
    format!("proto: wrong wireType = {} for field {field}", payload.layout())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u64, Payload<'_>)>, String> {
        let mut reader = Reader::new("Pod", bytes);
        let mut found = Vec::new();
        while let Some(field) = reader.next()? {
            found.push(field);
        }
        Ok(found)
    }

    #[test]
    fn every_layout_is_read() {
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
        // A group in a group, with a number inside.
        assert_eq!(all(&[0x0b, 0x13, 0x08, 1, 0x14, 0x0c, 0x08, 2]).map(|found| found.len()), Ok(2));
    }

    #[test]
    fn what_is_wrong_is_said_as_go_says_it() {
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
