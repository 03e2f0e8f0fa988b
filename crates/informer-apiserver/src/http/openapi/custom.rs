//! `OpenAPI` v3 documents of custom resources, and the complete `OpenAPI` v2 document.
//!
//! A definition is a stored `CustomResourceDefinition`. `published` converts its schema.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::paths::{self, DescribedKind};
use super::published::{self, LIST_METADATA, METADATA};
use super::schemas::{Dialect, Schemas};
use crate::model::{Registry, Resource};

/// Returns the `OpenAPI` v3 documents of definitions, by name.
pub(super) fn documents(registry: &Registry, definitions: &[Value]) -> BTreeMap<String, Value> {
    let mut documents: BTreeMap<String, (Map<String, Value>, Schemas)> = BTreeMap::new();
    for_each_version(registry, definitions, |resource, at, version| {
        let name = format!("apis/{}/{}", resource.group, version["name"].as_str().unwrap_or_default());
        let (paths, schemas) = documents.entry(name).or_default();
        add(paths, schemas, Dialect::V3, resource, at, version);
    });
    let info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    let document = |(name, (paths, schemas))| (name, paths::document(&info, &paths, &schemas));
    documents.into_iter().map(document).collect()
}

/// Returns the complete `OpenAPI` v2 document.
pub(super) fn v2_document(registry: &Registry, definitions: &[Value]) -> Value {
    let dialect = Dialect::V2;
    let (mut paths, mut schemas) = paths::group_version(registry, dialect, "", "v1");
    for (group, versions) in registry.groups() {
        for version in versions {
            let (more_paths, more_schemas) = paths::group_version(registry, dialect, &group, &version);
            paths.extend(more_paths);
            // Several groups may contain the same schema; the one that is marked with a kind is more
            // complete.
            for (name, schema) in more_schemas.by_name {
                let marked = schema.get("x-kubernetes-group-version-kind").is_some();
                if marked || !schemas.by_name.contains_key(&name) {
                    schemas.by_name.insert(name, schema);
                }
            }
        }
    }
    for_each_version(registry, definitions, |resource, at, version| {
        add(&mut paths, &mut schemas, dialect, resource, at, version);
    });
    let security = json!({"BearerToken": {
        "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
    }});
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.4"}, "paths": paths,
        "definitions": schemas.by_name, "securityDefinitions": security, "security": [{"BearerToken": []}],
    })
}

/// Calls `visit` for every served version of every definition, with the index of the version in its resource.
fn for_each_version(
    registry: &Registry,
    definitions: &[Value],
    mut visit: impl FnMut(&Resource, usize, &Value),
) {
    for definition in definitions {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let id = registry.find(text("/spec/group"), text("/spec/names/plural"));
        let Some(resource) = id.and_then(|id| registry.get(id)).filter(|resource| resource.custom) else {
            continue;
        };
        let versions = definition.pointer("/spec/versions").and_then(Value::as_array);
        for version in versions.into_iter().flatten() {
            let name = version["name"].as_str().unwrap_or_default();
            if let Some(at) = resource.versions.iter().position(|served| served.name == name) {
                visit(resource, at, version);
            }
        }
    }
}

fn add(
    paths: &mut Map<String, Value>,
    schemas: &mut Schemas,
    dialect: Dialect,
    resource: &Resource,
    at: usize,
    version: &Value,
) {
    let Some(served) = resource.versions.get(at) else { return };
    let (group, kind, list_kind) = (&resource.group, &resource.kind, &resource.list_kind);
    let (name, list) = (name(group, &served.name, kind), name(group, &served.name, list_kind));
    for needed in [METADATA, LIST_METADATA] {
        schemas.add_named(dialect, needed);
    }
    for needed in ["DeleteOptions", "Status"] {
        schemas.add_named(dialect, &format!("io.k8s.apimachinery.pkg.apis.meta.v1.{needed}"));
    }
    for id in served.subresources.iter().filter_map(|subresource| subresource.type_id) {
        schemas.add(dialect, id);
    }
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    let list_schema = published::list(dialect, list_kind, kind, &resource.plural, &name);
    for (name, kind, mut schema) in
        [(&name, kind, published::object(dialect, schema)), (&list, list_kind, list_schema)]
    {
        if let Some(fields) = selectable(version) {
            schema["x-kubernetes-selectable-fields"] = fields;
        }
        schemas.by_name.insert(name.clone(), schema);
        schemas.mark(name, group, &served.name, kind);
    }
    let described = DescribedKind { group, version: &served.name, kind, schema: name, list: Some(list) };
    paths::add(paths, dialect, resource, at, &described);
}

/// Returns the selectable fields of a version, or `None` if it has none.
fn selectable(version: &Value) -> Option<Value> {
    let fields = version.get("selectableFields")?.as_array().filter(|fields| !fields.is_empty())?;
    let path =
        |field: &Value| field["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.').to_owned();
    Some(fields.iter().map(|field| json!({"fieldPath": path(field)})).collect())
}

/// Returns the name of a schema: `com.example.v1.Widget` for kind `Widget` of `example.com`.
fn name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}
