//! Decoding of scalars and of types with their own encoding.
//!
//! Each value is returned in the canonical form in which a server writes it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::Shape;
use serde_json::Value;

use super::time;
use crate::text::{Quantity, kind_of};

/// The error of decoding a scalar.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ScalarError {
    /// The value has another type, or is a number out of range.
    ///
    /// Contains Go's description of the value: `string`, `number 5000000000`.
    Type(String),
    /// A string cannot be parsed, or a type with its own decoder failed; contains the whole message.
    Text(String),
}

/// Decodes a value of a shape that is neither an object nor a list nor a map.
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
        (Shape::Bytes, Value::String(text)) => canonical_base64(text).map(Value::from),
        (Shape::Time, _) => to_value(canonical_time(time::Format::Seconds, &value)),
        (Shape::MicroTime, _) => to_value(canonical_time(time::Format::Micros, &value)),
        (Shape::Quantity, Value::String(text)) => to_value(canonical_quantity(text.trim())),
        (Shape::Quantity, other) => to_value(canonical_quantity(&other.to_string())),
        (Shape::IntOrString, Value::String(_)) => Ok(value),
        (Shape::IntOrString, Value::Number(number)) => {
            let fits = number.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            if fits {
                Ok(value)
            } else {
                to_value(Err(unmarshal_error(&format!("number {number}"), "int32")))
            }
        }
        (Shape::IntOrString, other) => to_value(Err(unmarshal_error(kind_of(other), "int32"))),
        (_, other) => Err(ScalarError::Type(kind_of(other).to_owned())),
    }
}

fn to_value(canonical: Result<String, String>) -> Result<Value, ScalarError> {
    canonical.map(Value::from).map_err(ScalarError::Text)
}

fn canonical_time(format: time::Format, value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => time::canonical(format, text),
        other => Err(unmarshal_error(kind_of(other), "string")),
    }
}

fn canonical_quantity(text: &str) -> Result<String, String> {
    Quantity::parse(text).map(|quantity| quantity.canonical()).map_err(str::to_owned)
}

fn canonical_base64(text: &str) -> Result<String, ScalarError> {
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

fn unmarshal_error(value_kind: &str, go_type: &str) -> String {
    format!("json: cannot unmarshal {value_kind} into Go value of type {go_type}")
}
