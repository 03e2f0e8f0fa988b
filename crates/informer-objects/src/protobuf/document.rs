//! The `OpenAPI` 2 document as protobuf: `kubectl` reads it if `OpenAPI` 3 is not available.
//!
//! The messages are those of the `OpenAPI` 2 format of the gnostic project. Definitions are written
//! completely, including extensions; paths are omitted because no known client reads them in this form.
//! Fields and entries are written from the last to the first, as [`Writer`] requires.

use serde_json::{Map, Value};

use super::write::Writer;
use crate::text::to_yaml;

/// Encodes a document given as JSON.
pub fn document(document: &Value) -> Vec<u8> {
    let mut out = Writer::default();
    let definitions = document.get("definitions").and_then(Value::as_object);
    out.nested(9, |out| named_schemas(out, definitions));
    // Empty, but required in a document.
    out.nested(8, |_| {});
    out.nested(2, |out| {
        out.text(2, text(&document["info"], "version"));
        out.text(1, text(&document["info"], "title"));
    });
    out.text(1, text(document, "swagger"));
    out.finish()
}

fn named_schemas(out: &mut Writer, schemas: Option<&Map<String, Value>>) {
    for (name, value) in schemas.into_iter().flatten().rev() {
        out.nested(1, |out| {
            out.nested(2, |out| schema(out, value));
            out.text(1, name);
        });
    }
}

/// Writes a schema; its depth was limited when the body was decoded.
fn schema(out: &mut Writer, schema: &Value) {
    let Some(fields) = schema.as_object() else { return };
    for (name, value) in fields.iter().rev().filter(|(name, _)| name.starts_with("x-")) {
        out.nested(31, |out| {
            out.nested(2, |out| any(out, value));
            out.text(1, name);
        });
    }
    children(out, fields);
    for value in list(fields, "required").iter().rev().filter_map(Value::as_str) {
        out.text(19, value);
    }
    limits(out, fields);
    if let Some(default) = fields.get("default") {
        out.nested(5, |out| any(out, default));
    }
    for (number, name) in [(4, "description"), (3, "title"), (2, "format"), (1, "$ref")] {
        if let Some(value) = fields.get(name).and_then(Value::as_str) {
            out.text(number, value);
        }
    }
}

/// Writes nested schemas and allowed values.
fn children(out: &mut Writer, fields: &Map<String, Value>) {
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        out.nested(25, |out| named_schemas(out, Some(properties)));
    }
    for inner in list(fields, "allOf").iter().rev() {
        out.nested(24, |out| schema(out, inner));
    }
    if let Some(items) = fields.get("items") {
        out.nested(23, |out| out.nested(1, |out| schema(out, items)));
    }
    if let Some(type_name) = fields.get("type").and_then(Value::as_str) {
        out.nested(22, |out| out.text(1, type_name));
    }
    match fields.get("additionalProperties") {
        Some(Value::Bool(allowed)) => out.nested(21, |out| out.boolean(2, *allowed)),
        Some(values) => out.nested(21, |out| out.nested(1, |out| schema(out, values))),
        None => {}
    }
    for value in list(fields, "enum").iter().rev() {
        out.nested(20, |out| any(out, value));
    }
}

/// Writes limits of numbers and sizes.
fn limits(out: &mut Writer, fields: &Map<String, Value>) {
    let whole = |out: &mut Writer, number: u16, name: &str| {
        if let Some(value) = fields.get(name).and_then(Value::as_i64) {
            out.integer(number, value);
        }
    };
    let fraction = |out: &mut Writer, number: u16, name: &str| {
        if let Some(value) = fields.get(name).and_then(Value::as_f64) {
            out.double(number, value);
        }
    };
    let flag = |out: &mut Writer, number: u16, name: &str| {
        if fields.get(name).and_then(Value::as_bool) == Some(true) {
            out.boolean(number, true);
        }
    };
    whole(out, 18, "minProperties");
    whole(out, 17, "maxProperties");
    flag(out, 16, "uniqueItems");
    whole(out, 15, "minItems");
    whole(out, 14, "maxItems");
    if let Some(pattern) = fields.get("pattern").and_then(Value::as_str) {
        out.text(13, pattern);
    }
    whole(out, 12, "minLength");
    whole(out, 11, "maxLength");
    flag(out, 10, "exclusiveMinimum");
    fraction(out, 9, "minimum");
    flag(out, 8, "exclusiveMaximum");
    fraction(out, 7, "maximum");
    fraction(out, 6, "multipleOf");
}

/// Writes a value as YAML.
fn any(out: &mut Writer, value: &Value) {
    out.text(2, &to_yaml(value));
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a [Value] {
    fields.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::document;

    #[test]
    fn fields_are_sorted_by_number() {
        let bytes = document(&json!({
            "swagger": "2.0",
            "info": {"title": "T", "version": "v"},
            "paths": {"/a": {}},
            "definitions": {
                "A": {"type": "object", "required": ["x"], "x-y": 1, "properties": {"x": {"$ref": "#/definitions/B"}}},
                "B": {"type": "integer", "minLength": 3},
            },
        }));
        assert!(bytes.starts_with(b"\n\x032.0\x12\x06\n\x01T\x12\x01v\x42\x00\x4a"), "{bytes:?}");
        let b = b"\n\x01B\x12\x0e\x60\x03\xb2\x01\x09\n\x07integer";
        assert!(bytes.ends_with(b), "{bytes:?}");
        let x = b"\xca\x01\x18\n\x16\n\x01x\x12\x11\n\x0f#/definitions/B";
        assert!(bytes.windows(x.len()).any(|part| part == x), "{bytes:?}");
    }
}
