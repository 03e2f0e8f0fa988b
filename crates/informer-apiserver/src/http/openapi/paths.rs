//! Paths of resources with their operations, and the documents of built-in groups.
//!
//! Operations have an action, a kind, parameters and schemas, but no descriptions.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, Schemas};
use crate::model::{Registry, Resource, Subresource};

const DELETE_OPTIONS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions";
const STATUS: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.Status";

// Query parameters of each operation: name and type.
const READING: &[(&str, &str)] = &[("pretty", "string")];
const LISTING: &[(&str, &str)] = &[
    ("allowWatchBookmarks", "boolean"),
    ("continue", "string"),
    ("fieldSelector", "string"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("pretty", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
    ("watch", "boolean"),
];
const WRITING: &[(&str, &str)] =
    &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("pretty", "string")];
const PATCHING: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("fieldManager", "string"),
    ("fieldValidation", "string"),
    ("force", "boolean"),
    ("pretty", "string"),
];
const DELETING: &[(&str, &str)] = &[
    ("dryRun", "string"),
    ("gracePeriodSeconds", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
];
const DELETING_COLLECTION: &[(&str, &str)] = &[
    ("continue", "string"),
    ("dryRun", "string"),
    ("fieldSelector", "string"),
    ("gracePeriodSeconds", "integer"),
    ("labelSelector", "string"),
    ("limit", "integer"),
    ("orphanDependents", "boolean"),
    ("pretty", "string"),
    ("propagationPolicy", "string"),
    ("resourceVersion", "string"),
    ("resourceVersionMatch", "string"),
    ("sendInitialEvents", "boolean"),
    ("shardSelector", "string"),
    ("timeoutSeconds", "integer"),
];

/// A kind and the names of its schemas.
pub(super) struct DescribedKind<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
    pub(super) schema: String,
    /// The name of the schema of its lists. `None` for built-in kinds and subresources, whose lists have no
    /// schema here.
    pub(super) list: Option<String>,
}

/// Returns the `OpenAPI` v3 documents of built-in groups, by name.
pub(super) fn built_in(registry: &Registry) -> BTreeMap<String, Value> {
    let info = json!({"title": "Kubernetes", "version": "v1.36.4"});
    let mut documents = BTreeMap::new();
    let mut group_versions = vec![(String::new(), "v1".to_owned())];
    for (group, versions) in registry.groups() {
        if registry.is_built_in(&group) {
            documents.insert(format!("apis/{group}"), bare(&info, &format!("/apis/{group}/")));
            group_versions.extend(versions.into_iter().map(|version| (group.clone(), version)));
        }
    }
    for name in ["api", "apis"] {
        documents.insert(name.to_owned(), bare(&info, &format!("/{name}/")));
    }
    for name in [".well-known/openid-configuration", "openid/v1/jwks", "version"] {
        documents.insert(name.to_owned(), bare(&info, &format!("/{name}/")));
    }
    for (group, version) in group_versions {
        let name = root(&group, &version).trim_start_matches('/').to_owned();
        let (paths, schemas) = group_version(registry, Dialect::V3, &group, &version);
        documents.insert(name, document(&info, &paths, &schemas));
    }
    documents
}

/// Returns an `OpenAPI` v3 document.
pub(super) fn document(info: &Value, paths: &Map<String, Value>, schemas: &Schemas) -> Value {
    let security = json!({"BearerToken": {
        "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
    }});
    json!({
        "openapi": "3.0.0", "info": info, "paths": paths,
        "components": {"schemas": schemas.by_name, "securitySchemes": security},
    })
}

/// Returns paths and schemas of the built-in resources in one version of a group.
pub(super) fn group_version(
    registry: &Registry,
    dialect: Dialect,
    group: &str,
    version: &str,
) -> (Map<String, Value>, Schemas) {
    let mut paths = Map::new();
    let mut schemas = Schemas::default();
    for name in [DELETE_OPTIONS, STATUS] {
        schemas.add_named(dialect, name);
    }
    for (_, resource) in registry.iter().filter(|(_, resource)| resource.group == group && !resource.custom) {
        let at = resource.versions.iter().position(|served| served.name == version);
        let Some((at, id)) = at.and_then(|at| Some((at, resource.versions.get(at)?.type_id?))) else {
            continue;
        };
        let schema = id.get().name.to_owned();
        let kind = DescribedKind { group, version, kind: &resource.kind, schema, list: None };
        schemas.add(dialect, id);
        schemas.mark(&kind.schema, group, version, &resource.kind);
        for subresource in resource.versions.get(at).map_or(&[][..], |version| &version.subresources) {
            let Some(id) = subresource.type_id else { continue };
            let (group, version) = if subresource.version.is_empty() {
                (group, version)
            } else {
                (subresource.group, subresource.version)
            };
            schemas.add(dialect, id);
            schemas.mark(id.get().name, group, version, &subresource.kind);
        }
        add(&mut paths, dialect, resource, at, &kind);
    }
    (paths, schemas)
}

/// Adds the paths of a resource in its version with the index `at`.
pub(super) fn add(
    paths: &mut Map<String, Value>,
    dialect: Dialect,
    resource: &Resource,
    at: usize,
    kind: &DescribedKind<'_>,
) {
    let Some(version) = resource.versions.get(at) else { return };
    let root = root(&resource.group, &version.name);
    let (scope, in_path) = if resource.namespaced {
        (format!("{root}/namespaces/{{namespace}}/{}", resource.plural), vec!["namespace"])
    } else {
        (format!("{root}/{}", resource.plural), Vec::new())
    };
    // Each row is a verb, its HTTP method and its action. Keeps the verbs that the version supports.
    let pick = |rows: &[(&'static str, &'static str, &'static str)]| -> Vec<(&'static str, Value)> {
        let rows = rows.iter().filter(|(verb, ..)| version.verbs.contains(verb));
        rows.map(|(_, method, action)| (*method, operation(dialect, action, kind))).collect()
    };
    let on_collection = pick(&[
        ("list", "get", "list"),
        ("create", "post", "post"),
        ("deletecollection", "delete", "deletecollection"),
    ]);
    insert(paths, dialect, scope.clone(), &in_path, on_collection);
    if resource.namespaced && version.verbs.contains(&"list") {
        let in_all_namespaces = vec![("get", operation(dialect, "list", kind))];
        insert(paths, dialect, format!("{root}/{}", resource.plural), &[], in_all_namespaces);
    }
    let path_parameters: Vec<&str> = ["name"].into_iter().chain(in_path).collect();
    let on_object = pick(&[
        ("get", "get", "get"),
        ("update", "put", "put"),
        ("patch", "patch", "patch"),
        ("delete", "delete", "delete"),
    ]);
    insert(paths, dialect, format!("{scope}/{{name}}"), &path_parameters, on_object);
    for subresource in &version.subresources {
        let path = format!("{scope}/{{name}}/{}", subresource.name);
        insert(paths, dialect, path, &path_parameters, subresource_operations(dialect, subresource, kind));
    }
}

fn subresource_operations(
    dialect: Dialect,
    subresource: &Subresource,
    parent: &DescribedKind<'_>,
) -> Vec<(&'static str, Value)> {
    let inherits_version = subresource.version.is_empty();
    let kind = DescribedKind {
        group: if inherits_version { parent.group } else { subresource.group },
        version: if inherits_version { parent.version } else { subresource.version },
        kind: &subresource.kind,
        schema: subresource.type_id.map_or_else(
            || if subresource.kind == parent.kind { parent.schema.clone() } else { STATUS.to_owned() },
            |id| id.get().name.to_owned(),
        ),
        list: None,
    };
    let methods = [
        ("get", "get", "get"),
        ("create", "post", "post"),
        ("update", "put", "put"),
        ("patch", "patch", "patch"),
        ("delete", "delete", "delete"),
    ];
    let methods = methods.iter().filter(|(verb, ..)| subresource.verbs.contains(verb));
    methods.map(|(_, method, action)| (*method, operation(dialect, action, &kind))).collect()
}

fn insert(
    paths: &mut Map<String, Value>,
    dialect: Dialect,
    path: String,
    in_path: &[&str],
    operations: Vec<(&'static str, Value)>,
) {
    if operations.is_empty() {
        return;
    }
    let mut item: Map<String, Value> =
        operations.into_iter().map(|(method, operation)| (method.to_owned(), operation)).collect();
    if !in_path.is_empty() {
        let names = in_path.iter().map(|name| parameter(dialect, name, "path", "string"));
        item.insert("parameters".to_owned(), names.collect());
    }
    paths.insert(path, Value::Object(item));
}

fn operation(dialect: Dialect, action: &str, kind: &DescribedKind<'_>) -> Value {
    let parameters = match action {
        "list" => LISTING,
        "post" | "put" => WRITING,
        "patch" => PATCHING,
        "delete" => DELETING,
        "deletecollection" => DELETING_COLLECTION,
        _ => READING,
    };
    let mut parameters: Vec<Value> =
        parameters.iter().map(|(name, type_name)| parameter(dialect, name, "query", type_name)).collect();
    let schema = |name: &str| json!({"$ref": dialect.reference(name)});
    let body = match action {
        "post" | "put" => Some(schema(&kind.schema)),
        "delete" | "deletecollection" => Some(schema(DELETE_OPTIONS)),
        "patch" => Some(json!({"type": "object"})),
        _ => None,
    };
    let response = schema(match action {
        "deletecollection" => STATUS,
        "list" => kind.list.as_ref().unwrap_or(&kind.schema),
        _ => &kind.schema,
    });
    let mut operation = Map::new();
    let mut set = |key: &str, value: Value| operation.insert(key.to_owned(), value);
    match (dialect, body) {
        (Dialect::V3, Some(body)) => {
            set("requestBody", json!({"content": content(action, kind, &body)}));
        }
        (Dialect::V2, Some(body)) => {
            parameters.insert(0, json!({"name": "body", "in": "body", "schema": body}));
        }
        (_, None) => {}
    }
    let ok = match dialect {
        Dialect::V3 => json!({"description": "OK", "content": {"application/json": {"schema": response}}}),
        Dialect::V2 => json!({"description": "OK", "schema": response}),
    };
    set("responses", json!({"200": ok}));
    set("parameters", Value::Array(parameters));
    set("x-kubernetes-action", json!(action));
    let mark = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
    set("x-kubernetes-group-version-kind", mark);
    Value::Object(operation)
}

/// Returns the description of a body, by the media types in which a client can send it. Only built-in kinds,
/// whose schemas have names in `io.k8s.`, support strategic merge patches.
fn content(action: &str, kind: &DescribedKind<'_>, schema: &Value) -> Map<String, Value> {
    let suffixes: &[&str] = match action {
        "patch" if kind.schema.starts_with("io.k8s.") => {
            &["apply-patch+yaml", "json-patch+json", "merge-patch+json", "strategic-merge-patch+json"]
        }
        "patch" => &["apply-patch+yaml", "json-patch+json", "merge-patch+json"],
        _ => &["json"],
    };
    suffixes.iter().map(|suffix| (format!("application/{suffix}"), json!({"schema": schema}))).collect()
}

fn parameter(dialect: Dialect, name: &str, location: &str, type_name: &str) -> Value {
    let mut parameter = json!({"name": name, "in": location});
    match dialect {
        Dialect::V2 => {
            parameter["type"] = json!(type_name);
            parameter["uniqueItems"] = json!(true);
        }
        Dialect::V3 => parameter["schema"] = json!({"type": type_name, "uniqueItems": true}),
    }
    if location == "path" {
        parameter["required"] = json!(true);
    }
    parameter
}

/// Returns the document of a path without resources.
fn bare(info: &Value, path: &str) -> Value {
    let operation = json!({"get": {"responses": {"200": {"description": "OK"}}}});
    json!({"openapi": "3.0.0", "info": info, "paths": {path: operation}})
}

fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") }
}
