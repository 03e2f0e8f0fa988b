//! Writing of protobuf, from the end to the beginning.
//!
//! The length of a message precedes the message, but is known only after the message is written. Writing
//! backwards avoids copying or measuring anything twice. The last field is therefore written first, and
//! within a field the value before its length and tag.

/// The bytes written so far, in reverse order.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

/// Wire types, stored in the low bits of a tag.
const VARINT: u64 = 0;
const FIXED: u64 = 1;
const DATA: u64 = 2;

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bytes in their final order.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.reverse();
        self.0
    }

    /// Writes bytes unchanged.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    pub(super) fn text(&mut self, number: u16, text: &str) {
        self.data(number, text.as_bytes());
    }

    pub(super) fn data(&mut self, number: u16, data: &[u8]) {
        self.nested(number, |writer| writer.bytes(data));
    }

    /// Writes a field whose contents are written by a function.
    pub(super) fn nested(&mut self, number: u16, write: impl FnOnce(&mut Self)) {
        let before = self.len();
        write(self);
        self.tag_and_length(number, self.len() - before);
    }

    /// Writes the tag and the length of a field with `length` bytes.
    pub(super) fn tag_and_length(&mut self, number: u16, length: usize) {
        self.varint(length as u64);
        self.tag(number, DATA);
    }

    pub(super) fn boolean(&mut self, number: u16, value: bool) {
        self.integer(number, i64::from(value));
    }

    /// Writes an integer; a negative one takes ten bytes.
    pub(super) fn integer(&mut self, number: u16, value: i64) {
        self.varint(value.cast_unsigned());
        self.tag(number, VARINT);
    }

    pub(super) fn double(&mut self, number: u16, value: f64) {
        self.bytes(&value.to_le_bytes());
        self.tag(number, FIXED);
    }

    fn tag(&mut self, number: u16, wire_type: u64) {
        self.varint(u64::from(number) << 3 | wire_type);
    }

    /// Writes a varint: seven bits per byte, the lowest first; all bytes but the last have the high bit set.
    fn varint(&mut self, mut value: u64) {
        let start = self.0.len();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                self.0.push(low);
                break;
            }
            self.0.push(low | 0x80);
        }
        // The bytes of a varint must be in reverse order like all others.
        if let Some(written) = self.0.get_mut(start..) {
            written.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_written_backwards_are_output_in_order() {
        let mut writer = Writer::default();
        writer.integer(300, -1);
        writer.nested(2, |writer| {
            writer.double(2, 1.5);
            writer.boolean(1, true);
        });
        writer.integer(1, 300);
        let expected = [
            &[0x08, 0xac, 0x02, 0x12, 11, 0x08, 1, 0x11, 0, 0, 0, 0, 0, 0, 0xf8, 0x3f, 0xe0, 0x12][..],
            &[0xff; 9],
            &[0x01],
        ];
        assert_eq!(writer.finish(), expected.concat());
    }
}
