//! Reaching into objects, where what is missing is simply empty.
//!
//! A place is a JSON pointer, `/spec/nodeName`. What is of another type than expected counts as missing.

use serde_json::Value;

/// What stands at a place.
pub(super) fn at<'a>(object: &'a Value, place: &str) -> Option<&'a Value> {
    object.pointer(place).filter(|value| !value.is_null())
}

/// The text at a place, empty or not.
pub(super) fn given<'a>(object: &'a Value, place: &str) -> Option<&'a str> {
    at(object, place).and_then(Value::as_str)
}

/// The text at a place; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, place: &str) -> &'a str {
    given(object, place).unwrap_or_default()
}

/// The text at a place that is not empty.
pub(super) fn filled<'a>(object: &'a Value, place: &str) -> Option<&'a str> {
    given(object, place).filter(|text| !text.is_empty())
}

/// The number at a place; zero if there is none.
pub(super) fn number(object: &Value, place: &str) -> i64 {
    at(object, place).and_then(Value::as_i64).unwrap_or_default()
}

pub(super) fn flag(object: &Value, place: &str) -> bool {
    at(object, place).and_then(Value::as_bool).unwrap_or_default()
}

/// The entries of the list at a place.
pub(super) fn list<'a>(object: &'a Value, place: &str) -> &'a [Value] {
    at(object, place).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The entries of the map at a place, sorted by key.
pub(super) fn entries<'a>(object: &'a Value, place: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let map = at(object, place).and_then(Value::as_object);
    map.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
}

/// How many entries the list or map at a place has.
pub(super) fn count(object: &Value, place: &str) -> usize {
    match at(object, place) {
        Some(Value::Array(list)) => list.len(),
        Some(Value::Object(map)) => map.len(),
        _ => 0,
    }
}

/// The texts in the list at a place.
pub(super) fn texts<'a>(object: &'a Value, place: &str) -> Vec<&'a str> {
    list(object, place).iter().filter_map(Value::as_str).collect()
}

/// The text at a place in each entry of a list.
pub(super) fn each<'a>(entries: &'a [Value], place: &str) -> Vec<&'a str> {
    entries.iter().map(|entry| text(entry, place)).collect()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/annotations")?.get(key)?.as_str()
}

/// The first condition of a type.
pub(super) fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether there is a condition of a type and it is true.
pub(super) fn has_condition(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// An amount; zero if there is none.
pub(super) fn amount<'a>(object: &'a Value, place: &str) -> &'a str {
    given(object, place).unwrap_or("0")
}

/// Whether the object is on its way out.
pub(super) fn is_leaving(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// The first texts of a list, and how many there are more.
pub(super) fn shortened(texts: &[impl AsRef<str>], most: usize, separator: &str) -> String {
    let first: Vec<&str> = texts.iter().take(most).map(AsRef::as_ref).collect();
    let joined = first.join(separator);
    if texts.len() > most { format!("{joined} + {} more...", texts.len() - most) } else { joined }
}
