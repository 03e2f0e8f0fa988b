//! Causes of invalid fields, with paths and texts as in kube-apiserver.
//!
//! A path is plain text, empty at the root of the checked value. Values in messages are printed as by Go:
//! strings quoted, everything else as JSON with `<`, `>` and `&` escaped.

use serde_json::Value;

use crate::status::StatusCause;
pub(super) use crate::text::quoted as quote;

/// The field that kube-apiserver reports for an empty path.
const ROOT_NAME: &str = "<nil>";

/// Returns `path.name`.
pub(super) fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns `path[key]`.
pub(super) fn key(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

/// Returns `path[3]`.
pub(super) fn index(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

/// Returns the cause for an invalid value.
pub(super) fn invalid(path: &str, value: &Value, why: &str) -> StatusCause {
    invalid_shown(path, &show(value), why)
}

/// Returns the cause for an invalid value; `shown` is the value as it is printed.
pub(super) fn invalid_shown(path: &str, shown: &str, why: &str) -> StatusCause {
    cause("FieldValueInvalid", path, &format!("Invalid value: {shown}"), why)
}

/// Returns the cause for an invalid value that is not printed.
pub(super) fn invalid_omitted(path: &str, why: &str) -> StatusCause {
    cause("FieldValueInvalid", path, "Invalid value", why)
}

/// Returns the cause for a value of the wrong type or format; `actual` is the type of the value, or the text
/// that does not have the format.
pub(super) fn wrong_type(path: &str, actual: &str, why: &str) -> StatusCause {
    cause("FieldValueTypeInvalid", path, &format!("Invalid value: {}", quote(actual)), why)
}

pub(super) fn required(path: &str, why: &str) -> StatusCause {
    cause("FieldValueRequired", path, "Required value", why)
}

pub(super) fn forbidden(path: &str, why: &str) -> StatusCause {
    cause("FieldValueForbidden", path, "Forbidden", why)
}

pub(super) fn duplicate(path: &str, value: &Value) -> StatusCause {
    cause("FieldValueDuplicate", path, &format!("Duplicate value: {}", show(value)), "")
}

/// Returns the cause for a duplicate value that is not printed.
pub(super) fn duplicate_omitted(path: &str) -> StatusCause {
    cause("FieldValueDuplicate", path, "Duplicate value", "")
}

pub(super) fn not_supported<T: AsRef<str>>(path: &str, value: &Value, supported: &[T]) -> StatusCause {
    let list: Vec<String> = supported.iter().map(|text| quote(text.as_ref())).collect();
    let why = if list.is_empty() { String::new() } else { format!("supported values: {}", list.join(", ")) };
    cause("FieldValueNotSupported", path, &format!("Unsupported value: {}", show(value)), &why)
}

pub(super) fn too_long(path: &str, max: i64) -> StatusCause {
    let unit = if max == 1 { "byte" } else { "bytes" };
    cause("FieldValueTooLong", path, "Too long", &format!("may not be more than {max} {unit}"))
}

pub(super) fn too_many(path: &str, count: usize, max: i64) -> StatusCause {
    let unit = if max == 1 { "item" } else { "items" };
    let why = format!("must have at most {max} {unit}");
    cause("FieldValueTooMany", path, &format!("Too many: {count}"), &why)
}

/// Returns a value as printed in messages.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        other => json(other),
    }
}

/// Returns a value as Go's JSON: compact, keys sorted, safe inside HTML.
pub(super) fn json(value: &Value) -> String {
    let mut out = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                escape(&mut out, character);
            }
            other => out.push(other),
        }
    }
    out
}

/// Returns a number as text: integers without a fraction, and never with an exponent.
pub(super) fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e21 { format!("{value:.0}") } else { value.to_string() }
}

/// Appends a character by its code, `\u003c`.
fn escape(out: &mut String, character: char) {
    out.extend(format!("\\u{:04x}", u32::from(character)).chars());
}

fn cause(reason: &str, path: &str, summary: &str, why: &str) -> StatusCause {
    let message = if why.is_empty() { summary.to_owned() } else { format!("{summary}: {why}") };
    StatusCause::new(reason, if path.is_empty() { ROOT_NAME } else { path }, message)
}
