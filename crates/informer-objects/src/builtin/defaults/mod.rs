//! The values that a server puts where a client left something out, type by type.
//!
//! An object is walked with its type, from the outside in: rules first, then the table, then the defaults that the documents
//! state. What a type gets it gets wherever it occurs, so a pod and the templates of everything that makes pods are alike. Objects
//! come decoded. What admission, strategies and other objects add is not known here.

mod rules;
mod table;

use std::collections::HashMap;
use std::sync::OnceLock;

use informer_schema::{Field, RESOURCES, Shape, Type, TypeId};
use serde_json::{Map, Value};

use super::decode::{is_pointer, type_name};
use super::value::is_empty;
use crate::text::Quantity;

/// Fills in the defaults of an object.
pub fn default(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let Some(of) = type_of(group, version, kind) {
        walk(of, object);
    }
}

/// The type of a built-in kind.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let wanted = |resource: &&informer_schema::Resource| {
        resource.group == group && resource.version == version && resource.kind == kind
    };
    // Some kinds are only read and written below others, as `Scale` is.
    let below = || Type::named(&format!("io.k8s.api.{}.{version}.{kind}", group.split('.').next()?));
    RESOURCES.iter().find(wanted).and_then(|resource| resource.of).or_else(below)
}

type Rule = fn(&mut Map<String, Value>);

/// What is known of one type.
#[derive(Debug, Default)]
struct Known {
    rule: Option<Rule>,
    /// Fields with the JSON text of their defaults.
    fields: Vec<(&'static str, &'static str)>,
}

fn walk(id: TypeId, value: &mut Value) {
    let (of, Some(fields)) = (id.get(), value.as_object_mut()) else { return };
    if let Some(known) = known().get(of.name) {
        if let Some(rule) = known.rule {
            rule(fields);
        }
        for (name, text) in &known.fields {
            put(of, name, text, fields);
        }
    }
    for field in of.fields {
        if let Some(text) = field.default
            && !matches!(field.shape, Shape::Object(_))
        {
            put(of, field.name, text, fields);
        }
        if let Some(value) = fields.get_mut(field.name) {
            inside(of, field, field.shape, value);
        }
    }
}

fn inside(of: &Type, field: &Field, shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), value) => walk(id, value),
        (Shape::List(items, _), Value::Array(entries)) => {
            for entry in entries {
                inside(of, field, *items, entry);
            }
        }
        (Shape::Map(Shape::Quantity, _), Value::Object(entries))
            if type_name(of, field) == Some("v1.ResourceList") =>
        {
            entries.values_mut().for_each(round);
        }
        (Shape::Map(values, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                inside(of, field, *values, entry);
            }
        }
        _ => {}
    }
}

/// Puts a default into a field that has no value.
fn put(of: &Type, name: &str, text: &str, fields: &mut Map<String, Value>) {
    let Some(field) = of.field(name) else { return };
    let free = match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(value) => !is_pointer(of, field) && is_empty(value),
    };
    if !free {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    // An empty value that is no pointer is nothing.
    if is_pointer(of, field) || !is_empty(&value) {
        fields.insert(name.to_owned(), value);
    }
}

/// Amounts of resources are whole thousandths.
fn round(value: &mut Value) {
    if let Some(Ok(mut amount)) = value.as_str().map(Quantity::parse) {
        amount.round_to_milli();
        *value = amount.canonical().into();
    }
}

fn known() -> &'static HashMap<String, Known> {
    static KNOWN: OnceLock<HashMap<String, Known>> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let mut known: HashMap<String, Known> = HashMap::new();
        for (name, rule) in rules::RULES {
            known.entry(table::full_name(name)).or_default().rule = Some(*rule);
        }
        for (name, field, text) in table::TABLE {
            known.entry(table::full_name(name)).or_default().fields.push((field, text));
        }
        known
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelt row would be a default that is never given.
    #[test]
    fn every_row_is_about_a_field_that_exists() {
        for (name, known) in known() {
            let id = Type::named(name).unwrap_or_else(|| panic!("no type {name}"));
            for (field, text) in &known.fields {
                assert!(id.get().field(field).is_some(), "no {field} in {name}");
                assert!(serde_json::from_str::<Value>(text).is_ok(), "{name}.{field}: {text}");
            }
        }
    }
}
