//! Small edits of objects that several operations make.

use serde_json::{Map, Value, json};

/// Marks a namespace as going.
pub(super) fn terminate_namespace(object: &mut Value) {
    set(object, &["status", "phase"], json!("Terminating"));
}

/// Sets a field deep inside; whatever is on the way and cannot hold it is replaced.
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
