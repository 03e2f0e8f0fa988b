//! Access to fields of untyped objects.
//!
//! Locations are JSON pointers such as `/spec/nodeName`. A value of an unexpected type counts as missing.

use serde_json::Value;

/// Returns the value at a pointer, unless it is null.
pub(super) fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    object.pointer(pointer).filter(|value| !value.is_null())
}

/// Returns the string at a pointer, even if it is empty.
pub(super) fn given<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    at(object, pointer).and_then(Value::as_str)
}

/// Returns the string at a pointer; empty if absent.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    given(object, pointer).unwrap_or_default()
}

/// Returns the string at a pointer if it is not empty.
pub(super) fn filled<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    given(object, pointer).filter(|text| !text.is_empty())
}

/// Returns the number at a pointer; zero if absent.
pub(super) fn number(object: &Value, pointer: &str) -> i64 {
    at(object, pointer).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    at(object, pointer).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the entries of the list at a pointer.
pub(super) fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the entries of the map at a pointer, sorted by key.
pub(super) fn entries<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = at(object, pointer).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// Returns the number of entries of the list or map at a pointer.
pub(super) fn count(object: &Value, pointer: &str) -> usize {
    match at(object, pointer) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// Returns the strings in the list at a pointer.
pub(super) fn texts<'a>(object: &'a Value, pointer: &str) -> Vec<&'a str> {
    list(object, pointer).iter().filter_map(Value::as_str).collect()
}

/// Returns the string at a pointer in each entry of a list.
pub(super) fn each<'a>(entries: &'a [Value], pointer: &str) -> Vec<&'a str> {
    entries.iter().map(|entry| text(entry, pointer)).collect()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// Returns the first condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether the first condition of a type has the status `True`.
pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// Returns the quantity at a pointer; zero if absent.
pub(super) fn amount<'a>(object: &'a Value, pointer: &str) -> &'a str {
    given(object, pointer).unwrap_or("0")
}

/// Whether the object is being deleted.
pub(super) fn is_terminating(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// Returns the first texts of a list, up to `max`, and the number of the others.
pub(super) fn shortened(texts: &[impl AsRef<str>], max: usize, separator: &str) -> String {
    let first: Vec<&str> = texts.iter().take(max).map(AsRef::as_ref).collect();
    let joined = first.join(separator);
    if texts.len() > max { format!("{joined} + {} more...", texts.len() - max) } else { joined }
}
