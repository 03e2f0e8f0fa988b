//! Merging of a configuration into the live object, and removal of owned fields.
//!
//! If both have a value, that of the configuration is used; entries of lists are merged by their keys. Both
//! objects match the schema. Removal may leave `null` instead of an empty value; decoding drops the `null`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::compare::entries;
use super::element::Element;
use super::schema_position::{SchemaPosition, SchemaShape, entry_of};
use super::set::Set;
use crate::schema::Keys;

/// Merges `config` into `live`.
pub(super) fn merged(position: SchemaPosition<'_>, live: &Value, config: &Value) -> Value {
    merge(position, Some(live), Some(config)).unwrap_or(Value::Null)
}

/// Returns the value without the paths of the set.
pub(super) fn removed(position: SchemaPosition<'_>, value: &Value, set: &Set) -> Value {
    match (position.shape(Some(value)), value) {
        (SchemaShape::Scalar(_), _) => value.clone(),
        (SchemaShape::List(keys, items), Value::Array(entries)) => {
            let remaining: Vec<Value> = entries
                .iter()
                .filter_map(|entry| {
                    let node = entry_of(keys, items, entry).ok().and_then(|element| set.get(&element));
                    match node {
                        Some(node) if node.owned => None,
                        Some(node) => Some(removed(items, entry, &node.below)),
                        None => Some(entry.clone()),
                    }
                })
                .collect();
            if remaining.is_empty() { Value::Null } else { remaining.into() }
        }
        (SchemaShape::Map, Value::Object(fields)) => {
            let remaining: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, value)| match set.get(&Element::field(name)) {
                    Some(node) if node.owned => None,
                    Some(node) => Some((name.clone(), removed(position.below(name), value, &node.below))),
                    None => Some((name.clone(), value.clone())),
                })
                .collect();
            if remaining.is_empty() { Value::Null } else { remaining.into() }
        }
        // An atomic value is removed as a whole, even if the set contains only a part of it.
        _ => Value::Null,
    }
}

fn merge(position: SchemaPosition<'_>, live: Option<&Value>, config: Option<&Value>) -> Option<Value> {
    let leaf = || config.or(live).cloned();
    match position.shape(config.or(live)) {
        SchemaShape::List(keys, items) => {
            let (before, wanted) = (entries(live), entries(config));
            if before.is_empty() && wanted.is_empty() {
                return leaf();
            }
            Some(Lists::new(keys, items, before, wanted).merge().into())
        }
        SchemaShape::Map => {
            let (before, wanted) = (live.and_then(Value::as_object), config.and_then(Value::as_object));
            if before.is_none_or(Map::is_empty) && wanted.is_none_or(Map::is_empty) {
                return leaf();
            }
            let names: BTreeSet<&String> = before
                .into_iter()
                .flatten()
                .chain(wanted.into_iter().flatten())
                .map(|(name, _)| name)
                .collect();
            let fields = names.into_iter().filter_map(|name| {
                let live = before.and_then(|fields| fields.get(name));
                let config = wanted.and_then(|fields| fields.get(name));
                merge(position.below(name), live, config).map(|value| (name.clone(), value))
            });
            Some(Value::Object(fields.collect()))
        }
        SchemaShape::Scalar(_) | SchemaShape::AtomicList(_) | SchemaShape::AtomicMap => leaf(),
    }
}

/// Two lists whose entries have keys.
///
/// Entries of the configuration keep their order. Entries that exist only in the live list keep their
/// positions between those as far as possible.
struct Lists<'a> {
    items: SchemaPosition<'a>,
    live: Vec<(Element, &'a Value)>,
    config: Vec<(Element, &'a Value)>,
    /// The live entries by key; null for a key that occurs several times, whose entries cannot be merged.
    live_by_key: BTreeMap<Element, &'a Value>,
    /// The entries of the configuration by key, likewise.
    config_by_key: BTreeMap<Element, &'a Value>,
}

impl<'a> Lists<'a> {
    fn new(
        keys: Option<Keys<'a>>,
        items: SchemaPosition<'a>,
        live: &'a [Value],
        config: &'a [Value],
    ) -> Self {
        let index = |list: &'a [Value]| -> Vec<(Element, &'a Value)> {
            let entries =
                list.iter().filter_map(|entry| entry_of(keys, items, entry).ok().map(|key| (key, entry)));
            entries.collect()
        };
        let (live, config) = (index(live), index(config));
        let by_key = |list: &[(Element, &'a Value)]| {
            let mut by_key = BTreeMap::new();
            for (key, entry) in list {
                by_key.entry(key.clone()).and_modify(|entry| *entry = &Value::Null).or_insert(*entry);
            }
            by_key
        };
        let (live_by_key, config_by_key) = (by_key(&live), by_key(&config));
        Lists { items, live, config, live_by_key, config_by_key }
    }

    fn merge(&self) -> Vec<Value> {
        let mut out = Vec::new();
        let shared = self.config.iter().map(|(key, _)| key).filter(|key| self.live_by_key.contains_key(*key));
        let mut shared: VecDeque<&Element> = shared.collect();
        let mut merged: BTreeSet<&Element> = BTreeSet::new();
        let (mut at_live, mut at_config) = (0, 0);
        loop {
            let (live, config) = (self.live.get(at_live), self.config.get(at_config));
            match (live, config) {
                (None, None) => return out,
                (Some((key, _)), Some((wanted, _))) if key == wanted => {
                    merged.insert(key);
                    out.extend(self.merged_entry(key));
                    at_live += 1;
                    at_config += 1;
                    shared.pop_front();
                    continue;
                }
                // In both lists, but the configuration has another shared entry first.
                (Some((key, _)), Some(_))
                    if self.config_by_key.contains_key(key)
                        && shared.front().is_some_and(|next| *next != key) =>
                {
                    at_live += 1;
                    continue;
                }
                // Only in the live list.
                (Some((key, entry)), _) if !self.config_by_key.contains_key(key) => {
                    out.extend(merge(self.items, Some(entry), None));
                    at_live += 1;
                    continue;
                }
                (Some((key, _)), _) if merged.contains(key) => at_live += 1,
                _ => {}
            }
            if let Some((key, _)) = config {
                merged.insert(key);
                out.extend(self.merged_entry(key));
                at_config += 1;
                if shared.front().is_some_and(|next| *next == key) {
                    shared.pop_front();
                }
            }
        }
    }

    fn merged_entry(&self, key: &Element) -> Option<Value> {
        merge(self.items, self.live_by_key.get(key).copied(), self.config_by_key.get(key).copied())
    }
}
