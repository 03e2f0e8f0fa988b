//! What turns have written and the cache may not have seen yet.
//!
//! Invariant: nothing is kept of a key beyond its next turn.

use crate::shared::Engine;
use informer_core::{Key, ResourceVersion};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One write that a cache will show.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) engine: Arc<Engine>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) version: ResourceVersion,
}

/// What each key wrote in its last turn.
#[derive(Default)]
pub(super) struct Writes(Mutex<HashMap<Key, Vec<Write>>>);

impl Writes {
    /// Notes a write of a key. Of one place only the newest counts.
    pub(super) fn note(&self, key: &Key, write: Write) {
        let mut writes = self.lock();
        let of_key = writes.entry(key.clone()).or_default();
        let same_place = |known: &&mut Write| {
            Arc::ptr_eq(&known.engine, &write.engine) && known.namespace == write.namespace
        };
        match of_key.iter_mut().find(same_place) {
            Some(known) if write.version.is_before(&known.version) => {}
            Some(known) => known.version = write.version,
            None => of_key.push(write),
        }
    }

    /// What a key wrote, to be waited for.
    pub(super) fn take(&self, key: &Key) -> Vec<Write> {
        self.lock().remove(key).unwrap_or_default()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Write>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Whether the cache shows it. What cannot be compared is not waited for without end.
    pub(super) fn is_seen(&self) -> bool {
        let snapshot = self.engine.reader.snapshot();
        let version = snapshot.version();
        version.is_some_and(|version| version.compare(&self.version).is_some_and(std::cmp::Ordering::is_ge))
    }

    /// Waits until the cache shows it; otherwise says why it does not.
    pub(super) async fn seen(&self, patience: Duration) -> Result<(), crate::VersionError> {
        self.engine.wait_for_version(self.namespace.as_deref(), &self.version, patience).await
    }
}
