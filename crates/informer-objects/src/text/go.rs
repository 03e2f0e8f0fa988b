//! Text as Go prints it: quoted strings, values in messages, numbers in JSON and YAML.

use std::fmt::Write as _;

use serde_json::{Number, Value};

use super::number::number_of;

/// Returns a byte as shown in a syntax error, `'x'`.
pub(super) fn quoted_char(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => r#"'"'"#.to_owned(),
        byte => {
            let text = quoted(char::from(byte).encode_utf8(&mut [0; 4]));
            format!("'{}'", text.trim_matches('"'))
        }
    }
}

/// Returns text as `%q` prints it.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\0'..='\u{1f}' | '\u{7f}' => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            '\u{80}'..='\u{a0}' | '\u{ad}' | '\u{2028}' | '\u{2029}' | '\u{feff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Returns a value as `%v` prints it: `map[a:1 b:[x y]]`.
pub(crate) fn shown(value: &Value) -> String {
    let joined = |items: Vec<String>| items.join(" ");
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(float)) => float_g(float),
            (None, None) => number.to_string(),
        },
        Value::Array(items) => format!("[{}]", joined(items.iter().map(shown).collect())),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| format!("{name}:{}", shown(value)));
            format!("map[{}]", joined(fields.collect()))
        }
    }
}

/// Returns the nesting depth of a value; zero for scalars.
pub(crate) fn depth_of(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth_of).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth_of).max().unwrap_or(0),
        _ => 0,
    }
}

/// Returns the name that Go's JSON decoder uses for the type of a value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns a value as compact JSON, with the escapes of Go.
pub(crate) fn compact(value: &Value) -> String {
    match value {
        Value::Number(number) => number_json(number),
        Value::String(text) => string_json(text),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(compact).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}:{}", string_json(name), compact(value));
            let fields: Vec<String> = fields.iter().map(field).collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

/// Converts numbers to those that Go decodes without a type: signed 64-bit integers, or floats. Floats lose
/// digits that they cannot hold, and their `.0`.
pub(crate) fn convert_to_untyped(value: &mut Value) {
    match value {
        Value::Number(number) if number.as_i64().is_none() => {
            if let Some(plain) = number.as_f64().and_then(|float| number_of(&float_json(float))) {
                *number = plain;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(convert_to_untyped),
        Value::Object(fields) => fields.values_mut().for_each(convert_to_untyped),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns a string as Go writes it in JSON: also `<`, `>`, `&` and two separators are escaped.
fn string_json(text: &str) -> String {
    let plain = Value::from(text).to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    let mut out = String::with_capacity(plain.len() + 16);
    for character in plain.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(character));
            }
            character => out.push(character),
        }
    }
    out
}

pub(super) fn number_json(number: &Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() => float_json(float),
        _ => number.to_string(),
    }
}

/// Returns a float as Go writes it in JSON: without an exponent unless it is very small or very large.
fn float_json(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-6..1e21).contains(&size) {
        let text = exponential(float);
        // A one-digit exponent is not padded in JSON.
        return text.replace("e-0", "e-");
    }
    let text = format!("{float}");
    if text == "-0" { "0".to_owned() } else { text }
}

/// Returns a float as `%v` and YAML print it.
pub(super) fn float_g(float: f64) -> String {
    let size = float.abs();
    if size != 0.0 && !(1e-4..1e6).contains(&size) { exponential(float) } else { format!("{float}") }
}

/// Returns `1.5e+21`: the shortest digits, a sign, and at least two digits of exponent.
fn exponential(float: f64) -> String {
    let text = format!("{float:e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    match exponent.strip_prefix('-') {
        Some(exponent) => format!("{digits}e-{exponent:0>2}"),
        None => format!("{digits}e+{exponent:0>2}"),
    }
}
