//! Decoding of protobuf messages into JSON values.
//!
//! As in Go, a field that occurs again replaces the previous one, but messages are merged, and lists and maps
//! grow. Unknown field numbers are skipped. Depth is limited, and each byte is read a bounded number of
//! times.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::{Message, MessageId, Part, Wire};
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::read::{Payload, Reader, low_32_bits, wrong_wire_type};
use crate::text::{self, Duplicates, MAX_DEPTH, times};

/// Adds the fields of a message to those of an object.
pub(super) fn message(
    descriptor: &Message,
    bytes: &[u8],
    depth: usize,
    into: &mut Map<String, Value>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err("exceeded max depth".to_owned());
    }
    let name = descriptor.name.rsplit('.').next().unwrap_or_default();
    let mut reader = Reader::new(name, bytes);
    while let Some((number, payload)) = reader.next()? {
        let Some(part) = descriptor.part(number) else { continue };
        match part.wire {
            // In JSON, the fields of this message belong to the enclosing object.
            Wire::Message(id) if part.name.is_empty() => {
                message(id.get(), data(payload, part)?, depth + 1, into)?;
            }
            Wire::Message(id) => {
                let mut fields = match into.get_mut(part.name).map(Value::take) {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                message(id.get(), data(payload, part)?, depth + 1, &mut fields)?;
                set(into, part, Value::Object(fields));
            }
            Wire::List(items) => add_items(part, *items, payload, depth, into)?,
            Wire::Map(values) => {
                let (key, value) = entry(part, *values, data(payload, part)?, depth)?;
                let entries = into.entry(part.name).or_insert_with(|| Value::Object(Map::new()));
                entries.as_object_mut().map(|entries| entries.insert(key, value));
            }
            wire => {
                let value = value(part, wire, payload, depth)?;
                set(into, part, value);
            }
        }
    }
    Ok(())
}

/// Sets a field, or removes it if the value is empty and the field cannot be absent.
fn set(into: &mut Map<String, Value>, part: &Part, value: Value) {
    // Zero in an `IntOrString` and empty bytes differ from an absent value.
    let is_default = match &value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => part.wire != Wire::IntOrString && number.as_f64() == Some(0.0),
        Value::String(text) => part.wire != Wire::Bytes && text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Array(_) => false,
    };
    if is_default && !part.pointer {
        into.remove(part.name);
    } else {
        into.insert(part.name.to_owned(), value);
    }
}

fn add_items(
    part: &Part,
    items: Wire,
    payload: Payload<'_>,
    depth: usize,
    into: &mut Map<String, Value>,
) -> Result<(), String> {
    let list = into.entry(part.name).or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(list) = list else { return Ok(()) };
    let is_number = matches!(items, Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double);
    match payload {
        Payload::Data(bytes) if is_number => {
            let mut reader = Reader::new(part.name, bytes);
            while let Some(payload) = reader.packed(items == Wire::Double)? {
                list.push(value(part, items, payload, depth)?);
            }
        }
        payload => list.push(value(part, items, payload, depth)?),
    }
    Ok(())
}

/// Decodes an entry of a map; an absent value is empty.
fn entry(part: &Part, values: Wire, bytes: &[u8], depth: usize) -> Result<(String, Value), String> {
    let (mut key, mut decoded) = (String::new(), None);
    let mut reader = Reader::new(part.name, bytes);
    while let Some((number, payload)) = reader.next()? {
        match number {
            1 => key = string(data(payload, part)?),
            2 => decoded = Some(value(part, values, payload, depth)?),
            _ => {}
        }
    }
    let value = match (decoded, values) {
        (Some(value), _) => value,
        (None, Wire::String | Wire::Bytes) => "".into(),
        (None, Wire::Boolean) => false.into(),
        (None, Wire::Int32 | Wire::Int64 | Wire::Double) => 0.into(),
        (None, _) => value(part, values, Payload::Data(&[]), depth)?,
    };
    Ok((key, value))
}

fn value(part: &Part, wire: Wire, payload: Payload<'_>, depth: usize) -> Result<Value, String> {
    match (wire, payload) {
        (Wire::Boolean, Payload::Varint(value)) => Ok((value != 0).into()),
        (Wire::Int32, Payload::Varint(value)) => Ok(low_32_bits(value).into()),
        (Wire::Int64, Payload::Varint(value)) => Ok(value.cast_signed().into()),
        (Wire::Double, Payload::Fixed64(bits)) => Ok(number(f64::from_bits(bits))),
        (Wire::String, Payload::Data(bytes)) => Ok(string(bytes).into()),
        (Wire::Bytes, Payload::Data(bytes)) => Ok(STANDARD.encode(bytes).into()),
        (Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double, other) => {
            Err(wrong_wire_type(other, part.name))
        }
        (Wire::Message(id), payload) => nested(id, data(payload, part)?, depth),
        (Wire::Quantity, payload) => Ok(match fields::<1>(part, data(payload, part)?)? {
            [None] => "0".into(),
            [Some(text)] => string(data(text, part)?).into(),
        }),
        (Wire::Time | Wire::MicroTime, payload) => time(part, wire, data(payload, part)?),
        (Wire::IntOrString, payload) => int_or_string(part, data(payload, part)?),
        (Wire::Raw | Wire::Fields, payload) => raw(part, data(payload, part)?),
        (_, payload) => choice(part, wire, data(payload, part)?, depth),
    }
}

fn nested(id: MessageId, bytes: &[u8], depth: usize) -> Result<Value, String> {
    let mut fields = Map::new();
    message(id.get(), bytes, depth + 1, &mut fields)?;
    Ok(Value::Object(fields))
}

/// Decodes JSON in a message.
fn raw(part: &Part, bytes: &[u8]) -> Result<Value, String> {
    let [text] = fields::<1>(part, bytes)?;
    match text.map(|text| data(text, part)).transpose()? {
        None | Some([]) => Ok(Value::Null),
        Some(text) => text::read(text, Duplicates::Replace).map(|read| read.value),
    }
}

fn int_or_string(part: &Part, bytes: &[u8]) -> Result<Value, String> {
    let [kind, whole, text] = fields::<3>(part, bytes)?;
    match kind {
        None | Some(Payload::Varint(0)) => value(part, Wire::Int32, whole.unwrap_or(Payload::Varint(0)), 0),
        Some(_) => Ok(string(data(text.unwrap_or(Payload::Data(&[])), part)?).into()),
    }
}

/// Decodes a time; an absent time and Go's zero time are `null`.
fn time(part: &Part, wire: Wire, bytes: &[u8]) -> Result<Value, String> {
    /// The zero time, `0001-01-01T00:00:00Z`, in seconds since 1970.
    const ZERO_TIME_SECONDS: i64 = -62_135_596_800;
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let [seconds, nanoseconds] = fields::<2>(part, bytes)?;
    let integer = |payload: Option<Payload<'_>>| match payload.unwrap_or(Payload::Varint(0)) {
        Payload::Varint(value) => Ok(value),
        other => Err(wrong_wire_type(other, part.name)),
    };
    let seconds = integer(seconds)?.cast_signed();
    let micro = wire == Wire::MicroTime;
    let nanoseconds = if micro { low_32_bits(integer(nanoseconds)?) / 1000 * 1000 } else { 0 };
    if seconds == ZERO_TIME_SECONDS && nanoseconds == 0 {
        return Ok(Value::Null);
    }
    let time =
        Timestamp::new(seconds, nanoseconds).map_err(|_| "year outside of range [0,9999]".to_owned())?;
    Ok(if micro { times::with_micros(time) } else { times::written(time) }.into())
}

/// Decodes lists of strings, and values that have one of two types in JSON.
fn choice(part: &Part, wire: Wire, bytes: &[u8], depth: usize) -> Result<Value, String> {
    let mut reader = Reader::new(part.name, bytes);
    let mut list = Vec::new();
    let mut chosen = None;
    let mut flag = false;
    while let Some((number, payload)) = reader.next()? {
        match (wire, number) {
            (Wire::Strings, 1) | (Wire::OrStrings(_), 2) => list.push(string(data(payload, part)?).into()),
            (Wire::OrBoolean(_), 1) => flag = matches!(payload, Payload::Varint(value) if value != 0),
            (Wire::OrList(id), 2) => list.push(nested(id, data(payload, part)?, depth)?),
            (Wire::OrBoolean(id), 2) | (Wire::OrList(id) | Wire::OrStrings(id), 1) => {
                chosen = Some(nested(id, data(payload, part)?, depth)?);
            }
            _ => {}
        }
    }
    Ok(match (chosen, wire) {
        (Some(chosen), _) => chosen,
        (None, Wire::OrBoolean(_)) => flag.into(),
        (None, _) => Value::Array(list),
    })
}

/// Returns the last field of each number from 1 to N.
fn fields<'a, const N: usize>(part: &'a Part, bytes: &'a [u8]) -> Result<[Option<Payload<'a>>; N], String> {
    let mut payloads = [None; N];
    let mut reader = Reader::new(part.name, bytes);
    while let Some((number, payload)) = reader.next()? {
        let index = usize::try_from(number).unwrap_or_default().wrapping_sub(1);
        if let Some(field) = payloads.get_mut(index) {
            *field = Some(payload);
        }
    }
    Ok(payloads)
}

fn data<'a>(payload: Payload<'a>, part: &Part) -> Result<&'a [u8], String> {
    match payload {
        Payload::Data(data) => Ok(data),
        other => Err(wrong_wire_type(other, part.name)),
    }
}

fn string(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns a number; integers have no fraction, as in Go.
fn number(value: f64) -> Value {
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() < MAX_EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "an integer of at most 53 bits")]
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}
