//! What the server does to objects of some kinds on its own: defaults that others rely on.
//!
//! Only habits that an informer or its tests can see: phases, labels of namespaces, the data of secrets, the status of
//! definitions. Defaults of specs are not here yet.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::custom;
use super::kinds::Resource;
use super::status::Status;

/// The finalizer that keeps a namespace until somebody has emptied it.
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Completes an object that is about to be created. Its name is set.
pub(super) fn complete_new(resource: &Resource, now: Timestamp, object: &mut Value) -> Result<(), Status> {
    if resource.custom {
        return Ok(());
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => object["status"] = json!({"phase": "Pending"}),
        ("", "namespaces") => {
            object["spec"] = json!({"finalizers": [NAMESPACE_FINALIZER]});
            object["status"] = json!({"phase": "Active"});
        }
        ("", "persistentvolumeclaims" | "persistentvolumes") => {
            object["status"] = json!({"phase": "Pending"});
        }
        _ if resource.is_definition() => custom::accept(now, object),
        _ => {}
    }
    complete(resource, object)
}

/// Completes an object that is about to be stored, new or changed.
pub(super) fn complete(resource: &Resource, object: &mut Value) -> Result<(), Status> {
    if resource.custom {
        return Ok(());
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            let name = object["metadata"]["name"].clone();
            set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
        }
        ("", "secrets") => fold_string_data(object),
        _ if resource.is_definition() => {
            custom::complete(object);
            custom::check(object)?;
        }
        _ => {}
    }
    Ok(())
}

/// Marks a namespace as going.
pub(super) fn terminate_namespace(object: &mut Value) {
    set(object, &["status", "phase"], json!("Terminating"));
}

/// Secrets are written with `stringData` and read with `data`.
fn fold_string_data(object: &mut Value) {
    let Some(fields) = object.as_object_mut() else { return };
    if let Some(Value::Object(plain)) = fields.remove("stringData") {
        for (name, value) in plain {
            let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
            set_in(fields, &["data", name.as_str()], Value::from(encoded));
        }
    }
    fields.entry("type").or_insert_with(|| json!("Opaque"));
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
