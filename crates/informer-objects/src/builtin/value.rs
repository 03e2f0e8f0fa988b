//! Access to JSON values by dotted paths; a missing value counts as empty.

use serde_json::{Map, Value};

/// Returns the value at a dotted path such as `spec.template`; `None` if absent or `null`.
pub(super) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, field| value.get(field)).filter(|value| !value.is_null())
}

pub(super) fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, field| value.get_mut(field))
}

/// Returns the string at a path; empty if absent.
pub(super) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the entries of the list at a path.
pub(super) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    at_mut(value, path).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

/// Returns the entries of the map at a path, sorted by key.
pub(super) fn entries<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = at(value, path).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

pub(super) fn number(value: &Value, path: &str) -> Option<i64> {
    at(value, path).and_then(Value::as_i64)
}

pub(super) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the object in a field. An absent field, or a value of another type, becomes an empty object.
pub(super) fn object_in<'a>(fields: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    let value = fields.entry(field).or_insert(Value::Null);
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("just made an object"),
    }
}

/// Whether a value is empty in Go: `null`, `false`, zero, or an empty string, list or map.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

/// Whether a field is absent or empty.
pub(super) fn lacks(fields: &Map<String, Value>, field: &str) -> bool {
    fields.get(field).is_none_or(is_empty)
}

/// Sets a field that is absent or empty.
pub(super) fn set_if_empty(fields: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if lacks(fields, field) {
        fields.insert(field.to_owned(), value.into());
    }
}

/// Sets a field that is absent; an empty value is kept.
pub(super) fn set_if_absent(fields: &mut Map<String, Value>, field: &str, value: impl Into<Value>) {
    if fields.get(field).is_none_or(Value::is_null) {
        fields.insert(field.to_owned(), value.into());
    }
}
