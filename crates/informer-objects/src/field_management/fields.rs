//! Sets of paths in relation to a schema: the paths of a configuration, and the adaptation of a set to the
//! current schema.
//!
//! Objects match the schema; sets may not. Nothing here compares or changes objects.

use std::collections::BTreeMap;

use serde_json::Value;

use super::compare::entries;
use super::element::{Element, Path};
use super::schema_position::{SchemaPosition, SchemaShape, entry_of};
use super::set::{Set, SetNode};

/// Returns the paths of a configuration: its leaves, the entries of its lists and maps, and empty or null
/// values.
pub(super) fn paths_of(position: SchemaPosition<'_>, config: &Value) -> Set {
    let mut set = Set::default();
    collect(position, config, &mut Path::new(), &mut set);
    set
}

/// Returns the set, extended by every field that the schema declares and that has owned paths below it.
pub(super) fn with_declared_fields(position: SchemaPosition<'_>, set: &Set) -> Set {
    extended(Some(position), set)
}

/// Returns the set adapted to the schema: if a value has become atomic, it is owned as a whole instead of by
/// its parts.
pub(super) fn fitted(position: SchemaPosition<'_>, set: &Set) -> Set {
    set.filter_map(|element, node| {
        let below = if node.below.is_empty() { None } else { position.step(element) };
        match below.map(|position| (position, position.shape(None))) {
            Some((_, SchemaShape::AtomicList(_) | SchemaShape::AtomicMap)) => {
                Some(SetNode { owned: true, below: Set::default() })
            }
            Some((position, _)) => Some(SetNode { owned: node.owned, below: fitted(position, &node.below) }),
            None => Some(node.clone()),
        }
    })
}

fn collect(position: SchemaPosition<'_>, value: &Value, path: &mut Path, set: &mut Set) {
    match position.shape(Some(value)) {
        SchemaShape::Scalar(_) | SchemaShape::AtomicList(_) | SchemaShape::AtomicMap => set.insert(path),
        SchemaShape::List(keys, items) => {
            let mut by_element: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
            for entry in entries(Some(value)) {
                if let Ok(element) = entry_of(keys, items, entry) {
                    by_element.entry(element).or_default().push(entry);
                }
            }
            for (element, same_key) in by_element {
                path.push(element);
                if let [entry] = same_key.as_slice() {
                    collect(items, entry, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        SchemaShape::Map => {
            for (name, value) in value.as_object().into_iter().flatten() {
                path.push(Element::field(name));
                collect(position.below(name), value, path, set);
                let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                if is_empty || !position.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

fn extended(position: Option<SchemaPosition<'_>>, set: &Set) -> Set {
    set.filter_map(|element, node| {
        let is_declared_parent = match (position, element) {
            (Some(position), Element::Field(name)) => !node.below.is_empty() && position.declares(name),
            _ => false,
        };
        let below = extended(position.and_then(|position| position.step(element)), &node.below);
        Some(SetNode { owned: node.owned || is_declared_parent, below })
    })
}
