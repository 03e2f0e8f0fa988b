//! Whether an object can be taken apart by its schema: known fields, values of the right kind, entries with keys.
//!
//! This is no validation of what an object means. The texts are those of the real server.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use super::element::{Element, path_text, quoted};
use super::schema_position::{Scalar, SchemaPosition, SchemaShape, entry_of};

/// Everything that is wrong with an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problems(Vec<String>);

/// Checks an object. A list whose entries are told apart may have one twice only if `duplicates` says so.
pub(super) fn validate(place: SchemaPosition<'_>, value: &Value, duplicates: bool) -> Result<(), Problems> {
    let mut walk = Walk { duplicates, path: Vec::new(), problems: Vec::new() };
    walk.value(place, value);
    if walk.problems.is_empty() { Ok(()) } else { Err(Problems(walk.problems)) }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [one] => f.write_str(one),
            many => {
                f.write_str("errors:")?;
                many.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
            }
        }
    }
}

struct Walk {
    duplicates: bool,
    path: Vec<Element>,
    problems: Vec<String>,
}

impl Walk {
    fn value(&mut self, place: SchemaPosition<'_>, value: &Value) {
        if value.is_null() {
            return;
        }
        match (place.shape(Some(value)), value) {
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
                        Err(why) => return self.problem(format!("element {index}: {why}")),
                    };
                    if !seen.insert(element.clone()) && !self.duplicates {
                        self.problem(format!("duplicate entries for key {element}"));
                    }
                    self.below(element, items, entry);
                }
            }
            (SchemaShape::Map | SchemaShape::AtomicMap, Value::Object(fields)) => {
                for (name, value) in fields {
                    let Some(field) = place.field(name) else {
                        self.path.push(Element::field(name));
                        self.problem("field not declared in schema".to_owned());
                        self.path.pop();
                        return;
                    };
                    self.below(Element::field(name), field, value);
                }
            }
            (SchemaShape::AtomicList(_) | SchemaShape::List(..), _) => {
                self.problem(format!("expected list, got &{{{}}}", shown(value)));
            }
            (SchemaShape::Map | SchemaShape::AtomicMap, _) => {
                self.problem(format!("expected map, got &{{{}}}", shown(value)));
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
                self.problem(format!("expected numeric (int or float), got {}", kind(value)));
            }
            (Scalar::String, _) => {
                let text =
                    format!("expected string, got &value.valueUnstructured{{Value:{}}}", syntax(value));
                self.problem(text);
            }
            (Scalar::Boolean, _) => self.problem(format!("expected boolean, got &{{{}}}", shown(value))),
            (Scalar::Untyped, _) => self.problem(format!("expected any scalar, got &{{{}}}", shown(value))),
        }
    }

    fn below(&mut self, element: Element, place: SchemaPosition<'_>, value: &Value) {
        self.path.push(element);
        self.value(place, value);
        self.path.pop();
    }

    fn problem(&mut self, text: String) {
        let path = path_text(&self.path);
        self.problems.push(if path.is_empty() { text } else { format!("{path}: {text}") });
    }
}

/// Go's name for the type of a value.
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

/// A value as Go's `%v` shows it.
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

/// A value as Go's `%#v` shows it.
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
