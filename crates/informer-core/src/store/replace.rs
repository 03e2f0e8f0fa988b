//! Replacing the contents of a scope by a complete list.
//!
//! A list is authoritative for its scope and does not affect other scopes. It is applied by comparing it with
//! the store: identical entries are kept, so a relist with few differences costs little. The listed objects
//! are accepted even if their versions are lower than the cached ones (C1).

use super::change::{BatchResult, Change};
use super::writer::StoreWriter;
use crate::delta::Replaced;
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use std::collections::BTreeSet;
use std::sync::Arc;

impl StoreWriter {
    /// Makes the store equal to the list within its scope.
    ///
    /// Reports deletions first, then additions and updates in key order (C5).
    pub(super) fn replace(&mut self, replaced: Replaced, result: &mut BatchResult) {
        let Replaced { scope, version, entries, unreadable, audit } = replaced;
        let changes_before = result.changes.len();
        let entries = sort_and_deduplicate(entries, result);
        let previous = self.state.versions.get(&scope).and_then(Option::as_ref);
        let is_initial = previous.is_none();
        result.server_rewound |= previous.is_some_and(|previous| version.is_before(previous));
        result.unreadable += unreadable.len() as u64;

        // An unreadable object still exists: its cached entry is kept and marked as stale.
        let unreadable_keys: BTreeSet<&Key> =
            unreadable.iter().filter_map(|object| object.key.as_ref()).collect();
        // The entries of a scope without a version were restored: they are no changes.
        let is_restored = is_initial && self.has_restored;
        if is_restored {
            self.remove_restored(&scope, &entries);
        } else {
            self.delete_unlisted(&scope, &entries, &unreadable_keys, result);
        }
        if is_initial {
            // Every entry of an initial list is a change.
            result.changes.reserve_exact(entries.len());
        }
        for entry in entries {
            if is_restored {
                self.confirm_restored(entry, result);
            } else {
                self.replace_one(entry, result);
            }
        }
        self.forget_unreadable(&scope, &unreadable_keys);
        for object in &unreadable {
            object.key.iter().for_each(|key| self.record_unreadable(key, object));
        }
        // The list is authoritative, also for earlier states.
        self.released.retain(|key, _| !scope.contains(key));
        self.state.versions.insert(scope, Some(version));
        self.has_restored &= self.state.versions.values().any(Option::is_none);
        if audit {
            result.drift += (result.changes.len() - changes_before) as u64;
        }
    }

    /// Deletes the objects of the scope that the list does not contain. `listed` is in key order.
    fn delete_unlisted(
        &mut self,
        scope: &Scope,
        listed: &[Arc<Entry>],
        unreadable_keys: &BTreeSet<&Key>,
        result: &mut BatchResult,
    ) {
        // `recreated_keys` are the keys of objects that were deleted and re-created since the last list, with
        // another uid.
        let (mut deletions, mut recreated_keys) = (Vec::new(), Vec::new());
        let mut listed = listed.iter().peekable();
        for old in self.in_scope(scope) {
            while listed.next_if(|entry| entry.key() < old.key()).is_some() {}
            match listed.peek() {
                Some(new) if new.key() == old.key() => {
                    if old.is_other_incarnation(new) {
                        recreated_keys.push(old.key().clone());
                        deletions.push(Change::Deleted { last: Arc::clone(old), observed: false });
                    }
                }
                _ if unreadable_keys.contains(old.key()) => {}
                _ => deletions.push(Change::Deleted { last: Arc::clone(old), observed: false }),
            }
        }
        for change in &deletions {
            // The entry of a re-created object is not removed, but replaced in its slot by `replace_one`.
            if recreated_keys.binary_search(change.key()).is_err() {
                self.remove(change.key());
            }
        }
        result.changes.append(&mut deletions);
    }

    fn replace_one(&mut self, new: Arc<Entry>, result: &mut BatchResult) {
        let cached = self.state.objects.find(new.key());
        let slot = cached.map(|(slot, _)| slot);
        match cached.map(|(_, old)| old) {
            // Equal versions do not prove equal states: a restored server assigns versions again, and a state
            // from before the restore may still be cached, because later states were unreadable. Therefore
            // `is_same_state` compares the contents.
            Some(old) if Arc::ptr_eq(old, &new) || old.is_same_state(&new) => {
                old.set_stale(false);
                return;
            }
            Some(old) if !old.is_other_incarnation(&new) => {
                result.changes.push(Change::Updated { old: Arc::clone(old), new: Arc::clone(&new) });
            }
            _ => result.changes.push(Change::Added(Arc::clone(&new))),
        }
        self.insert_or_replace(slot, new);
    }

    /// Removes the marks of objects in the scope that are no longer unreadable according to the list.
    fn forget_unreadable(&mut self, scope: &Scope, unreadable_keys: &BTreeSet<&Key>) {
        let marked = self.state.unreadable.keys();
        let obsolete: Vec<Key> =
            marked.filter(|key| scope.contains(key) && !unreadable_keys.contains(key)).cloned().collect();
        for key in obsolete {
            self.state.unreadable.remove(&key);
        }
    }

    /// Returns the entries of a scope in key order.
    pub(super) fn in_scope(&self, scope: &Scope) -> Box<dyn Iterator<Item = &Arc<Entry>> + '_> {
        match scope {
            Scope::All => Box::new(self.state.objects.values()),
            Scope::Namespace(namespace) => {
                let entries = self.state.objects.iter_from(|key| key.precedes_namespace(namespace));
                let scope = scope.clone();
                Box::new(entries.take_while(move |entry| scope.contains(entry.key())))
            }
        }
    }
}

/// Sorts a list by key. If a key occurs more than once, the last item is kept and the others are counted.
pub(super) fn sort_and_deduplicate(
    mut entries: Vec<Arc<Entry>>,
    result: &mut BatchResult,
) -> Vec<Arc<Entry>> {
    let count = entries.len();
    // The sort is stable: items with the same key keep their order. `dedup_by` keeps the first of equal
    // items, so it runs on the reversed list.
    entries.sort_by(|left, right| left.key().cmp(right.key()));
    entries.reverse();
    entries.dedup_by(|earlier, later| earlier.key() == later.key());
    entries.reverse();
    result.duplicates += (count - entries.len()) as u64;
    entries
}
