//! Types of `informer-schema` as `OpenAPI` schemas, in either version.
//!
//! Only types that are reachable from the requested ones are included. A reference with further keywords
//! becomes `allOf` in `OpenAPI` v3; v2 allows keywords next to a reference.

use std::collections::BTreeMap;

use informer_schema::{Field, ListType, MapType, Shape, Type, TypeId};
use serde_json::{Map, Value, json};

/// The version of `OpenAPI`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `/openapi/v2`.
    V2,
    /// `/openapi/v3`.
    V3,
}

/// Schemas by name, with the types that they refer to.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    pub(super) by_name: BTreeMap<String, Value>,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> String {
        match self {
            Dialect::V2 => format!("#/definitions/{name}"),
            Dialect::V3 => format!("#/components/schemas/{name}"),
        }
    }
}

impl Schemas {
    /// Adds a type and all types that it refers to.
    pub(super) fn add(&mut self, dialect: Dialect, id: TypeId) {
        let mut pending = vec![id];
        while let Some(id) = pending.pop() {
            let ty = id.get();
            if self.by_name.contains_key(ty.name) {
                continue;
            }
            self.by_name.insert(ty.name.to_owned(), schema(dialect, ty));
            for field in &ty.fields {
                self.add_named_scalar(dialect, &field.shape);
                pending.extend(referenced_type(&field.shape));
            }
        }
    }

    pub(super) fn add_named(&mut self, dialect: Dialect, name: &str) {
        if let Some(id) = Type::named(name) {
            self.add(dialect, id);
        }
    }

    /// Marks a schema with the kind that it belongs to.
    pub(super) fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let mark = json!({"group": group, "version": version, "kind": kind});
        if let Some(Value::Object(schema)) = self.by_name.get_mut(name) {
            let marks = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            if let Value::Array(marks) = marks
                && !marks.contains(&mark)
            {
                marks.push(mark);
            }
        }
    }

    /// Adds the schema of a named scalar type, such as `Quantity`, if the shape contains one.
    fn add_named_scalar(&mut self, dialect: Dialect, shape: &Shape) {
        match shape {
            Shape::List(inner, _) | Shape::Map(inner, _) => self.add_named_scalar(dialect, inner),
            shape => {
                if let Some((name, schema)) = named_scalar(dialect, shape) {
                    self.by_name.entry(name.to_owned()).or_insert(schema);
                }
            }
        }
    }
}

fn schema(dialect: Dialect, ty: &Type) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if !ty.fields.is_empty() {
        let properties: Map<String, Value> =
            ty.fields.iter().map(|field| (field.name.to_owned(), property(dialect, field))).collect();
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    let required: Vec<&str> =
        ty.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if ty.atomic {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    Value::Object(schema)
}

fn property(dialect: Dialect, field: &Field) -> Value {
    let mut keywords = Map::new();
    let default = field.default.and_then(|text| serde_json::from_str(text).ok());
    if let Some(default) = default {
        keywords.insert("default".to_owned(), default);
    }
    let patch = field.patch;
    let strategies = [(patch.merge, "merge"), (patch.retain_keys, "retainKeys"), (patch.replace, "replace")];
    let strategy: Vec<&str> = strategies.iter().filter(|(holds, _)| *holds).map(|(_, name)| *name).collect();
    if !strategy.is_empty() {
        keywords.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy.join(",")));
    }
    if !patch.key.is_empty() {
        keywords.insert("x-kubernetes-patch-merge-key".to_owned(), json!(patch.key));
    }
    if let Some(own_type) = field.map_type {
        keywords.insert("x-kubernetes-map-type".to_owned(), json!(map_type(own_type)));
    }
    shape_schema(dialect, &field.shape, keywords)
}

/// Returns the schema of a shape, combined with the given keywords. Shapes are nested only a few levels deep.
fn shape_schema(dialect: Dialect, shape: &Shape, mut keywords: Map<String, Value>) -> Value {
    let mut set = |key: &str, value: Value| {
        keywords.insert(key.to_owned(), value);
    };
    match shape {
        // kubectl treats a schema without any keyword as missing.
        Shape::Any => set("x-kubernetes-preserve-unknown-fields", json!(true)),
        Shape::Boolean => set("type", json!("boolean")),
        Shape::String => set("type", json!("string")),
        Shape::Bytes => {
            set("type", json!("string"));
            set("format", json!("byte"));
        }
        Shape::Int32 | Shape::Int64 => {
            set("type", json!("integer"));
            set("format", json!(if *shape == Shape::Int32 { "int32" } else { "int64" }));
        }
        Shape::Number => {
            set("type", json!("number"));
            set("format", json!("double"));
        }
        Shape::List(items, list) => {
            set("type", json!("array"));
            set("items", shape_schema(dialect, items, Map::new()));
            match list {
                ListType::Atomic => set("x-kubernetes-list-type", json!("atomic")),
                ListType::Set => set("x-kubernetes-list-type", json!("set")),
                ListType::Map(keys) => {
                    set("x-kubernetes-list-type", json!("map"));
                    set("x-kubernetes-list-map-keys", json!(keys));
                }
            }
        }
        Shape::Map(values, map) => {
            set("type", json!("object"));
            set("additionalProperties", shape_schema(dialect, values, Map::new()));
            if *map == MapType::Atomic {
                set("x-kubernetes-map-type", json!("atomic"));
            }
        }
        _ => {
            let name = match shape {
                Shape::Object(id) => id.get().name,
                shape => named_scalar(dialect, shape).map_or("", |(name, _)| name),
            };
            let reference = json!({"$ref": dialect.reference(name)});
            if keywords.is_empty() {
                return reference;
            }
            match (dialect, reference) {
                (Dialect::V2, Value::Object(reference)) => keywords.extend(reference),
                (_, reference) => {
                    keywords.insert("allOf".to_owned(), json!([reference]));
                }
            }
        }
    }
    Value::Object(keywords)
}

/// Returns the object type that a shape refers to, directly or as its items or values.
fn referenced_type(shape: &Shape) -> Option<TypeId> {
    match shape {
        Shape::Object(id) => Some(*id),
        Shape::List(inner, _) | Shape::Map(inner, _) => referenced_type(inner),
        _ => None,
    }
}

/// Returns name and schema of a named scalar type; `None` for other shapes.
fn named_scalar(dialect: Dialect, shape: &Shape) -> Option<(&'static str, Value)> {
    let either = |one: &str, other: &str| json!([{"type": one}, {"type": other}]);
    let is_v3 = dialect == Dialect::V3;
    Some(match shape {
        Shape::Time => {
            ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", json!({"type": "string", "format": "date-time"}))
        }
        Shape::MicroTime => (
            "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
            json!({"type": "string", "format": "date-time"}),
        ),
        Shape::Quantity => (
            "io.k8s.apimachinery.pkg.api.resource.Quantity",
            if is_v3 { json!({"oneOf": either("string", "number")}) } else { json!({"type": "string"}) },
        ),
        Shape::IntOrString => (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            if is_v3 {
                json!({"format": "int-or-string", "oneOf": either("integer", "string")})
            } else {
                json!({"type": "string", "format": "int-or-string"})
            },
        ),
        _ => return None,
    })
}

fn map_type(map: MapType) -> &'static str {
    match map {
        MapType::Granular => "granular",
        MapType::Atomic => "atomic",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_referenced_types_are_included() {
        for dialect in [Dialect::V2, Dialect::V3] {
            let mut schemas = Schemas::default();
            schemas.add_named(dialect, "io.k8s.api.core.v1.Pod");
            let text = json!(schemas.by_name).to_string();
            let prefix = dialect.reference("");
            for reference in text.split("\"$ref\":\"").skip(1) {
                let name = reference.split('"').next().unwrap().strip_prefix(&prefix).unwrap();
                assert!(schemas.by_name.contains_key(name), "{name}");
            }
        }
    }

    #[test]
    fn keywords_of_the_type_table_are_included() {
        let mut schemas = Schemas::default();
        schemas.add_named(Dialect::V3, "io.k8s.api.core.v1.Container");
        schemas.add_named(Dialect::V3, "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry");
        schemas.mark("io.k8s.api.core.v1.Container", "g", "v", "K");
        schemas.mark("io.k8s.api.core.v1.Container", "g", "v", "K");
        let container = &schemas.by_name["io.k8s.api.core.v1.Container"];
        let ports = &container["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
        assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
        let resources = "#/components/schemas/io.k8s.api.core.v1.ResourceRequirements";
        assert_eq!(
            container["properties"]["resources"],
            json!({"default": {}, "allOf": [{"$ref": resources}]})
        );
        assert_eq!(container["required"], json!(["name"]));
        let entry = &schemas.by_name["io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"];
        assert_eq!(entry["properties"]["fieldsV1"], json!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(container["x-kubernetes-group-version-kind"].as_array().unwrap().len(), 1);
    }
}
