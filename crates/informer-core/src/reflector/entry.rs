//! From an object that was read to the entry that is cached.

use super::diagnostic::ReflectorDiagnostic;
use super::machine::Reflector;
use crate::object::Entry;
use crate::transform::TransformFallback;
use crate::wire::{ScannedObject, metadata_only};
use std::sync::Arc;

impl Reflector {
    /// The entry for an object of a set: the one in the cache if it is equal, a new one otherwise.
    pub(super) fn entry(&mut self, scanned: ScannedObject) -> Arc<Entry> {
        let new = self.received(scanned);
        self.cache.identical(&new).unwrap_or_else(|| Arc::new(self.config.finish_entry(new)))
    }

    /// The entry for an object that has changed. What is in the cache is another state, so it is not looked at.
    pub(super) fn changed(&mut self, scanned: ScannedObject) -> Arc<Entry> {
        let new = self.received(scanned);
        Arc::new(self.config.finish_entry(new))
    }

    fn received(&mut self, scanned: ScannedObject) -> Entry {
        let received = Entry::new(scanned, self.config.retention);
        self.transformed(received).counting(self.config.decode_errors.clone())
    }

    /// The entry after the transform. Called once per object.
    fn transformed(&mut self, received: Entry) -> Entry {
        let config = &self.config;
        let Some(transform) = &config.transform else { return received };
        let message = match transform.apply(&received, &config.type_meta, config.limits) {
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
