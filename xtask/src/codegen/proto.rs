//! Parses the messages in the `generated.proto` of a Kubernetes package.
//!
//! A text search is sufficient, because the files are generated and uniform. Unexpected text is an error.

use std::collections::BTreeMap;

/// The messages of one package.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Proto {
    /// Name of the package in the `OpenAPI` documents, such as `io.k8s.api.core.v1`.
    pub(super) package: String,
    /// Fields by number, by message name.
    pub(super) messages: BTreeMap<String, BTreeMap<u16, ProtoField>>,
}

/// A field of a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProtoField {
    pub(super) name: String,
    pub(super) label: Label,
    /// A scalar such as `string`, or a message with its package.
    pub(super) of: String,
}

/// The cardinality of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Label {
    Optional,
    Repeated,
    /// A map from strings to values of the field's type.
    Map,
}

/// The scalar types in use; every other type is a message.
pub(super) const SCALARS: &[&str] = &["bool", "bytes", "double", "int32", "int64", "string"];

impl Proto {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut proto = Proto::default();
        let mut message = None;
        for line in text.lines().map(str::trim_end) {
            if let Some(package) = line.strip_prefix("package ") {
                proto.package = open_api_name(package.trim_end_matches(';'));
            } else if let Some(name) = line.strip_prefix("message ").and_then(|line| line.strip_suffix(" {"))
            {
                proto.messages.insert(name.to_owned(), BTreeMap::new());
                message = Some(name);
            } else if line == "}" {
                message = None;
            } else if let Some(fields) = message.and_then(|name| proto.messages.get_mut(name)) {
                let line = line.trim_start();
                if !line.is_empty() && !line.starts_with("//") {
                    let invalid = || format!("`{line}` is not a field");
                    let (number, field) = field(&proto.package, line).ok_or_else(invalid)?;
                    fields.insert(number, field);
                }
            }
        }
        if proto.package.is_empty() { Err("does not name a package".to_owned()) } else { Ok(proto) }
    }
}

/// Parses `optional string name = 1;` or `map<string, bytes> data = 2;`.
fn field(package: &str, line: &str) -> Option<(u16, ProtoField)> {
    let (front, number) = line.strip_suffix(';')?.split_once(" = ")?;
    let (of, name) = front.rsplit_once(' ')?;
    let (label, of) = if let Some(inner) = of.strip_prefix("map<string, ") {
        (Label::Map, inner.strip_suffix('>')?)
    } else {
        match of.split_once(' ')? {
            ("optional", of) => (Label::Optional, of),
            ("repeated", of) => (Label::Repeated, of),
            _ => return None,
        }
    };
    let of = match of.strip_prefix('.') {
        Some(absolute) => open_api_name(absolute),
        None if SCALARS.contains(&of) => of.to_owned(),
        None => format!("{package}.{of}"),
    };
    Some((number.parse().ok()?, ProtoField { name: name.to_owned(), label, of }))
}

/// Converts a name to that of the `OpenAPI` documents: `k8s.io.kube_aggregator.X` to
/// `io.k8s.kube-aggregator.X`.
fn open_api_name(name: &str) -> String {
    match name.strip_prefix("k8s.io.") {
        Some(rest) => format!("io.k8s.{}", rest.replace('_', "-")),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_parsed() {
        let text = "package k8s.io.kube_x.v1;\n\nmessage A {\n  // A = comment;\n  optional string name = 1;\n\n  \
                    repeated B bs = 2;\n  map<string, .k8s.io.api.resource.Quantity> limits = 12;\n}\n\nmessage B {\n}\n";
        let proto = Proto::parse(text).unwrap();
        assert_eq!(proto.package, "io.k8s.kube-x.v1");
        let field =
            |name: &str, label, of: &str| ProtoField { name: name.to_owned(), label, of: of.to_owned() };
        let fields = BTreeMap::from([
            (1, field("name", Label::Optional, "string")),
            (2, field("bs", Label::Repeated, "io.k8s.kube-x.v1.B")),
            (12, field("limits", Label::Map, "io.k8s.api.resource.Quantity")),
        ]);
        let messages = BTreeMap::from([("A".to_owned(), fields), ("B".to_owned(), BTreeMap::new())]);
        assert_eq!(proto.messages, messages);
    }

    #[test]
    fn invalid_field_is_an_error() {
        let with = |line: &str| Proto::parse(&format!("package p;\nmessage A {{\n  {line}\n}}\n")).is_err();
        assert!(with("oneof x {") && with("optional string a;") && with("required string a = 1;"));
        assert!(Proto::parse("").is_err());
    }
}
