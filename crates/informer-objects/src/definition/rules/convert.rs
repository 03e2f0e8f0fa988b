//! Conversion of JSON to CEL values by the schema.
//!
//! A rule can access only fields in the schema; of metadata, only `name` and `generateName`. Times, durations
//! and bytes have the types of their formats. Keys of maps are unchanged, names of fields are escaped.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map};
use serde_json::{Map as Fields, Value};

use super::operators::{ListIdentity, ListTypes};
use crate::schema::{Structural, StructuralType};

/// Converts a value for rules, and records which lists in it are sets or maps.
pub(super) fn to_cel(schema: &Structural, value: &Value, kinds: &mut ListTypes) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (schema.kind, number.as_i64(), number.as_f64()) {
            (StructuralType::Number, _, Some(float)) => Cel::Float(float),
            (_, Some(whole), _) => Cel::Int(whole),
            (StructuralType::Integer, None, Some(float)) if float.fract() == 0.0 => Cel::Int(truncate(float)),
            (_, None, Some(float)) => Cel::Float(float),
            (_, None, None) => Cel::Null,
        },
        Value::String(text) => string(schema, text),
        Value::Array(items) => {
            let free = Structural::default();
            let of = schema.items.as_deref().unwrap_or(&free);
            let items = Arc::new(items.iter().map(|item| to_cel(of, item, kinds)).collect());
            if let Some(entries) = entries(schema) {
                kinds.insert(&items, entries);
            }
            Cel::List(items)
        }
        Value::Object(fields) => Cel::Map(Map { map: Arc::new(object(schema, fields, kinds)) }),
    }
}

/// Returns the name by which a rule accesses a field; `None` if it cannot.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) {
        return None;
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

/// Whether a rule can access values of a schema.
pub(super) fn is_visible(schema: &Structural) -> bool {
    match schema.kind {
        StructuralType::Any => false,
        StructuralType::Array => schema.items.as_deref().is_some_and(is_visible),
        StructuralType::Object => schema.additional.as_deref().is_none_or(is_visible),
        _ => true,
    }
}

fn object(schema: &Structural, fields: &Fields<String, Value>, kinds: &mut ListTypes) -> HashMap<Key, Cel> {
    let key = |name: &str| Key::String(Arc::new(name.to_owned()));
    if let Some(of) = &schema.additional {
        return fields.iter().map(|(name, value)| (key(name), to_cel(of, value, kinds))).collect();
    }
    let mut visible = HashMap::with_capacity(fields.len());
    // A null field counts as absent; a null entry of a map does not.
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let Some(escaped) = escape(name) else { continue };
        if schema.resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            visible.insert(key(&escaped), meta(value, kinds));
        } else if let Some(of) = schema.properties.get(name).filter(|of| is_visible(of)) {
            visible.insert(key(&escaped), to_cel(of, value, kinds));
        }
    }
    visible
}

fn meta(value: &Value, kinds: &mut ListTypes) -> Cel {
    let free = Structural::default();
    let Value::Object(fields) = value else { return to_cel(&free, value, kinds) };
    let names = fields.iter().filter(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let visible =
        names.map(|(name, value)| (Key::String(Arc::new(name.clone())), to_cel(&free, value, kinds)));
    Cel::Map(Map { map: Arc::new(visible.collect()) })
}

/// Returns the identity of entries of a list, unless they have none.
fn entries(schema: &Structural) -> Option<ListIdentity> {
    match schema.list_type.as_deref() {
        Some("set") => Some(ListIdentity::Set),
        Some("map") => {
            let keys = schema.list_keys.iter().map(|key| escape(key).unwrap_or_else(|| key.clone()));
            Some(ListIdentity::Map(Arc::new(keys.collect())))
        }
        _ => None,
    }
}

fn string(schema: &Structural, text: &str) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    if schema.kind != StructuralType::String {
        return plain();
    }
    match schema.checks.format.as_deref() {
        Some("byte") => STANDARD.decode(text).map_or_else(|_| plain(), |bytes| Cel::Bytes(Arc::new(bytes))),
        Some("date-time") => time(text).unwrap_or_else(plain),
        Some("date") => time(&format!("{text}T00:00:00Z")).unwrap_or_else(plain),
        Some("duration") => duration(text).unwrap_or_else(plain),
        _ => plain(),
    }
}

fn time(text: &str) -> Option<Cel> {
    chrono::DateTime::parse_from_rfc3339(text).ok().map(Cel::Timestamp)
}

/// Parses a duration in Go's format, `1h30m`.
fn duration(text: &str) -> Option<Cel> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text),
    };
    let mut nanos = 0.0;
    while !rest.is_empty() && rest != "0" {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest.get(..unit_at)?.parse().ok()?;
        let tail = rest.get(unit_at..)?;
        let length = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let unit = match tail.get(..length)? {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos += number * unit;
        rest = tail.get(length..)?;
    }
    Some(Cel::Duration(chrono::Duration::nanoseconds(truncate(sign * nanos))))
}

#[allow(clippy::cast_possible_truncation, reason = "beyond 64 bits the nearest integer is sufficient")]
fn truncate(float: f64) -> i64 {
    float as i64
}

/// Reserved words of the language.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];
