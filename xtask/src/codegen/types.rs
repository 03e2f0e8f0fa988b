//! Renders the types of Kubernetes with their fields, from its `OpenAPI` documents.
//!
//! Types that are a single value in JSON (quantities, times) become shapes. Lists of objects and descriptions
//! are omitted. An unsupported schema keyword is an error, so that the table is never less precise than the
//! documents.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::GENERATED;
use super::layout::{Row, table, text};

/// Types that are rendered as a shape.
const SHAPES: &[(&str, &str)] = &[
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "Any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "Any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "Any"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "Any"),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "Quantity"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "Any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "MicroTime"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Patch", "Any"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "Time"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "Any"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "IntOrString"),
];

/// Supported keywords of a field's schema.
const KEYWORDS: &[&str] = &[
    "$ref",
    "additionalProperties",
    "allOf",
    "default",
    "description",
    "format",
    "items",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
];

/// All types, by name.
pub(super) struct Types {
    schemas: BTreeMap<String, Value>,
    kinds: BTreeMap<[String; 3], String>,
}

impl Types {
    pub(super) fn read(documents: &[Value]) -> Self {
        let mut types = Types { schemas: BTreeMap::new(), kinds: BTreeMap::new() };
        for document in documents {
            let schemas = document["components"]["schemas"].as_object();
            for (name, schema) in schemas.into_iter().flatten() {
                types.add(name, schema);
            }
        }
        types
    }

    fn add(&mut self, name: &str, schema: &Value) {
        if SHAPES.iter().any(|(shape, _)| *shape == name) || is_list(schema) {
            return;
        }
        // Documents repeat shared types; types of every group differ only in the list of their groups.
        self.schemas.entry(name.to_owned()).or_insert_with(|| schema.clone());
        let kinds = schema["x-kubernetes-group-version-kind"].as_array();
        if let Some([kind]) = kinds.map(Vec::as_slice) {
            let part = |key: &str| kind[key].as_str().unwrap_or_default().to_owned();
            self.kinds.insert([part("group"), part("version"), part("kind")], name.to_owned());
        }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.schemas.keys().map(String::as_str)
    }

    /// Returns the `apiVersion` of the kinds in each package.
    pub(super) fn api_versions(&self) -> BTreeMap<String, String> {
        let row = |([group, version, _], name): (&[String; 3], &String)| {
            let package = name.rsplit_once('.')?.0.to_owned();
            let joined = format!("{group}/{version}");
            Some((package, joined.trim_start_matches('/').to_owned()))
        };
        self.kinds.iter().filter_map(row).collect()
    }

    /// Returns the index of the type of a kind.
    pub(super) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<usize> {
        let name = self.kinds.get(&[group.to_owned(), version.to_owned(), kind.to_owned()])?;
        self.id(name).ok()
    }

    /// Returns the description of a field.
    pub(super) fn description(&self, name: &str, field: &str) -> Option<&str> {
        self.schemas.get(name)?["properties"][field]["description"].as_str()
    }

    pub(super) fn render(&self, version: &str) -> Result<String, String> {
        let mut rows = Vec::new();
        for (name, schema) in &self.schemas {
            rows.push(self.row(name, schema).map_err(|reason| format!("{name}: {reason}"))?);
        }
        Ok(format!(
            "{GENERATED}\n\
             //! The types of Kubernetes {version} with their fields, sorted by name, without list kinds.\n\
             \n\
             use crate::fields::MapType::*;\n\
             use crate::fields::Shape::*;\n\
             use crate::fields::{{ListType, Type, WHOLE, field, object, of}};\n\
             \n\
             /// Every type of the `OpenAPI` documents of Kubernetes {version} that has fields, sorted by name.\n\
             {}",
            table("pub static TYPES: &[Type]", &rows)
        ))
    }

    fn row(&self, name: &str, schema: &Value) -> Result<Row, String> {
        let required: BTreeSet<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let mut fields = Vec::new();
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            let row = self.field(field, property, required.contains(field.as_str()));
            fields.push(row.map_err(|reason| format!("{field}: {reason}"))?);
        }
        let end = if schema["x-kubernetes-map-type"] == "atomic" { "]).atomic()" } else { "])" };
        Ok(Row::new(format!("of({}, &[", text(name)), fields, end))
    }

    fn field(&self, name: &str, schema: &Value, required: bool) -> Result<String, String> {
        let mut row = format!("field({}, {})", text(name), self.shape(schema)?);
        if required {
            row += ".required()";
        }
        if let Some(default) = schema.get("default") {
            row.extend([format!(".default({:?})", default.to_string())]);
        }
        row += &patch(schema)?;
        if reference(schema).is_some() && schema.get("x-kubernetes-map-type").is_some() {
            row.extend([format!(".map_type({})", map_type(schema)?)]);
        }
        Ok(row)
    }

    fn shape(&self, schema: &Value) -> Result<String, String> {
        let keywords = schema.as_object().ok_or("is not a schema")?;
        if let Some(unknown) = keywords.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
            return Err(format!("unsupported keyword `{unknown}`"));
        }
        if let Some(name) = reference(schema) {
            return Ok(match SHAPES.iter().find(|(shape, _)| *shape == name) {
                Some((_, shape)) => (*shape).to_owned(),
                None => format!("object({})", self.id(name)?),
            });
        }
        let format = schema["format"].as_str();
        let shape = match (schema["type"].as_str(), format) {
            (Some("string"), None) => "String",
            (Some("string"), Some("byte")) => "Bytes",
            (Some("boolean"), None) => "Boolean",
            (Some("integer"), Some("int32")) => "Int32",
            (Some("integer"), Some("int64")) => "Int64",
            (Some("number"), Some("double")) => "Number",
            (Some("array"), None) => {
                return Ok(format!("List(&{}, {})", self.shape(&schema["items"])?, list_type(schema)?));
            }
            (Some("object"), None) => {
                let values = self.shape(&schema["additionalProperties"])?;
                return Ok(format!("Map(&{values}, {})", map_type(schema)?));
            }
            (shape, format) => return Err(format!("unsupported type {shape:?} with format {format:?}")),
        };
        Ok(shape.to_owned())
    }

    fn id(&self, name: &str) -> Result<usize, String> {
        let position = self.schemas.keys().position(|known| known == name);
        position.ok_or_else(|| format!("refers to the unknown type `{name}`"))
    }
}

/// Returns whether a schema is a list of objects: a kind that ends with `List` and has items.
fn is_list(schema: &Value) -> bool {
    let kinds = schema["x-kubernetes-group-version-kind"].as_array();
    let ends = |kind: &Value| kind["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    kinds.is_some_and(|kinds| kinds.iter().all(ends)) && schema["properties"].get("items").is_some()
}

/// Returns the type that a schema refers to.
fn reference(schema: &Value) -> Option<&str> {
    let named = match schema["allOf"].as_array().map(Vec::as_slice) {
        Some([only]) => &only["$ref"],
        _ => &schema["$ref"],
    };
    named.as_str()?.strip_prefix("#/components/schemas/")
}

fn list_type(schema: &Value) -> Result<String, String> {
    match schema["x-kubernetes-list-type"].as_str() {
        None | Some("atomic") => Ok("WHOLE".to_owned()),
        Some("set") => Ok("ListType::Set".to_owned()),
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().ok_or("is a list map without keys")?;
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            Ok(format!("ListType::Map(&[{}])", keys.join(", ")))
        }
        Some(other) => Err(format!("unsupported list type `{other}`")),
    }
}

fn map_type(schema: &Value) -> Result<&'static str, String> {
    match schema["x-kubernetes-map-type"].as_str() {
        None | Some("granular") => Ok("Granular"),
        Some("atomic") => Ok("Atomic"),
        Some(other) => Err(format!("unsupported map type `{other}`")),
    }
}

/// Renders the patch strategy of a field; empty if it has none.
fn patch(schema: &Value) -> Result<String, String> {
    let strategy = schema["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    let key = text(schema["x-kubernetes-patch-merge-key"].as_str().unwrap_or_default());
    let parts = strategy.split(',').filter(|part| !part.is_empty()).map(|part| match part {
        "merge" => Ok(format!(".merge({key})")),
        "retainKeys" => Ok(".retain_keys()".to_owned()),
        "replace" => Ok(".replace()".to_owned()),
        other => Err(format!("unsupported patch strategy `{other}`")),
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn types() -> Types {
        let schema = json!({
            "type": "object",
            "required": ["ports"],
            "properties": {
                "ports": {
                    "type": "array",
                    "items": {"allOf": [{"$ref": "#/components/schemas/a.Port"}], "default": {}},
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["port"],
                    "x-kubernetes-patch-strategy": "merge",
                    "x-kubernetes-patch-merge-key": "port",
                },
                "limits": {
                    "type": "object",
                    "additionalProperties": {"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"},
                },
            },
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
        });
        let list = json!({
            "properties": {"items": {}},
            "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "ThingList"}],
        });
        let port = json!({"properties": {"port": {"type": "integer", "format": "int32", "default": 80}}});
        let schemas = json!({"a.Thing": schema, "a.ThingList": list, "a.Port": port});
        Types::read(&[json!({"components": {"schemas": schemas}}), json!({})])
    }

    #[test]
    fn fields_are_rendered() {
        let text = types().render("1.36").unwrap();
        let lines = [
            r#"    field("limits", Map(&Quantity, Granular)),"#,
            r#"    field("ports", List(&object(0), ListType::Map(&["port"]))).required().merge("port"),"#,
            r#"of("a.Port", &[field("port", Int32).default("80")]),"#,
        ];
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("ThingList"), "{text}");
    }

    #[test]
    fn kind_has_a_type() {
        assert_eq!(types().of_kind("", "v1", "Thing"), Some(1));
        assert!(types().of_kind("", "v1", "ThingList").is_none());
    }

    #[test]
    fn unsupported_schema_is_an_error() {
        let error = |schema: Value| {
            let schemas = json!({"a.A": {"properties": {"b": schema}}});
            Types::read(&[json!({"components": {"schemas": schemas}})]).render("1.36").unwrap_err()
        };
        assert!(
            error(json!({"type": "string", "enum": ["a"]})).contains("a.A: b: unsupported keyword `enum`")
        );
        assert!(error(json!({"type": "string", "format": "uuid"})).contains("uuid"));
        assert!(
            error(json!({"$ref": "#/components/schemas/a.B"})).contains("refers to the unknown type `a.B`")
        );
    }
}
