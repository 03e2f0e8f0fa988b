//! Sets of paths that represent ownership.
//!
//! A set is a tree. A node is owned itself, or has owned nodes below it, or both: there are no empty nodes.
//! Owning a node says nothing about the nodes below it. Its JSON form is the `fieldsV1` of
//! `metadata.managedFields`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::{Element, ElementError, Path};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set(BTreeMap<Element, SetNode>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SetNode {
    pub(super) owned: bool,
    pub(super) below: Set,
}

impl Set {
    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            // The root of an object has no owner.
            [] => {}
            [last] => self.0.entry(last.clone()).or_default().owned = true,
            [first, rest @ ..] => self.0.entry(first.clone()).or_default().below.insert(rest),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get(&self, element: &Element) -> Option<&SetNode> {
        self.0.get(element)
    }

    pub(super) fn has(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.get(last).is_some_and(|node| node.owned),
            [first, rest @ ..] => self.get(first).is_some_and(|node| node.below.has(rest)),
        }
    }

    pub(super) fn union(&self, other: &Set) -> Set {
        let mut all = self.clone();
        all.extend(other);
        all
    }

    pub(super) fn extend(&mut self, other: &Set) {
        for (element, node) in &other.0 {
            let existing = self.0.entry(element.clone()).or_default();
            existing.owned |= node.owned;
            existing.below.extend(&node.below);
        }
    }

    pub(super) fn intersection(&self, other: &Set) -> Set {
        self.filter_map(|element, node| {
            let other_node = other.get(element)?;
            Some(SetNode {
                owned: node.owned && other_node.owned,
                below: node.below.intersection(&other_node.below),
            })
        })
    }

    /// Returns the set without the paths of `other`; paths below them remain.
    pub(super) fn difference(&self, other: &Set) -> Set {
        self.filter_map(|element, node| match other.get(element) {
            None => Some(node.clone()),
            Some(other_node) => Some(SetNode {
                owned: node.owned && !other_node.owned,
                below: node.below.difference(&other_node.below),
            }),
        })
    }

    /// Returns the set without the paths of `other` and everything below them.
    pub(super) fn without(&self, other: &Set) -> Set {
        self.filter_map(|element, node| match other.get(element) {
            None => Some(node.clone()),
            Some(other_node) if other_node.owned => None,
            Some(other_node) => {
                Some(SetNode { owned: node.owned, below: node.below.without(&other_node.below) })
            }
        })
    }

    /// Returns the set of the nodes that `change` returns, without empty ones.
    pub(super) fn filter_map(&self, change: impl Fn(&Element, &SetNode) -> Option<SetNode>) -> Set {
        let nodes = self.0.iter().filter_map(|(element, node)| {
            let node = change(element, node)?;
            (node.owned || !node.below.is_empty()).then(|| (element.clone(), node))
        });
        Set(nodes.collect())
    }

    /// Returns all paths in the order in which kube-apiserver lists conflicts: at each level first the owned
    /// nodes, then the paths below each node.
    pub(super) fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, at: &mut Path, paths: &mut Vec<Path>) {
        for (element, _) in self.0.iter().filter(|(_, node)| node.owned) {
            paths.push(at.iter().chain([element]).cloned().collect());
        }
        for (element, node) in &self.0 {
            at.push(element.clone());
            node.below.collect(at, paths);
            at.pop();
        }
    }

    /// Returns the set as `fieldsV1`.
    pub(super) fn to_value(&self) -> Value {
        self.0.iter().map(|(element, node)| (element.name(), node.to_value())).collect::<Map<_, _>>().into()
    }

    /// Returns `fieldsV1` as text, in the order of kube-apiserver for built-in kinds.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let is_root_owned = false;
        self.write(&mut text, is_root_owned);
        text
    }

    fn write(&self, text: &mut String, owned: bool) {
        // An owned node with nodes below it contains a dot; without, it is just empty.
        let dot = (owned && !self.is_empty()).then(|| (".".to_owned(), None));
        let below = self.0.iter().map(|(element, node)| (element.name(), Some(node)));
        text.push('{');
        for (at, (name, node)) in dot.into_iter().chain(below).enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&Value::String(name).to_string());
            text.push(':');
            match node {
                Some(node) => node.below.write(text, node.owned),
                None => text.push_str("{}"),
            }
        }
        text.push('}');
    }

    /// Reads `fieldsV1`; elements of newer servers are dropped.
    pub(super) fn parse(value: &Value) -> Result<Set, String> {
        read(value).map(|(set, _)| set)
    }
}

impl SetNode {
    fn to_value(&self) -> Value {
        let mut value = self.below.to_value();
        if let Some(fields) = value.as_object_mut().filter(|fields| self.owned && !fields.is_empty()) {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        value
    }
}

/// Reads the nodes below a node, and whether the node itself is owned: if it contains a dot, or no nodes.
fn read(value: &Value) -> Result<(Set, bool), String> {
    let mut set = Set::default();
    let mut owned = false;
    let empty = Map::new();
    let fields = match value {
        Value::Object(fields) => fields,
        Value::Null => &empty,
        _ => return Err("expect { or n".to_owned()),
    };
    for (name, value) in fields {
        if name == "." {
            owned = true;
            continue;
        }
        let element = match Element::parse(name) {
            Ok(element) => element,
            Err(ElementError::Unknown) => continue,
            Err(ElementError::Bad(why)) => return Err(format!("parsing key as path element: {why}")),
        };
        let (below, owned) = read(value)?;
        set.0.insert(element, SetNode { owned, below });
    }
    let owned = owned || set.is_empty();
    Ok((set, owned))
}
