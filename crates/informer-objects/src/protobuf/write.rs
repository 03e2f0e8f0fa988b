//! Bytes of protobuf, written from the end to the beginning.
//!
//! The length of a message stands before it and is only known after it: going backwards, nothing is copied or measured twice. So
//! the last field is written first, and within a field the value comes before its number.

/// The bytes so far, in reverse.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

/// How a value is laid out, as the low bits beside a field's number say.
const VARINT: u64 = 0;
const FIXED: u64 = 1;
const DATA: u64 = 2;

impl Writer {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The bytes in their order.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.reverse();
        self.0
    }

    /// Bytes as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes.iter().rev());
    }

    pub(super) fn text(&mut self, number: u16, text: &str) {
        self.data(number, text.as_bytes());
    }

    pub(super) fn data(&mut self, number: u16, data: &[u8]) {
        self.nested(number, |writer| writer.bytes(data));
    }

    /// A field that holds what is written inside.
    pub(super) fn nested(&mut self, number: u16, inside: impl FnOnce(&mut Self)) {
        let before = self.len();
        inside(self);
        self.open(number, self.len() - before);
    }

    /// What stands before a field that holds so many bytes.
    pub(super) fn open(&mut self, number: u16, length: usize) {
        self.varint(length as u64);
        self.tag(number, DATA);
    }

    pub(super) fn boolean(&mut self, number: u16, value: bool) {
        self.integer(number, i64::from(value));
    }

    /// A negative number takes ten bytes, whatever its size.
    pub(super) fn integer(&mut self, number: u16, value: i64) {
        self.varint(value.cast_unsigned());
        self.tag(number, VARINT);
    }

    pub(super) fn double(&mut self, number: u16, value: f64) {
        self.bytes(&value.to_le_bytes());
        self.tag(number, FIXED);
    }

    fn tag(&mut self, number: u16, layout: u64) {
        self.varint(u64::from(number) << 3 | layout);
    }

    /// Seven bits a byte, the lowest first; all bytes but the last say that more follow.
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
        if let Some(written) = self.0.get_mut(start..) {
            written.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_come_out_in_their_order() {
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
