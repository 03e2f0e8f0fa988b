//! What the server knows about the fields of objects: one view of built-in tables and of definitions' schemas.
//!
//! Pure. It knows no objects, no storage and no HTTP. Whoever walks an object walks a [`Node`] beside it.

mod structural;

use informer_schema::{Shape, TypeId};

pub use structural::Structural;
pub(crate) use structural::{MAX_DEPTH as STRUCTURAL_DEPTH, Rule, StructuralType};

/// A place in a schema.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// In a built-in object.
    BuiltIn(Shape),
    /// In a custom object.
    Custom(&'a Structural),
    /// Nothing is known: fields are granular, lists atomic.
    Unknown,
}

/// What stands at a place, as far as ownership and merging go.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    /// A plain value, or something that is never looked into.
    Leaf,
    /// An object whose fields are known by name, and perhaps others.
    Object { atomic: bool },
    /// An object with free keys.
    Map { atomic: bool },
    /// A list.
    List { of: Entries<'a>, items: Node<'a> },
    /// Whatever the value turns out to be.
    Unknown,
}

/// What makes an entry of a list the same entry.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entries<'a> {
    /// The list is owned as a whole.
    Atomic,
    /// Its value.
    Set,
    /// The values of these fields.
    Map(Keys<'a>),
}

/// Names of key fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    BuiltIn(&'static [&'static str]),
    Custom(&'a [String]),
}

impl<'a> Keys<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a str> {
        let (fixed, custom): (&'static [&'static str], &'a [String]) = match self {
            Keys::BuiltIn(names) => (names, &[]),
            Keys::Custom(names) => (&[], names),
        };
        fixed.iter().copied().chain(custom.iter().map(String::as_str))
    }
}

impl<'a> Node<'a> {
    /// The root of a built-in type.
    pub fn of(id: TypeId) -> Self {
        Node::BuiltIn(Shape::Object(id))
    }

    pub(crate) fn form(self) -> Form<'a> {
        use informer_schema::{ListType, MapType};
        match self {
            Node::Unknown => Form::Unknown,
            Node::Custom(schema) => schema.form(),
            Node::BuiltIn(shape) => match shape {
                Shape::Any => Form::Unknown,
                Shape::Object(id) => Form::Object { atomic: id.get().atomic },
                Shape::Map(_, kind) => Form::Map { atomic: kind == MapType::Atomic },
                Shape::List(items, kind) => {
                    let of = match kind {
                        ListType::Atomic => Entries::Atomic,
                        ListType::Set => Entries::Set,
                        ListType::Map(keys) => Entries::Map(Keys::BuiltIn(keys)),
                    };
                    Form::List { of, items: Node::BuiltIn(*items) }
                }
                _ => Form::Leaf,
            },
        }
    }

    /// The place of a field; none if the schema does not know it. For maps, the place of any value.
    pub fn field(self, name: &str) -> Option<Node<'a>> {
        match self {
            Node::Unknown | Node::BuiltIn(Shape::Any) => Some(Node::Unknown),
            Node::BuiltIn(Shape::Object(id)) => id.get().field(name).map(|field| Node::BuiltIn(field.shape)),
            Node::BuiltIn(Shape::Map(values, _)) => Some(Node::BuiltIn(*values)),
            Node::BuiltIn(_) => None,
            Node::Custom(schema) => schema.field(name),
        }
    }

    /// The default of a field, as JSON text where the schema has one.
    pub(crate) fn default_of(self, name: &str) -> Option<serde_json::Value> {
        match self {
            Node::BuiltIn(Shape::Object(id)) => {
                id.get().field(name)?.default.and_then(|text| serde_json::from_str(text).ok())
            }
            Node::Custom(schema) => schema.properties.get(name)?.default.clone(),
            _ => None,
        }
    }
}
