//! A place in a schema as owners see it: plain, a list or an object, granular or atomic.
//!
//! It settles what [`Node`] leaves open: values whose type is deduced from what they are, the metadata of custom objects, and
//! objects whose owners are told by the field they stand in and not by their type. It knows no paths and changes nothing.

use informer_schema::{Field, MapType, Shape, Type};
use serde_json::Value;

use super::element::{Element, Item};
use crate::schema::{Entries, Form, Keys, Node, StructuralType};

/// Required fields with something inside are written even if there is nothing, as null. These are not.
const LEFT_OUT: &[(&str, &str)] =
    &[("ValidatingAdmissionPolicyBindingSpec", "validationActions"), ("IPAddressSpec", "parentRef")];

#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaPosition<'a> {
    node: Node<'a>,
    /// Whether this is a whole object, with metadata by the rules of all objects.
    whole: bool,
    /// What the field here says about the owners of its object.
    owned: Option<MapType>,
}

/// What stands at a place.
#[derive(Debug, Clone, Copy)]
pub(super) enum SchemaShape<'a> {
    Scalar(Scalar),
    /// Entries that are told apart; with none of the keys, by their values.
    List(Option<Keys<'a>>, SchemaPosition<'a>),
    Map,
    /// A list that has one owner.
    AtomicList(SchemaPosition<'a>),
    /// An object that has one owner.
    AtomicMap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    String,
    Boolean,
    Untyped,
}

impl<'a> SchemaPosition<'a> {
    pub(super) fn root(node: Node<'a>) -> Self {
        SchemaPosition { node, whole: true, owned: None }
    }

    fn at(node: Node<'a>) -> Self {
        SchemaPosition { node, whole: false, owned: None }
    }

    /// What stands here; where the schema does not say, `value` does.
    pub(super) fn shape(self, value: Option<&Value>) -> SchemaShape<'a> {
        // Raw extensions: whatever they are, they have one owner.
        if let Node::BuiltIn(Shape::Any) = self.node {
            return match value {
                Some(Value::Array(_)) => SchemaShape::AtomicList(SchemaPosition::at(Node::Unknown)),
                Some(Value::Object(_) | Value::Null) | None => SchemaShape::AtomicMap,
                Some(_) => SchemaShape::Scalar(Scalar::Untyped),
            };
        }
        match self.node.form() {
            Form::Leaf => SchemaShape::Scalar(scalar(self.node)),
            Form::Object { atomic } | Form::Map { atomic, .. } => {
                let atomic = self.owned.map_or(atomic, |owned| owned == MapType::Atomic);
                if atomic { SchemaShape::AtomicMap } else { SchemaShape::Map }
            }
            Form::List { of: Entries::Atomic, items } => SchemaShape::AtomicList(SchemaPosition::at(items)),
            Form::List { of: Entries::Set, items } => SchemaShape::List(None, SchemaPosition::at(items)),
            Form::List { of: Entries::Map(keys), items } => {
                SchemaShape::List(Some(keys), SchemaPosition::at(items))
            }
            Form::Unknown => match value {
                Some(Value::Array(_)) => SchemaShape::AtomicList(SchemaPosition::at(Node::Unknown)),
                Some(Value::Object(_) | Value::Null) | None => SchemaShape::Map,
                Some(_) => SchemaShape::Scalar(Scalar::Untyped),
            },
        }
    }

    /// The place of a field, if it may be there.
    pub(super) fn field(self, name: &str) -> Option<SchemaPosition<'a>> {
        match self.node {
            Node::BuiltIn(Shape::Object(id)) => {
                let field = id.get().field(name)?;
                Some(SchemaPosition { owned: field.owned, ..SchemaPosition::at(Node::BuiltIn(field.shape)) })
            }
            Node::Custom(schema) if self.whole || schema.embedded => match name {
                "metadata" => Some(SchemaPosition::at(metadata())),
                "apiVersion" | "kind" => Some(SchemaPosition::at(Node::BuiltIn(Shape::String))),
                _ => self.free_field(name),
            },
            _ => self.free_field(name),
        }
    }

    fn free_field(self, name: &str) -> Option<SchemaPosition<'a>> {
        let open = match self.node {
            // An object of which nothing is said may have any fields.
            Node::Custom(schema) => {
                schema.kind == StructuralType::Object
                    && schema.properties.is_empty()
                    && schema.additional.is_none()
            }
            _ => false,
        };
        self.node.field(name).or(open.then_some(Node::Unknown)).map(SchemaPosition::at)
    }

    /// The place of a field, known or not.
    pub(super) fn below(self, name: &str) -> SchemaPosition<'a> {
        self.field(name).unwrap_or(SchemaPosition::at(Node::Unknown))
    }

    /// Whether the schema knows the field by name. The others are like entries of a map: each is owned for itself.
    pub(super) fn names(self, name: &str) -> bool {
        match self.node {
            Node::BuiltIn(Shape::Object(id)) => id.get().field(name).is_some(),
            Node::Custom(schema) => {
                schema.properties.contains_key(name)
                    || (self.whole || schema.embedded) && matches!(name, "metadata" | "apiVersion" | "kind")
            }
            _ => false,
        }
    }

    /// The place that a step leads to, as far as the schema alone can say.
    pub(super) fn step(self, element: &Element) -> Option<SchemaPosition<'a>> {
        match (element, self.shape(None)) {
            (Element::Field(name), SchemaShape::Map | SchemaShape::AtomicMap) => Some(self.below(name)),
            (Element::Key(_), SchemaShape::List(_, items) | SchemaShape::AtomicList(items)) => Some(items),
            _ => None,
        }
    }

    /// What an object has in it before anything is set: objects that are always written, zeros and nulls. `new` is what it
    /// becomes: a null there was not set, since it would not be written otherwise.
    pub(super) fn blank(self, new: &Value) -> Value {
        blank(self.node, Some(new), 16)
    }
}

/// The step to an entry of a list whose entries are told apart.
pub(super) fn entry_of(
    keys: Option<Keys<'_>>,
    items: SchemaPosition<'_>,
    entry: &Value,
) -> Result<Element, String> {
    let Some(keys) = keys else {
        return match entry {
            Value::Object(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null".to_owned())
            }
            plain => Ok(Element::Value(Item::new(plain))),
        };
    };
    let fields = match entry {
        Value::Object(fields) => fields,
        Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let mut found: Vec<(String, Item)> = Vec::new();
    for name in keys.iter() {
        let default = || items.node.default_of(name).filter(|default| !default.is_null());
        if let Some(value) = fields.get(name).cloned().or_else(default) {
            found.push((name.to_owned(), Item::new(&value)));
        }
    }
    if found.is_empty() {
        let names: Vec<String> = keys.iter().map(super::element::quoted).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    found.sort();
    Ok(Element::Key(found))
}

fn scalar(node: Node<'_>) -> Scalar {
    match node {
        Node::BuiltIn(Shape::Boolean) => Scalar::Boolean,
        Node::BuiltIn(Shape::Int32 | Shape::Int64 | Shape::Number) => Scalar::Numeric,
        Node::BuiltIn(Shape::String | Shape::Bytes) => Scalar::String,
        Node::Custom(schema) => match schema.kind {
            StructuralType::Boolean => Scalar::Boolean,
            StructuralType::Integer | StructuralType::Number => Scalar::Numeric,
            StructuralType::String if schema.checks.format.is_none() => Scalar::String,
            _ => Scalar::Untyped,
        },
        _ => Scalar::Untyped,
    }
}

fn metadata() -> Node<'static> {
    Type::named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta").map_or(Node::Unknown, Node::of)
}

fn blank(node: Node<'_>, new: Option<&Value>, depth: usize) -> Value {
    let Node::BuiltIn(Shape::Object(id)) = node else { return Value::Object(serde_json::Map::new()) };
    let required = |field: &Field| {
        let kind = id.get().name.rsplit('.').next().unwrap_or_default();
        let inner = matches!(field.shape, Shape::List(..) | Shape::Map(..) | Shape::Object(_));
        inner && field.required && !LEFT_OUT.contains(&(kind, field.name))
    };
    let fields = id.get().fields.iter().filter_map(|field| {
        let there = new.and_then(|new| new.get(field.name));
        let value = match (field.default, field.shape) {
            (Some("{}"), shape @ Shape::Object(_)) if depth > 0 => {
                blank(Node::BuiltIn(shape), there, depth - 1)
            }
            (Some("\"\""), _) => Value::from(""),
            (Some("0"), _) => Value::from(0),
            (Some("false"), _) => Value::from(false),
            _ if required(field) || there.is_some_and(Value::is_null) => Value::Null,
            _ => return None,
        };
        Some((field.name.to_owned(), value))
    });
    Value::Object(fields.collect())
}
