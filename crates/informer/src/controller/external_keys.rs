//! Keys from elsewhere whose turns have not ended well: no informer will tell them again, so the next run begins with them.

use informer_core::Key;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys, each with the number of times it was asked for.
#[derive(Default)]
pub(super) struct PendingExternalKeys(Mutex<HashMap<Key, u64>>);

impl PendingExternalKeys {
    /// A key was asked for.
    pub(super) fn add(&self, key: &Key) {
        *self.lock().entry(key.clone()).or_default() += 1;
    }

    /// What a turn that begins now will have dealt with.
    pub(super) fn sequence(&self, key: &Key) -> Option<u64> {
        self.lock().get(key).copied()
    }

    /// A turn has dealt with it, unless it was asked for again meanwhile.
    pub(super) fn complete(&self, key: &Key, seen: Option<u64>) {
        let mut owed = self.lock();
        if seen.is_some() && owed.get(key).copied() == seen {
            owed.remove(key);
        }
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.lock().keys().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
