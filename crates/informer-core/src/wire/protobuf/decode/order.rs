//! Sorting of the fields of a message into the order in which a server writes them.
//!
//! Protobuf allows fields in any order, and repeated fields: lists and maps are extended, messages are
//! merged, and of anything else the last value counts. The decoder handles only fields that are sorted and
//! not repeated (except in lists and maps). Sorting produces them at the cost of a copy. Fields that the
//! table does not know are left out.

use super::collections::{can_be_packed, entry_of};
use super::context::wrong_wire_type;
use super::error::Error;
use crate::wire::protobuf::fields::{FIXED64, Fields, Payload, VARINT, put_data, put_varint, tag};
use informer_schema::{Message, MessageId, Wire};

/// Maximum nesting depth, as in the decoder.
const MAX_DEPTH: u8 = 128;

/// Returns the message with its fields sorted.
pub(super) fn ordered(message_type: MessageId, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    sort_message(message_type.get(), bytes, MAX_DEPTH)
}

fn sort_message(message_type: &'static Message, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let depth = depth.checked_sub(1).ok_or_else(|| Error::new("recursion limit exceeded"))?;
    let mut fields = read_fields(bytes)?;
    // The sort is stable: fields with equal numbers stay in their order.
    fields.sort_by_key(|(number, _)| *number);
    let mut out = Vec::with_capacity(bytes.len());
    for repeated in fields.chunk_by(|(one, _), (next, _)| one == next) {
        let Some(((number, last), _)) = repeated.split_last() else { continue };
        let Some(part) = message_type.part(u64::from(*number)) else { continue };
        match part.wire {
            Wire::List(items) => {
                for (_, payload) in repeated {
                    match payload {
                        Payload::Data(packed) if can_be_packed(*items) => {
                            let mut packed = Fields(packed);
                            while let Some(payload) = packed.next_packed(*items == Wire::Double)? {
                                put(&mut out, *number, sort_value(*items, payload, depth)?);
                            }
                        }
                        payload => put(&mut out, *number, sort_value(*items, *payload, depth)?),
                    }
                }
            }
            Wire::Map(values) => {
                for (_, payload) in repeated {
                    put(&mut out, *number, OrderedValue::Data(sort_entry(*values, data(*payload)?, depth)?));
                }
            }
            Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double | Wire::String | Wire::Bytes => {
                put(&mut out, *number, sort_value(part.wire, *last, depth)?);
            }
            wire => {
                // Concatenated messages are merged by the recursive call.
                let messages =
                    repeated.iter().map(|(_, payload)| data(*payload)).collect::<Result<Vec<_>, _>>()?;
                put(&mut out, *number, sort_value(wire, Payload::Data(&messages.concat()), depth)?);
            }
        }
    }
    Ok(out)
}

/// A value to write: a number unchanged, bytes with sorted fields.
enum OrderedValue {
    Varint(u64),
    Fixed64(u64),
    Data(Vec<u8>),
}

fn sort_value(wire: Wire, payload: Payload<'_>, depth: u8) -> Result<OrderedValue, Error> {
    let bytes = match payload {
        Payload::Varint(value) => return Ok(OrderedValue::Varint(value)),
        Payload::Fixed64(bits) => return Ok(OrderedValue::Fixed64(bits)),
        Payload::Data(bytes) => bytes,
        Payload::Fixed32 | Payload::Group => return Err(wrong_wire_type()),
    };
    Ok(OrderedValue::Data(match wire {
        Wire::Message(message_type) => sort_message(message_type.get(), bytes, depth)?,
        Wire::OrBoolean(message_type) => sort_choice(bytes, (2, message_type), Wire::Boolean, depth)?,
        Wire::OrList(message_type) => {
            sort_choice(bytes, (1, message_type), Wire::Message(message_type), depth)?
        }
        Wire::OrStrings(message_type) => sort_choice(bytes, (1, message_type), Wire::String, depth)?,
        _ => bytes.to_vec(),
    }))
}

/// Sorts a message that contains one of two alternatives.
///
/// One alternative is a message of type `message_type` in the field `message_number`. The other alternative
/// is in the other field, whose values have the type `other`.
fn sort_choice(
    bytes: &[u8],
    (message_number, message_type): (u32, MessageId),
    other: Wire,
    depth: u8,
) -> Result<Vec<u8>, Error> {
    let (mut out, mut merged) = (Vec::with_capacity(bytes.len()), None::<Vec<u8>>);
    for (number, payload) in read_fields(bytes)? {
        match payload {
            Payload::Data(bytes) if number == message_number => {
                merged.get_or_insert_default().extend_from_slice(bytes);
            }
            payload => put(&mut out, number, sort_value(other, payload, depth)?),
        }
    }
    if let Some(merged) = merged {
        put(&mut out, message_number, OrderedValue::Data(sort_message(message_type.get(), &merged, depth)?));
    }
    Ok(out)
}

fn sort_entry(values: Wire, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let (key, payload) = entry_of(bytes)?;
    let mut out = Vec::with_capacity(bytes.len());
    put(&mut out, 1, OrderedValue::Data(key.to_vec()));
    if let Some(payload) = payload {
        put(&mut out, 2, sort_value(values, payload, depth)?);
    }
    Ok(out)
}

fn read_fields(bytes: &[u8]) -> Result<Vec<(u32, Payload<'_>)>, Error> {
    let (mut unread, mut fields) = (Fields(bytes), Vec::new());
    while let Some(field) = unread.next()? {
        fields.push(field);
    }
    Ok(fields)
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
