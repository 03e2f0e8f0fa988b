//! Merge patches (RFC 7386), with a deviation of the Go library that kube-apiserver uses: null fields are
//! also removed inside the entries of lists in the patch.

use serde_json::{Map, Value};

use super::error::{PatchReadError, read_object};
use crate::status::Status;

/// Merges a patch into an object.
pub fn merge(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch = read_object(patch).map_err(|error| match error {
        PatchReadError::Unreadable(what) => Status::bad_request(format!("error decoding patch: {what}")),
        PatchReadError::Null => Status::bad_request("Invalid JSON Patch"),
    })?;
    let mut merged = object.as_object().cloned().unwrap_or_default();
    merge_fields(&mut merged, patch);
    Ok(Value::Object(merged))
}

fn merge_fields(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut new) in patch {
        match (fields.get_mut(&name), new) {
            (_, Value::Null) => drop(fields.remove(&name)),
            (Some(Value::Object(existing)), Value::Object(patch)) => merge_fields(existing, patch),
            // As in Go, a list that replaces an object is inserted unchanged, with its nulls.
            (Some(existing @ Value::Object(_)), replacement) => *existing = replacement,
            (_, replacement) => {
                new = replacement;
                prune_nulls(&mut new);
                fields.insert(name, new);
            }
        }
    }
}

/// Removes null fields, also inside lists; null entries of lists remain.
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
