//! Properties of Go types that the `OpenAPI` documents do not contain: whether a field is a pointer, when it
//! is written, and the name of its type in errors.
//!
//! The data is in `fields.txt`, one line per type, printed by `fields.go` from the types of Kubernetes 1.36.
//! Each word is a field: `name!` is written even if empty, `name*` may be empty without being absent, `name0`
//! is omitted if nothing in it is set, `name:v1.Type` has a type of that name. Fields that are not listed
//! follow the rule of their shape.

use std::collections::HashMap;
use std::sync::OnceLock;

use informer_schema::{Field, Shape, Type};

/// The condition under which a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// If it was given.
    Given,
    /// If it is not empty.
    NotEmpty,
    /// If something in it is not empty.
    NotZero,
    /// Always.
    Always,
    /// Always; `null` if it was not given.
    AlwaysOrNull,
}

/// The table entry of one field.
#[derive(Debug, Clone, Copy)]
struct Facts {
    written: Option<Written>,
    type_name: Option<&'static str>,
}

type Table = HashMap<&'static str, HashMap<&'static str, Facts>>;

/// Returns when a field of a type is written.
pub(super) fn written(of: &Type, field: &Field) -> Written {
    if let Some(written) = facts(of, field).and_then(|facts| facts.written) {
        return written;
    }
    // The table lacks types of versions that are disabled by default.
    if !table().contains_key(of.name) {
        return match field.shape {
            _ if field.required => Written::Always,
            Shape::Object(_) if field.default.is_some() => Written::Always,
            Shape::List(..) | Shape::Map(..) => Written::NotEmpty,
            _ => Written::Given,
        };
    }
    match field.shape {
        Shape::Object(_) => Written::Given,
        _ => Written::NotEmpty,
    }
}

/// Whether a field can be empty without being absent.
pub(in super::super) fn is_pointer(of: &Type, field: &Field) -> bool {
    matches!(written(of, field), Written::Given | Written::AlwaysOrNull)
}

/// Returns the Go type of a field, if it is not that of its shape.
pub(in super::super) fn type_name(of: &Type, field: &Field) -> Option<&'static str> {
    facts(of, field).and_then(|facts| facts.type_name)
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
fn struct_name(of: &Type) -> String {
    let mut parts = of.name.rsplit('.');
    let name = parts.next().unwrap_or_default();
    format!("{}.{name}", parts.next().unwrap_or_default())
}

fn facts(of: &Type, field: &Field) -> Option<Facts> {
    table().get(of.name)?.get(field.name).copied()
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| include_str!("fields.txt").lines().filter_map(line).collect())
}

fn line(text: &'static str) -> Option<(&'static str, HashMap<&'static str, Facts>)> {
    let mut words = text.split(' ');
    let name = words.next()?;
    Some((name, words.map(word).collect()))
}

fn word(text: &'static str) -> (&'static str, Facts) {
    let (rest, type_name) = match text.split_once(':') {
        Some((rest, name)) => (rest, Some(name)),
        None => (text, None),
    };
    for (suffix, written) in [
        ("!*", Written::AlwaysOrNull),
        ("!", Written::Always),
        ("*", Written::Given),
        ("0", Written::NotZero),
    ] {
        if let Some(name) = rest.strip_suffix(suffix) {
            return (name, Facts { written: Some(written), type_name });
        }
    }
    (rest, Facts { written: None, type_name })
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
