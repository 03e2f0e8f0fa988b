//! Merge patches (RFC 7386), as Go's library does them: nulls are dropped also from new lists' entries.

use serde_json::{Map, Value};

use super::refusal::{Refused, read_object};
use crate::status::Status;

/// The object with the patch merged in.
pub fn merge(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch = read_object(patch).map_err(|refused| match refused {
        Refused::Unreadable(what) => Status::bad_request(format!("error decoding patch: {what}")),
        Refused::Null => Status::bad_request("Invalid JSON Patch"),
    })?;
    let mut merged = object.as_object().cloned().unwrap_or_default();
    merge_fields(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge_fields(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut new) in patch {
        match (fields.get_mut(&name), new) {
            (_, Value::Null) => drop(fields.remove(&name)),
            (Some(Value::Object(there)), Value::Object(patch)) => merge_fields(there, patch),
            // Where an object stood, a list is taken as it is.
            (Some(there @ Value::Object(_)), other) => *there = other,
            (_, other) => {
                new = other;
                prune_nulls(&mut new);
                fields.insert(name, new);
            }
        }
    }
}

/// Drops fields that are null, also inside lists; entries that are null stay.
fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
