//! Conversion of scanned objects (found in a body, not decoded) to cached entries.

use super::diagnostic::ReflectorDiagnostic;
use super::machine::Reflector;
use crate::object::Entry;
use crate::transform::TransformFallback;
use crate::wire::{FieldFilter, ScannedObject, metadata_only};
use std::sync::Arc;

impl Reflector {
    /// Returns the entry for an object of a full list: the cached one if its state is the same, otherwise a
    /// new one.
    pub(super) fn listed_entry(&mut self, scanned: ScannedObject) -> Arc<Entry> {
        let new = self.new_entry(scanned);
        self.cache.find_same_state(&new).unwrap_or_else(|| Arc::new(self.config.finish_entry(new)))
    }

    /// Returns a new entry for an object of a watch. The cached entry has another state, so it is not
    /// compared.
    pub(super) fn changed_entry(&mut self, scanned: ScannedObject) -> Arc<Entry> {
        let new = self.new_entry(scanned);
        Arc::new(self.config.finish_entry(new))
    }

    fn new_entry(&mut self, scanned: ScannedObject) -> Entry {
        let received = Entry::new(scanned, self.config.retention);
        self.apply_transform(received).sharing_decoding(&self.config.decoding)
    }

    /// Returns the transformed entry, or the fallback if the transform fails. Called once per object.
    fn apply_transform(&mut self, received: Entry) -> Entry {
        let config = &self.config;
        let Some(transform) = &config.transform else { return received };
        let managed_fields = FieldFilter::managed_fields(config.field_filter.as_ref());
        let message = match transform.apply(&received, &config.type_meta, config.limits, managed_fields) {
            Ok(changed) => return Entry::new(changed, config.retention),
            Err(message) => message,
        };
        let cached = match config.transform_fallback {
            TransformFallback::MetadataOnly => {
                let scanned = metadata_only(&config.type_meta, received.head(), &received.bytes());
                Entry::new(scanned, config.retention)
            }
            TransformFallback::KeepOriginal => received,
        };
        self.out.counters.transform_errors += 1;
        self.report(ReflectorDiagnostic::TransformFailed { key: cached.key().clone(), message });
        cached
    }
}
