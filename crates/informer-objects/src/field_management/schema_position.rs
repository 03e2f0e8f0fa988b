//! A position in a schema as field management sees it: a scalar, a list or an object, granular or atomic.
//!
//! It resolves what [`Node`] leaves open: values whose type is derived from their contents, the metadata of
//! custom objects, and objects whose granularity is defined by their field instead of their type.

use informer_schema::{Field, MapType, Shape, Type};
use serde_json::Value;

use super::element::{Element, Item};
use crate::schema::{Entries, Form, Keys, Node, StructuralType};

/// Required lists, maps and objects that kube-apiserver omits if they are empty. It writes all others as
/// null.
const LEFT_OUT: &[(&str, &str)] =
    &[("ValidatingAdmissionPolicyBindingSpec", "validationActions"), ("IPAddressSpec", "parentRef")];

/// The maximum depth to which a blank object contains objects.
const MAX_BLANK_DEPTH: usize = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaPosition<'a> {
    node: Node<'a>,
    /// Whether this is the root of an object, which has the metadata common to all objects.
    is_root: bool,
    /// The granularity that the field at this position defines, if it differs from that of its type.
    granularity: Option<MapType>,
}

/// The shape of a value at a position.
#[derive(Debug, Clone, Copy)]
pub(super) enum SchemaShape<'a> {
    Scalar(Scalar),
    /// A list whose entries are identified by keys, or by their values if there are none.
    List(Option<Keys<'a>>, SchemaPosition<'a>),
    Map,
    /// A list with one owner.
    AtomicList(SchemaPosition<'a>),
    /// An object with one owner.
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
        SchemaPosition { node, is_root: true, granularity: None }
    }

    fn at(node: Node<'a>) -> Self {
        SchemaPosition { node, is_root: false, granularity: None }
    }

    /// Returns the shape; where the schema does not define it, `value` does.
    pub(super) fn shape(self, value: Option<&Value>) -> SchemaShape<'a> {
        // Raw extensions are always atomic.
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
                let atomic = self.granularity.map_or(atomic, |granularity| granularity == MapType::Atomic);
                if atomic { SchemaShape::AtomicMap } else { SchemaShape::Map }
            }
            Form::List { entries: Entries::Atomic, items } => {
                SchemaShape::AtomicList(SchemaPosition::at(items))
            }
            Form::List { entries: Entries::Set, items } => SchemaShape::List(None, SchemaPosition::at(items)),
            Form::List { entries: Entries::Map(keys), items } => {
                SchemaShape::List(Some(keys), SchemaPosition::at(items))
            }
            Form::Unknown => match value {
                Some(Value::Array(_)) => SchemaShape::AtomicList(SchemaPosition::at(Node::Unknown)),
                Some(Value::Object(_) | Value::Null) | None => SchemaShape::Map,
                Some(_) => SchemaShape::Scalar(Scalar::Untyped),
            },
        }
    }

    /// Returns the position of a field, if the field is allowed.
    pub(super) fn field(self, name: &str) -> Option<SchemaPosition<'a>> {
        match self.node {
            Node::BuiltIn(Shape::Object(id)) => {
                let field = id.get().field(name)?;
                Some(SchemaPosition {
                    granularity: field.map_type,
                    ..SchemaPosition::at(Node::BuiltIn(field.shape))
                })
            }
            Node::Custom(schema) if self.is_root || schema.embedded => match name {
                "metadata" => Some(SchemaPosition::at(metadata())),
                "apiVersion" | "kind" => Some(SchemaPosition::at(Node::BuiltIn(Shape::String))),
                _ => self.free_field(name),
            },
            _ => self.free_field(name),
        }
    }

    fn free_field(self, name: &str) -> Option<SchemaPosition<'a>> {
        let allows_any_field = match self.node {
            // An object without any specified fields may have arbitrary fields.
            Node::Custom(schema) => {
                schema.kind == StructuralType::Object
                    && schema.properties.is_empty()
                    && schema.additional.is_none()
            }
            _ => false,
        };
        self.node.field(name).or(allows_any_field.then_some(Node::Unknown)).map(SchemaPosition::at)
    }

    /// Returns the position of a field, also if the schema does not allow the field.
    pub(super) fn below(self, name: &str) -> SchemaPosition<'a> {
        self.field(name).unwrap_or(SchemaPosition::at(Node::Unknown))
    }

    /// Whether the schema declares a field with this name. Other fields are entries of a map; such an entry
    /// can be owned itself.
    pub(super) fn declares(self, name: &str) -> bool {
        match self.node {
            Node::BuiltIn(Shape::Object(id)) => id.get().field(name).is_some(),
            Node::Custom(schema) => {
                schema.properties.contains_key(name)
                    || (self.is_root || schema.embedded) && matches!(name, "metadata" | "apiVersion" | "kind")
            }
            _ => false,
        }
    }

    /// Returns the position that an element leads to, as far as the schema alone determines it.
    pub(super) fn step(self, element: &Element) -> Option<SchemaPosition<'a>> {
        match (element, self.shape(None)) {
            (Element::Field(name), SchemaShape::Map | SchemaShape::AtomicMap) => Some(self.below(name)),
            (Element::Key(_), SchemaShape::List(_, items) | SchemaShape::AtomicList(items)) => Some(items),
            _ => None,
        }
    }

    /// Returns the object with which a created object is compared: the required objects, zeros and nulls that
    /// kube-apiserver writes for an empty object. Their presence does not make the creator their owner.
    ///
    /// `new` is the created object. Its nulls are part of the blank object, because kube-apiserver writes
    /// them, not the request.
    pub(super) fn blank(self, new: &Value) -> Value {
        blank(self.node, Some(new), MAX_BLANK_DEPTH)
    }
}

/// Returns the element that identifies an entry of a list: its keys, or its value if the list has no keys.
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
    let mut key: Vec<(String, Item)> = Vec::new();
    for name in keys.iter() {
        let default = || items.node.default_of(name).filter(|default| !default.is_null());
        if let Some(value) = fields.get(name).cloned().or_else(default) {
            key.push((name.to_owned(), Item::new(&value)));
        }
    }
    if key.is_empty() {
        let names: Vec<String> = keys.iter().map(super::element::quoted).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
             values for any key fields)",
            names.join(" ")
        ));
    }
    key.sort();
    Ok(Element::Key(key))
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
        let is_composite = matches!(field.shape, Shape::List(..) | Shape::Map(..) | Shape::Object(_));
        is_composite && field.required && !LEFT_OUT.contains(&(kind, field.name))
    };
    let fields = id.get().fields.iter().filter_map(|field| {
        let value_of_new = new.and_then(|new| new.get(field.name));
        let value = match (field.default, field.shape) {
            (Some("{}"), shape @ Shape::Object(_)) if depth > 0 => {
                blank(Node::BuiltIn(shape), value_of_new, depth - 1)
            }
            (Some("\"\""), _) => Value::from(""),
            (Some("0"), _) => Value::from(0),
            (Some("false"), _) => Value::from(false),
            _ if required(field) || value_of_new.is_some_and(Value::is_null) => Value::Null,
            _ => return None,
        };
        Some((field.name.to_owned(), value))
    });
    Value::Object(fields.collect())
}
