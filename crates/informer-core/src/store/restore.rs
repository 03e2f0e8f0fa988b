//! Restored entries: objects of a saved cache, readable before the first list of their scope.
//!
//! They are provisional. They are no changes, so no handler receives them; the scope has no version, so the
//! store is not synced (C7). The first list of the scope replaces them: each of its objects is a change
//! ([`Change::Added`]), whether it was restored or not.

use super::change::{BatchResult, Change};
use super::writer::StoreWriter;
use crate::key::Key;
use crate::object::Entry;
use crate::scope::Scope;
use std::sync::Arc;

impl StoreWriter {
    /// Adds restored entries to scopes that have no version, and publishes them. Entries of other scopes, and of
    /// keys that are in the store, are ignored.
    ///
    /// The entries are readable before the indexes contain them: until the second snapshot, a lookup examines every
    /// object.
    pub fn restore(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) {
        let empty: Vec<Scope> = self
            .state
            .versions
            .iter()
            .filter(|(_, version)| version.is_none())
            .map(|(scope, _)| scope.clone())
            .collect();
        let mut indexes = std::mem::take(&mut self.indexes);
        for entry in entries {
            let key = entry.key();
            if empty.iter().any(|scope| scope.contains(key)) && self.state.objects.get(key).is_none() {
                self.has_restored = true;
                self.place(None, entry);
            }
        }
        self.publish();
        if !indexes.is_empty() {
            let objects = &self.state.objects;
            for index in &mut indexes {
                objects.slots().for_each(|slot| index.update(slot, objects.at(slot)));
            }
            self.indexes = indexes;
            self.publish();
        }
    }

    /// Removes the restored entries of all scopes that have no version, and publishes one snapshot.
    pub fn discard_restored(&mut self) {
        if std::mem::replace(&mut self.has_restored, false) {
            let synced: Vec<&Scope> = self
                .state
                .versions
                .iter()
                .filter(|(_, version)| version.is_some())
                .map(|(scope, _)| scope)
                .collect();
            let keys = self.state.objects.values().map(|entry| entry.key());
            let restored: Vec<Key> =
                keys.filter(|key| !synced.iter().any(|scope| scope.contains(key))).cloned().collect();
            for key in &restored {
                self.remove(key);
            }
            self.publish();
        }
    }

    /// Removes the restored entries of a scope that its first list does not contain. `listed` is in key order.
    pub(super) fn remove_restored(&mut self, scope: &Scope, listed: &[Arc<Entry>]) {
        let is_listed = |key: &Key| listed.binary_search_by(|entry| entry.key().cmp(key)).is_ok();
        let keys = self.in_scope(scope).map(|entry| entry.key());
        let missing: Vec<Key> = keys.filter(|key| !is_listed(key)).cloned().collect();
        for key in &missing {
            self.remove(key);
        }
    }

    /// Stores an object of the first list of a scope with restored entries.
    pub(super) fn confirm_restored(&mut self, new: Arc<Entry>, result: &mut BatchResult) {
        let restored = self.state.objects.find(new.key());
        let slot = restored.map(|(slot, _)| slot);
        let is_same = restored.is_some_and(|(_, old)| Arc::ptr_eq(old, &new));
        result.changes.push(Change::Added(Arc::clone(&new)));
        if !is_same {
            self.insert_or_replace(slot, new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Index, StoreReader};
    use super::*;
    use crate::delta::{Delta, Replaced};
    use crate::retention::Retention;
    use crate::version::ResourceVersion;
    use crate::wire::{Limits, ManagedFields, TypeMeta, read_object};

    fn entry(namespace: &str, name: &str, version: u32) -> Arc<Entry> {
        let json = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"u","resourceVersion":"{version}"}}}}"#
        );
        let (types, limits) = (TypeMeta::new("v1", "Pod"), Limits::default());
        let scanned = read_object(&types, limits, ManagedFields::Drop, json.as_bytes()).unwrap();
        Arc::new(Entry::new(scanned, Retention::Bytes))
    }

    fn list(scope: &Scope, entries: Vec<Arc<Entry>>) -> Delta {
        let (scope, version) = (scope.clone(), ResourceVersion::new("9"));
        Delta::Replaced(Replaced { scope, version, entries, unreadable: Vec::new(), audit: false })
    }

    fn keys(reader: &StoreReader) -> String {
        let keys: Vec<String> = reader.snapshot().list().map(|entry| format!("{entry:?}")).collect();
        keys.join(" ")
    }

    #[test]
    fn restored_entries_are_readable_and_the_first_list_adds_all_objects() {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        let index = Index::field("metadata.uid").build().unwrap();
        writer.add_index(index.clone());
        let kept = entry("a", "kept", 1);
        writer.restore([Arc::clone(&kept), entry("a", "changed", 2), entry("a", "gone", 3)]);
        assert_eq!(reader.snapshot().by_index(&index, "u").count(), 3);
        writer.check_invariants();
        assert_eq!(keys(&reader), "a/changed@2 a/gone@3 a/kept@1");
        assert!(!reader.snapshot().has_synced() && reader.snapshot().resource_version().is_none());
        let listed = vec![kept, entry("a", "changed", 5), entry("a", "new", 6)];
        let result = writer.apply(&Scope::All, [list(&Scope::All, listed)]);
        let changes: Vec<String> = result.changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(changes, ["Added(a/changed@5)", "Added(a/kept@1)", "Added(a/new@6)"]);
        assert_eq!(keys(&reader), "a/changed@5 a/kept@1 a/new@6");
        writer.check_invariants();
        // The second list is compared as usual.
        let result = writer.apply(&Scope::All, [list(&Scope::All, vec![entry("a", "new", 6)])]);
        assert_eq!(result.changes.len(), 2, "two deletions: {:?}", result.changes);
    }

    #[test]
    fn scopes_are_confirmed_one_by_one() {
        let (a, b) = (Scope::namespace("a"), Scope::namespace("b"));
        let (mut writer, reader) = StoreWriter::new([a.clone(), b.clone()]);
        writer.restore([entry("a", "x", 1), entry("b", "y", 2), entry("c", "outside", 3)]);
        assert_eq!(keys(&reader), "a/x@1 b/y@2");
        let result = writer.apply(&a, [list(&a, vec![])]);
        assert_eq!((result.changes.len(), &*keys(&reader)), (0, "b/y@2"));
        let result = writer.apply(&b, [list(&b, vec![entry("b", "y", 2)])]);
        assert!(matches!(result.changes[..], [Change::Added(_)]));
        assert!(reader.snapshot().has_synced());
        writer.check_invariants();
    }

    #[test]
    fn discarded_entries_disappear() {
        let (a, b) = (Scope::namespace("a"), Scope::namespace("b"));
        let (mut writer, reader) = StoreWriter::new([a.clone(), b]);
        writer.restore([entry("a", "x", 1), entry("b", "y", 2)]);
        writer.apply(&a, [list(&a, vec![entry("a", "z", 5)])]);
        writer.discard_restored();
        assert_eq!(keys(&reader), "a/z@5");
        writer.check_invariants();
    }

    #[test]
    fn differences_between_snapshots_are_visited_by_key() {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        let kept = entry("a", "kept", 1);
        let first = vec![Arc::clone(&kept), entry("a", "changed", 2), entry("a", "gone", 3)];
        writer.apply(&Scope::All, [list(&Scope::All, first)]);
        let earlier = reader.snapshot();
        // The new object takes the slot of the deleted one, and the re-created one another slot.
        for entries in [vec![Arc::clone(&kept)], vec![kept, entry("a", "new", 6), entry("a", "changed", 7)]] {
            writer.apply(&Scope::All, [list(&Scope::All, entries)]);
        }
        let mut visited = Vec::new();
        reader.snapshot().for_each_change(&earlier, |key, old, new| {
            let text = |entry: Option<&Arc<Entry>>| entry.map_or("-".to_owned(), |one| format!("{one:?}"));
            visited.push(format!("{key}: {} {}", text(old), text(new)));
        });
        visited.sort();
        assert_eq!(visited, ["a/changed: a/changed@2 a/changed@7", "a/gone: a/gone@3 -", "a/new: - a/new@6"]);
    }
}
