//! Shared helpers of the tests: schemas by name, and small schemas of definitions.

mod cases;
mod props;
mod replay;

use std::collections::BTreeMap;

use informer_schema::RESOURCES;
use serde_json::Value;

use super::Manager;
use crate::schema::{Node, Structural, StructuralType};

/// Returns the schema of a built-in kind.
fn built_in(api_version: &str, kind: &str) -> Option<Node<'static>> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let found = RESOURCES.iter().find(|r| r.group == group && r.version == version && r.kind == kind)?;
    found.type_id.map(Node::of)
}

/// Reads the parts of the schema of a definition that matter for ownership.
fn structural(schema: &Value) -> Structural {
    let flag = |name: &str| schema.get(name).and_then(Value::as_bool).unwrap_or_default();
    let text = |name: &str| schema.get(name).and_then(Value::as_str);
    let kind = match text("type") {
        _ if flag("x-kubernetes-int-or-string") => StructuralType::IntOrString,
        Some("object") => StructuralType::Object,
        Some("array") => StructuralType::Array,
        Some("string") => StructuralType::String,
        Some("integer") => StructuralType::Integer,
        Some("number") => StructuralType::Number,
        Some("boolean") => StructuralType::Boolean,
        _ => StructuralType::Any,
    };
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let properties: BTreeMap<_, _> =
        properties.map(|(name, schema)| (name.clone(), structural(schema))).collect();
    let boxed = |name: &str| schema.get(name).filter(|s| s.is_object()).map(|s| Box::new(structural(s)));
    let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array).into_iter().flatten();
    Structural {
        kind,
        properties,
        additional: boxed("additionalProperties"),
        items: boxed("items"),
        default: schema.get("default").cloned(),
        preserve: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        list_type: text("x-kubernetes-list-type").map(str::to_owned),
        list_keys: keys.filter_map(Value::as_str).map(str::to_owned).collect(),
        atomic_map: text("x-kubernetes-map-type") == Some("atomic"),
        ..Structural::default()
    }
}

fn manager<'a>(name: &'a str, api_version: &'a str, kind: &'a str) -> Manager<'a> {
    let reset = &["status"];
    Manager { name, subresource: "", api_version, kind, time: "2024-01-01T00:00:00Z", reset }
}
