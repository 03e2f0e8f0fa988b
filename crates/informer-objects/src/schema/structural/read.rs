//! Reading of a schema from its JSON.
//!
//! Keywords of the wrong JSON type are ignored: decoding a definition rejects them before it is read here.
//! Formats that are not checked for a type are dropped, so that the code that checks values need not know
//! them.

use regex::Regex;
use serde_json::{Map, Value};

use super::{Checks, MAX_DEPTH, Pattern, Rule, Structural, StructuralType};

impl Structural {
    /// Reads the schema of a version from its `openAPIV3Schema`.
    pub fn read(schema: &Value) -> Structural {
        let mut root = Structural::read_part(schema);
        root.resource = true;
        root
    }

    /// Reads a part of a schema that is not its root.
    pub fn read_part(schema: &Value) -> Structural {
        level(schema, MAX_DEPTH)
    }
}

/// Reads at most `depth` levels. A deeper level, and one that is not an object, allows any value.
fn level(schema: &Value, depth: usize) -> Structural {
    let (Some(keywords), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
        return Structural { preserve: true, ..Structural::default() };
    };
    let flag = |name: &str| keywords.get(name).and_then(Value::as_bool).unwrap_or_default();
    let subschema = |name: &str| keywords.get(name).filter(|schema| schema.is_object());
    let kind = if flag("x-kubernetes-int-or-string") {
        StructuralType::IntOrString
    } else {
        kind(text(keywords, "type"))
    };
    let properties = keywords.get("properties").and_then(Value::as_object);
    Structural {
        kind,
        properties: properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), level(schema, depth)))
            .collect(),
        additional: subschema("additionalProperties").map(|schema| Box::new(level(schema, depth))),
        open: keywords.get("additionalProperties").and_then(Value::as_bool),
        items: subschema("items").map(|schema| Box::new(level(schema, depth))),
        nullable: flag("nullable"),
        default: keywords.get("default").filter(|default| !default.is_null()).cloned(),
        preserve: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        resource: flag("x-kubernetes-embedded-resource"),
        list_type: keywords.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned),
        list_keys: strings(keywords, "x-kubernetes-list-map-keys"),
        atomic_map: text(keywords, "x-kubernetes-map-type") == "atomic",
        checks: checks(keywords, kind, depth),
        rules: list(keywords, "x-kubernetes-validations").map(rule).collect(),
    }
}

fn checks(keywords: &Map<String, Value>, kind: StructuralType, depth: usize) -> Checks {
    let flag = |name: &str| keywords.get(name).and_then(Value::as_bool).unwrap_or_default();
    let number = |name: &str| keywords.get(name).and_then(Value::as_f64);
    let count = |name: &str| keywords.get(name).and_then(Value::as_i64);
    let levels = |name: &str| list(keywords, name).map(|schema| level(schema, depth)).collect();
    let format = text(keywords, "format");
    let pattern = text(keywords, "pattern");
    Checks {
        format: is_checked_format(kind, format).then(|| format.to_owned()),
        maximum: number("maximum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        minimum: number("minimum"),
        exclusive_minimum: flag("exclusiveMinimum"),
        multiple_of: number("multipleOf"),
        max_length: count("maxLength"),
        min_length: count("minLength"),
        pattern: (!pattern.is_empty())
            .then(|| Pattern { text: pattern.to_owned(), regex: Regex::new(pattern) }),
        max_items: count("maxItems"),
        min_items: count("minItems"),
        unique_items: flag("uniqueItems"),
        max_properties: count("maxProperties"),
        min_properties: count("minProperties"),
        required: strings(keywords, "required"),
        one_of: levels("oneOf"),
        any_of: levels("anyOf"),
        all_of: levels("allOf"),
        not: keywords
            .get("not")
            .filter(|schema| schema.is_object())
            .map(|schema| Box::new(level(schema, depth))),
        values: list(keywords, "enum").cloned().collect(),
    }
}

fn rule(source: &Value) -> Rule {
    let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Rule {
        text: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: source.get("reason").and_then(Value::as_str).map(str::to_owned),
        field_path: text("fieldPath"),
        optional_old_self: source.get("optionalOldSelf").and_then(Value::as_bool),
    }
}

fn kind(name: &str) -> StructuralType {
    match name {
        "object" => StructuralType::Object,
        "array" => StructuralType::Array,
        "string" => StructuralType::String,
        "integer" => StructuralType::Integer,
        "number" => StructuralType::Number,
        "boolean" => StructuralType::Boolean,
        _ => StructuralType::Any,
    }
}

/// Whether a format is checked for values of a type; other formats are annotations only.
pub(crate) fn is_checked_format(kind: StructuralType, format: &str) -> bool {
    match kind {
        StructuralType::String | StructuralType::IntOrString | StructuralType::Any => {
            FORMATS.contains(&format.replace('-', "").as_str())
        }
        StructuralType::Integer => matches!(format, "int32" | "int64"),
        StructuralType::Number => matches!(format, "float" | "double"),
        StructuralType::Object | StructuralType::Array | StructuralType::Boolean => false,
    }
}

/// The formats of strings that are checked, without their dashes: `datetime` for `date-time`.
const FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8sshortname",
    "k8slongname",
];

fn text<'a>(keywords: &'a Map<String, Value>, name: &str) -> &'a str {
    keywords.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(keywords: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    keywords.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn strings(keywords: &Map<String, Value>, name: &str) -> Vec<String> {
    list(keywords, name).filter_map(Value::as_str).map(str::to_owned).collect()
}
