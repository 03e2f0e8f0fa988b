//! Reading a schema as it was written.
//!
//! Words of the wrong type are passed over: a definition is decoded before it comes here. Formats that are not looked at
//! for a type are dropped, so that whoever checks values need not know which those are.

use regex::Regex;
use serde_json::{Map, Value};

use super::{Checks, MAX_DEPTH, Pattern, Rule, Structural, StructuralType};

impl Structural {
    /// The schema of a version, from its `openAPIV3Schema`.
    pub fn read(schema: &Value) -> Structural {
        let mut root = Structural::part(schema);
        root.resource = true;
        root
    }

    /// A part of a schema that is no root.
    pub fn part(schema: &Value) -> Structural {
        level(schema, MAX_DEPTH)
    }
}

fn level(schema: &Value, depth: usize) -> Structural {
    let (Some(words), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
        return Structural { preserve: true, ..Structural::default() };
    };
    let flag = |name: &str| words.get(name).and_then(Value::as_bool).unwrap_or_default();
    let below = |name: &str| words.get(name).filter(|part| part.is_object());
    let kind = if flag("x-kubernetes-int-or-string") {
        StructuralType::IntOrString
    } else {
        kind(text(words, "type"))
    };
    let properties = words.get("properties").and_then(Value::as_object);
    Structural {
        kind,
        properties: properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| (name.clone(), level(schema, depth)))
            .collect(),
        additional: below("additionalProperties").map(|schema| Box::new(level(schema, depth))),
        open: words.get("additionalProperties").and_then(Value::as_bool),
        items: below("items").map(|schema| Box::new(level(schema, depth))),
        nullable: flag("nullable"),
        default: words.get("default").filter(|default| !default.is_null()).cloned(),
        preserve: flag("x-kubernetes-preserve-unknown-fields"),
        embedded: flag("x-kubernetes-embedded-resource"),
        resource: flag("x-kubernetes-embedded-resource"),
        list_type: words.get("x-kubernetes-list-type").and_then(Value::as_str).map(str::to_owned),
        list_keys: strings(words, "x-kubernetes-list-map-keys"),
        atomic_map: text(words, "x-kubernetes-map-type") == "atomic",
        checks: checks(words, kind, depth),
        rules: list(words, "x-kubernetes-validations").map(rule).collect(),
    }
}

fn checks(words: &Map<String, Value>, kind: StructuralType, depth: usize) -> Checks {
    let flag = |name: &str| words.get(name).and_then(Value::as_bool).unwrap_or_default();
    let number = |name: &str| words.get(name).and_then(Value::as_f64);
    let count = |name: &str| words.get(name).and_then(Value::as_i64);
    let levels = |name: &str| list(words, name).map(|schema| level(schema, depth)).collect();
    let format = text(words, "format");
    let pattern = text(words, "pattern");
    Checks {
        format: is_looked_at(kind, format).then(|| format.to_owned()),
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
        required: strings(words, "required"),
        one_of: levels("oneOf"),
        any_of: levels("anyOf"),
        all_of: levels("allOf"),
        not: words
            .get("not")
            .filter(|schema| schema.is_object())
            .map(|schema| Box::new(level(schema, depth))),
        values: list(words, "enum").cloned().collect(),
    }
}

fn rule(written: &Value) -> Rule {
    let text = |name: &str| written.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    Rule {
        text: text("rule"),
        message: text("message"),
        message_expression: text("messageExpression"),
        reason: written.get("reason").and_then(Value::as_str).map(str::to_owned),
        field_path: text("fieldPath"),
        optional_old_self: written.get("optionalOldSelf").and_then(Value::as_bool),
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

/// Whether values of a type are held to a format. Others are only written into the schema.
pub(crate) fn is_looked_at(kind: StructuralType, format: &str) -> bool {
    match kind {
        StructuralType::String | StructuralType::IntOrString | StructuralType::Any => {
            FORMATS.contains(&format.replace('-', "").as_str())
        }
        StructuralType::Integer => matches!(format, "int32" | "int64"),
        StructuralType::Number => matches!(format, "float" | "double"),
        StructuralType::Object | StructuralType::Array | StructuralType::Boolean => false,
    }
}

/// Formats of strings, with the dashes taken out, as they are compared.
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

fn text<'a>(words: &'a Map<String, Value>, name: &str) -> &'a str {
    words.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(words: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a Value> {
    words.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn strings(words: &Map<String, Value>, name: &str) -> Vec<String> {
    list(words, name).filter_map(Value::as_str).map(str::to_owned).collect()
}
