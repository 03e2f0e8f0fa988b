//! Documents of custom resources, from the schemas of their definitions, and the whole API in the older format.
//!
//! What becomes of a definition's schema is decided where it is published.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::paths::{self, Described};
use super::published::{self, LIST_METADATA, METADATA};
use super::schemas::{Dialect, Schemas};
use crate::model::{Registry, Resource};

/// The documents of definitions, by name.
pub(super) fn documents(registry: &Registry, definitions: &[Value]) -> BTreeMap<String, Value> {
    let mut parts: BTreeMap<String, (Map<String, Value>, Schemas)> = BTreeMap::new();
    each(registry, definitions, |resource, at, version| {
        let name = format!("apis/{}/{}", resource.group, version["name"].as_str().unwrap_or_default());
        let (paths, schemas) = parts.entry(name).or_default();
        add(paths, schemas, Dialect::Newer, resource, at, version);
    });
    let info = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    let document = |(name, (paths, schemas))| (name, paths::document(&info, &paths, &schemas));
    parts.into_iter().map(document).collect()
}

/// Everything in the older format.
pub(super) fn whole(registry: &Registry, definitions: &[Value]) -> Value {
    let dialect = Dialect::Older;
    let (mut paths, mut schemas) = paths::group_version(registry, dialect, "", "v1");
    for (group, versions) in registry.groups() {
        for version in versions {
            let (more, found) = paths::group_version(registry, dialect, &group, &version);
            paths.extend(more);
            // A schema that is marked says more than the same one elsewhere.
            for (name, schema) in found.found {
                let marked = schema.get("x-kubernetes-group-version-kind").is_some();
                if marked || !schemas.found.contains_key(&name) {
                    schemas.found.insert(name, schema);
                }
            }
        }
    }
    each(registry, definitions, |resource, at, version| {
        add(&mut paths, &mut schemas, dialect, resource, at, version);
    });
    let security = json!({"BearerToken": {
        "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
    }});
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.4"}, "paths": paths,
        "definitions": schemas.found, "securityDefinitions": security, "security": [{"BearerToken": []}],
    })
}

/// Every version of every definition that is served, and where the resource has it.
fn each(registry: &Registry, definitions: &[Value], mut visit: impl FnMut(&Resource, usize, &Value)) {
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
    for id in served.subresources.iter().filter_map(|part| part.type_id) {
        schemas.add(dialect, id);
    }
    let schema = version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null);
    let of_list = published::list(dialect, list_kind, kind, &resource.plural, &name);
    for (name, kind, mut schema) in
        [(&name, kind, published::object(dialect, schema)), (&list, list_kind, of_list)]
    {
        if let Some(fields) = selectable(version) {
            schema["x-kubernetes-selectable-fields"] = fields;
        }
        schemas.found.insert(name.clone(), schema);
        schemas.mark(name, group, &served.name, kind);
    }
    let kind = Described { group, version: &served.name, kind, schema: name, list: Some(list) };
    paths::add(paths, dialect, resource, at, &kind);
}

/// What lists can select on; none if that is nothing.
fn selectable(version: &Value) -> Option<Value> {
    let fields = version.get("selectableFields")?.as_array().filter(|fields| !fields.is_empty())?;
    let path =
        |field: &Value| field["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.').to_owned();
    Some(fields.iter().map(|field| json!({"fieldPath": path(field)})).collect())
}

/// `com.example.v1.Widget` for a widget of `example.com`.
fn name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}
