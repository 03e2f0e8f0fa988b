//! How Go encodes fields: when a field is written, and the name of its type in errors.

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

/// Returns when a field is written.
pub(super) fn write_condition(field: &Field) -> WriteCondition {
    match (field.always, field.pointer) {
        (true, true) => WriteCondition::AlwaysOrNull,
        (true, false) => WriteCondition::Always,
        (false, true) => WriteCondition::Given,
        (false, false) if matches!(field.shape, Shape::Object(_)) => WriteCondition::NotZero,
        (false, false) => WriteCondition::NotEmpty,
    }
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
