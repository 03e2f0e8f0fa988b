//! Checks whether an object can be divided into fields by its schema: known fields, values of the right type,
//! entries with keys.
//!
//! This does not validate the meaning of an object. The error texts are those of kube-apiserver.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::element::{Element, path_text, quoted};
use super::schema_position::{Scalar, SchemaPosition, SchemaShape, entry_of};

/// All errors of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ValidationErrors(Vec<String>);

/// Whether lists whose entries have keys may contain several entries with the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DuplicateEntries {
    Allow,
    Reject,
}

/// Checks an object.
pub(super) fn validate(
    position: SchemaPosition<'_>,
    value: &Value,
    duplicates: DuplicateEntries,
) -> Result<(), ValidationErrors> {
    let mut walk = Walk { duplicates, path: Vec::new(), errors: Vec::new() };
    walk.value(position, value);
    if walk.errors.is_empty() { Ok(()) } else { Err(ValidationErrors(walk.errors)) }
}

impl fmt::Display for ValidationErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [error] => f.write_str(error),
            errors => {
                f.write_str("errors:")?;
                errors.iter().try_for_each(|error| write!(f, "\n  {error}"))
            }
        }
    }
}

struct Walk {
    duplicates: DuplicateEntries,
    path: Vec<Element>,
    errors: Vec<String>,
}

impl Walk {
    fn value(&mut self, position: SchemaPosition<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (position.shape(Some(value)), value) {
            (SchemaShape::Scalar(scalar), _) => self.scalar(scalar, value),
            (SchemaShape::AtomicList(items), Value::Array(entries)) => {
                for (index, entry) in (0..).zip(entries) {
                    self.below(Element::Index(index), items, entry);
                }
            }
            (SchemaShape::List(keys, items), Value::Array(entries)) => {
                let mut seen = BTreeSet::new();
                for (index, entry) in entries.iter().enumerate() {
                    let element = match entry_of(keys, items, entry) {
                        Ok(element) => element,
                        Err(why) => return self.error(format!("element {index}: {why}")),
                    };
                    if !seen.insert(element.clone()) && self.duplicates == DuplicateEntries::Reject {
                        self.error(format!("duplicate entries for key {element}"));
                    }
                    self.below(element, items, entry);
                }
            }
            (SchemaShape::Map | SchemaShape::AtomicMap, Value::Object(fields)) => {
                for (name, value) in fields {
                    let Some(field) = position.field(name) else {
                        self.path.push(Element::field(name));
                        self.error("field not declared in schema".to_owned());
                        self.path.pop();
                        return;
                    };
                    self.below(Element::field(name), field, value);
                }
            }
            (SchemaShape::AtomicList(_) | SchemaShape::List(..), _) => {
                self.error(format!("expected list, got &{{{}}}", shown(value)));
            }
            (SchemaShape::Map | SchemaShape::AtomicMap, _) => {
                self.error(format!("expected map, got &{{{}}}", shown(value)));
            }
        }
    }

    fn scalar(&mut self, scalar: Scalar, value: &Value) {
        match (scalar, value) {
            (Scalar::Numeric, Value::Number(_))
            | (Scalar::String, Value::String(_))
            | (Scalar::Boolean, Value::Bool(_))
            | (Scalar::Untyped, Value::Number(_) | Value::String(_) | Value::Bool(_)) => {}
            (Scalar::Numeric, _) => {
                self.error(format!("expected numeric (int or float), got {}", kind(value)));
            }
            (Scalar::String, _) => {
                let text =
                    format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(value));
                self.error(text);
            }
            (Scalar::Boolean, _) => self.error(format!("expected boolean, got &{{{}}}", shown(value))),
            (Scalar::Untyped, _) => self.error(format!("expected any scalar, got &{{{}}}", shown(value))),
        }
    }

    fn below(&mut self, element: Element, position: SchemaPosition<'_>, value: &Value) {
        self.path.push(element);
        self.value(position, value);
        self.path.pop();
    }

    fn error(&mut self, text: String) {
        let path = path_text(&self.path);
        self.errors.push(if path.is_empty() { text } else { format!("{path}: {text}") });
    }
}

/// Returns Go's name for the type of a value.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns a value as Go's `%v` prints it.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(entries) => format!("[{}]", entries.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{name}:{}", shown(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        plain => plain.to_string(),
    }
}

/// Returns a value as Go's `%#v` prints it.
fn syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quoted(text),
        Value::Array(entries) => {
            format!("[]interface {{}}{{{}}}", entries.iter().map(syntax).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(name, value)| format!("{}:{}", quoted(name), syntax(value))).collect();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        plain => plain.to_string(),
    }
}
