//! Pruning of unknown fields and defaulting.
//!
//! Pruning keeps `apiVersion`, `kind` and `metadata` of an object and of embedded resources.

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

/// Converts a stored object to a version: removes the fields that its schema does not know and the nulls that
/// it does not allow. Sets no defaults.
pub(crate) fn convert(schema: &Structural, object: &mut Value) {
    prune(schema, object);
    drop_nulls(Some(schema), object);
    // An error is ignored: invalid metadata of an embedded resource remains.
    let _ = decode_embedded(schema, object);
}

/// Sets defaults.
///
/// A `null` that the schema does not allow becomes the default. Without a default, a field is removed, and an
/// entry of a list remains `null`.
pub fn default(schema: &Structural, object: &mut Value) {
    drop_nulls(Some(schema), object);
    fill(schema, object);
}

/// Removes unknown fields; without a schema, all fields of objects are unknown.
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
            if let Some(child_schema) = schema.properties.get(name) {
                prune_known(Some(child_schema), value, &field_path, unknown);
            } else if schema.has_additional() {
                prune_known(schema.additional.as_deref(), value, &field_path, unknown);
            } else {
                // At the root of a value, kube-apiserver removes type and metadata without a report.
                if !is_meta(name) || !path.is_empty() {
                    unknown.push(field_path);
                }
                return false;
            }
            true
        }),
        Value::Array(items) => {
            let child_schema = schema.and_then(|schema| schema.items.as_deref());
            for (at, item) in items.iter_mut().enumerate() {
                prune_known(child_schema, item, &field::index(path, at), unknown);
            }
        }
        _ => {}
    }
}

/// Keeps unknown fields, but removes unknown fields inside known ones.
fn prune_preserved(schema: &Structural, value: &mut Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if schema.resource && is_meta(name) {
                    continue;
                }
                let field_path = field::child(path, name);
                if let Some(child_schema) = schema.properties.get(name) {
                    prune_known(Some(child_schema), value, &field_path, unknown);
                } else if schema.has_additional() {
                    prune_known(schema.additional.as_deref(), value, &field_path, unknown);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child_schema) = schema.items.as_deref() {
                for (at, item) in items.iter_mut().enumerate() {
                    prune_preserved(child_schema, item, &field::index(path, at), unknown);
                }
            }
        }
        _ => {}
    }
}

/// Removes fields that are `null` although the schema does not allow it and has no default for them.
fn drop_nulls(schema: Option<&Structural>, value: &mut Value) {
    // Nothing is removed inside unknown fields.
    let Some(schema) = schema else { return };
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let child_schema = schema.child(name);
            let keeps_null = |schema: &Structural| schema.nullable || schema.default.is_some();
            if value.is_null() && child_schema.is_some_and(|schema| !keeps_null(schema)) {
                return false;
            }
            drop_nulls(child_schema, value);
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

/// Sets defaults of absent fields, and in place of nulls that the schema does not allow.
fn fill(schema: &Structural, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, child_schema) in &schema.properties {
                if let Some(default) = &child_schema.default
                    && is_missing(child_schema, fields, name)
                {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(child_schema) = schema.properties.get(name) {
                    fill(child_schema, value);
                } else if let Some(child_schema) = schema.additional.as_deref() {
                    replace_null(child_schema, value);
                    fill(child_schema, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child_schema) = schema.items.as_deref() {
                for item in items {
                    replace_null(child_schema, item);
                    fill(child_schema, item);
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
