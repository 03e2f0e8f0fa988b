//! Hash ranges that a scope gains and releases while the store is used.
//!
//! The reflector sends the deltas of all ranges of a scope in one order, so no delta of a range follows its release
//! until the range is gained again. This file must not know why ranges move.

use super::change::{BatchResult, Change};
use super::replace::sort_and_deduplicate;
use super::writer::StoreWriter;
use crate::delta::Replaced;
use crate::key::Key;
use crate::scope::Scope;
use crate::shard::ShardFilter;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::collections::BTreeMap;
use std::sync::Arc;

impl StoreWriter {
    /// Adds the objects of gained ranges, in key order. The version of the scope becomes the lower one of the list and
    /// the other ranges: up to that version, the store contains all changes.
    ///
    /// With ranges of uids, an object may have the key of a cached one: the deletion of the latter was not observed
    /// yet, or it is newer. The newer incarnation stays.
    pub(super) fn gain(&mut self, list: Replaced, result: &mut BatchResult) {
        let Replaced { scope, version, entries, unreadable, .. } = list;
        if let Some(Some(known)) = self.state.versions.get_mut(&scope)
            && version.is_before(known)
        {
            *known = version.clone();
        }
        // A list is not older than a state that was released before, unless the server was restored from a backup.
        self.released.retain(|key, released| !scope.contains(key) || !version.is_before(released));
        result.unreadable += unreadable.len() as u64;
        let newer_states: BTreeMap<&Key, &UnreadableObject> =
            unreadable.iter().filter_map(|object| Some((object.key.as_ref()?, object))).collect();
        for new in sort_and_deduplicate(entries, result) {
            let (slot, old) = self.state.objects.find(new.key()).unzip();
            if old.is_some_and(|old| new.head().version.is_before(&old.head().version)) {
                result.stale_deltas += 1;
                continue;
            }
            result.push_upsert(old, &new);
            // An unreadable object that is not in the list may be another incarnation, of other ranges.
            let newer_state = newer_states.get(new.key()).copied();
            self.insert_or_replace(slot, new);
            if let Some(object) = newer_state {
                object.key.iter().for_each(|key| self.record_unreadable(key, object));
            }
        }
    }

    /// Removes the objects of released ranges.
    pub(super) fn release_ranges(&mut self, scope: &Scope, released: &ShardFilter, result: &mut BatchResult) {
        let entries = self.in_scope(scope).filter(|entry| released.contains(entry.head()));
        let mut changes: Vec<Change> = entries.map(|entry| Change::Released(Arc::clone(entry))).collect();
        let keys: Vec<Key> = changes.iter().map(|change| change.key().clone()).collect();
        for key in &keys {
            self.remove(key);
        }
        let scope_version = self.state.versions.get(scope).and_then(Option::as_ref);
        for change in &changes {
            if let (Change::Released(entry), Some(scope_version)) = (change, scope_version)
                && scope_version.is_before(&entry.head().version)
            {
                self.released.insert(entry.key().clone(), entry.head().version.clone());
            }
        }
        result.changes.append(&mut changes);
    }

    /// Forgets the released objects of a scope that are not newer than `version`.
    pub(super) fn forget_released(&mut self, scope: &Scope, version: &ResourceVersion) {
        if !self.released.is_empty() {
            self.released.retain(|key, released| !scope.contains(key) || version.is_before(released));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::Delta;
    use crate::object::Entry;
    use crate::retention::Retention;
    use crate::shard::{HashRange, HashRanges, ShardProperty, shard_hash};
    use crate::wire::{BodyLocation, Limits, ManagedFields, ObjectError, TypeMeta, read_object};

    fn entry(name: &str, uid: &str, version: u32) -> Arc<Entry> {
        let json = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"a","uid":"{uid}","resourceVersion":"{version}"}}}}"#
        );
        let types = TypeMeta::new("v1", "Pod");
        let scanned = read_object(&types, Limits::default(), ManagedFields::Drop, json.as_bytes()).unwrap();
        Arc::new(Entry::new(scanned, Retention::Bytes))
    }

    fn list(entries: Vec<Arc<Entry>>, version: &str) -> Replaced {
        let version = ResourceVersion::new(version);
        Replaced { scope: Scope::All, version, entries, unreadable: Vec::new(), audit: false }
    }

    fn only(uid: &str) -> ShardFilter {
        let hash = shard_hash(uid);
        let ranges: HashRanges = HashRange::new(hash, hash).into_iter().collect();
        ShardFilter::new(ShardProperty::Uid, ranges)
    }

    fn changes(result: &BatchResult) -> Vec<String> {
        result.changes.iter().map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn gained_objects_are_added_and_released_ones_removed_without_a_deletion() {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let mut writer = writer.sharded();
        writer.apply(&Scope::All, [Delta::Replaced(list(vec![entry("x", "u1", 3)], "5"))]);
        let gained = list(vec![entry("y", "u2", 4), entry("z", "u3", 7)], "9");
        let result = writer.apply(&Scope::All, [Delta::Gained(gained)]);
        assert_eq!(changes(&result), ["Added(a/y@4)", "Added(a/z@7)"]);
        let version = || reader.snapshot().resource_version().map(ToString::to_string);
        assert_eq!(version().as_deref(), Some("5"), "other ranges have not reached the version");
        writer.apply(&Scope::All, [Delta::Gained(list(Vec::new(), "4"))]);
        assert_eq!(version().as_deref(), Some("4"), "gained ranges have not reached the version");
        let result = writer.apply(&Scope::All, [Delta::Released(only("u2"))]);
        assert_eq!(changes(&result), ["Released(a/y@4)"]);
        assert_eq!(reader.snapshot().len(), 2);
        writer.check_invariants();
    }

    /// Bug: ranges were gained at a newer version than that of the others, with a newer incarnation of a cached key. The
    /// ranges were released again before the others had received the deletion of the cached incarnation. An earlier
    /// frame of the latter then revived it after its deletion was reported.
    #[test]
    fn c1_earlier_incarnation_stays_deleted_after_release_of_the_newer_one() {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let mut writer = writer.sharded();
        writer.apply(&Scope::All, [Delta::Replaced(list(vec![entry("x", "u1", 3)], "5"))]);
        let result = writer.apply(&Scope::All, [Delta::Gained(list(vec![entry("x", "u2", 9)], "9"))]);
        assert_eq!(changes(&result), ["Deleted { last: a/x@3, observed: false }", "Added(a/x@9)"]);
        writer.apply(&Scope::All, [Delta::Released(only("u2"))]);
        let result = writer.apply(&Scope::All, [Delta::Updated(entry("x", "u1", 6))]);
        assert_eq!((result.changes.len(), result.stale_deltas), (0, 1));
        writer.apply(&Scope::All, [Delta::Bookmark(ResourceVersion::new("9"))]);
        assert!(writer.released.is_empty(), "all ranges have received the deletion");
        let result = writer.apply(&Scope::All, [Delta::Added(entry("x", "u3", 12))]);
        assert_eq!(changes(&result), ["Added(a/x@12)"]);
        assert_eq!(reader.snapshot().len(), 1);
        writer.check_invariants();
    }

    /// Bug: after all ranges were released and the server was restored from a backup, new objects with keys of released ones
    /// were dropped until the versions had passed those of the earlier history.
    #[test]
    fn released_versions_of_a_restored_server_do_not_count() {
        let (writer, _) = StoreWriter::new([Scope::All]);
        let mut writer = writer.sharded();
        writer.apply(&Scope::All, [Delta::Replaced(list(Vec::new(), "5"))]);
        writer.apply(&Scope::All, [Delta::Gained(list(vec![entry("x", "u2", 900)], "900"))]);
        writer.apply(&Scope::All, [Delta::Released(only("u2"))]);
        writer.apply(&Scope::All, [Delta::Gained(list(Vec::new(), "90"))]);
        let result = writer.apply(&Scope::All, [Delta::Added(entry("x", "u3", 91))]);
        assert_eq!(changes(&result), ["Added(a/x@91)"]);
        writer.check_invariants();
    }

    /// Bug: while ranges were gained, an object was listed, and its next state was unreadable. Its entry was not marked
    /// as stale, because only lists that replaced a scope marked entries.
    #[test]
    fn gained_object_with_newer_unreadable_state_is_stale() {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let mut writer = writer.sharded();
        writer.apply(&Scope::All, [Delta::Replaced(list(vec![entry("y", "u2", 4)], "5"))]);
        let unreadable = ["x", "y"].map(|name| UnreadableObject {
            key: Some(Key::new("a", name)),
            version: Some(ResourceVersion::new("8")),
            location: BodyLocation { index: 0, byte: 0 },
            error: ObjectError::NotAnObject,
        });
        let gained = Replaced { unreadable: unreadable.into(), ..list(vec![entry("x", "u1", 7)], "9") };
        writer.apply(&Scope::All, [Delta::Gained(gained)]);
        let is_stale = |name| reader.get(&Key::new("a", name)).map(|entry| entry.is_stale());
        assert_eq!(is_stale("x"), Some(true));
        assert_eq!(is_stale("y"), Some(false), "the unreadable object may be in other ranges");
        writer.check_invariants();
    }

    /// With ranges of uids, two incarnations of one key belong to different ranges.
    #[test]
    fn newer_incarnation_of_a_key_stays() {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.apply(&Scope::All, [Delta::Replaced(list(vec![entry("x", "u1", 3)], "5"))]);
        let result = writer.apply(&Scope::All, [Delta::Gained(list(vec![entry("x", "u2", 9)], "9"))]);
        assert_eq!(changes(&result), ["Deleted { last: a/x@3, observed: false }", "Added(a/x@9)"]);
        let result = writer.apply(&Scope::All, [Delta::Gained(list(vec![entry("x", "u3", 7)], "9"))]);
        assert_eq!((result.changes.len(), result.stale_deltas), (0, 1));
        let result = writer.apply(&Scope::All, [Delta::Released(only("u1"))]);
        assert!(result.changes.is_empty(), "the range of the earlier incarnation");
        assert_eq!(reader.snapshot().len(), 1);
        writer.check_invariants();
    }
}
