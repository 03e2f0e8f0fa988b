//! Elements of a path into an object: a field, or an entry of a list identified by its keys, its value or its
//! index.
//!
//! Elements are ordered as in kube-apiserver, which differs from the order of their texts: port 80 comes
//! before port 443. An element has two texts: its name in `fieldsV1`, and its form in error messages. Nothing
//! here knows a schema.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Number, Value};

/// A path into an object.
pub(super) type Path = Vec<Element>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    Field(String),
    /// Sorted by name; empty only if parsed from `k:{}`.
    Key(Vec<(String, Item)>),
    Value(Item),
    Index(i64),
}

/// A value that identifies entries.
///
/// Numbers are integers where possible, so that `80` and `80.0` are equal.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Item(Value);

/// The error of parsing a name in `fieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElementError {
    /// A type of element that only newer servers know; it is skipped.
    #[error("unknown path element type")]
    Unknown,
    #[error("{0}")]
    Bad(String),
}

impl Element {
    pub(super) fn field(name: &str) -> Self {
        Element::Field(name.to_owned())
    }

    /// Returns the name in `fieldsV1`.
    pub(super) fn name(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Value(item) => {
                let mut text = "v:".to_owned();
                write_json(&mut text, &item.0);
                text
            }
            Element::Index(index) => format!("i:{index}"),
            Element::Key(keys) => {
                let mut text = "k:{".to_owned();
                for (at, (name, item)) in keys.iter().enumerate() {
                    if at > 0 {
                        text.push(',');
                    }
                    write_string(&mut text, name);
                    text.push(':');
                    write_json(&mut text, &item.0);
                }
                text.push('}');
                text
            }
        }
    }

    /// Parses a name in `fieldsV1`.
    pub(super) fn parse(name: &str) -> Result<Self, ElementError> {
        let bad = |error: &dyn fmt::Display| ElementError::Bad(error.to_string());
        if name.len() < 2 {
            return Err(ElementError::Bad("key must be 2 characters long:".to_owned()));
        }
        let Some((kind, rest)) = name.split_once(':').filter(|(kind, _)| kind.len() == 1) else {
            return Err(ElementError::Bad(format!("missing colon: {name}")));
        };
        match kind {
            "f" => Ok(Element::field(rest)),
            "v" => {
                serde_json::from_str(rest).map(|value| Element::Value(Item::new(&value))).map_err(|e| bad(&e))
            }
            "i" => rest.parse().map(Element::Index).map_err(|e| bad(&e)),
            "k" => {
                let keys: serde_json::Map<String, Value> = serde_json::from_str(rest).map_err(|e| bad(&e))?;
                let mut keys: Vec<_> =
                    keys.into_iter().map(|(name, value)| (name, Item::new(&value))).collect();
                keys.sort();
                Ok(Element::Key(keys))
            }
            _ => Err(ElementError::Unknown),
        }
    }
}

/// The form in error messages: `.spec`, `[name="app"]`, `[="a"]`, `[0]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Index(index) => write!(f, "[{index}]"),
            Element::Value(item) => write!(f, "[={}]", go_text(&item.0)),
            Element::Key(keys) => {
                let keys: Vec<String> =
                    keys.iter().map(|(name, item)| format!("{name}={}", go_text(&item.0))).collect();
                write!(f, "[{}]", keys.join(","))
            }
        }
    }
}

pub(super) fn path_text(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

impl Item {
    pub(super) fn new(value: &Value) -> Self {
        Item(normalized(value))
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> Ordering {
        order(&self.0, &other.0)
    }
}

/// Whether two values are equal as far as ownership is concerned: as JSON, with `1` equal to `1.0`.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => one == other || normalized(one) == normalized(other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| {
                    other.get(name).is_some_and(|value_of_other| same(value, value_of_other))
                })
        }
        _ => one == other,
    }
}

/// Returns the value with integral numbers as 64-bit integers, and all other numbers as floats.
#[allow(clippy::cast_possible_truncation, reason = "only integers in range are cast")]
fn normalized(value: &Value) -> Value {
    /// 2^63, the first float beyond the range of `i64`.
    const INTEGER_BOUND: f64 = 9_223_372_036_854_775_808.0;
    match value {
        Value::Number(number) if number.as_i64().is_none() => match number.as_f64() {
            Some(float) if float.fract() == 0.0 && (-INTEGER_BOUND..INTEGER_BOUND).contains(&float) => {
                Value::from(float as i64)
            }
            Some(float) => Number::from_f64(float).map_or(Value::Null, Value::Number),
            None => value.clone(),
        },
        Value::Array(items) => items.iter().map(normalized).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), normalized(value))).collect()
        }
        _ => value.clone(),
    }
}

/// Orders values: first by type (numbers, strings, booleans, lists, objects, null), then naturally.
fn order(one: &Value, other: &Value) -> Ordering {
    let rank = |value: &Value| match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    };
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
            (Some(one), Some(other)) => one.cmp(&other),
            // If they are equal as floats, the integer comes first.
            (whole_one, whole_other) => {
                let floats = one.as_f64().unwrap_or(0.0).total_cmp(&other.as_f64().unwrap_or(0.0));
                floats.then(whole_other.is_some().cmp(&whole_one.is_some()))
            }
        },
        (Value::String(one), Value::String(other)) => one.cmp(other),
        (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
        (Value::Array(one), Value::Array(other)) => {
            let first_difference =
                one.iter().zip(other).map(|(one, other)| order(one, other)).find(|o| o.is_ne());
            first_difference.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        (Value::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other);
            let first_difference = pairs
                .map(|((name, value), (other_name, other))| {
                    name.cmp(other_name).then_with(|| order(value, other))
                })
                .find(|o| o.is_ne());
            first_difference.unwrap_or_else(|| one.len().cmp(&other.len()))
        }
        _ => rank(one).cmp(&rank(other)),
    }
}

/// Appends JSON as Go writes it, with `<`, `>` and `&` escaped.
fn write_json(text: &mut String, value: &Value) {
    match value {
        Value::String(string) => write_string(text, string),
        Value::Array(items) => {
            text.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_json(text, item);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (at, (name, value)) in fields.iter().enumerate() {
                if at > 0 {
                    text.push(',');
                }
                write_string(text, name);
                text.push(':');
                write_json(text, value);
            }
            text.push('}');
        }
        plain => {
            let _ = write!(text, "{plain}");
        }
    }
}

fn write_string(text: &mut String, string: &str) {
    text.push('"');
    for char in string.chars() {
        match char {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(text, "\\u{:04x}", u32::from(char));
            }
            _ => text.push(char),
        }
    }
    text.push('"');
}

/// Returns a value as printed in error messages.
fn go_text(value: &Value) -> String {
    match value {
        Value::String(string) => quoted(string),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_text).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}={}", go_text(value))).collect();
            fields.concat()
        }
        plain => plain.to_string(),
    }
}

/// Returns text in double quotes, as Go's `%q` prints it.
pub(super) fn quoted(string: &str) -> String {
    let mut text = "\"".to_owned();
    for char in string.chars() {
        let code = u32::from(char);
        let short = match char {
            '"' => Some("\\\""),
            '\\' => Some("\\\\"),
            '\u{7}' => Some("\\a"),
            '\u{8}' => Some("\\b"),
            '\u{c}' => Some("\\f"),
            '\n' => Some("\\n"),
            '\r' => Some("\\r"),
            '\t' => Some("\\t"),
            '\u{b}' => Some("\\v"),
            _ => None,
        };
        match short {
            Some(short) => text.push_str(short),
            None if code < 0x20 || code == 0x7f => {
                let _ = write!(text, "\\x{code:02x}");
            }
            None if char.is_control() || (char.is_whitespace() && char != ' ') => {
                let _ = write!(text, "\\u{code:04x}");
            }
            None => text.push(char),
        }
    }
    text.push('"');
    text
}
