//! Pruning of unknown fields and defaulting.
//!
//! Metadata is never changed here. Both walks follow the schema, so they end where it ends.

use serde_json::{Map, Value};

use super::super::field;
use super::meta::decode_embedded;
use crate::schema::Structural;

/// Removes fields that the schema does not know and returns their paths, sorted: `spec.parts[0].extra`.
pub fn prune(schema: &Structural, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    prune_known(Some(schema), object, "", &mut unknown);
    unknown.sort();
    unknown
}

/// Removes fields of a stored object that a version does not know, without reporting them and without
/// defaults.
pub(crate) fn convert(schema: &Structural, object: &mut Value) {
    prune(schema, object);
    drop_nulls(Some(schema), object);
    // Invalid metadata of an embedded resource remains.
    let _ = decode_embedded(schema, object);
}

/// Sets defaults.
///
/// A `null` where the schema does not allow it becomes the default, or is removed if there is none.
pub fn default(schema: &Structural, object: &mut Value) {
    drop_nulls(Some(schema), object);
    fill(schema, object);
}

fn prune_known(schema: Option<&Structural>, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    if let Some(schema) = schema.filter(|schema| schema.preserve) {
        return prune_preserved(schema, value, path, unknown);
    }
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let field_path = field::child(path, name);
            let Some(schema) = schema else {
                unknown.push(field_path);
                return false;
            };
            if schema.resource && is_meta(name) {
                return true;
            }
            if let Some(of) = schema.properties.get(name) {
                prune_known(Some(of), value, &field_path, unknown);
            } else if schema.has_additional() {
                prune_known(schema.additional.as_deref(), value, &field_path, unknown);
            } else {
                if !is_meta(name) || !path.is_empty() {
                    unknown.push(field_path);
                }
                return false;
            }
            true
        }),
        Value::Array(items) => {
            let of = schema.and_then(|schema| schema.items.as_deref());
            for (at, item) in items.iter_mut().enumerate() {
                prune_known(of, item, &field::index(path, at), unknown);
            }
        }
        _ => {}
    }
}

/// Keeps unknown fields, but prunes known ones.
fn prune_preserved(schema: &Structural, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if schema.resource && is_meta(name) {
                    continue;
                }
                let field_path = field::child(path, name);
                if let Some(of) = schema.properties.get(name) {
                    prune_known(Some(of), value, &field_path, unknown);
                } else if schema.has_additional() {
                    prune_known(schema.additional.as_deref(), value, &field_path, unknown);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items.as_deref() {
                for (at, item) in items.iter_mut().enumerate() {
                    prune_preserved(of, item, &field::index(path, at), unknown);
                }
            }
        }
        _ => {}
    }
}

fn drop_nulls(schema: Option<&Structural>, value: &mut Value) {
    // Nothing is removed below unknown fields.
    let Some(schema) = schema else { return };
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let of = schema.child(name);
            if value.is_null() && of.is_some_and(|of| !of.nullable && of.default.is_none()) {
                return false;
            }
            drop_nulls(of, value);
            true
        }),
        Value::Array(items) => {
            for item in items {
                drop_nulls(schema.items.as_deref(), item);
            }
        }
        _ => {}
    }
}

fn fill(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, of) in &schema.properties {
                if let Some(default) = &of.default
                    && is_missing(of, fields, name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(of) = schema.properties.get(name) {
                    fill(of, value);
                } else if let Some(of) = schema.additional.as_deref() {
                    replace_null(of, value);
                    fill(of, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(of) = schema.items.as_deref() {
                for item in items {
                    replace_null(of, item);
                    fill(of, item);
                }
            }
        }
        _ => {}
    }
}

fn is_missing(schema: &Structural, fields: &Map<String, Value>, name: &str) -> bool {
    fields.get(name).is_none_or(|value| value.is_null() && !schema.nullable)
}

fn replace_null(schema: &Structural, value: &mut Value) {
    if value.is_null() && !schema.nullable {
        *value = schema.default.clone().unwrap_or(Value::Null);
    }
}

fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}
