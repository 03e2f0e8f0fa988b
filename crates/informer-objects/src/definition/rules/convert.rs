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
pub(super) fn to_cel(schema: &Structural, value: &Value, list_types: &mut ListTypes) -> Cel {
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
            let untyped = Structural::default();
            let child_schema = schema.items.as_deref().unwrap_or(&untyped);
            let items = Arc::new(items.iter().map(|item| to_cel(child_schema, item, list_types)).collect());
            if let Some(identity) = list_identity(schema) {
                list_types.insert(&items, identity);
            }
            Cel::List(items)
        }
        Value::Object(fields) => Cel::Map(Map { map: Arc::new(object(schema, fields, list_types)) }),
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

fn object(
    schema: &Structural,
    fields: &Fields<String, Value>,
    list_types: &mut ListTypes,
) -> HashMap<Key, Cel> {
    let key = |name: &str| Key::String(Arc::new(name.to_owned()));
    if let Some(child_schema) = &schema.additional {
        return fields
            .iter()
            .map(|(name, value)| (key(name), to_cel(child_schema, value, list_types)))
            .collect();
    }
    let mut visible = HashMap::with_capacity(fields.len());
    // A null field counts as absent; a null entry of a map does not.
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let Some(escaped) = escape(name) else { continue };
        if schema.resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
            visible.insert(key(&escaped), meta(value, list_types));
        } else if let Some(child_schema) =
            schema.properties.get(name).filter(|child_schema| is_visible(child_schema))
        {
            visible.insert(key(&escaped), to_cel(child_schema, value, list_types));
        }
    }
    visible
}

fn meta(value: &Value, list_types: &mut ListTypes) -> Cel {
    let untyped = Structural::default();
    let Value::Object(fields) = value else { return to_cel(&untyped, value, list_types) };
    let names = fields.iter().filter(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let visible =
        names.map(|(name, value)| (Key::String(Arc::new(name.clone())), to_cel(&untyped, value, list_types)));
    Cel::Map(Map { map: Arc::new(visible.collect()) })
}

/// Returns the identity of entries of a list, unless they have none.
fn list_identity(schema: &Structural) -> Option<ListIdentity> {
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
