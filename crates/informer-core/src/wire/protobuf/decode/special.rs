//! Values that JSON writes in another form than protobuf: quantities, floating point numbers, bytes, JSON
//! inside messages, and alternatives of two types.
//!
//! Their messages are small, so each lookup reads all fields, in any order. Of a repeated field the last
//! value counts.

use super::context::wrong_wire_type;
use super::error::Error;
use super::time;
use crate::wire::protobuf::fields::{Fields, Payload, low_32_bits};
use informer_schema::Wire;
use serde::de::{Deserializer as _, Visitor};
use std::borrow::Cow;

/// Whether Go considers a value empty, and therefore omits it in JSON where the table says so.
#[inline]
pub(super) fn is_empty(wire: Wire, payload: Payload<'_>) -> Result<bool, Error> {
    match (wire, payload) {
        (Wire::Time | Wire::MicroTime, Payload::Data(bytes)) => is_null_time(wire, bytes),
        (_, Payload::Varint(value)) => Ok(value == 0),
        (_, Payload::Data(bytes)) => Ok(bytes.is_empty()),
        // Zero with any sign.
        (_, Payload::Fixed64(bits)) => Ok(bits << 1 == 0),
        (_, Payload::Fixed32 | Payload::Group) => Ok(false),
    }
}

/// Returns the text of a quantity; `0` if it is absent.
pub(super) fn quantity(bytes: &[u8]) -> Result<&[u8], Error> {
    Ok(last_data(bytes, 1)?.unwrap_or(b"0"))
}

/// Returns the JSON inside a message; `null` if it is absent.
pub(super) fn raw(bytes: &[u8]) -> Result<&[u8], Error> {
    Ok(last_data(bytes, 1)?.filter(|text| !text.is_empty()).unwrap_or(b"null"))
}

pub(super) fn is_null_time(wire: Wire, bytes: &[u8]) -> Result<bool, Error> {
    time::read(wire, bytes).map(|time| time.is_none())
}

/// Parses an `IntOrString`: `Ok` with the number, or `Err` with the text.
pub(super) fn int_or_string(bytes: &[u8]) -> Result<Result<i32, &[u8]>, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, &[][..]);
    let mut fields = Fields(bytes);
    while let Some(field) = fields.next()? {
        match field {
            (1, Payload::Varint(value)) => is_text = low_32_bits(value) != 0,
            (2, Payload::Varint(value)) => number = low_32_bits(value),
            (3, Payload::Data(bytes)) => text = bytes,
            (1..=3, _) => return Err(wrong_wire_type()),
            _ => {}
        }
    }
    Ok(if is_text { Err(text) } else { Ok(number) })
}

/// Decodes a floating point number as from the JSON that Go writes.
pub(super) fn double<'de, V: Visitor<'de>>(value: f64, visitor: V) -> Result<V::Value, Error> {
    if !value.is_finite() {
        return Err(Error::new("infinity and NaN do not exist in JSON"));
    }
    // Like Go, `format!` writes an integral number without a fraction, so the visitor receives an integer. Go
    // writes very large and very small numbers with exponents, but they parse to the same number.
    let number: serde_json::Number = serde_json::from_str(&format!("{value}"))?;
    Ok(number.deserialize_any(visitor)?)
}

/// Whether neither alternative (field 1 or 2) is present.
pub(super) fn is_null_choice(bytes: &[u8]) -> Result<bool, Error> {
    Ok(last_data(bytes, 1)?.is_none() && last_data(bytes, 2)?.is_none())
}

/// Returns the boolean in field 1; `false` if it is absent.
pub(super) fn is_true(bytes: &[u8]) -> Result<bool, Error> {
    let mut is_true = false;
    let mut fields = Fields(bytes);
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Varint(value)) => is_true = value != 0,
            (1, _) => return Err(wrong_wire_type()),
            _ => {}
        }
    }
    Ok(is_true)
}

/// Returns the bytes of the last field with the number `wanted`.
pub(super) fn last_data(bytes: &[u8], wanted: u32) -> Result<Option<&[u8]>, Error> {
    let mut found = None;
    let mut fields = Fields(bytes);
    while let Some((number, payload)) = fields.next()? {
        match payload {
            Payload::Data(bytes) if number == wanted => found = Some(bytes),
            _ if number == wanted => return Err(wrong_wire_type()),
            _ => {}
        }
    }
    Ok(found)
}

/// Encodes bytes in standard base64 with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * index) & 63) as usize];
            out.push(if index > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    out
}

/// Returns the text; invalid UTF-8 is replaced as Go's JSON encoder does.
pub(super) fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(lossy(bytes)),
    }
}

/// Returns the text with a replacement character for every byte that is not valid UTF-8, as in Go.
fn lossy(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_in_base64() {
        let cases: [(&[u8], &str); 6] = [
            (b"", ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (&[0xfb, 0xff], "+/8="),
        ];
        for (bytes, expected) in cases {
            assert_eq!(base64(bytes), expected);
        }
    }

    #[test]
    fn each_invalid_byte_is_replaced() {
        assert_eq!(lossy(b"a\xe2\x82b\xff"), "a\u{fffd}\u{fffd}b\u{fffd}");
        assert_eq!(lossy("ok ✓".as_bytes()), "ok ✓");
    }
}
