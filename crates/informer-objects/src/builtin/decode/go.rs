//! Properties of Go types that the `OpenAPI` documents do not contain: whether a field is a pointer, when it
//! is written, and the name of its type in errors.
//!
//! The data is in `fields.txt`, printed by `fields.go` from the types of Kubernetes 1.36. Each line contains
//! the name of a type and one word per field: `name!` is written even if empty; `name!*` is written even if
//! absent, as `null`; `name*` may be empty without being absent; `name0` is omitted if nothing in it is set.
//! A suffix such as `:v1.Type` is the Go type. Fields that are not listed follow the rule of their shape.

use std::collections::HashMap;
use std::sync::OnceLock;

use informer_schema::{Field, Shape, Type};

/// The condition under which a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WriteCondition {
    /// If the body contains it.
    Given,
    /// If it is not empty.
    NotEmpty,
    /// If something in it is not empty.
    NotZero,
    /// Always.
    Always,
    /// Always; as `null` if the body does not contain it.
    AlwaysOrNull,
}

/// The table entry of one field.
#[derive(Debug, Clone, Copy)]
struct Facts {
    write_condition: Option<WriteCondition>,
    type_name: Option<&'static str>,
}

type Table = HashMap<&'static str, HashMap<&'static str, Facts>>;

/// Returns when a field of a type is written.
pub(super) fn write_condition(object_type: &Type, field: &Field) -> WriteCondition {
    if let Some(condition) = facts(object_type, field).and_then(|facts| facts.write_condition) {
        return condition;
    }
    // The table lacks types of versions that are disabled by default.
    if !table().contains_key(object_type.name) {
        return match field.shape {
            _ if field.required => WriteCondition::Always,
            Shape::Object(_) if field.default.is_some() => WriteCondition::Always,
            Shape::List(..) | Shape::Map(..) => WriteCondition::NotEmpty,
            _ => WriteCondition::Given,
        };
    }
    match field.shape {
        Shape::Object(_) => WriteCondition::Given,
        _ => WriteCondition::NotEmpty,
    }
}

/// Whether a field is a pointer in Go, so that an empty value differs from an absent one.
pub(in super::super) fn is_pointer(object_type: &Type, field: &Field) -> bool {
    matches!(write_condition(object_type, field), WriteCondition::Given | WriteCondition::AlwaysOrNull)
}

/// Returns the Go type of a field, if it is not that of its shape.
pub(in super::super) fn type_name(object_type: &Type, field: &Field) -> Option<&'static str> {
    facts(object_type, field).and_then(|facts| facts.type_name)
}

/// Returns the Go type of a shape.
pub(super) fn shape_name(shape: Shape) -> String {
    match shape {
        Shape::Boolean => "bool".to_owned(),
        Shape::Int32 => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::Number => "float64".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Object(id) => struct_name(id.get()),
        Shape::List(items, _) => format!("[]{}", shape_name(*items)),
        Shape::Map(values, _) => format!("map[string]{}", shape_name(*values)),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::MicroTime => "v1.MicroTime".to_owned(),
        Shape::IntOrString => "intstr.IntOrString".to_owned(),
        _ => "string".to_owned(),
    }
}

/// Returns the Go name of a type, `v1.Pod`.
fn struct_name(object_type: &Type) -> String {
    let mut parts = object_type.name.rsplit('.');
    let name = parts.next().unwrap_or_default();
    format!("{}.{name}", parts.next().unwrap_or_default())
}

fn facts(object_type: &Type, field: &Field) -> Option<Facts> {
    table().get(object_type.name)?.get(field.name).copied()
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| include_str!("fields.txt").lines().filter_map(parse_line).collect())
}

fn parse_line(text: &'static str) -> Option<(&'static str, HashMap<&'static str, Facts>)> {
    let mut words = text.split(' ');
    let name = words.next()?;
    Some((name, words.map(parse_word).collect()))
}

fn parse_word(text: &'static str) -> (&'static str, Facts) {
    let (marked_name, type_name) = match text.split_once(':') {
        Some((marked_name, type_name)) => (marked_name, Some(type_name)),
        None => (text, None),
    };
    for (suffix, condition) in [
        ("!*", WriteCondition::AlwaysOrNull),
        ("!", WriteCondition::Always),
        ("*", WriteCondition::Given),
        ("0", WriteCondition::NotZero),
    ] {
        if let Some(name) = marked_name.strip_suffix(suffix) {
            return (name, Facts { write_condition: Some(condition), type_name });
        }
    }
    (marked_name, Facts { write_condition: None, type_name })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field that does not exist would mean that the table belongs to another version of Kubernetes.
    #[test]
    fn fields_of_the_table_exist() {
        let mut missing = Vec::new();
        for (name, fields) in table() {
            let Some(id) = Type::named(name) else { continue };
            missing.extend(
                fields
                    .keys()
                    .filter(|field| id.get().field(field).is_none())
                    .map(|field| format!("{name} {field}")),
            );
        }
        assert_eq!(missing, Vec::<String>::new());
        assert!(table().len() > 400);
    }
}
