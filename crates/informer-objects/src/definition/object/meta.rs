//! Metadata of custom objects and of resources embedded in them: decoding and type checks.
//!
//! Custom objects are arbitrary JSON except for their metadata, which is decoded like that of any object,
//! with the errors of Go's decoder. Whether names, labels and other metadata are valid is checked elsewhere
//! for all kinds.

use serde_json::{Map, Value, json};

use super::super::field;
use super::super::names::name_cause;
use crate::schema::Structural;
use crate::status::StatusCause;
use crate::text::formats::dns_label_1035;
use crate::text::times;

/// Decodes the metadata of an object: removes unknown and empty fields, and converts times to UTC. Returns
/// the paths of the unknown fields (`metadata.strange`).
///
/// The error is that of the decoder: `json: cannot unmarshal number into Go struct field ObjectMeta.labels of
/// type string`.
pub fn decode(object: &mut Value) -> Result<Vec<String>, String> {
    let mut unknown = Vec::new();
    decode_at(object, "", &mut unknown)?;
    Ok(unknown)
}

/// Decodes the metadata of the resources embedded in an object. Returns the paths of the unknown fields,
/// sorted.
pub fn decode_embedded(schema: &Structural, object: &mut Value) -> Result<Vec<String>, StatusCause> {
    let mut unknown = Vec::new();
    decode_resources(schema, object, "", true, &mut unknown)?;
    unknown.sort();
    Ok(unknown)
}

/// Checks type and metadata of embedded resources in a value at the path `at`.
///
/// `is_root` is true for a whole object, whose own type and metadata are checked elsewhere.
pub(crate) fn check_embedded(
    schema: &Structural,
    object: &Value,
    at: &str,
    is_root: bool,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    check_resources(schema, object, at, is_root, &mut causes);
    causes
}

fn decode_resources(
    schema: &Structural,
    value: &mut Value,
    path: &str,
    is_root: bool,
    unknown: &mut Vec<String>,
) -> Result<(), StatusCause> {
    if schema.embedded && !is_root && value.is_object() {
        for name in ["apiVersion", "kind"] {
            if let Some(value) = value.get(name).filter(|value| !value.is_string()) {
                return Err(field::invalid(&field::child(path, name), value, "must be a string"));
            }
        }
        let before = value.get("metadata").cloned();
        decode_at(value, path, unknown).map_err(|why| {
            field::invalid(&field::child(path, "metadata"), &before.unwrap_or_default(), &why)
        })?;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                if let Some(child_schema) = schema.properties.get(name) {
                    decode_resources(child_schema, value, &field::child(path, name), false, unknown)?;
                } else if let Some(child_schema) = schema.additional.as_deref() {
                    decode_resources(child_schema, value, &field::key(path, name), false, unknown)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(child_schema) = schema.items.as_deref() {
                for (at, item) in items.iter_mut().enumerate() {
                    decode_resources(child_schema, item, &field::index(path, at), false, unknown)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn check_resources(
    schema: &Structural,
    value: &Value,
    path: &str,
    is_root: bool,
    causes: &mut Vec<StatusCause>,
) {
    match value {
        Value::Object(fields) => {
            if schema.embedded && !is_root {
                check_resource(fields, path, causes);
            }
            for (name, value) in fields {
                if let Some(child_schema) = schema.properties.get(name) {
                    check_resources(child_schema, value, &field::child(path, name), false, causes);
                } else if let Some(child_schema) = schema.additional.as_deref() {
                    check_resources(child_schema, value, &field::key(path, name), false, causes);
                }
            }
        }
        Value::Array(items) => {
            if let Some(child_schema) = schema.items.as_deref() {
                for (at, item) in items.iter().enumerate() {
                    check_resources(child_schema, item, &field::index(path, at), false, causes);
                }
            }
        }
        _ => {}
    }
}

fn check_resource(fields: &Map<String, Value>, path: &str, causes: &mut Vec<StatusCause>) {
    for name in ["apiVersion", "kind"] {
        let field_path = field::child(path, name);
        match fields.get(name) {
            None => causes.push(field::required(&field_path, "")),
            Some(Value::String(text)) if text.is_empty() => {
                causes.push(field::invalid(&field_path, &json!(text), "must not be empty"));
            }
            Some(Value::String(text)) if name == "kind" => {
                let mixed = "may have mixed case, but should otherwise match: ";
                causes.extend(name_cause(&field_path, text, mixed, &dns_label_1035(&text.to_lowercase())));
            }
            Some(Value::String(text)) if text.matches('/').count() > 1 => {
                let why = format!("unexpected GroupVersion string: {text}");
                causes.push(field::invalid(&field_path, &json!(text), &why));
            }
            Some(Value::String(_)) => {}
            Some(other) => causes.push(field::invalid(&field_path, other, "must be a string")),
        }
    }
    if let Some(metadata) = fields.get("metadata")
        && let Err(why) = check_fields(metadata, OBJECT_META, "ObjectMeta", "")
    {
        causes.push(field::invalid(&field::child(path, "metadata"), metadata, &why));
    }
}

/// The Go type of a metadata field.
#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Flag,
    Integer,
    Time,
    Texts,
    TextMap,
    Any,
    /// The Go type of the entries, and their fields.
    List(&'static str, &'static [(&'static str, Type)]),
}

const OBJECT_META: &[(&str, Type)] = &[
    ("name", Type::Text),
    ("generateName", Type::Text),
    ("namespace", Type::Text),
    ("selfLink", Type::Text),
    ("uid", Type::Text),
    ("resourceVersion", Type::Text),
    ("generation", Type::Integer),
    ("creationTimestamp", Type::Time),
    ("deletionTimestamp", Type::Time),
    ("deletionGracePeriodSeconds", Type::Integer),
    ("labels", Type::TextMap),
    ("annotations", Type::TextMap),
    ("ownerReferences", Type::List("OwnerReference", OWNER_REFERENCE)),
    ("finalizers", Type::Texts),
    ("managedFields", Type::List("ManagedFieldsEntry", MANAGED_FIELDS)),
];

const OWNER_REFERENCE: &[(&str, Type)] = &[
    ("apiVersion", Type::Text),
    ("kind", Type::Text),
    ("name", Type::Text),
    ("uid", Type::Text),
    ("controller", Type::Flag),
    ("blockOwnerDeletion", Type::Flag),
];

const MANAGED_FIELDS: &[(&str, Type)] = &[
    ("manager", Type::Text),
    ("operation", Type::Text),
    ("apiVersion", Type::Text),
    ("time", Type::Time),
    ("fieldsType", Type::Text),
    ("fieldsV1", Type::Any),
    ("subresource", Type::Text),
];

fn decode_at(object: &mut Value, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
    let Some(metadata) = object.as_object_mut().and_then(|fields| fields.get_mut("metadata")) else {
        return Ok(());
    };
    check_fields(metadata, OBJECT_META, "ObjectMeta", "")?;
    if metadata.is_null() {
        *metadata = json!({});
    }
    drop_unknown(metadata, OBJECT_META, &field::child(path, "metadata"), unknown);
    let Some(fields) = metadata.as_object_mut() else { return Ok(()) };
    for (name, value) in fields.iter_mut() {
        canonical(name, value);
    }
    // Of the numbers, Go omits only a zero `generation`; the others are pointers.
    fields.retain(|name, value| !(is_empty(value) || name == "generation" && *value == json!(0)));
    Ok(())
}

/// Converts times to UTC and whole seconds, and null values of labels and annotations to empty strings.
fn canonical(name: &str, value: &mut Value) {
    match (name, &mut *value) {
        ("labels" | "annotations", Value::Object(entries)) => {
            entries.values_mut().filter(|entry| entry.is_null()).for_each(|entry| *entry = json!(""));
        }
        ("creationTimestamp" | "deletionTimestamp", Value::String(text)) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                *text = times::written(time);
            }
        }
        _ => {}
    }
}

/// Whether a metadata field with this value is omitted.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn drop_unknown(
    value: &mut Value,
    table: &'static [(&'static str, Type)],
    path: &str,
    unknown: &mut Vec<String>,
) {
    let Some(fields) = value.as_object_mut() else { return };
    fields.retain(|name, value| {
        let field_path = field::child(path, name);
        match table.iter().find(|(field, _)| field == name) {
            None => {
                unknown.push(field_path);
                return false;
            }
            Some((_, Type::List(_, table))) => {
                for (at, item) in value.as_array_mut().into_iter().flatten().enumerate() {
                    drop_unknown(item, table, &field::index(&field_path, at), unknown);
                }
            }
            Some(_) => {}
        }
        true
    });
}

fn check_fields(
    value: &Value,
    table: &'static [(&'static str, Type)],
    go_type: &str,
    path: &str,
) -> Result<(), String> {
    let fields = match value {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        other if path.is_empty() => {
            return Err(format!(
                "json: cannot unmarshal {} into Go value of type v1.{go_type}",
                json_type(other)
            ));
        }
        other => return Err(mismatch(other, "ObjectMeta", path, &format!("v1.{go_type}"))),
    };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let Some((_, kind)) = table.iter().find(|(field, _)| field == name) else { continue };
        check_field(value, *kind, go_type, &field::child(path, name))?;
    }
    Ok(())
}

fn check_field(value: &Value, kind: Type, go_type: &str, path: &str) -> Result<(), String> {
    let all = |values: Vec<&Value>| {
        let mismatching = values.into_iter().find(|value| !value.is_string() && !value.is_null());
        mismatching.map_or(Ok(()), |value| Err(mismatch(value, go_type, path, "string")))
    };
    match (kind, value) {
        (Type::Any, _) | (Type::Text | Type::Time, Value::String(_)) | (Type::Flag, Value::Bool(_)) => {
            check_time(kind, value)
        }
        (Type::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Integer, Value::Number(number)) => Err(format!(
            "json: cannot unmarshal number {number} into Go struct field {go_type}.{path} of type int64"
        )),
        (Type::Texts, Value::Array(items)) => all(items.iter().collect()),
        (Type::TextMap, Value::Object(fields)) => all(fields.values().collect()),
        (Type::List(name, table), Value::Array(items)) => {
            items.iter().try_for_each(|item| check_fields(item, table, name, path))
        }
        (Type::Text | Type::Time, other) => Err(mismatch(other, go_type, path, text_type(path))),
        (Type::Flag, other) => Err(mismatch(other, go_type, path, "bool")),
        (Type::Integer, other) => Err(mismatch(other, go_type, path, "int64")),
        (Type::Texts, other) => Err(mismatch(other, go_type, path, "[]string")),
        (Type::TextMap, other) => Err(mismatch(other, go_type, path, "map[string]string")),
        (Type::List(name, _), other) => Err(mismatch(other, go_type, path, &format!("[]v1.{name}"))),
    }
}

/// Checks the text of a time; fields of other types are valid.
fn check_time(kind: Type, value: &Value) -> Result<(), String> {
    let text = value.as_str().unwrap_or_default();
    if !matches!(kind, Type::Time) || text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let shown = field::quote(text);
    let layout = field::quote("2006-01-02T15:04:05Z07:00");
    Err(format!("parsing time {shown} as {layout}: cannot parse {shown} as \"2006\""))
}

/// Returns the Go type of a string field.
fn text_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("uid") => "types.UID",
        Some("operation") => "v1.ManagedFieldsOperationType",
        _ => "string",
    }
}

fn mismatch(value: &Value, go_type: &str, path: &str, wanted: &str) -> String {
    format!(
        "json: cannot unmarshal {} into Go struct field {go_type}.{path} of type {wanted}",
        json_type(value)
    )
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
