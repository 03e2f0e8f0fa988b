//! Defaults of built-in types.
//!
//! An object is walked along its type, from the outside in. At each type, its rule comes first, then the
//! table, then the defaults in the `OpenAPI` documents. A type gets its defaults wherever it occurs: a
//! `PodSpec` in pods and in pod templates. Defaults that only pods have are in the rule of `Pod`. The object
//! must already be decoded. Nothing here knows values set by admission, strategies or other objects.

mod rules;
mod table;

use std::collections::HashMap;
use std::sync::OnceLock;

use informer_schema::{RESOURCES, Shape, Type, TypeId};
use serde_json::{Map, Value};

use super::value::is_empty;
use crate::text::Quantity;

/// Sets the defaults of an object.
pub fn default(group: &str, version: &str, kind: &str, object: &mut Value) {
    if let Some(type_id) = type_of(group, version, kind) {
        set_defaults(type_id, object);
    }
}

/// Returns the type of a built-in kind.
pub fn type_of(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    let is_match = |resource: &&informer_schema::Resource| {
        resource.group == group && resource.version == version && resource.kind == kind
    };
    // Some kinds, such as `Scale`, exist only as subresources.
    let subresource_type =
        || Type::named(&format!("io.k8s.api.{}.{version}.{kind}", group.split('.').next()?));
    RESOURCES.iter().find(is_match).and_then(|resource| resource.type_id).or_else(subresource_type)
}

type Rule = fn(&mut Map<String, Value>);

/// The defaults of one type.
#[derive(Debug, Default)]
struct TypeDefaults {
    /// The rule, applied before the fields.
    rule: Option<Rule>,
    /// The fields with the JSON text of their defaults.
    fields: Vec<(&'static str, &'static str)>,
}

fn set_defaults(id: TypeId, value: &mut Value) {
    let (object_type, Some(fields)) = (id.get(), value.as_object_mut()) else { return };
    if let Some(defaults) = all_defaults().get(object_type.name) {
        if let Some(rule) = defaults.rule {
            rule(fields);
        }
        for (name, text) in &defaults.fields {
            set_default(object_type, name, text, fields);
        }
    }
    for field in &object_type.fields {
        // The default `{}` of an object means that Go always writes it: decoding has added it.
        if let Some(text) = field.default
            && !matches!(field.shape, Shape::Object(_))
        {
            set_default(object_type, field.name, text, fields);
        }
        if let Some(value) = fields.get_mut(field.name) {
            set_nested_defaults(object_type, field.shape, value);
        }
    }
}

/// Sets the defaults of the objects in a value, and rounds the quantities of a resource list.
fn set_nested_defaults(object_type: &Type, shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Object(id), value) => set_defaults(id, value),
        (Shape::List(items, _), Value::Array(entries)) => {
            for entry in entries {
                set_nested_defaults(object_type, *items, entry);
            }
        }
        (Shape::Map(Shape::Quantity, _), Value::Object(entries)) if is_rounded(object_type) => {
            entries.values_mut().for_each(round);
        }
        (Shape::Map(values, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                set_nested_defaults(object_type, *values, entry);
            }
        }
        _ => {}
    }
}

/// Returns whether the maps of quantities in a type are resource lists, which Go rounds.
fn is_rounded(object_type: &Type) -> bool {
    // The quantities of devices (`resource.k8s.io`) have other names in Go, and the overhead of a runtime class has no defaults.
    let others = ["io.k8s.api.core.v1.NodeAllocatableResourceClaimStatus", "io.k8s.api.node.v1.Overhead"];
    !object_type.name.starts_with("io.k8s.api.resource.") && !others.contains(&object_type.name)
}

/// Sets a field without a value to its default.
fn set_default(object_type: &Type, name: &str, text: &str, fields: &mut Map<String, Value>) {
    let Some(field) = object_type.field(name) else { return };
    let is_unset = match fields.get(name) {
        None | Some(Value::Null) => true,
        Some(value) => !field.pointer && is_empty(value),
    };
    if !is_unset {
        return;
    }
    let Ok(value) = serde_json::from_str::<Value>(text) else { return };
    // In a field that is not a pointer, an empty default is the same as no value.
    if field.pointer || !is_empty(&value) {
        fields.insert(name.to_owned(), value);
    }
}

/// Rounds a resource quantity to thousandths.
fn round(value: &mut Value) {
    if let Some(Ok(mut quantity)) = value.as_str().map(Quantity::parse) {
        quantity.round_to_milli();
        *value = quantity.canonical().into();
    }
}

fn all_defaults() -> &'static HashMap<String, TypeDefaults> {
    static DEFAULTS: OnceLock<HashMap<String, TypeDefaults>> = OnceLock::new();
    DEFAULTS.get_or_init(|| {
        let mut defaults: HashMap<String, TypeDefaults> = HashMap::new();
        for (name, rule) in rules::RULES {
            defaults.entry(table::full_name(name)).or_default().rule = Some(*rule);
        }
        for (name, field, text) in table::TABLE {
            defaults.entry(table::full_name(name)).or_default().fields.push((field, text));
        }
        defaults
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelled row would be a default that is never set.
    #[test]
    fn fields_of_all_rows_exist() {
        for (name, defaults) in all_defaults() {
            let id = Type::named(name).unwrap_or_else(|| panic!("no type {name}"));
            for (field, text) in &defaults.fields {
                assert!(id.get().field(field).is_some(), "no {field} in {name}");
                assert!(serde_json::from_str::<Value>(text).is_ok(), "{name}.{field}: {text}");
            }
        }
    }
}
