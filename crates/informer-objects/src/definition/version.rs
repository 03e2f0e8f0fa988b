//! Versions of a definition, read once for processing objects, and conversion between versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::columns::{Column, columns};
use super::object::numbers::normalize;
use super::object::{convert, default};
use super::rules::Programs;
use super::scale::ScalePaths;
use crate::schema::Structural;
use crate::text::versions::priority;

/// The conversion of custom objects to and from their stored form.
#[derive(Debug)]
pub struct Storage {
    /// The storage version.
    pub version: String,
    /// The schema of each version, served or not, by the name of the version.
    pub schemas: BTreeMap<String, Arc<Structural>>,
}

/// A version of a definition, in the form needed to process objects.
#[derive(Debug)]
pub struct Version {
    /// The schema of the objects.
    pub schema: Arc<Structural>,
    /// The CEL rules of the schema.
    pub(crate) programs: Programs,
    /// The table columns, except Name.
    pub(crate) columns: Vec<Column>,
    /// The paths of the scale subresource; `None` if the version has no such subresource.
    pub scale: Option<ScalePaths>,
    /// Whether the status is a subresource.
    pub status: bool,
    /// The warning sent with every response if the version is deprecated.
    pub warning: Option<String>,
}

impl Storage {
    /// Returns an object in the form in which it is stored: without the fields that the storage version does
    /// not know and without the nulls that it does not allow.
    pub fn written(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if let Some(schema) = self.schemas.get(&self.version) {
            convert(schema, &mut object);
        }
        object
    }

    /// Converts an object that was stored as `version` after it is read.
    ///
    /// The definition may have changed since the object was stored: fields that the schema of the version no
    /// longer knows are removed, and defaults are set.
    pub fn read(&self, version: &str, object: &mut Value) {
        if let Some(schema) = self.schemas.get(version) {
            convert(schema, object);
            default(schema, object);
            normalize(object);
        }
    }

    /// Returns an object of version `from` as version `to` shows it; `None` if both show the same, or if `to`
    /// does not exist.
    pub fn converted(&self, from: &str, to: &str, object: &Value) -> Option<Value> {
        let schema = self.schemas.get(to)?;
        if self.schemas.get(from).is_some_and(|from| Arc::ptr_eq(from, schema)) {
            return None;
        }
        let mut converted = object.clone();
        convert(schema, &mut converted);
        (converted != *object).then_some(converted)
    }
}

impl Version {
    /// Reads an entry of `spec.versions`.
    pub fn read(definition: &Value, version: &Value) -> Version {
        let source = version.pointer("/schema/openAPIV3Schema");
        let mut schema = source.map(Structural::read).unwrap_or_default();
        if definition.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool) == Some(true) {
            schema.preserve = true;
        }
        Version {
            programs: Programs::of(&schema),
            columns: columns(version),
            scale: ScalePaths::read(version),
            status: version.pointer("/subresources/status").is_some_and(Value::is_object),
            warning: warning(definition, version),
            schema: Arc::new(schema),
        }
    }
}

/// Returns the warning of a deprecated version: its `deprecationWarning`, or the default text of
/// kube-apiserver.
///
/// The default text recommends the version of the highest priority that is served and not deprecated, unless
/// its priority is lower than that of the deprecated version.
fn warning(definition: &Value, version: &Value) -> Option<String> {
    if version.get("deprecated").and_then(Value::as_bool) != Some(true) {
        return None;
    }
    if let Some(own) = version.get("deprecationWarning").and_then(Value::as_str) {
        return Some(own.to_owned());
    }
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
    let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
    let plain = format!("{group}/{name} {kind} is deprecated");
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
    let flag = |version: &Value, name: &str| version.get(name).and_then(Value::as_bool).unwrap_or_default();
    let better = versions
        .filter(|other| flag(other, "served") && !flag(other, "deprecated"))
        .filter_map(|other| other.get("name").and_then(Value::as_str))
        .filter(|other| priority(other) > priority(name))
        .max_by_key(|other| priority(other));
    Some(match better {
        Some(better) => format!("{plain}; use {group}/{better} {kind}"),
        None => plain,
    })
}
