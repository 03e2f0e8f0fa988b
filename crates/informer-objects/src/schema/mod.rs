//! The fields of objects as the server knows them: one view of the generated schemas of built-in kinds
//! (`informer_schema`) and of the schemas of custom resource definitions.
//!
//! Pure: nothing here knows objects, storage or HTTP. Code that walks an object walks a [`Node`] in parallel.
//! A value is *atomic* if it is owned and replaced as a whole, and *granular* if its parts are.

mod structural;

use informer_schema::{Shape, TypeId};

pub use structural::Structural;
pub(crate) use structural::{MAX_DEPTH as STRUCTURAL_DEPTH, Rule, StructuralType};

/// A position in a schema.
#[derive(Debug, Clone, Copy)]
pub enum Node<'a> {
    /// A position in a built-in type, for example in the metadata of any object.
    BuiltIn(Shape),
    /// A position in the schema of a definition.
    Custom(&'a Structural),
    /// A position without a schema: objects are granular, lists atomic.
    Unknown,
}

/// The structure of the value at a position, as far as ownership and merging need it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form<'a> {
    /// A scalar, or a value whose contents are never examined.
    Leaf,
    /// An object with known fields, and possibly others.
    Object { atomic: bool },
    /// An object with arbitrary keys.
    Map { atomic: bool },
    /// A list.
    List { entries: Entries<'a>, items: Node<'a> },
    /// No schema: the structure is that of the value.
    Unknown,
}

/// The way in which the entries of a list are identified.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entries<'a> {
    /// Entries have no identity: the list is owned as a whole.
    Atomic,
    /// An entry is identified by its value.
    Set,
    /// An entry is identified by the values of these fields.
    Map(Keys<'a>),
}

/// The names of key fields.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keys<'a> {
    BuiltIn(&'static [&'static str]),
    Custom(&'a [String]),
}

impl<'a> Keys<'a> {
    pub(crate) fn iter(self) -> impl Iterator<Item = &'a str> {
        let (built_in, custom): (&'static [&'static str], &'a [String]) = match self {
            Keys::BuiltIn(names) => (names, &[]),
            Keys::Custom(names) => (&[], names),
        };
        built_in.iter().copied().chain(custom.iter().map(String::as_str))
    }
}

impl<'a> Node<'a> {
    /// Returns the root of a built-in type.
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
                    let entries = match kind {
                        ListType::Atomic => Entries::Atomic,
                        ListType::Set => Entries::Set,
                        ListType::Map(keys) => Entries::Map(Keys::BuiltIn(keys)),
                    };
                    Form::List { entries, items: Node::BuiltIn(*items) }
                }
                _ => Form::Leaf,
            },
        }
    }

    /// Returns the position of a field, or of any value of a map; `None` if the schema does not know the
    /// field.
    pub fn field(self, name: &str) -> Option<Node<'a>> {
        match self {
            Node::Unknown | Node::BuiltIn(Shape::Any) => Some(Node::Unknown),
            Node::BuiltIn(Shape::Object(id)) => id.get().field(name).map(|field| Node::BuiltIn(field.shape)),
            Node::BuiltIn(Shape::Map(values, _)) => Some(Node::BuiltIn(*values)),
            Node::BuiltIn(_) => None,
            Node::Custom(schema) => schema.field(name),
        }
    }

    /// Returns the default of a field, if the schema has one.
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
