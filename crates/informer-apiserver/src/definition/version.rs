//! One version of a definition, read once so that its objects can be handled.

use serde_json::Value;

use super::columns::{Column, columns};
use super::rules::Programs;
use super::scale::ScalePaths;
use crate::schema::Structural;

/// What a version of a definition says about its objects.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) schema: Structural,
    pub(crate) programs: Programs,
    pub(crate) columns: Vec<Column>,
    /// None if its objects cannot be scaled.
    pub(crate) scale: Option<ScalePaths>,
    /// Whether the status is a subresource.
    pub(crate) status: bool,
    /// What everyone who uses the version is told; none unless it is deprecated.
    pub(crate) warning: Option<String>,
}

impl Version {
    /// Reads an entry of `spec.versions`.
    pub(crate) fn read(definition: &Value, version: &Value) -> Version {
        let written = version.pointer("/schema/openAPIV3Schema");
        let mut schema = written.map(Structural::read).unwrap_or_default();
        if definition.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool) == Some(true) {
            schema.preserve = true;
        }
        Version {
            programs: Programs::of(&schema),
            columns: columns(version),
            scale: ScalePaths::read(version),
            status: version.pointer("/subresources/status").is_some_and(Value::is_object),
            warning: warning(definition, version),
            schema,
        }
    }
}

/// The warning of a deprecated version: its own, or one that names a better version if there is one.
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
        .filter(|other| crate::model::priority(other) > crate::model::priority(name))
        .max_by_key(|other| crate::model::priority(other));
    Some(match better {
        Some(better) => format!("{plain}; use {group}/{better} {kind}"),
        None => plain,
    })
}
