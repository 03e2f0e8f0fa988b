//! Small edits and comparisons of JSON values that several operations need.

use serde_json::{Map, Value, json};

/// Sets the phase of a namespace to `Terminating`.
pub(super) fn terminate_namespace(object: &mut Value) {
    set(object, &["status", "phase"], json!("Terminating"));
}

/// Sets a nested field. Values on its path that are not objects are replaced.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Some(fields) = object.as_object_mut() {
        set_in(fields, path, value);
    }
}

fn set_in(fields: &mut Map<String, Value>, path: &[&str], value: Value) {
    match path {
        [] => {}
        [last] => {
            fields.insert((*last).to_owned(), value);
        }
        [first, rest @ ..] => set(fields.entry(*first).or_insert(Value::Null), rest, value),
    }
}

/// Returns whether two objects are equal, ignoring kind, apiVersion and resourceVersion.
pub(super) fn is_same(old: &Value, new: &Value) -> bool {
    is_equal_ignoring(old, new, &["kind", "apiVersion", "metadata"])
        && is_equal_ignoring(&old["metadata"], &new["metadata"], &["resourceVersion"])
}

/// Returns whether two objects have equal fields, except for those in `ignored`.
pub(super) fn is_equal_ignoring(old: &Value, new: &Value, ignored: &[&str]) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    let is_ignored = |name: &String| ignored.contains(&name.as_str());
    let compared_fields =
        |fields: &Map<String, Value>| fields.keys().filter(|name| !is_ignored(name)).count();
    compared_fields(old) == compared_fields(new)
        && old.keys().all(|name| is_ignored(name) || old.get(name) == new.get(name))
}

pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

pub(super) fn drop_field(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// Makes `field` of `object` the same as in `from`: copied, or removed if `from` has none.
pub(super) fn copy_field(object: &mut Value, from: &Value, field: &str) {
    match from.get(field) {
        Some(value) => object[field] = value.clone(),
        None => drop_field(object, field),
    }
}
