//! Keys from external streams for which no reconcile has returned an outcome.

use informer_core::Key;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The pending keys, each with the number of times it was received.
#[derive(Default)]
pub(super) struct PendingKeys(Mutex<HashMap<Key, u64>>);

impl PendingKeys {
    /// Records that a key was received.
    pub(super) fn add(&self, key: &Key) {
        *self.lock().entry(key.clone()).or_default() += 1;
    }

    /// Returns how often a pending key was received; `None` if it is not pending.
    ///
    /// Read it when a reconcile starts and pass it to [`complete`](Self::complete) after the reconcile.
    pub(super) fn times_received(&self, key: &Key) -> Option<u64> {
        self.lock().get(key).copied()
    }

    /// Removes a key after a successful reconcile, unless it was received again since the reconcile started.
    pub(super) fn complete(&self, key: &Key, times_received: Option<u64>) {
        let mut pending = self.lock();
        if times_received.is_some() && pending.get(key).copied() == times_received {
            pending.remove(key);
        }
    }

    /// Removes a key for which another process acts.
    pub(super) fn remove(&self, key: &Key) {
        self.lock().remove(key);
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
