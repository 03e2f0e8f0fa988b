//! Interning: sharing equal label sets and owner references among the objects of a cache.
//!
//! Replicas have the same labels and the same owner and are adjacent in a list, so a table of recent values
//! is enough. When it is full, values that only the table references are removed; if that frees less than
//! half of it, the table is cleared. Objects that share a value keep sharing it.

use crate::wire::Head;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of values per table.
const MAX_INTERNED: usize = 4096;

/// The label sets and owners of recent heads (the metadata read from each object).
#[derive(Debug, Default)]
pub(crate) struct Interner(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    labels: Table<[u8]>,
    owners: Table<[u8]>,
}

impl Interner {
    /// Replaces the labels and owners of a head by equal ones of earlier heads.
    pub(crate) fn share(&self, head: &mut Head) {
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !head.labels.is_empty() {
            tables.labels.share(&mut head.labels.0.0);
        }
        if !head.owners.is_empty() {
            tables.owners.share(&mut head.owners.0.0);
        }
    }
}

#[derive(Debug)]
struct Table<T: ?Sized> {
    values: HashTable<Arc<T>>,
    // Users choose the labels of their objects and could cause hash collisions; the bound of the table limits
    // the cost.
    hasher: DefaultHashBuilder,
}

impl<T: ?Sized> Default for Table<T> {
    fn default() -> Self {
        Self { values: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: ?Sized + Hash + Eq> Table<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        let hash = self.hasher.hash_one(&**value);
        if let Some(interned) = self.values.find(hash, |interned| **interned == **value) {
            *value = Arc::clone(interned);
            return;
        }
        if self.values.len() >= MAX_INTERNED {
            self.evict();
        }
        let Self { values, hasher } = self;
        values.insert_unique(hash, Arc::clone(value), |interned| hasher.hash_one(&**interned));
    }

    /// Removes the values that no object uses; if fewer than half of the values are unused, removes all.
    fn evict(&mut self) {
        self.values.retain(|value| Arc::strong_count(value) > 1);
        if self.values.len() > MAX_INTERNED / 2 {
            self.values.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Limits, ManagedFields, TypeMeta, read_object};

    fn shared(table: &mut Table<str>, text: &str) -> Arc<str> {
        let mut value = text.into();
        table.share(&mut value);
        value
    }

    fn head(name: &str, app: &str, owner: &str) -> Head {
        let object = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"7","labels":{{"app":"{app}"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Rack","name":"{owner}","uid":"u"}}]}}}}"#
        );
        let type_meta = TypeMeta::new("v1", "Widget");
        read_object(&type_meta, Limits::default(), ManagedFields::Drop, object.as_bytes()).unwrap().head
    }

    #[test]
    fn equal_labels_and_owners_are_shared_and_others_are_not() {
        let interner = Interner::default();
        let mut heads = [
            head("a", "web", "one"),
            head("b", "web", "one"),
            head("c", "api", "one"),
            head("d", "web", "two"),
        ];
        let before = heads.clone();
        for head in &mut heads {
            interner.share(head);
        }
        assert_eq!(heads, before);
        let [a, b, c, d] = &heads;
        let same_labels = |left: &Head, right: &Head| Arc::ptr_eq(&left.labels.0.0, &right.labels.0.0);
        let same_owners = |left: &Head, right: &Head| Arc::ptr_eq(&left.owners.0.0, &right.owners.0.0);
        assert!(same_labels(a, b) && !same_labels(a, c) && same_labels(a, d));
        assert!(same_owners(a, b) && same_owners(a, c) && !same_owners(a, d));
    }

    #[test]
    fn equal_values_are_interned_once() {
        let mut table = Table::default();
        let first = shared(&mut table, "a");
        assert!(Arc::ptr_eq(&first, &shared(&mut table, "a")));
        assert_eq!(&*shared(&mut table, "b"), "b");
        assert!(Arc::ptr_eq(&first, &shared(&mut table, "a")));
    }

    #[test]
    fn full_table_evicts_unused_values() {
        let mut table = Table::default();
        let used: Vec<_> = (0..100).map(|number| shared(&mut table, &format!("used {number}"))).collect();
        let before = shared(&mut table, "dropped");
        let weak = Arc::downgrade(&before);
        drop(before);
        for number in 0..MAX_INTERNED {
            drop(shared(&mut table, &format!("unused {number}")));
            assert!(table.values.len() <= MAX_INTERNED);
        }
        assert!(weak.upgrade().is_none(), "unused values are dropped");
        for (number, used) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(used, &shared(&mut table, &format!("used {number}"))));
        }
    }

    #[test]
    fn full_table_without_unused_values_is_cleared() {
        let mut table = Table::default();
        let used: Vec<_> =
            (0..3 * MAX_INTERNED).map(|number| shared(&mut table, &number.to_string())).collect();
        assert!(table.values.len() <= MAX_INTERNED);
        let last = 3 * MAX_INTERNED - 1;
        assert!(Arc::ptr_eq(&used[last], &shared(&mut table, &last.to_string())));
    }
}
