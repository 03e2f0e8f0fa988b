//! Checks that entries of lists are unique: those of list type `set` by their values, those of list type
//! `map` by their keys.
//!
//! The second occurrence of an entry is reported, further ones are not.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::field;
use crate::schema::Structural;
use crate::status::StatusCause;

/// Checks all lists in an object for duplicates.
pub(crate) fn check(schema: &Structural, object: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    walk(schema, object, "", &mut causes);
    causes
}

fn walk(schema: &Structural, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(child_schema) = &schema.additional {
                    walk(child_schema, value, &field::key(path, name), causes);
                }
                if let Some(child_schema) = schema.properties.get(name) {
                    walk(child_schema, value, &field::child(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    for at in duplicates(items.iter()) {
                        let item = items.get(at).unwrap_or(&Value::Null);
                        causes.push(field::duplicate(&field::index(path, at), item));
                    }
                }
                Some("map") => check_map_list(schema, items, path, causes),
                _ => {}
            }
            if let Some(child_schema) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    walk(child_schema, item, &field::index(path, at), causes);
                }
            }
        }
        _ => {}
    }
}

/// Checks a list of list type `map`.
fn check_map_list(schema: &Structural, items: &[Value], path: &str, causes: &mut Vec<StatusCause>) {
    let not_object = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(at) = not_object {
        let why = "must be an object for an array of list-type map";
        let item = items.get(at).unwrap_or(&Value::Null);
        causes.push(field::invalid(&field::index(path, at), item, why));
        return;
    }
    let keys: Vec<Value> = items.iter().map(|item| key_of(item, &schema.list_keys)).collect();
    for at in duplicates(keys.iter()) {
        let key = keys.get(at).unwrap_or(&Value::Null);
        causes.push(field::duplicate(&field::index(path, at), key));
    }
}

/// Returns an object with the key fields of an entry; absent ones are omitted.
pub(super) fn key_of(item: &Value, keys: &[String]) -> Value {
    let mut key_fields = Map::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            key_fields.insert(key.clone(), value.clone());
        }
    }
    json!(key_fields)
}

/// Returns the index of the first entry that occurred before.
pub(super) fn first_duplicate<'a>(items: impl Iterator<Item = &'a Value>) -> Option<usize> {
    duplicates(items).first().copied()
}

/// Returns the indexes of second occurrences.
fn duplicates<'a>(items: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut indexes = Vec::new();
    for (at, item) in items.enumerate() {
        let count = seen.entry(item.to_string()).or_default();
        *count += 1;
        if *count == 2 {
            indexes.push(at);
        }
    }
    indexes
}
