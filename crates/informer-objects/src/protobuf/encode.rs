//! Encoding of JSON values as protobuf messages.
//!
//! Never fails: objects were decoded into their types before, so values fit their fields. A value that does
//! not fit is written as empty. A field that is not a pointer in Go is written even if JSON omits it, except
//! lists, maps and bytes. Fields are written from the last to the first, as [`Writer`] requires.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::{Message, MessageId, Part, Wire};
use jiff::Timestamp;
use serde_json::Value;

use super::write::Writer;
use crate::field_management::fields_text;

/// Writes the fields of an object.
pub(super) fn message(writer: &mut Writer, descriptor: &Message, object: &Value) {
    for field in descriptor.parts.iter().rev() {
        match field.wire {
            // In JSON, the fields of this message belong to the enclosing object.
            Wire::Message(id) if field.name.is_empty() => {
                writer.nested(field.number, |writer| message(writer, id.get(), object));
            }
            _ => part(writer, field, object.get(field.name).unwrap_or(&Value::Null)),
        }
    }
}

fn part(writer: &mut Writer, part: &Part, json: &Value) {
    let number = part.number;
    match part.wire {
        Wire::List(items) => {
            for item in list(json).iter().rev() {
                value(writer, number, *items, item);
            }
        }
        Wire::Map(values) => {
            for (key, item) in json.as_object().into_iter().flatten().rev() {
                writer.nested(number, |writer| {
                    value(writer, 2, *values, item);
                    writer.text(1, key);
                });
            }
        }
        _ if part.pointer && json.is_null() => {}
        wire => value(writer, number, wire, json),
    }
}

fn value(writer: &mut Writer, number: u16, wire: Wire, json: &Value) {
    match wire {
        Wire::Boolean => writer.boolean(number, json.as_bool().unwrap_or_default()),
        Wire::Int32 | Wire::Int64 => writer.integer(number, json.as_i64().unwrap_or_default()),
        Wire::Double => writer.double(number, json.as_f64().unwrap_or_default()),
        Wire::String => writer.text(number, text(json)),
        Wire::Bytes => {
            // Absent bytes differ from empty bytes.
            if let Some(text) = json.as_str() {
                writer.data(number, &STANDARD.decode(text).unwrap_or_default());
            }
        }
        Wire::Message(id) => writer.nested(number, |writer| message(writer, id.get(), json)),
        _ => writer.nested(number, |writer| special(writer, wire, json)),
    }
}

/// Writes a value that is a message in protobuf and simpler in JSON.
fn special(writer: &mut Writer, wire: Wire, json: &Value) {
    match wire {
        Wire::Quantity => writer.text(1, json.as_str().unwrap_or("0")),
        Wire::Time | Wire::MicroTime => time(writer, wire, text(json)),
        Wire::IntOrString => {
            writer.text(3, text(json));
            writer.integer(2, json.as_i64().unwrap_or_default());
            writer.boolean(1, json.is_string());
        }
        Wire::Fields if !json.is_null() => writer.text(1, &fields_text(json)),
        Wire::Raw if !json.is_null() => writer.text(1, &json.to_string()),
        Wire::Strings => texts(writer, 1, json),
        Wire::OrBoolean(id) => {
            message_if_object(writer, 2, id, json);
            // An object also means true.
            writer.boolean(1, json.as_bool().unwrap_or(json.is_object()));
        }
        Wire::OrList(id) => {
            for item in list(json).iter().rev() {
                value(writer, 2, Wire::Message(id), item);
            }
            message_if_object(writer, 1, id, json);
        }
        Wire::OrStrings(id) => {
            texts(writer, 2, json);
            message_if_object(writer, 1, id, json);
        }
        _ => {}
    }
}

fn message_if_object(writer: &mut Writer, number: u16, id: MessageId, json: &Value) {
    if json.is_object() {
        value(writer, number, Wire::Message(id), json);
    }
}

/// Writes a time; nothing if it is absent.
fn time(writer: &mut Writer, wire: Wire, text: &str) {
    let Ok(time) = text.parse::<Timestamp>() else { return };
    // The fraction is never negative: before 1970, seconds are rounded down.
    let micros = time.as_microsecond();
    let fraction = if wire == Wire::MicroTime { micros.rem_euclid(1_000_000) * 1000 } else { 0 };
    writer.integer(2, fraction);
    writer.integer(1, micros.div_euclid(1_000_000));
}

fn texts(writer: &mut Writer, number: u16, json: &Value) {
    for item in list(json).iter().rev() {
        writer.text(number, text(item));
    }
}

fn text(json: &Value) -> &str {
    json.as_str().unwrap_or_default()
}

fn list(json: &Value) -> &[Value] {
    json.as_array().map_or(&[], Vec::as_slice)
}
