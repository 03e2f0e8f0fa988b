//! Writes to a store that is filled by hand, not by a reflector.
//!
//! Such a store takes what it is given: resource versions are neither compared nor recorded, because the
//! caller decides which state is the current one. Entries may be shared with other stores, so nothing here
//! changes an entry. Each call publishes one snapshot (C5).

use super::change::{BatchResult, Change};
use super::replace::sort_and_deduplicate;
use super::writer::StoreWriter;
use crate::key::Key;
use crate::object::Entry;
use std::sync::Arc;

impl StoreWriter {
    /// Stores entries in order, replacing those with the same key whatever their versions, and publishes one
    /// snapshot. An entry with the state that is already stored is no change.
    ///
    /// ```
    /// # use informer_core::{Change, Object, StoreWriter};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// let (mut writer, reader) = StoreWriter::new([]);
    /// let mut pod = Pod::default();
    /// pod.metadata.name = Some("web".to_owned());
    /// let object = Object::from_typed(pod)?;
    /// let result = writer.insert_unversioned([object.entry().clone()]);
    /// assert!(matches!(result.changes[..], [Change::Added(_)]));
    /// assert_eq!(reader.snapshot().len(), 1);
    /// # Ok::<(), informer_core::EncodeError>(())
    /// ```
    pub fn insert_unversioned(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) -> BatchResult {
        let mut result = BatchResult::default();
        for entry in entries {
            self.insert_one(entry, &mut result);
        }
        self.finish_batch(result)
    }

    /// Removes keys and publishes one snapshot. A key that is not in the store is no change.
    pub fn remove_unversioned<'a>(&mut self, keys: impl IntoIterator<Item = &'a Key>) -> BatchResult {
        let mut result = BatchResult::default();
        for key in keys {
            self.remove_one(key, &mut result);
        }
        self.finish_batch(result)
    }

    /// Makes the store equal to these entries, whatever their versions, and publishes one snapshot. If a key
    /// occurs more than once, its last entry counts.
    ///
    /// Reports deletions first, then additions and updates in key order.
    pub fn replace_unversioned(&mut self, entries: impl IntoIterator<Item = Arc<Entry>>) -> BatchResult {
        let mut result = BatchResult::default();
        let listed = sort_and_deduplicate(entries.into_iter().collect(), &mut result);
        let is_listed = |key: &Key| listed.binary_search_by(|entry| entry.key().cmp(key)).is_ok();
        let stored = self.state.objects.values().map(|entry| entry.key());
        let missing: Vec<Key> = stored.filter(|key| !is_listed(key)).cloned().collect();
        for key in &missing {
            self.remove_one(key, &mut result);
        }
        for entry in listed {
            self.insert_one(entry, &mut result);
        }
        self.finish_batch(result)
    }

    fn insert_one(&mut self, new: Arc<Entry>, result: &mut BatchResult) {
        let stored = self.state.objects.find(new.key());
        let (slot, old) = (stored.map(|(slot, _)| slot), stored.map(|(_, old)| old));
        if old.is_some_and(|old| Arc::ptr_eq(old, &new) || old.is_same_state(&new)) {
            return;
        }
        result.push_upsert(old, &new);
        self.place(slot, new);
    }

    fn remove_one(&mut self, key: &Key, result: &mut BatchResult) {
        let Some(last) = self.state.objects.get(key).cloned() else {
            result.deletes_of_unknown += 1;
            return;
        };
        result.changes.push(Change::Deleted { last, observed: true });
        self.remove(key);
    }
}
