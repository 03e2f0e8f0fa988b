//! Builds the `Resource` that a `CustomResourceDefinition` defines.
//!
//! What a definition may contain, and its effect on objects, is decided in `informer_objects::definition`.
//! `definitions` decides when a definition is served.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_objects::definition;
use informer_objects::text::versions::priority;
use informer_schema::Type;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::json_edit::is_same;
use super::resource::{Field, Resource, Subresource, Version};
use super::state::State;

/// Verbs of custom resources, in the order of discovery.
const VERBS: &[&str] = &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];

/// Returns the resource that a definition defines, or `None` if it serves no version.
pub(super) fn resource(definition: &Value) -> Option<Resource> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let kind = text("/spec/names/kind")?;
    let group = text("/spec/group")?;
    let storage_version = versions(definition)
        .find(|version| version["storage"] == json!(true))
        .and_then(|version| version["name"].as_str())
        .unwrap_or_default();
    let storage_hash = storage_hash(&group, storage_version, &kind);
    // The name, JSON and parsed form of each version, served or not.
    let known: Vec<(&str, &Value, definition::Version)> = versions(definition)
        .filter_map(|version| {
            Some((version["name"].as_str()?, version, definition::Version::read(definition, version)))
        })
        .collect();
    let storage = definition::Storage {
        version: storage_version.to_owned(),
        schemas: known.iter().map(|(name, _, parsed)| ((*name).to_owned(), parsed.schema.clone())).collect(),
    };
    let mut served: Vec<Version> = known
        .into_iter()
        .filter(|(_, json, _)| json["served"] == json!(true))
        .map(|(name, json, parsed)| {
            let subresources = subresources(json, &kind);
            Version {
                name: name.to_owned(),
                status: parsed.status,
                type_id: None,
                verbs: VERBS,
                subresources,
                storage_hash: storage_hash.clone(),
                custom: Some(Arc::new(parsed)),
            }
        })
        .collect();
    served.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    if served.is_empty() {
        return None;
    }
    let mut fields: Vec<Field> = Vec::new();
    for path in versions(definition).filter_map(|version| version["selectableFields"].as_array()).flatten() {
        let path = path["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.');
        let field = Field::new(path, path, "");
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let names = |pointer: &str| {
        let names = definition.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        names.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    Some(Resource {
        group,
        list_kind: text("/spec/names/listKind").unwrap_or_else(|| format!("{kind}List")),
        plural: text("/spec/names/plural")?,
        singular: text("/spec/names/singular").unwrap_or_else(|| kind.to_lowercase()),
        short_names: names("/spec/names/shortNames"),
        categories: names("/spec/names/categories"),
        kind,
        namespaced: text("/spec/scope")? == "Namespaced",
        custom: true,
        generation: true,
        storage: Some(Arc::new(storage)),
        fields,
        versions: served,
    })
}

/// Returns whether `object`, as it would be stored, equals what is stored for `before`.
///
/// `old` is `before` as clients see it. Reading a custom object prunes and defaults it again with the current
/// schema, so `old` may differ from what is stored.
pub(super) fn write_changes_nothing(
    resource: &Resource,
    before: &State,
    old: &Value,
    object: &Value,
) -> bool {
    let Some(storage) = resource.storage.as_deref() else { return is_same(old, object) };
    let written = storage.written(object);
    match before.stored_if_different() {
        Some((version, stored)) => {
            version.is_none_or(|version| version == storage.version) && is_same(&stored, &written)
        }
        // Clients see exactly what is stored.
        None => is_same(old, &written),
    }
}

/// Returns the subresources of a version.
fn subresources(version: &Value, kind: &str) -> Vec<Subresource> {
    let has =
        |name: &str| version["subresources"].get(name).is_some_and(|subresource| !subresource.is_null());
    let verbs = &["get", "patch", "update"];
    let status =
        Subresource { name: "status", group: "", version: "", kind: kind.to_owned(), verbs, type_id: None };
    let scale = Subresource {
        name: "scale",
        group: "autoscaling",
        version: "v1",
        kind: "Scale".to_owned(),
        verbs,
        type_id: Type::named("io.k8s.api.autoscaling.v1.Scale"),
    };
    [status, scale].into_iter().filter(|subresource| has(subresource.name)).collect()
}

/// Returns the storage version hash that discovery shows.
fn storage_hash(group: &str, version: &str, kind: &str) -> String {
    let hash = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    STANDARD.encode(&hash.as_ref()[..8])
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}
