//! The whole processing of objects, compared with the results of kube-apiserver.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value, json};

use informer_schema::RESOURCES;

use super::*;

mod kinds;
mod rejections;
mod steps;

/// Reads a file of recordings.
fn recording(name: &str) -> Value {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns group, version and kind of an object.
fn type_text(object: &Value) -> (String, String, String) {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    (group.to_owned(), version.to_owned(), object["kind"].as_str().unwrap_or_default().to_owned())
}

/// Appends the differences of two values, one per line.
fn differences(path: &str, actual: &Value, expected: &Value, lines: &mut Vec<String>) {
    match (actual, expected) {
        (Value::Object(one), Value::Object(two)) => {
            let keys: std::collections::BTreeSet<&String> = one.keys().chain(two.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (one.get(key), two.get(key)) {
                    (Some(one), Some(two)) => differences(&path, one, two, lines),
                    (Some(one), None) => lines.push(format!("{path}: unexpected: {one}")),
                    (None, Some(two)) => lines.push(format!("{path}: missing: {two}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(one), Value::Array(two)) if one.len() == two.len() => {
            for (index, (one, two)) in one.iter().zip(two).enumerate() {
                differences(&format!("{path}[{index}]"), one, two, lines);
            }
        }
        _ if actual == expected => {}
        _ => lines.push(format!("{path}: actual {actual}, expected {expected}")),
    }
}

/// Removes the metadata that the server or the caller of this module sets.
fn strip(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in
            ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace"]
        {
            metadata.remove(field);
        }
    }
}
