//! Lists whose entries may not repeat: sets by their values, maps by their keys.
//!
//! Each second occurrence is told once, however often the entry comes again.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::field;
use crate::schema::Structural;
use crate::status::StatusCause;

/// What repeats anywhere in an object.
pub(crate) fn check(schema: &Structural, object: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    walk(schema, object, "", &mut causes);
    causes
}

fn walk(schema: &Structural, value: &Value, path: &str, causes: &mut Vec<StatusCause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(of) = &schema.additional {
                    walk(of, value, &field::key(path, name), causes);
                }
                if let Some(of) = schema.properties.get(name) {
                    walk(of, value, &field::child(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            match schema.list_type.as_deref() {
                Some("set") => {
                    for at in doubles(items.iter()) {
                        let item = items.get(at).unwrap_or(&Value::Null);
                        causes.push(field::duplicate(&field::index(path, at), item));
                    }
                }
                Some("map") => by_key(schema, items, path, causes),
                _ => {}
            }
            if let Some(of) = &schema.items {
                for (at, item) in items.iter().enumerate() {
                    walk(of, item, &field::index(path, at), causes);
                }
            }
        }
        _ => {}
    }
}

fn by_key(schema: &Structural, items: &[Value], path: &str, causes: &mut Vec<StatusCause>) {
    let stray = items.iter().position(|item| !item.is_object() && !item.is_null());
    if let Some(at) = stray {
        let why = "must be an object for an array of list-type map";
        let item = items.get(at).unwrap_or(&Value::Null);
        causes.push(field::invalid(&field::index(path, at), item, why));
        return;
    }
    let keys: Vec<Value> = items.iter().map(|item| key_of(item, &schema.list_keys)).collect();
    for at in doubles(keys.iter()) {
        let key = keys.get(at).unwrap_or(&Value::Null);
        causes.push(field::duplicate(&field::index(path, at), key));
    }
}

/// The keys of an entry and their values.
pub(super) fn key_of(item: &Value, keys: &[String]) -> Value {
    let mut found = Map::new();
    for key in keys {
        if let Some(value) = item.get(key) {
            found.insert(key.clone(), value.clone());
        }
    }
    json!(found)
}

/// Where an entry comes the second time.
pub(super) fn first_double<'a>(items: impl Iterator<Item = &'a Value>) -> Option<usize> {
    doubles(items).first().copied()
}

fn doubles<'a>(items: impl Iterator<Item = &'a Value>) -> Vec<usize> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut places = Vec::new();
    for (at, item) in items.enumerate() {
        let times = seen.entry(item.to_string()).or_default();
        *times += 1;
        if *times == 2 {
            places.push(at);
        }
    }
    places
}
