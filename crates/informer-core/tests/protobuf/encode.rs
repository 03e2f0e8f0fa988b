//! Encodes JSON objects as protobuf the way a server does, as far as tests and benchmarks need it.
#![allow(dead_code, reason = "each target uses a part of it")]
#![allow(clippy::unwrap_used, reason = "only objects of the tests are encoded")]

use informer_schema::{Message, Part, Wire};
use serde_json::Value;

/// Encodes an object as a message.
pub(crate) fn message(of: &Message, object: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    for part in of.parts {
        match part.wire {
            Wire::Message(inner) if part.name.is_empty() => {
                data(&mut out, part.number, &message(inner.get(), object));
            }
            _ => field(&mut out, part, &object[part.name]),
        }
    }
    out
}

fn field(out: &mut Vec<u8>, part: &Part, given: &Value) {
    match part.wire {
        Wire::List(items) => {
            for item in given.as_array().into_iter().flatten() {
                value(out, part.number, *items, item);
            }
        }
        Wire::Map(values) => {
            for (key, item) in given.as_object().into_iter().flatten() {
                let mut entry = Vec::new();
                data(&mut entry, 1, key.as_bytes());
                value(&mut entry, 2, *values, item);
                data(out, part.number, &entry);
            }
        }
        _ if part.pointer && given.is_null() => {}
        wire => value(out, part.number, wire, given),
    }
}

fn value(out: &mut Vec<u8>, number: u16, wire: Wire, given: &Value) {
    let text = || given.as_str().unwrap_or_default().as_bytes();
    let mut inner = Vec::new();
    match wire {
        Wire::Boolean => return varint_field(out, number, u64::from(given == &Value::Bool(true))),
        Wire::Int32 | Wire::Int64 => {
            return varint_field(out, number, given.as_i64().unwrap_or_default().cast_unsigned());
        }
        Wire::Double => {
            varint(out, u64::from(number) << 3 | 1);
            out.extend(given.as_f64().unwrap_or_default().to_le_bytes());
            return;
        }
        Wire::Bytes if given.is_null() => return,
        Wire::Bytes => inner = from_base64(text()),
        Wire::String => inner.extend(text()),
        Wire::Message(of) => inner = message(of.get(), given),
        Wire::Quantity => data(&mut inner, 1, if given.is_string() { text() } else { b"0" }),
        Wire::Time | Wire::MicroTime => time(&mut inner, wire, given),
        Wire::IntOrString => {
            varint_field(&mut inner, 1, u64::from(given.is_string()));
            varint_field(&mut inner, 2, given.as_i64().unwrap_or_default().cast_unsigned());
            data(&mut inner, 3, text());
        }
        Wire::Raw | Wire::Fields if given.is_null() => {}
        Wire::Raw | Wire::Fields => data(&mut inner, 1, given.to_string().as_bytes()),
        Wire::Strings => strings(&mut inner, 1, given),
        Wire::OrBoolean(of) => {
            varint_field(&mut inner, 1, u64::from(given != &Value::Bool(false)));
            either(&mut inner, 2, Wire::Message(of), given);
        }
        Wire::OrList(of) => {
            either(&mut inner, 1, Wire::Message(of), given);
            for item in given.as_array().into_iter().flatten() {
                value(&mut inner, 2, Wire::Message(of), item);
            }
        }
        Wire::OrStrings(of) => {
            either(&mut inner, 1, Wire::Message(of), given);
            strings(&mut inner, 2, given);
        }
        _ => panic!("{wire:?}"),
    }
    data(out, number, &inner);
}

fn either(out: &mut Vec<u8>, number: u16, wire: Wire, given: &Value) {
    if given.is_object() {
        value(out, number, wire, given);
    }
}

fn strings(out: &mut Vec<u8>, number: u16, given: &Value) {
    for item in given.as_array().into_iter().flatten() {
        data(out, number, item.as_str().unwrap().as_bytes());
    }
}

/// Encodes a time; a missing time is omitted.
fn time(out: &mut Vec<u8>, wire: Wire, given: &Value) {
    let Some(text) = given.as_str() else { return };
    let micros = text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
    let fraction = if wire == Wire::MicroTime { micros.rem_euclid(1_000_000) * 1000 } else { 0 };
    varint_field(out, 1, micros.div_euclid(1_000_000).cast_unsigned());
    varint_field(out, 2, fraction.cast_unsigned());
}

fn from_base64(text: &[u8]) -> Vec<u8> {
    let sign = |byte: &u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut out = Vec::new();
    for four in text.chunks(4) {
        let signs: Vec<u8> = four.iter().take_while(|byte| **byte != b'=').map(sign).collect();
        let bits =
            signs.iter().fold(0_u32, |bits, sign| bits << 6 | u32::from(*sign)) << (6 * (4 - signs.len()));
        out.extend(&bits.to_be_bytes()[1..signs.len()]);
    }
    out
}

fn varint_field(out: &mut Vec<u8>, number: u16, value: u64) {
    varint(out, u64::from(number) << 3);
    varint(out, value);
}

pub(crate) fn data(out: &mut Vec<u8>, number: u16, bytes: &[u8]) {
    varint(out, u64::from(number) << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}
