//! Sorting of the fields of a message into the order in which a server writes them.
//!
//! Protobuf allows fields in any order and repeated: lists are extended, messages are merged, and of
//! anything else the last value counts. Sorting resolves this at the cost of a copy, so that the decoder
//! need not handle it. Fields that the table does not know are left out.

use super::collections::{entry_of, is_number};
use super::context::wrong_wire_type;
use super::error::Error;
use crate::wire::protobuf::fields::{FIXED64, Fields, Payload, VARINT, put_data, put_varint, tag};
use informer_schema::{Message, MessageId, Wire};

/// Maximum nesting depth, as in the decoder.
const MAX_DEPTH: u8 = 128;

/// Returns the message with its fields sorted.
pub(super) fn ordered(of: MessageId, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    message(of.get(), bytes, MAX_DEPTH)
}

fn message(of: &'static Message, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let depth = depth.checked_sub(1).ok_or_else(|| Error::new("recursion limit exceeded"))?;
    let mut found = all(bytes)?;
    // The sort is stable: fields with equal numbers stay in their order.
    found.sort_by_key(|(number, _)| *number);
    let mut out = Vec::with_capacity(bytes.len());
    for group in found.chunk_by(|(one, _), (next, _)| one == next) {
        let Some(((number, last), _)) = group.split_last() else { continue };
        let Some(part) = of.part(u64::from(*number)) else { continue };
        match part.wire {
            Wire::List(items) => {
                for (_, payload) in group {
                    match payload {
                        Payload::Data(packed) if is_number(*items) => {
                            let mut packed = Fields(packed);
                            while let Some(payload) = packed.packed(*items == Wire::Double)? {
                                put(&mut out, *number, value(*items, payload, depth)?);
                            }
                        }
                        payload => put(&mut out, *number, value(*items, *payload, depth)?),
                    }
                }
            }
            Wire::Map(values) => {
                for (_, payload) in group {
                    put(&mut out, *number, OrderedValue::Data(entry(*values, data(*payload)?, depth)?));
                }
            }
            Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double | Wire::String | Wire::Bytes => {
                put(&mut out, *number, value(part.wire, *last, depth)?);
            }
            wire => {
                // Concatenated messages are merged by the recursive call.
                let parts = group.iter().map(|(_, payload)| data(*payload)).collect::<Result<Vec<_>, _>>()?;
                put(&mut out, *number, value(wire, Payload::Data(&parts.concat()), depth)?);
            }
        }
    }
    Ok(out)
}

/// A value to write: numbers unchanged, everything else sorted.
enum OrderedValue {
    Varint(u64),
    Fixed64(u64),
    Data(Vec<u8>),
}

fn value(wire: Wire, payload: Payload<'_>, depth: u8) -> Result<OrderedValue, Error> {
    let bytes = match payload {
        Payload::Varint(value) => return Ok(OrderedValue::Varint(value)),
        Payload::Fixed64(bits) => return Ok(OrderedValue::Fixed64(bits)),
        Payload::Data(bytes) => bytes,
        Payload::Fixed32 | Payload::Group => return Err(wrong_wire_type()),
    };
    Ok(OrderedValue::Data(match wire {
        Wire::Message(of) => message(of.get(), bytes, depth)?,
        Wire::OrBoolean(of) => choice(bytes, 2, of, false, depth)?,
        Wire::OrList(of) => choice(bytes, 1, of, true, depth)?,
        Wire::OrStrings(of) => choice(bytes, 1, of, false, depth)?,
        _ => bytes.to_vec(),
    }))
}

/// Sorts a message that contains one of two alternatives: `message_number` is the field of the message
/// `of`, and with `other_is_message` the other field contains such messages, too.
fn choice(
    bytes: &[u8],
    message_number: u32,
    of: MessageId,
    other_is_message: bool,
    depth: u8,
) -> Result<Vec<u8>, Error> {
    let (mut out, mut merged) = (Vec::with_capacity(bytes.len()), None::<Vec<u8>>);
    for (number, payload) in all(bytes)? {
        match payload {
            Payload::Data(bytes) if number == message_number => {
                merged.get_or_insert_default().extend_from_slice(bytes);
            }
            payload if other_is_message => put(&mut out, number, value(Wire::Message(of), payload, depth)?),
            payload => put(&mut out, number, value(Wire::String, payload, depth)?),
        }
    }
    if let Some(merged) = merged {
        put(&mut out, message_number, OrderedValue::Data(message(of.get(), &merged, depth)?));
    }
    Ok(out)
}

fn entry(values: Wire, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let (key, found) = entry_of(bytes)?;
    let mut out = Vec::with_capacity(bytes.len());
    put(&mut out, 1, OrderedValue::Data(key.to_vec()));
    if let Some(payload) = found {
        put(&mut out, 2, value(values, payload, depth)?);
    }
    Ok(out)
}

fn all(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, Error> {
    let (mut fields, mut found) = (Fields(bytes), Vec::new());
    while let Some(field) = fields.next()? {
        found.push(field);
    }
    Ok(found)
}

fn data(payload: Payload<'_>) -> Result<&[u8], Error> {
    match payload {
        Payload::Data(bytes) => Ok(bytes),
        _ => Err(wrong_wire_type()),
    }
}

fn put(out: &mut Vec<u8>, number: u32, value: OrderedValue) {
    match value {
        OrderedValue::Varint(value) => {
            put_varint(out, tag(number, VARINT));
            put_varint(out, value);
        }
        OrderedValue::Fixed64(bits) => {
            put_varint(out, tag(number, FIXED64));
            out.extend_from_slice(&bits.to_le_bytes());
        }
        OrderedValue::Data(bytes) => put_data(out, number, &bytes),
    }
}
