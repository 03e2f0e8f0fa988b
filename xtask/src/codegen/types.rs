//! The fields of the types of Kubernetes, from its `OpenAPI` documents.
//!
//! Types that are a single value in JSON (quantities, times) become shapes. Lists of objects are omitted. An unsupported
//! schema keyword is an error, so that the table is never less precise than the documents.

use std::collections::BTreeMap;

use serde_json::Value;

use super::layout::text;

/// Types that are a single value, and their shapes.
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

/// The properties of a field in the documents.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Property {
    /// The allowed values: a variant of `Shape`, the name of a type, or either of them in `List(…)` or `Map(…)`.
    pub(super) shape: String,
    pub(super) required: bool,
    /// The default as JSON text.
    pub(super) default: Option<String>,
    /// The calls that set the other properties of the `Rules` of a field, such as `.set()`.
    pub(super) rules: String,
}

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

    /// Returns the name of the type of a kind.
    pub(super) fn of_kind(&self, group: &str, version: &str, kind: &str) -> Option<&str> {
        let name = self.kinds.get(&[group.to_owned(), version.to_owned(), kind.to_owned()])?;
        Some(name)
    }

    /// Returns the description of a field.
    pub(super) fn description(&self, name: &str, field: &str) -> Option<&str> {
        self.schemas.get(name)?["properties"][field]["description"].as_str()
    }

    /// Returns the names of the fields of a type; `None` if the documents do not have the type.
    pub(super) fn fields(&self, name: &str) -> Option<impl Iterator<Item = &str>> {
        let properties = self.schemas.get(name)?["properties"].as_object();
        Some(properties.into_iter().flatten().map(|(field, _)| field.as_str()))
    }

    /// Returns whether objects of the type are owned as a whole.
    pub(super) fn is_atomic(&self, name: &str) -> bool {
        self.schemas.get(name).is_some_and(|schema| schema["x-kubernetes-map-type"] == "atomic")
    }

    /// Returns the properties of a field; `None` if the documents do not have the field.
    pub(super) fn property(&self, name: &str, field: &str) -> Result<Option<Property>, String> {
        let Some(of) = self.schemas.get(name) else { return Ok(None) };
        let Some(schema) = of["properties"].get(field) else { return Ok(None) };
        let required = of["required"].as_array().is_some_and(|names| names.iter().any(|name| name == field));
        let default = schema.get("default").map(Value::to_string);
        let rules = format!("{}{}{}", list_type(schema)?, map_type(schema)?, patch(schema)?);
        Ok(Some(Property { shape: self.shape(schema)?, required, default, rules }))
    }

    fn shape(&self, schema: &Value) -> Result<String, String> {
        let keywords = schema.as_object().ok_or("is not a schema")?;
        if let Some(unknown) = keywords.keys().find(|key| !KEYWORDS.contains(&key.as_str())) {
            return Err(format!("unsupported keyword `{unknown}`"));
        }
        if let Some(name) = reference(schema) {
            let shape = SHAPES.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape);
            let known = shape.or_else(|| self.schemas.contains_key(name).then_some(name));
            return known.map(str::to_owned).ok_or_else(|| format!("refers to the unknown type `{name}`"));
        }
        let shape = match (schema["type"].as_str(), schema["format"].as_str()) {
            (Some("string"), None) => "String",
            (Some("string"), Some("byte")) => "Bytes",
            (Some("boolean"), None) => "Boolean",
            (Some("integer"), Some("int32")) => "Int32",
            (Some("integer"), Some("int64")) => "Int64",
            (Some("number"), Some("double")) => "Double",
            (Some("array"), None) => return Ok(format!("List({})", self.shape(&schema["items"])?)),
            (Some("object"), None) => {
                return Ok(format!("Map({})", self.shape(&schema["additionalProperties"])?));
            }
            (shape, format) => return Err(format!("unsupported type {shape:?} with format {format:?}")),
        };
        Ok(shape.to_owned())
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

/// Renders the identity of the entries of a list; empty if the list is owned as a whole.
fn list_type(schema: &Value) -> Result<String, String> {
    match schema["x-kubernetes-list-type"].as_str() {
        None | Some("atomic") => Ok(String::new()),
        Some("set") => Ok(".set()".to_owned()),
        Some("map") => {
            let keys = schema["x-kubernetes-list-map-keys"].as_array().ok_or("is a list map without keys")?;
            let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
            Ok(format!(".keys(&[{}])", keys.join(", ")))
        }
        Some(other) => Err(format!("unsupported list type `{other}`")),
    }
}

/// Renders the granularity of ownership; empty if it is not that of the type, or of maps in general.
fn map_type(schema: &Value) -> Result<&'static str, String> {
    match schema["x-kubernetes-map-type"].as_str() {
        Some("granular") if reference(schema).is_some() => Ok(".granular()"),
        None | Some("granular") => Ok(""),
        Some("atomic") => Ok(".atomic()"),
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

    fn property(types: &Types, name: &str, field: &str) -> Property {
        types.property(name, field).unwrap().unwrap()
    }

    #[test]
    fn properties_are_read() {
        let types = types();
        let expected = |shape: &str, required, default: Option<&str>, rules: &str| Property {
            shape: shape.to_owned(),
            required,
            default: default.map(str::to_owned),
            rules: rules.to_owned(),
        };
        let ports = expected("List(a.Port)", true, None, r#".keys(&["port"]).merge("port")"#);
        assert_eq!(property(&types, "a.Thing", "ports"), ports);
        assert_eq!(property(&types, "a.Thing", "limits"), expected("Map(Quantity)", false, None, ""));
        assert_eq!(property(&types, "a.Port", "port"), expected("Int32", false, Some("80"), ""));
        assert_eq!(types.property("a.Port", "name"), Ok(None));
        assert!(types.fields("a.ThingList").is_none());
    }

    #[test]
    fn kind_has_a_type() {
        assert_eq!(types().of_kind("", "v1", "Thing"), Some("a.Thing"));
        assert!(types().of_kind("", "v1", "ThingList").is_none());
    }

    #[test]
    fn unsupported_schema_is_an_error() {
        let error = |schema: Value| {
            let schemas = json!({"a.A": {"properties": {"b": schema}}});
            Types::read(&[json!({"components": {"schemas": schemas}})]).property("a.A", "b").unwrap_err()
        };
        assert!(error(json!({"type": "string", "enum": ["a"]})).contains("unsupported keyword `enum`"));
        assert!(error(json!({"type": "string", "format": "uuid"})).contains("uuid"));
        assert!(
            error(json!({"$ref": "#/components/schemas/a.B"})).contains("refers to the unknown type `a.B`")
        );
    }
}
