//! A value together with the value that it replaces in an update.
//!
//! Fields are paired by name, entries of a list by their keys if the list has keys; kube-apiserver calls such
//! values correlatable. A value without a counterpart counts as new.

use std::collections::BTreeMap;

use serde_json::Value;

use super::lists::key_of;
use crate::schema::Structural;

/// A value, its previous value, and their schema.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair<'a> {
    new: &'a Value,
    old: &'a Value,
    schema: &'a Structural,
}

/// The old entries of a list by their keys.
#[derive(Debug)]
pub(crate) struct OldItems<'a> {
    by_key: BTreeMap<String, &'a Value>,
    schema: Option<&'a Structural>,
    keys: &'a [String],
}

impl<'a> Pair<'a> {
    pub(crate) fn new(new: &'a Value, old: &'a Value, schema: &'a Structural) -> Self {
        Pair { new, old, schema }
    }

    /// Returns the previous value.
    pub(crate) fn old(self) -> &'a Value {
        self.old
    }

    /// Returns the pair of a field; `None` if the schema, the value or the previous value lacks it.
    pub(crate) fn field(self, name: &str) -> Option<Pair<'a>> {
        let schema = self.schema.child(name)?;
        Some(Pair { new: self.new.as_object()?.get(name)?, old: self.old.as_object()?.get(name)?, schema })
    }

    /// Returns the old entries of a list; empty if the list has no keys.
    pub(crate) fn items(self) -> OldItems<'a> {
        let keys = self.schema.list_keys.as_slice();
        let mut by_key = BTreeMap::new();
        if self.schema.list_type.as_deref() == Some("map") && !keys.is_empty() {
            for item in self.old.as_array().into_iter().flatten().filter(|item| item.is_object()) {
                if let Some(key) = whole_key(item, keys) {
                    by_key.entry(key).or_insert(item);
                }
            }
        }
        OldItems { by_key, schema: self.schema.items.as_deref(), keys }
    }

    /// Whether nothing changed. A field that the schema does not know counts as a change, even if it is
    /// equal.
    pub(crate) fn is_same(self) -> bool {
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                if new.len() != old.len() {
                    return false;
                }
                if self.schema.list_type.as_deref() != Some("map") || self.schema.items.is_none() {
                    return new == old;
                }
                let items = self.items();
                new.iter().all(|item| items.get(item).is_some_and(Pair::is_same))
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len() && new.keys().all(|name| self.field(name).is_some_and(Pair::is_same))
            }
            (new, old) => new == old,
        }
    }
}

impl<'a> OldItems<'a> {
    /// Pairs a new entry with the old entry that has the same keys.
    pub(crate) fn get(&self, new: &'a Value) -> Option<Pair<'a>> {
        let schema = self.schema?;
        let old = self.by_key.get(&whole_key(new, self.keys)?)?;
        Some(Pair { new, old, schema })
    }
}

/// Returns the keys of an entry as one text; `None` if a key is absent, a list or an object.
fn whole_key(item: &Value, keys: &[String]) -> Option<String> {
    let scalar = |key: &String| item.get(key).is_some_and(|value| !value.is_object() && !value.is_array());
    keys.iter().all(scalar).then(|| key_of(item, keys).to_string())
}
