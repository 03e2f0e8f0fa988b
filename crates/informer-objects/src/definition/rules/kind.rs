//! The types of expressions in rules, as far as the schema determines them.
//!
//! Nothing here knows how the type of an expression is determined, or which functions exist.

use crate::schema::{Structural, StructuralType};

/// The type of an expression.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    /// An unknown type, CEL's `dyn`.
    Dyn,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Kind<'a>>),
    Map(Box<Kind<'a>>),
    Object(Fields<'a>),
    Optional(Box<Kind<'a>>),
}

/// The fields of an object.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fields<'a> {
    Schema(&'a Structural),
    /// Metadata, of which rules see `name` and `generateName`.
    Meta,
}

impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Fields::Schema(a), Fields::Schema(b)) => std::ptr::eq(*a, *b),
            (Fields::Meta, Fields::Meta) => true,
            _ => false,
        }
    }
}

impl<'a> Kind<'a> {
    pub(super) fn of(schema: &'a Structural) -> Self {
        match schema.kind {
            StructuralType::Object => match schema.additional.as_deref() {
                Some(values) => Kind::Map(Box::new(Kind::of(values))),
                None => Kind::Object(Fields::Schema(schema)),
            },
            StructuralType::Array => {
                Kind::List(Box::new(schema.items.as_deref().map_or(Kind::Dyn, Kind::of)))
            }
            StructuralType::Integer => Kind::Int,
            StructuralType::Number => Kind::Double,
            StructuralType::Boolean => Kind::Bool,
            StructuralType::String => match schema.checks.format.as_deref() {
                Some("byte") => Kind::Bytes,
                Some("duration") => Kind::Duration,
                Some("date" | "date-time") => Kind::Timestamp,
                _ => Kind::String,
            },
            StructuralType::IntOrString | StructuralType::Any => Kind::Dyn,
        }
    }

    /// Whether two types are compatible. An unknown type is compatible with all types, and any two objects
    /// are.
    pub(super) fn is_compatible_with(&self, other: &Kind<'_>) -> bool {
        match (self, other) {
            (Kind::Dyn, _) | (_, Kind::Dyn) | (Kind::Object(_), Kind::Object(_)) => true,
            (Kind::List(a), Kind::List(b))
            | (Kind::Map(a), Kind::Map(b))
            | (Kind::Optional(a), Kind::Optional(b)) => a.is_compatible_with(b),
            _ => self == other,
        }
    }

    /// Returns the name used in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Kind::Dyn => "dyn".to_owned(),
            Kind::Null => "null".to_owned(),
            Kind::Bool => "bool".to_owned(),
            Kind::Int => "int".to_owned(),
            Kind::Uint => "uint".to_owned(),
            Kind::Double => "double".to_owned(),
            Kind::String => "string".to_owned(),
            Kind::Bytes => "bytes".to_owned(),
            Kind::Duration => "google.protobuf.Duration".to_owned(),
            Kind::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Kind::List(inner) => format!("list({})", inner.name()),
            Kind::Map(inner) => format!("map(string, {})", inner.name()),
            Kind::Object(_) => "object".to_owned(),
            Kind::Optional(inner) => format!("optional_type({})", inner.name()),
        }
    }
}
