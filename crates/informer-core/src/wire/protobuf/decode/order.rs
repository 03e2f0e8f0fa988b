//! Messages whose fields are in any order, put in the order in which a server writes them.
//!
//! Protobuf lets fields come in any order and again: lists grow, messages are merged, of anything else the last counts. Here that
//! is settled, at the price of a copy, so that reading need not know of it. What the table does not know is left out.

use super::collections::{entry_of, is_number};
use super::context::wrong_layout;
use super::error::Error;
use crate::wire::protobuf::fields::{FIXED64, Fields, Payload, VARINT, put_data, put_varint, tag};
use informer_schema::{Message, MessageId, Wire};

/// As deep as values are read.
const MAX_DEPTH: u8 = 128;

/// A message in order.
pub(super) fn ordered(of: MessageId, bytes: &[u8]) -> Result<Vec<u8>, Error> {
    message(of.get(), bytes, MAX_DEPTH)
}

fn message(of: &'static Message, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let depth = depth.checked_sub(1).ok_or_else(|| Error::new("recursion limit exceeded"))?;
    let mut found = all(bytes)?;
    // Stable: fields of one number stay in their order.
    found.sort_by_key(|(number, _)| *number);
    let mut out = Vec::with_capacity(bytes.len());
    for same in found.chunk_by(|(one, _), (next, _)| one == next) {
        let Some(((number, last), _)) = same.split_last() else { continue };
        let Some(part) = of.part(u64::from(*number)) else { continue };
        match part.wire {
            Wire::List(items) => {
                for (_, payload) in same {
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
                for (_, payload) in same {
                    put(&mut out, *number, Owned::Data(entry(*values, data(*payload)?, depth)?));
                }
            }
            Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double | Wire::String | Wire::Bytes => {
                put(&mut out, *number, value(part.wire, *last, depth)?);
            }
            wire => {
                // Messages behind each other are one message.
                let parts = same.iter().map(|(_, payload)| data(*payload)).collect::<Result<Vec<_>, _>>()?;
                put(&mut out, *number, value(wire, Payload::Data(&parts.concat()), depth)?);
            }
        }
    }
    Ok(out)
}

/// What is written: numbers as they are, everything else in order.
enum Owned {
    Varint(u64),
    Fixed64(u64),
    Data(Vec<u8>),
}

fn value(wire: Wire, payload: Payload<'_>, depth: u8) -> Result<Owned, Error> {
    let bytes = match payload {
        Payload::Varint(value) => return Ok(Owned::Varint(value)),
        Payload::Fixed64(bits) => return Ok(Owned::Fixed64(bits)),
        Payload::Data(bytes) => bytes,
        Payload::Fixed32 | Payload::Group => return Err(wrong_layout()),
    };
    Ok(Owned::Data(match wire {
        Wire::Message(of) => message(of.get(), bytes, depth)?,
        Wire::OrBoolean(of) => choice(bytes, 2, of, false, depth)?,
        Wire::OrList(of) => choice(bytes, 1, of, true, depth)?,
        Wire::OrStrings(of) => choice(bytes, 1, of, false, depth)?,
        _ => bytes.to_vec(),
    }))
}

/// One thing or another: `own` is the number of the message, and with `lists` the other one holds messages, too.
fn choice(bytes: &[u8], own: u32, of: MessageId, lists: bool, depth: u8) -> Result<Vec<u8>, Error> {
    let (mut out, mut merged) = (Vec::with_capacity(bytes.len()), None::<Vec<u8>>);
    for (number, payload) in all(bytes)? {
        match payload {
            Payload::Data(bytes) if number == own => merged.get_or_insert_default().extend_from_slice(bytes),
            payload if lists => put(&mut out, number, value(Wire::Message(of), payload, depth)?),
            payload => put(&mut out, number, value(Wire::String, payload, depth)?),
        }
    }
    if let Some(merged) = merged {
        put(&mut out, own, Owned::Data(message(of.get(), &merged, depth)?));
    }
    Ok(out)
}

fn entry(values: Wire, bytes: &[u8], depth: u8) -> Result<Vec<u8>, Error> {
    let (key, found) = entry_of(bytes)?;
    let mut out = Vec::with_capacity(bytes.len());
    put(&mut out, 1, Owned::Data(key.to_vec()));
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
        _ => Err(wrong_layout()),
    }
}

fn put(out: &mut Vec<u8>, number: u32, value: Owned) {
    match value {
        Owned::Varint(value) => {
            put_varint(out, tag(number, VARINT));
            put_varint(out, value);
        }
        Owned::Fixed64(bits) => {
            put_varint(out, tag(number, FIXED64));
            out.extend_from_slice(&bits.to_le_bytes());
        }
        Owned::Data(bytes) => put_data(out, number, &bytes),
    }
}
