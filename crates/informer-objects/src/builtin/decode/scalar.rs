//! Decoding of scalars and of types with their own encoding.
//!
//! Each value is returned in the canonical form in which a server writes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::Shape;
use serde_json::Value;

use super::time;
use crate::text::Quantity;

/// The error of decoding a scalar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScalarError {
    /// The value has another type; contains Go's name for it.
    Type(String),
    /// A text cannot be parsed, or a type with its own decoder failed; contains the whole message.
    Text(String),
}

pub(super) fn read(shape: Shape, value: Value) -> Result<Value, ScalarError> {
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
        (Shape::Time, _) => to_value(time(time::Format::Seconds, &value)),
        (Shape::MicroTime, _) => to_value(time(time::Format::Micros, &value)),
        (Shape::Quantity, Value::String(text)) => to_value(quantity(text.trim())),
        (Shape::Quantity, other) => to_value(quantity(&other.to_string())),
        (Shape::IntOrString, Value::String(_)) => Ok(value),
        (Shape::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            if fits { Ok(value) } else { to_value(Err(unmarshal(&format!("number {number}"), "int32"))) }
        }
        (Shape::IntOrString, other) => to_value(Err(unmarshal(&found(other), "int32"))),
        (_, other) => Err(ScalarError::Type(found(other))),
    }
}

fn to_value(read: Result<String, String>) -> Result<Value, ScalarError> {
    read.map(Value::from).map_err(ScalarError::Text)
}

fn time(format: time::Format, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => time::canonical(format, text),
        other => Err(unmarshal(&found(other), "string")),
    }
}

fn quantity(text: &str) -> Result<String, String> {
    Quantity::parse(text).map(|quantity| quantity.canonical()).map_err(str::to_owned)
}

fn bytes(text: &str) -> Result<String, ScalarError> {
    // Go's decoder skips line breaks.
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    match STANDARD.decode(&compact) {
        Ok(bytes) => Ok(STANDARD.encode(bytes)),
        Err(error) => {
            let offset = match error {
                base64::DecodeError::InvalidByte(offset, _)
                | base64::DecodeError::InvalidLastSymbol(offset, _) => offset,
                _ => compact.len() / 4 * 4,
            };
            Err(ScalarError::Text(format!("illegal base64 data at input byte {offset}")))
        }
    }
}

fn out_of_range(value: &Value) -> ScalarError {
    ScalarError::Type(format!("number {value}"))
}

fn unmarshal(found: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {found} into Go value of type {wanted}")
}

/// Returns Go's name for the type of a value.
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
