//! JSON values as messages.
//!
//! Total: what does not fit its field is written as if it were empty, since objects were read into their types long before.
//! What is no pointer in Go is written even when JSON leaves it out. Fields go from the last to the first, as [`Writer`] wants it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::{Message, MessageId, Part, Wire};
use jiff::Timestamp;
use serde_json::Value;

use super::write::Writer;
use crate::field_management::fields_text;

/// The fields of an object.
pub(super) fn message(writer: &mut Writer, of: &Message, object: &Value) {
    for field in of.parts.iter().rev() {
        match field.wire {
            // Its fields are the object's.
            Wire::Message(id) if field.name.is_empty() => {
                writer.nested(field.number, |writer| message(writer, id.get(), object));
            }
            _ => part(writer, field, object.get(field.name).unwrap_or(&Value::Null)),
        }
    }
}

fn part(writer: &mut Writer, part: &Part, given: &Value) {
    let number = part.number;
    match part.wire {
        Wire::List(items) => {
            for item in list(given).iter().rev() {
                value(writer, number, *items, item);
            }
        }
        Wire::Map(values) => {
            for (key, item) in given.as_object().into_iter().flatten().rev() {
                writer.nested(number, |writer| {
                    value(writer, 2, *values, item);
                    writer.text(1, key);
                });
            }
        }
        _ if part.pointer && given.is_null() => {}
        wire => value(writer, number, wire, given),
    }
}

fn value(writer: &mut Writer, number: u16, wire: Wire, given: &Value) {
    match wire {
        Wire::Boolean => writer.boolean(number, given.as_bool().unwrap_or_default()),
        Wire::Int32 | Wire::Int64 => writer.integer(number, given.as_i64().unwrap_or_default()),
        Wire::Double => writer.double(number, given.as_f64().unwrap_or_default()),
        Wire::String => writer.text(number, text(given)),
        Wire::Bytes => {
            // Bytes that are not there differ from no bytes.
            if let Some(text) = given.as_str() {
                writer.data(number, &STANDARD.decode(text).unwrap_or_default());
            }
        }
        Wire::Message(id) => writer.nested(number, |writer| message(writer, id.get(), given)),
        _ => writer.nested(number, |writer| special(writer, wire, given)),
    }
}

/// What is a message of its own and something simpler in JSON.
fn special(writer: &mut Writer, wire: Wire, given: &Value) {
    match wire {
        Wire::Quantity => writer.text(1, given.as_str().unwrap_or("0")),
        Wire::Time | Wire::MicroTime => time(writer, wire, text(given)),
        Wire::IntOrString => {
            writer.text(3, text(given));
            writer.integer(2, given.as_i64().unwrap_or_default());
            writer.boolean(1, given.is_string());
        }
        Wire::Fields if !given.is_null() => writer.text(1, &fields_text(given)),
        Wire::Raw if !given.is_null() => writer.text(1, &given.to_string()),
        Wire::Strings => texts(writer, 1, given),
        Wire::OrBoolean(id) => {
            either(writer, 2, id, given);
            // An object means yes, too.
            writer.boolean(1, given.as_bool().unwrap_or(given.is_object()));
        }
        Wire::OrList(id) => {
            for item in list(given).iter().rev() {
                value(writer, 2, Wire::Message(id), item);
            }
            either(writer, 1, id, given);
        }
        Wire::OrStrings(id) => {
            texts(writer, 2, given);
            either(writer, 1, id, given);
        }
        _ => {}
    }
}

fn either(writer: &mut Writer, number: u16, of: MessageId, given: &Value) {
    if given.is_object() {
        value(writer, number, Wire::Message(of), given);
    }
}

/// Nothing for no time.
fn time(writer: &mut Writer, wire: Wire, text: &str) {
    let Ok(time) = text.parse::<Timestamp>() else { return };
    // Fractions count forward, before 1970 too.
    let micros = time.as_microsecond();
    let fraction = if wire == Wire::MicroTime { micros.rem_euclid(1_000_000) * 1000 } else { 0 };
    writer.integer(2, fraction);
    writer.integer(1, micros.div_euclid(1_000_000));
}

fn texts(writer: &mut Writer, number: u16, given: &Value) {
    for item in list(given).iter().rev() {
        writer.text(number, text(item));
    }
}

fn text(given: &Value) -> &str {
    given.as_str().unwrap_or_default()
}

fn list(given: &Value) -> &[Value] {
    given.as_array().map_or(&[], Vec::as_slice)
}
