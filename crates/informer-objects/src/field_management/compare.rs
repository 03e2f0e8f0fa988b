//! The differences between two objects as sets of paths.
//!
//! Atomic values differ as a whole, entries of lists are identified by their keys, and their order does not
//! matter. Both objects match the schema, as checked by [`super::validate`]. Nothing here knows owners.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::{Element, Path, same};
use super::schema_position::{SchemaPosition, SchemaShape, entry_of};
use super::set::Set;
use crate::schema::Keys;

#[derive(Debug, Default)]
pub(super) struct Diff {
    pub(super) removed: Set,
    pub(super) modified: Set,
    pub(super) added: Set,
}

impl Diff {
    pub(super) fn between(position: SchemaPosition<'_>, old: &Value, new: &Value) -> Self {
        let mut walk = Walk { diff: Diff::default(), path: Path::new() };
        walk.compare(position, Some(old), Some(new));
        walk.diff
    }

    /// Returns the differences that are not at or below these paths.
    pub(super) fn without(&self, paths: &Set) -> Self {
        Diff {
            removed: self.removed.without(paths),
            modified: self.modified.without(paths),
            added: self.added.without(paths),
        }
    }
}

struct Walk {
    diff: Diff,
    path: Path,
}

impl Walk {
    /// Compares two values, of which at least one is present.
    fn compare(&mut self, position: SchemaPosition<'_>, old: Option<&Value>, new: Option<&Value>) {
        let (old_shape, new_shape) = (position.shape(old), position.shape(new));
        let is_leaf = match (old, new) {
            (_, None) => self.visit(position, old_shape, old, new),
            (None, _) => self.visit(position, new_shape, old, new),
            // The type of an untyped value changed: the old contents are removed, the new ones added.
            _ if !is_same_shape(old_shape, new_shape) => {
                self.visit(position, old_shape, old, new);
                self.visit(position, new_shape, old, new)
            }
            _ => self.visit(position, new_shape, old, new),
        };
        // An added or removed object or list is recorded itself, besides its contents.
        match (is_leaf, old, new) {
            (true, ..) => {}
            (_, None, _) => self.diff.added.insert(&self.path),
            (_, _, None) => self.diff.removed.insert(&self.path),
            _ => {}
        }
    }

    /// Compares values as `shape`. Returns whether they were compared as a whole and not by their contents.
    fn visit(
        &mut self,
        position: SchemaPosition<'_>,
        shape: SchemaShape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> bool {
        match shape {
            SchemaShape::List(keys, items) => {
                let (before, after) = (entries(old), entries(new));
                // Null, empty and absent lists differ as values.
                if before.is_empty() && after.is_empty() {
                    return self.leaf(old, new);
                }
                self.list(keys, items, before, after);
                false
            }
            SchemaShape::Map => {
                let (before, after) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
                if before.is_none_or(serde_json::Map::is_empty) && after.is_none_or(serde_json::Map::is_empty)
                {
                    return self.leaf(old, new);
                }
                let names = before.into_iter().flatten().map(|(name, _)| name);
                let added_names = after.into_iter().flatten().map(|(name, _)| name);
                let added_names =
                    added_names.filter(|name| before.is_none_or(|fields| !fields.contains_key(*name)));
                for name in names.chain(added_names) {
                    let old = before.and_then(|fields| fields.get(name));
                    let new = after.and_then(|fields| fields.get(name));
                    self.below(Element::field(name), position.below(name), old, new);
                }
                false
            }
            SchemaShape::Scalar(_) | SchemaShape::AtomicList(_) | SchemaShape::AtomicMap => {
                self.leaf(old, new)
            }
        }
    }

    /// Compares values as a whole. Returns `true`, the result of [`Walk::visit`] for such values.
    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.diff.added.insert(&self.path),
            (_, None) => self.diff.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.diff.modified.insert(&self.path),
            _ => {}
        }
        true
    }

    fn below(
        &mut self,
        element: Element,
        position: SchemaPosition<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) {
        self.path.push(element);
        self.compare(position, old, new);
        self.path.pop();
    }

    /// Compares lists; entries with the same key that occur several times are compared as one value and
    /// recorded by their key alone.
    fn list(&mut self, keys: Option<Keys<'_>>, items: SchemaPosition<'_>, old: &[Value], new: &[Value]) {
        let mut by_key: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for entry in old {
            if let Ok(element) = entry_of(keys, items, entry) {
                by_key.entry(element).or_default().0.push(entry);
            }
        }
        for entry in new {
            if let Ok(element) = entry_of(keys, items, entry) {
                by_key.entry(element).or_default().1.push(entry);
            }
        }
        for (element, (old, new)) in by_key {
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    self.below(element, items, old.first().copied(), new.first().copied());
                }
                ([_, _, ..], [_, _, ..]) => {
                    let equal =
                        old.len() == new.len() && old.iter().zip(&new).all(|(old, new)| same(old, new));
                    if !equal {
                        self.record(element, |diff| &mut diff.modified);
                    }
                }
                ([_, _, ..], _) => {
                    if let Some(new) = new.first() {
                        self.below(element.clone(), items, None, Some(new));
                    }
                    self.record(element, |diff| &mut diff.removed);
                }
                (_, [_, _, ..]) => {
                    if let Some(old) = old.first() {
                        self.below(element.clone(), items, Some(old), None);
                    }
                    self.record(element, |diff| &mut diff.added);
                }
            }
        }
    }

    fn record(&mut self, element: Element, set: impl Fn(&mut Diff) -> &mut Set) {
        self.path.push(element);
        set(&mut self.diff).insert(&self.path);
        self.path.pop();
    }
}

/// Returns the entries of a list; empty if the value is not a list.
pub(super) fn entries(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Whether two values at one position have the same shape.
fn is_same_shape(one: SchemaShape<'_>, other: SchemaShape<'_>) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}
