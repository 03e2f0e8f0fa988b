//! The published form of the schema in a `CustomResourceDefinition`: for `OpenAPI` v3 implied keywords are
//! added, for v2 unsupported keywords are dropped.
//!
//! Descriptions are kept; defaults only in v3. At the root and in embedded resources, the schemas of
//! `apiVersion`, `kind` and `metadata` are replaced.

use serde_json::{Map, Value, json};

use super::schemas::Dialect;

pub(super) const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// Maximum depth to which a schema is processed; schemas of valid definitions are less deep.
const MAX_DEPTH: usize = 64;

/// Returns the schema of a kind.
pub(super) fn object(dialect: Dialect, schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    if dialect == Dialect::V2 && is_set(&schema, PRESERVE) {
        // With properties in the schema, kubectl would reject every field that they do not list.
        return json!({"type": "object"});
    }
    publish(dialect, &mut schema, MAX_DEPTH);
    schema.entry("type").or_insert_with(|| json!("object"));
    let common = [
        ("apiVersion", json!({"type": "string", "description": API_VERSION})),
        ("kind", json!({"type": "string", "description": KIND})),
        ("metadata", reference(dialect, METADATA, METADATA_DESCRIPTION)),
    ];
    add_properties(&mut schema, common);
    Value::Object(schema)
}

/// Returns the schema of a list of a kind.
pub(super) fn list(dialect: Dialect, list_kind: &str, kind: &str, plural: &str, item: &str) -> Value {
    let items = format!("List of {plural}. More info: {CONVENTIONS}");
    json!({
        "type": "object", "description": format!("{list_kind} is a list of {kind}"), "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string", "description": API_VERSION},
            "kind": {"type": "string", "description": KIND},
            "metadata": reference(dialect, LIST_METADATA, LIST_METADATA_DESCRIPTION),
            "items": {"type": "array", "description": items, "items": {"$ref": dialect.reference(item)}},
        },
    })
}

fn publish(dialect: Dialect, schema: &mut Map<String, Value>, depth: usize) {
    let Some(depth) = depth.checked_sub(1) else { return };
    match dialect {
        Dialect::V3 => add_types(schema),
        Dialect::V2 => drop_unsupported(schema),
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(keyword) {
            publish(dialect, inner, depth);
        }
    }
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        for field in fields.values_mut().filter_map(Value::as_object_mut) {
            publish(dialect, field, depth);
        }
    }
    // In OpenAPI v2 a schema that preserves unknown fields has no properties, so none are added.
    if is_set(schema, EMBEDDED) && !(dialect == Dialect::V2 && is_set(schema, PRESERVE)) {
        embed(dialect, schema);
    }
}

/// Adds the types of an int-or-string value, unless the schema contains them.
fn add_types(schema: &mut Map<String, Value>) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let declares = |schema: Option<&Value>| schema.and_then(|schema| schema.get("anyOf")) == Some(&either);
    let first = schema.get("allOf").and_then(|all| all.get(0));
    if !is_set(schema, INT_OR_STRING) || schema.get("anyOf") == Some(&either) || declares(first) {
        return;
    }
    if schema.get("anyOf").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        schema.insert("anyOf".to_owned(), either);
    } else if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.insert(0, json!({"anyOf": either}));
    }
}

/// Drops keywords that `OpenAPI` v2 does not have or that its clients do not support.
fn drop_unsupported(schema: &mut Map<String, Value>) {
    for keyword in ["allOf", "oneOf", "anyOf", "not", "default"] {
        schema.remove(keyword);
    }
    if schema.remove("nullable") == Some(json!(true)) {
        for keyword in ["type", "items", "properties"] {
            schema.remove(keyword);
        }
    }
    if is_set(schema, PRESERVE) {
        for keyword in ["items", "properties"] {
            schema.remove(keyword);
        }
        if schema.get("type") == Some(&json!("object")) {
            schema.remove("type");
        }
    }
    if schema.get("type") == Some(&json!("array")) && !schema.contains_key("items") {
        schema.remove("type");
    }
    drop_nullable_required(schema);
}

/// Makes nullable fields optional, for clients of `OpenAPI` v2.
fn drop_nullable_required(schema: &mut Map<String, Value>) {
    let nullable = |schema: &Value| schema.get("nullable") == Some(&json!(true));
    let all_nullable = schema.get("additionalProperties").is_some_and(nullable);
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let names: Vec<Value> =
        fields.filter(|(_, field)| nullable(field)).map(|(name, _)| json!(name)).collect();
    let Some(Value::Array(required)) = schema.get_mut("required") else { return };
    required.retain(|name| !all_nullable && !names.contains(name));
    if required.is_empty() {
        schema.remove("required");
    }
}

/// Adds the fields that every object has (`apiVersion`, `kind`, `metadata`) to an embedded resource.
fn embed(dialect: Dialect, schema: &mut Map<String, Value>) {
    let common = [
        ("apiVersion", json!({"type": "string", "description": EMBEDDED_API_VERSION})),
        ("kind", json!({"type": "string", "description": EMBEDDED_KIND})),
        ("metadata", reference(dialect, METADATA, METADATA_DESCRIPTION)),
    ];
    add_properties(schema, common);
    if let Value::Array(required) = schema.entry("required").or_insert_with(|| json!([])) {
        for name in ["kind", "apiVersion"] {
            if !required.contains(&json!(name)) {
                required.push(json!(name));
            }
        }
    }
}

fn add_properties(schema: &mut Map<String, Value>, added: [(&str, Value); 3]) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.extend(added.map(|(name, property)| (name.to_owned(), property)));
    }
}

fn reference(dialect: Dialect, name: &str, description: &str) -> Value {
    let reference = dialect.reference(name);
    match dialect {
        Dialect::V2 => json!({"$ref": reference, "description": description}),
        Dialect::V3 => json!({"allOf": [{"$ref": reference}], "description": description}),
    }
}

fn is_set(schema: &Map<String, Value>, keyword: &str) -> bool {
    schema.get(keyword) == Some(&Value::Bool(true))
}

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

// These texts are copied from kube-apiserver.
const CONVENTIONS: &str =
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object. Servers should convert \
    recognized schemas to the latest internal value, and may reject unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. Servers may infer this from \
    the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const METADATA_DESCRIPTION: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA_DESCRIPTION: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
const EMBEDDED_API_VERSION: &str = "apiVersion defines the versioned schema of this representation of an object. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const EMBEDDED_KIND: &str = "kind is a string value representing the type of this object. In CamelCase. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";
