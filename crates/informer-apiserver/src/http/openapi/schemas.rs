//! Types as schemas: the tables of `informer-schema`, in the words of either format.
//!
//! Only the types that are reached from where one begins are written. A reference that has something to say besides
//! becomes `allOf` in the newer format; the older lets words stand beside it.

use std::collections::BTreeMap;

use informer_schema::{Field, ListType, MapType, Shape, Type, TypeId};
use serde_json::{Map, Value, json};

/// The format of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// `/openapi/v2`.
    Older,
    /// `/openapi/v3`.
    Newer,
}

/// Schemas by name, with the types they need.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    pub(super) found: BTreeMap<String, Value>,
}

impl Dialect {
    pub(super) fn reference(self, name: &str) -> String {
        match self {
            Dialect::Older => format!("#/definitions/{name}"),
            Dialect::Newer => format!("#/components/schemas/{name}"),
        }
    }
}

impl Schemas {
    /// Adds a type and all that it needs.
    pub(super) fn add(&mut self, dialect: Dialect, id: TypeId) {
        let mut open = vec![id];
        while let Some(id) = open.pop() {
            let of = id.get();
            if self.found.contains_key(of.name) {
                continue;
            }
            self.found.insert(of.name.to_owned(), schema(dialect, of));
            for field in of.fields {
                self.add_leaf(dialect, &field.shape);
                open.extend(object(&field.shape));
            }
        }
    }

    pub(super) fn add_named(&mut self, dialect: Dialect, name: &str) {
        if let Some(id) = Type::named(name) {
            self.add(dialect, id);
        }
    }

    /// Says of a schema which kind it is of.
    pub(super) fn mark(&mut self, name: &str, group: &str, version: &str, kind: &str) {
        let mark = json!({"group": group, "version": version, "kind": kind});
        if let Some(Value::Object(schema)) = self.found.get_mut(name) {
            let marks = schema.entry("x-kubernetes-group-version-kind").or_insert_with(|| json!([]));
            if let Value::Array(marks) = marks
                && !marks.contains(&mark)
            {
                marks.push(mark);
            }
        }
    }

    /// Types of one value have schemas of their own.
    fn add_leaf(&mut self, dialect: Dialect, shape: &Shape) {
        match shape {
            Shape::List(inner, _) | Shape::Map(inner, _) => self.add_leaf(dialect, inner),
            shape => {
                if let Some((name, schema)) = leaf(dialect, shape) {
                    self.found.entry(name.to_owned()).or_insert(schema);
                }
            }
        }
    }
}

fn schema(dialect: Dialect, of: &Type) -> Value {
    let mut schema = Map::new();
    schema.insert("type".to_owned(), json!("object"));
    if !of.fields.is_empty() {
        let properties: Map<String, Value> =
            of.fields.iter().map(|field| (field.name.to_owned(), property(dialect, field))).collect();
        schema.insert("properties".to_owned(), Value::Object(properties));
    }
    let required: Vec<&str> =
        of.fields.iter().filter(|field| field.required).map(|field| field.name).collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    if of.atomic {
        schema.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
    }
    Value::Object(schema)
}

fn property(dialect: Dialect, field: &Field) -> Value {
    let mut said = Map::new();
    let default = field.default.and_then(|text| serde_json::from_str(text).ok());
    if let Some(default) = default {
        said.insert("default".to_owned(), default);
    }
    let patch = field.patch;
    let words = [(patch.merge, "merge"), (patch.retain_keys, "retainKeys"), (patch.replace, "replace")];
    let strategy: Vec<&str> = words.iter().filter(|(holds, _)| *holds).map(|(_, word)| *word).collect();
    if !strategy.is_empty() {
        said.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy.join(",")));
    }
    if !patch.key.is_empty() {
        said.insert("x-kubernetes-patch-merge-key".to_owned(), json!(patch.key));
    }
    if let Some(owned) = field.owned {
        said.insert("x-kubernetes-map-type".to_owned(), json!(map_type(owned)));
    }
    place(dialect, &field.shape, said)
}

/// What may stand at a place, and what else is said about it. Shapes of the tables are nested a few levels deep at most.
fn place(dialect: Dialect, shape: &Shape, mut said: Map<String, Value>) -> Value {
    let mut say = |key: &str, value: Value| {
        said.insert(key.to_owned(), value);
    };
    match shape {
        // A schema that says nothing at all is taken by kubectl for one that is missing.
        Shape::Any => say("x-kubernetes-preserve-unknown-fields", json!(true)),
        Shape::Boolean => say("type", json!("boolean")),
        Shape::String => say("type", json!("string")),
        Shape::Bytes => {
            say("type", json!("string"));
            say("format", json!("byte"));
        }
        Shape::Int32 | Shape::Int64 => {
            say("type", json!("integer"));
            say("format", json!(if *shape == Shape::Int32 { "int32" } else { "int64" }));
        }
        Shape::Number => {
            say("type", json!("number"));
            say("format", json!("double"));
        }
        Shape::List(items, list) => {
            say("type", json!("array"));
            say("items", place(dialect, items, Map::new()));
            match list {
                ListType::Atomic => say("x-kubernetes-list-type", json!("atomic")),
                ListType::Set => say("x-kubernetes-list-type", json!("set")),
                ListType::Map(keys) => {
                    say("x-kubernetes-list-type", json!("map"));
                    say("x-kubernetes-list-map-keys", json!(keys));
                }
            }
        }
        Shape::Map(values, map) => {
            say("type", json!("object"));
            say("additionalProperties", place(dialect, values, Map::new()));
            if *map == MapType::Atomic {
                say("x-kubernetes-map-type", json!("atomic"));
            }
        }
        _ => {
            let name = match shape {
                Shape::Object(id) => id.get().name,
                shape => leaf(dialect, shape).map_or("", |(name, _)| name),
            };
            let reference = json!({"$ref": dialect.reference(name)});
            if said.is_empty() {
                return reference;
            }
            match (dialect, reference) {
                (Dialect::Older, Value::Object(reference)) => said.extend(reference),
                (_, reference) => {
                    said.insert("allOf".to_owned(), json!([reference]));
                }
            }
        }
    }
    Value::Object(said)
}

fn object(shape: &Shape) -> Option<TypeId> {
    match shape {
        Shape::Object(id) => Some(*id),
        Shape::List(inner, _) | Shape::Map(inner, _) => object(inner),
        _ => None,
    }
}

/// The name and the schema of a type that is one value.
fn leaf(dialect: Dialect, shape: &Shape) -> Option<(&'static str, Value)> {
    let either = |one: &str, other: &str| json!([{"type": one}, {"type": other}]);
    let newer = dialect == Dialect::Newer;
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
            if newer { json!({"oneOf": either("string", "number")}) } else { json!({"type": "string"}) },
        ),
        Shape::IntOrString => (
            "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
            if newer {
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
    fn a_type_comes_with_all_it_needs() {
        for dialect in [Dialect::Older, Dialect::Newer] {
            let mut schemas = Schemas::default();
            schemas.add_named(dialect, "io.k8s.api.core.v1.Pod");
            let text = json!(schemas.found).to_string();
            let before = dialect.reference("");
            for reference in text.split("\"$ref\":\"").skip(1) {
                let name = reference.split('"').next().unwrap().strip_prefix(&before).unwrap();
                assert!(schemas.found.contains_key(name), "{name}");
            }
        }
    }

    #[test]
    fn what_the_table_says_is_said() {
        let mut schemas = Schemas::default();
        schemas.add_named(Dialect::Newer, "io.k8s.api.core.v1.Container");
        schemas.add_named(Dialect::Newer, "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry");
        schemas.mark("io.k8s.api.core.v1.Container", "g", "v", "K");
        schemas.mark("io.k8s.api.core.v1.Container", "g", "v", "K");
        let container = &schemas.found["io.k8s.api.core.v1.Container"];
        let ports = &container["properties"]["ports"];
        assert_eq!(ports["x-kubernetes-list-map-keys"], json!(["containerPort", "protocol"]));
        assert_eq!(ports["x-kubernetes-patch-merge-key"], "containerPort");
        let resources = "#/components/schemas/io.k8s.api.core.v1.ResourceRequirements";
        assert_eq!(
            container["properties"]["resources"],
            json!({"default": {}, "allOf": [{"$ref": resources}]})
        );
        assert_eq!(container["required"], json!(["name"]));
        let entry = &schemas.found["io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry"];
        assert_eq!(entry["properties"]["fieldsV1"], json!({"x-kubernetes-preserve-unknown-fields": true}));
        assert_eq!(container["x-kubernetes-group-version-kind"].as_array().unwrap().len(), 1);
    }
}
