//! The schema of a definition: the `openAPIV3Schema` of one version as a tree.
//!
//! `metadata`, `apiVersion` and `kind` at the root and in embedded resources follow the rules common to all
//! objects, whatever the schema contains for them. Reading never fails: `definition::check` decides whether a
//! schema is allowed. Below [`MAX_DEPTH`] levels, the tree allows any value.

mod read;

use std::collections::BTreeMap;

use informer_schema::{Shape, Type};
use regex::Regex;
use serde_json::Value;

use super::{Entries, Form, Keys, Node};

/// The maximum depth to which a schema is read.
///
/// It also bounds every walk along a schema, however deep the object is.
pub(crate) const MAX_DEPTH: usize = 64;

/// One level of a definition's schema.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is an independent keyword of a schema")]
pub struct Structural {
    pub(crate) kind: StructuralType,
    pub(crate) properties: BTreeMap<String, Structural>,
    /// The schema of keys that are not in `properties`.
    pub(crate) additional: Option<Box<Structural>>,
    /// The value of `additionalProperties` if it is a boolean.
    pub(crate) open: Option<bool>,
    pub(crate) items: Option<Box<Structural>>,
    pub(crate) nullable: bool,
    pub(crate) default: Option<Value>,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve: bool,
    /// `x-kubernetes-embedded-resource`.
    pub(crate) embedded: bool,
    /// Whether this level is an object with `apiVersion`, `kind` and `metadata`: the root or an embedded
    /// resource.
    pub(crate) resource: bool,
    /// `x-kubernetes-list-type`: `atomic`, `set` or `map`.
    pub(crate) list_type: Option<String>,
    /// `x-kubernetes-list-map-keys`.
    pub(crate) list_keys: Vec<String>,
    /// `x-kubernetes-map-type: atomic`.
    pub(crate) atomic_map: bool,
    pub(crate) checks: Checks,
    /// `x-kubernetes-validations`.
    pub(crate) rules: Vec<Rule>,
}

/// The `type` of a level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum StructuralType {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
    /// No type is given.
    #[default]
    Any,
}

/// The constraints on a value besides its type.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checks {
    /// The format, if it is checked for this type.
    pub(crate) format: Option<String>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_maximum: bool,
    pub(crate) minimum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) required: Vec<String>,
    pub(crate) one_of: Vec<Structural>,
    pub(crate) any_of: Vec<Structural>,
    pub(crate) all_of: Vec<Structural>,
    pub(crate) not: Option<Box<Structural>>,
    /// `enum`; empty if every value is allowed.
    pub(crate) values: Vec<Value>,
}

/// A regular expression, or the error of compiling it.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    pub(crate) regex: Result<Regex, regex::Error>,
}

/// One of `x-kubernetes-validations`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) message: String,
    pub(crate) message_expression: String,
    /// The reason; `FieldValueInvalid` if absent.
    pub(crate) reason: Option<String>,
    pub(crate) field_path: String,
    pub(crate) optional_old_self: Option<bool>,
}

impl StructuralType {
    /// Returns the value of `type` in a schema; empty if the schema has none.
    pub(crate) fn name(self) -> &'static str {
        match self {
            StructuralType::Object => "object",
            StructuralType::Array => "array",
            StructuralType::String => "string",
            StructuralType::Integer => "integer",
            StructuralType::Number => "number",
            StructuralType::Boolean => "boolean",
            StructuralType::IntOrString | StructuralType::Any => "",
        }
    }
}

impl Structural {
    /// Returns the schema of a property, or of additional keys.
    pub(crate) fn child(&self, name: &str) -> Option<&Structural> {
        self.properties.get(name).or(self.additional.as_deref())
    }

    /// Whether `additionalProperties` is given, as a schema or as a boolean.
    pub(crate) fn has_additional(&self) -> bool {
        self.additional.is_some() || self.open.is_some()
    }

    /// Whether this level or one below it has rules.
    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty()
            || self.items.as_deref().is_some_and(Structural::has_rules)
            || self.additional.as_deref().is_some_and(Structural::has_rules)
            || self.properties.values().any(Structural::has_rules)
    }

    pub(super) fn form(&self) -> Form<'_> {
        match self.kind {
            StructuralType::Object if self.properties.is_empty() && self.additional.is_some() => {
                Form::Map { atomic: self.atomic_map }
            }
            StructuralType::Object => Form::Object { atomic: self.atomic_map },
            StructuralType::Array => {
                let entries = match self.list_type.as_deref() {
                    Some("set") => Entries::Set,
                    Some("map") => Entries::Map(Keys::Custom(&self.list_keys)),
                    _ => Entries::Atomic,
                };
                Form::List { entries, items: self.items.as_deref().map_or(Node::Unknown, Node::Custom) }
            }
            StructuralType::Any if self.preserve => Form::Unknown,
            _ => Form::Leaf,
        }
    }

    pub(super) fn field(&self, name: &str) -> Option<Node<'_>> {
        if self.resource {
            match name {
                "metadata" => return Some(Type::named(OBJECT_META).map_or(Node::Unknown, Node::of)),
                "apiVersion" | "kind" => return Some(Node::BuiltIn(Shape::String)),
                _ => {}
            }
        }
        self.child(name).map(Node::Custom).or(self.preserve.then_some(Node::Unknown))
    }
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
