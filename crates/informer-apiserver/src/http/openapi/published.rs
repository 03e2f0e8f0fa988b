//! The schema of a definition as it is published: words that it only implies are said, and the older format gets what it can express.
//!
//! Descriptions and defaults are passed on. `apiVersion`, `kind` and `metadata` stand at the root and in embedded resources, whatever the
//! schema says of them.

use serde_json::{Map, Value, json};

use super::schemas::Dialect;

pub(super) const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
pub(super) const LIST_METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";

/// How deep a schema is followed; no definition is as deep.
const MAX_DEPTH: usize = 64;

/// The schema of a kind.
pub(super) fn object(dialect: Dialect, schema: &Value) -> Value {
    let mut schema = schema.as_object().cloned().unwrap_or_default();
    if dialect == Dialect::Older && is(&schema, PRESERVE) {
        // kubectl would take every field that is not named for a wrong one.
        return json!({"type": "object"});
    }
    publish(dialect, &mut schema, MAX_DEPTH);
    schema.entry("type").or_insert_with(|| json!("object"));
    let own = [
        ("apiVersion", json!({"type": "string", "description": API_VERSION})),
        ("kind", json!({"type": "string", "description": KIND})),
        ("metadata", reference(dialect, METADATA, METADATA_DESCRIPTION)),
    ];
    add_properties(&mut schema, own);
    Value::Object(schema)
}

/// The schema of a list of a kind.
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

fn publish(dialect: Dialect, schema: &mut Map<String, Value>, left: usize) {
    let Some(left) = left.checked_sub(1) else { return };
    match dialect {
        Dialect::Newer => add_types(schema),
        Dialect::Older => leave_out(schema),
    }
    for value in ["items", "additionalProperties"] {
        if let Some(Value::Object(inner)) = schema.get_mut(value) {
            publish(dialect, inner, left);
        }
    }
    if let Some(Value::Object(fields)) = schema.get_mut("properties") {
        for field in fields.values_mut().filter_map(Value::as_object_mut) {
            publish(dialect, field, left);
        }
    }
    // The older format leaves unknown fields alone where fields are not named.
    if is(schema, EMBEDDED) && !(dialect == Dialect::Older && is(schema, PRESERVE)) {
        embed(dialect, schema);
    }
}

/// Says which types a number or a text may have, unless the schema does.
fn add_types(schema: &mut Map<String, Value>) {
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    let said = |schema: Option<&Value>| schema.and_then(|schema| schema.get("anyOf")) == Some(&either);
    let first = schema.get("allOf").and_then(|all| all.get(0));
    if !is(schema, INT_OR_STRING) || schema.get("anyOf") == Some(&either) || said(first) {
        return;
    }
    if schema.get("anyOf").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        schema.insert("anyOf".to_owned(), either);
    } else if let Value::Array(all) = schema.entry("allOf").or_insert_with(|| json!([])) {
        all.insert(0, json!({"anyOf": either}));
    }
}

/// Drops what the older format has no words for, and what clients of it stumble over.
fn leave_out(schema: &mut Map<String, Value>) {
    for word in ["allOf", "oneOf", "anyOf", "not", "default"] {
        schema.remove(word);
    }
    if schema.remove("nullable") == Some(json!(true)) {
        for word in ["type", "items", "properties"] {
            schema.remove(word);
        }
    }
    if is(schema, PRESERVE) {
        for word in ["items", "properties"] {
            schema.remove(word);
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

/// What may be null need not be there for clients of the older format.
fn drop_nullable_required(schema: &mut Map<String, Value>) {
    let nullable = |schema: &Value| schema.get("nullable") == Some(&json!(true));
    let all = schema.get("additionalProperties").is_some_and(nullable);
    let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let names: Vec<Value> =
        fields.filter(|(_, field)| nullable(field)).map(|(name, _)| json!(name)).collect();
    let Some(Value::Array(required)) = schema.get_mut("required") else { return };
    required.retain(|name| !all && !names.contains(name));
    if required.is_empty() {
        schema.remove("required");
    }
}

/// An embedded resource has the fields of every object.
fn embed(dialect: Dialect, schema: &mut Map<String, Value>) {
    let own = [
        ("apiVersion", json!({"type": "string", "description": EMBEDDED_API_VERSION})),
        ("kind", json!({"type": "string", "description": EMBEDDED_KIND})),
        ("metadata", reference(dialect, METADATA, METADATA_DESCRIPTION)),
    ];
    add_properties(schema, own);
    if let Value::Array(required) = schema.entry("required").or_insert_with(|| json!([])) {
        for name in ["kind", "apiVersion"] {
            if !required.contains(&json!(name)) {
                required.push(json!(name));
            }
        }
    }
}

fn add_properties(schema: &mut Map<String, Value>, own: [(&str, Value); 3]) {
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        properties.extend(own.map(|(name, property)| (name.to_owned(), property)));
    }
}

fn reference(dialect: Dialect, name: &str, description: &str) -> Value {
    let reference = dialect.reference(name);
    match dialect {
        Dialect::Older => json!({"$ref": reference, "description": description}),
        Dialect::Newer => json!({"allOf": [{"$ref": reference}], "description": description}),
    }
}

fn is(schema: &Map<String, Value>, word: &str) -> bool {
    schema.get(word) == Some(&Value::Bool(true))
}

const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

// Word for word what a real server says.
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
