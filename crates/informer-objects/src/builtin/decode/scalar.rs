//! Reading values that are not objects with fields, lists or maps.
//!
//! Each comes back in the one form in which a server writes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::Shape;
use serde_json::Value;

use super::time;
use crate::text::Quantity;

/// Why a value cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It is of another type; what was found there.
    Type(String),
    /// It is text that does not parse, or a type with a decoder of its own; the whole message.
    Text(String),
}

pub(super) fn read(shape: Shape, value: Value) -> Result<Value, Wrong> {
    match (shape, &value) {
        (Shape::Boolean, Value::Bool(_))
        | (Shape::Int64 | Shape::Number, Value::Number(_))
        | (Shape::String, Value::String(_)) => match shape {
            Shape::Int64 if value.as_i64().is_none() => Err(out_of_range(&value)),
            _ => Ok(value),
        },
        (Shape::Int32, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            if fits { Ok(value) } else { Err(out_of_range(&value)) }
        }
        (Shape::Bytes, Value::String(text)) => bytes(text).map(Value::from),
        (Shape::Time, _) => own(time(time::Form::Seconds, &value)),
        (Shape::MicroTime, _) => own(time(time::Form::Micros, &value)),
        (Shape::Quantity, Value::String(text)) => own(quantity(text.trim())),
        (Shape::Quantity, other) => own(quantity(&other.to_string())),
        (Shape::IntOrString, Value::String(_)) => Ok(value),
        (Shape::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            if fits { Ok(value) } else { own(Err(unmarshal(&format!("number {number}"), "int32"))) }
        }
        (Shape::IntOrString, other) => own(Err(unmarshal(&found(other), "int32"))),
        (_, other) => Err(Wrong::Type(found(other))),
    }
}

fn own(read: Result<String, String>) -> Result<Value, Wrong> {
    read.map(Value::from).map_err(Wrong::Text)
}

fn time(form: time::Form, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => time::canonical(form, text),
        other => Err(unmarshal(&found(other), "string")),
    }
}

fn quantity(text: &str) -> Result<String, String> {
    Quantity::parse(text).map(|amount| amount.canonical()).map_err(str::to_owned)
}

fn bytes(text: &str) -> Result<String, Wrong> {
    // Line ends are skipped by Go's decoder.
    let packed: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match STANDARD.decode(&packed) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let place = match error {
                base64::DecodeError::InvalidByte(place, _)
                | base64::DecodeError::InvalidLastSymbol(place, _) => place,
                _ => packed.len() / 4 * 4,
            };
            Err(Wrong::Text(format!("illegal base64 data at input byte {place}")))
        }
    }
}

fn out_of_range(value: &Value) -> Wrong {
    Wrong::Type(format!("number {value}"))
}

fn unmarshal(found: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// What Go calls it.
fn found(value: &Value) -> String {
    let name = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    name.to_owned()
}
