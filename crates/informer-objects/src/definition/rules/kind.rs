//! What an expression of a rule gives, as far as a schema says it.
//!
//! A kind is a fact about values. How an expression gets one, and which functions there are, is not known here.

use crate::schema::{Structural, StructuralType};

/// What an expression gives.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind<'a> {
    /// Not known.
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

/// Which fields an object has.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fields<'a> {
    Of(&'a Structural),
    /// Metadata, of which a rule sees two names.
    Meta,
}

impl PartialEq for Fields<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Fields::Of(a), Fields::Of(b)) => std::ptr::eq(*a, *b),
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
                None => Kind::Object(Fields::Of(schema)),
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

    /// Whether it is something, or not known not to be.
    pub(super) fn is_or_may_be(&self, other: &Kind<'_>) -> bool {
        match (self, other) {
            (Kind::Dyn, _) | (_, Kind::Dyn) | (Kind::Object(_), Kind::Object(_)) => true,
            (Kind::List(a), Kind::List(b))
            | (Kind::Map(a), Kind::Map(b))
            | (Kind::Optional(a), Kind::Optional(b)) => a.is_or_may_be(b),
            _ => self == other,
        }
    }

    /// How messages call it.
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
            Kind::List(of) => format!("list({})", of.name()),
            Kind::Map(of) => format!("map(string, {})", of.name()),
            Kind::Object(_) => "object".to_owned(),
            Kind::Optional(of) => format!("optional_type({})", of.name()),
        }
    }
}
