//! Sharing what many objects of a cache have in common: label sets and owners.
//!
//! The replicas of one thing have the same labels and the same owner, and lie side by side in a list. So a table of what came
//! last is enough: when it is full, what only the table holds is forgotten, and if that is not much, all of it. Whatever was shared stays shared.

use crate::wire::Head;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, Mutex, PoisonError};

/// So many different ones are remembered.
const MAX_INTERNED: usize = 4096;

/// What the newest heads of a cache are made of.
#[derive(Debug, Default)]
pub(crate) struct Interner(Mutex<Tables>);

#[derive(Debug, Default)]
struct Tables {
    labels: Table<[u8]>,
    owners: Table<[u8]>,
}

impl Interner {
    /// Takes from earlier heads what this one has in common with them.
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
    known: HashTable<Arc<T>>,
    // Whoever may create objects chooses their labels; that the table is bounded is what bounds the harm.
    hasher: DefaultHashBuilder,
}

impl<T: ?Sized> Default for Table<T> {
    fn default() -> Self {
        Self { known: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: ?Sized + Hash + Eq> Table<T> {
    fn share(&mut self, value: &mut Arc<T>) {
        let hash = self.hasher.hash_one(&**value);
        if let Some(known) = self.known.find(hash, |known| **known == **value) {
            *value = Arc::clone(known);
            return;
        }
        if self.known.len() >= MAX_INTERNED {
            self.forget();
        }
        let Self { known, hasher } = self;
        known.insert_unique(hash, Arc::clone(value), |known| hasher.hash_one(&**known));
    }

    /// Forgets what nobody uses; if that is less than half, everything.
    fn forget(&mut self) {
        self.known.retain(|known| Arc::strong_count(known) > 1);
        if self.known.len() > MAX_INTERNED / 2 {
            self.known.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Limits, TypeMeta, read_object};

    fn shared(table: &mut Table<str>, text: &str) -> Arc<str> {
        let mut value = text.into();
        table.share(&mut value);
        value
    }

    fn head(name: &str, app: &str, owner: &str) -> Head {
        let object = format!(
            r#"{{"metadata":{{"name":"{name}","resourceVersion":"7","labels":{{"app":"{app}"}},"ownerReferences":[{{"apiVersion":"v1","kind":"Rack","name":"{owner}","uid":"u"}}]}}}}"#
        );
        read_object(&TypeMeta::new("v1", "Widget"), Limits::default(), object.as_bytes()).unwrap().head
    }

    #[test]
    fn objects_share_what_they_have_in_common_and_nothing_else() {
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
    fn equal_ones_are_one() {
        let mut table = Table::default();
        let first = shared(&mut table, "a");
        assert!(Arc::ptr_eq(&first, &shared(&mut table, "a")));
        assert_eq!(&*shared(&mut table, "b"), "b");
        assert!(Arc::ptr_eq(&first, &shared(&mut table, "a")));
    }

    #[test]
    fn the_table_is_bounded_and_forgets_what_nobody_uses() {
        let mut table = Table::default();
        let held: Vec<_> = (0..100).map(|number| shared(&mut table, &format!("held {number}"))).collect();
        let before = shared(&mut table, "dropped");
        let weak = Arc::downgrade(&before);
        drop(before);
        for number in 0..MAX_INTERNED {
            drop(shared(&mut table, &format!("passing {number}")));
            assert!(table.known.len() <= MAX_INTERNED);
        }
        assert!(weak.upgrade().is_none(), "nobody uses it");
        for (number, held) in held.iter().enumerate() {
            assert!(Arc::ptr_eq(held, &shared(&mut table, &format!("held {number}"))));
        }
    }

    #[test]
    fn a_table_of_which_all_is_used_begins_anew() {
        let mut table = Table::default();
        let held: Vec<_> =
            (0..3 * MAX_INTERNED).map(|number| shared(&mut table, &number.to_string())).collect();
        assert!(table.known.len() <= MAX_INTERNED);
        let last = 3 * MAX_INTERNED - 1;
        assert!(Arc::ptr_eq(&held[last], &shared(&mut table, &last.to_string())));
    }
}
