//! Restarts that do not reconcile every key: the keys that are not finished are saved with the caches of the sources.

use super::shared::Shared;
use super::source::KeySink;
use crate::shared::{DurableName, UnfinishedKeys};
use informer_core::workqueue::Priority;
use informer_core::{Key, StoreReader};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Returns the name under which the progress of a source is saved, if a restart does not reconcile every key.
/// `own_kind` is the cache of the controller's own kind.
pub(super) fn durable_name(
    shared: &Shared,
    source: usize,
    sink: &KeySink,
    own_kind: &StoreReader,
) -> Option<DurableName> {
    let (name, version) = (&shared.name, shared.settings.resume.as_ref()?);
    let keys = ResumedKeys { sink: sink.clone(), own_kind: own_kind.clone() };
    // The length keeps names that contain a colon apart.
    let versions = format!("controller {source}:{}:{name}:", name.len());
    let name = format!("{versions}{version}").into();
    Some(DurableName { name, versions: Some(versions.into()), keys: Some(Arc::new(keys)) })
}

struct ResumedKeys {
    sink: KeySink,
    own_kind: StoreReader,
}

impl UnfinishedKeys for ResumedKeys {
    fn unfinished(&self) -> BTreeSet<Key> {
        self.sink.unfinished.iter().flat_map(|keys| keys.keys()).collect()
    }

    fn resume(&self, keys: Option<BTreeSet<Key>>) {
        if let Some(keys) = keys {
            for key in keys {
                self.sink.add_with_priority(key, Priority::INITIAL);
            }
        } else {
            // Objects that are cached later are not skipped.
            self.sink.takes_all.store(true, Ordering::Relaxed);
            self.sink.enqueue_all(&self.own_kind);
        }
    }
}
