//! Documents of custom resources, from the schemas of their definitions, and the whole API in the older format.
//!
//! A definition's schema is passed on as it is, descriptions included. `apiVersion`, `kind` and `metadata` are put at its root, whatever it
//! says of them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::paths::{self, Described};
use super::schemas::{Dialect, Schemas};
use crate::model::{Registry, Resource};

const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The documents of definitions, by name.
pub(super) fn documents(registry: &Registry, definitions: &[Value]) -> BTreeMap<String, Value> {
    let mut parts: BTreeMap<String, (Map<String, Value>, Schemas)> = BTreeMap::new();
    each(registry, definitions, |resource, at, version, schema| {
        let name = format!("apis/{}/{version}", resource.group);
        let (paths, schemas) = parts.entry(name).or_default();
        add(paths, schemas, Dialect::Newer, resource, at, version, schema);
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
    each(registry, definitions, |resource, at, version, schema| {
        add(&mut paths, &mut schemas, dialect, resource, at, version, schema);
    });
    let security = json!({"BearerToken": {
        "description": "Bearer Token authentication", "type": "apiKey", "name": "authorization", "in": "header",
    }});
    json!({
        "swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.36.4"}, "paths": paths,
        "definitions": schemas.found, "securityDefinitions": security, "security": [{"BearerToken": []}],
    })
}

/// Every version of every definition that is served, with its schema.
fn each(registry: &Registry, definitions: &[Value], mut visit: impl FnMut(&Resource, usize, &str, &Value)) {
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
                visit(resource, at, name, version.pointer("/schema/openAPIV3Schema").unwrap_or(&Value::Null));
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
    version: &str,
    schema: &Value,
) {
    let name = name(&resource.group, version, &resource.kind);
    schemas.add_named(dialect, METADATA);
    for needed in ["DeleteOptions", "Status"] {
        schemas.add_named(dialect, &format!("io.k8s.apimachinery.pkg.apis.meta.v1.{needed}"));
    }
    let parts = resource.versions.get(at).map_or(&[][..], |version| &version.subresources);
    for id in parts.iter().filter_map(|part| part.type_id) {
        schemas.add(dialect, id);
    }
    schemas.found.insert(name.clone(), root(dialect, schema));
    schemas.mark(&name, &resource.group, version, &resource.kind);
    let kind = Described { group: &resource.group, version, kind: &resource.kind, schema: name };
    paths::add(paths, dialect, resource, at, &kind);
}

fn root(dialect: Dialect, schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    schema.entry("type").or_insert_with(|| json!("object"));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        let own = [
            ("apiVersion", json!({"type": "string", "description": API_VERSION})),
            ("kind", json!({"type": "string", "description": KIND})),
            ("metadata", metadata(dialect)),
        ];
        properties.extend(own.map(|(name, property)| (name.to_owned(), property)));
    }
    Value::Object(schema)
}

fn metadata(dialect: Dialect) -> Value {
    let description = METADATA_SAID;
    let reference = dialect.reference(METADATA);
    match dialect {
        Dialect::Older => json!({"$ref": reference, "description": description}),
        Dialect::Newer => json!({"allOf": [{"$ref": reference}], "description": description}),
    }
}

// Word for word what a real server says.
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
    recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from \
    the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_SAID: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// `com.example.v1.Widget` for a widget of `example.com`.
fn name(group: &str, version: &str, kind: &str) -> String {
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}
