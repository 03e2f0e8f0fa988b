//! The fields of built-in types as JSON has them.
//!
//! They are derived from the rows of [`MESSAGES`] on first use: fields of inline messages become fields of the type,
//! and the encoding on the wire becomes a shape. A shape describes which values are allowed, not how they are
//! processed.

use std::sync::LazyLock;

use crate::messages::MESSAGES;
use crate::rules::{ListType, MapType, Patch};
use crate::wire::{Message, MessageId, Part, Wire, part};

/// A type of the API with its fields, for example `io.k8s.api.core.v1.Pod`.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Type {
    /// The name in the `OpenAPI` documents, or the name that would be used there.
    pub name: &'static str,
    /// The fields, sorted by name.
    pub fields: Vec<Field>,
    /// Whether the object is owned and replaced as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
}

/// A field of a [`Type`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The name in JSON.
    pub name: &'static str,
    /// The allowed values.
    pub shape: Shape,
    /// Whether the `OpenAPI` documents mark the field as required.
    pub required: bool,
    /// The default in the `OpenAPI` documents, as JSON text.
    ///
    /// `{}` on an object means that kube-apiserver always writes the field.
    pub default: Option<&'static str>,
    /// The treatment by strategic merge patches.
    pub patch: Patch,
    /// The granularity of ownership in this object, if it differs from that of its type.
    pub map_type: Option<MapType>,
    /// See `pointer` of [`Part`].
    pub pointer: bool,
    /// See `always` of [`Part`].
    pub always: bool,
}

/// The values allowed at a position in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// Any value: raw extensions, embedded JSON.
    Any,
    /// `true` or `false`.
    Boolean,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Number,
    /// A string.
    String,
    /// Bytes as a base64 string.
    Bytes,
    /// A time with seconds precision.
    Time,
    /// A time with six fractional digits.
    MicroTime,
    /// A quantity such as `500m` or `1Gi`.
    Quantity,
    /// A number or a string.
    IntOrString,
    /// An object with known fields.
    Object(TypeId),
    /// An object with arbitrary keys and values of one shape.
    Map(&'static Shape, MapType),
    /// A list.
    List(&'static Shape, ListType),
}

/// The index of a [`Type`]. It is equal to the index of its message in [`MESSAGES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub(crate) u16);

impl TypeId {
    /// Returns the type with this id.
    pub fn get(self) -> &'static Type {
        &TYPES[usize::from(self.0)]
    }
}

impl Type {
    /// Returns the id of the type with this name.
    pub fn named(name: &str) -> Option<TypeId> {
        Message::named(name).map(|MessageId(index)| TypeId(index))
    }

    /// Returns the field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.name.cmp(name)).ok()?;
        self.fields.get(index)
    }

    fn of(message: &'static Message) -> Self {
        let mut fields = Vec::new();
        if message.is_kind {
            fields.extend(["apiVersion", "kind"].map(|name| Field::of(&part(0, name, Wire::String))));
        }
        add_fields(message, &mut fields);
        fields.sort_unstable_by_key(|field| field.name);
        Self { name: message.name, fields, atomic: message.atomic }
    }
}

static TYPES: LazyLock<Vec<Type>> = LazyLock::new(|| MESSAGES.iter().map(Type::of).collect());

/// Adds the fields of a message, and in place of an inline message the fields of the inline message.
fn add_fields(message: &'static Message, fields: &mut Vec<Field>) {
    for part in message.parts {
        match part.wire {
            Wire::Message(inline) if part.name.is_empty() => add_fields(inline.get(), fields),
            _ => fields.push(Field::of(part)),
        }
    }
}

impl Field {
    fn of(part: &Part) -> Self {
        let &Part { name, wire, pointer, always, required, rules, .. } = part;
        let shape = match wire {
            Wire::List(items) => Shape::List(leak(Shape::of(*items)), rules.list),
            Wire::Map(values) => Shape::Map(leak(Shape::of(*values)), rules.map.unwrap_or(MapType::Granular)),
            wire => Shape::of(wire),
        };
        // The map type of a map is part of its shape.
        let map_type = rules.map.filter(|_| !matches!(wire, Wire::Map(_)));
        let default = rules.default.or_else(|| implied_default(part));
        Self { name, shape, required, default, patch: rules.patch, map_type, pointer, always }
    }
}

/// Returns the default of a field that Go writes even if it is empty.
fn implied_default(part: &Part) -> Option<&'static str> {
    match part.wire {
        _ if part.pointer || !part.always => None,
        Wire::Message(_) => Some("{}"),
        _ if !part.required => None,
        Wire::String => Some("\"\""),
        Wire::Int32 | Wire::Int64 => Some("0"),
        Wire::Boolean => Some("false"),
        _ => None,
    }
}

impl Shape {
    /// Returns the shape of a value outside of a field, such as an element of a list.
    fn of(wire: Wire) -> Self {
        match wire {
            Wire::Boolean => Shape::Boolean,
            Wire::Int32 => Shape::Int32,
            Wire::Int64 => Shape::Int64,
            Wire::Double => Shape::Number,
            Wire::String => Shape::String,
            Wire::Bytes => Shape::Bytes,
            Wire::Quantity => Shape::Quantity,
            Wire::Time => Shape::Time,
            Wire::MicroTime => Shape::MicroTime,
            Wire::IntOrString => Shape::IntOrString,
            Wire::Raw | Wire::Fields | Wire::OrBoolean(_) | Wire::OrList(_) | Wire::OrStrings(_) => {
                Shape::Any
            }
            Wire::Strings => Shape::List(&Shape::String, ListType::Atomic),
            Wire::Message(MessageId(index)) => Shape::Object(TypeId(index)),
            Wire::List(items) => Shape::List(leak(Shape::of(*items)), ListType::Atomic),
            Wire::Map(values) => Shape::Map(leak(Shape::of(*values)), MapType::Granular),
        }
    }
}

/// The shapes live as long as the table, which is never dropped.
fn leak(shape: Shape) -> &'static Shape {
    Box::leak(Box::new(shape))
}
