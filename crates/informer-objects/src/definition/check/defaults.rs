//! Checks that defaults fit the schemas they belong to.

use serde_json::Value;

use super::super::field::{child, invalid, key};
use super::super::object::{check_embedded, check_values, decode_embedded, prune};
use super::super::rules::{self, Programs};
use crate::schema::Structural;
use crate::status::StatusCause;

/// Checks the defaults of a schema.
///
/// A default inside the metadata of an embedded resource is checked like any other; kube-apiserver also
/// checks the metadata that results from it.
pub(super) fn check(schema: &Structural, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    walk(schema, &Programs::of(schema), path, &mut causes);
    causes
}

fn walk(schema: &Structural, programs: &Programs, path: &str, causes: &mut Vec<StatusCause>) {
    if let Some(default) = &schema.default {
        causes.extend(check_default(schema, programs, default, &child(path, "default")));
    }
    if let Some(items) = schema.items.as_deref() {
        walk(items, programs, &child(path, "items"), causes);
    }
    for (name, property) in &schema.properties {
        walk(property, programs, &key(&child(path, "properties"), name), causes);
    }
}

fn check_default(schema: &Structural, programs: &Programs, default: &Value, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut pruned = default.clone();
    prune(schema, &mut pruned);
    if pruned != *default {
        causes.push(invalid(path, default, "must not have unknown fields"));
    }
    if let Err(mut cause) = decode_embedded(schema, &mut default.clone()) {
        cause.field = format!("{path}.{}", cause.field);
        causes.push(cause);
        return causes;
    }
    for found in [check_embedded(schema, default, path, false), check_values(schema, default, None, path)] {
        if !found.is_empty() {
            causes.extend(found);
            return causes;
        }
    }
    // As in kube-apiserver, rules must accept the default as an unchanged value and as a new one.
    let found = rules::check(schema, programs, default, Some(default), path);
    let found = if found.is_empty() { rules::check(schema, programs, default, None, path) } else { found };
    causes.extend(found);
    causes
}
