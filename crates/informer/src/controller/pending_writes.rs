//! What turns have written and the cache may not have seen yet.
//!
//! Nothing is kept of a key beyond its next turn, and of keys that have none no more than [`SWEEP_THRESHOLD_KEYS`] or so.

use crate::error::VersionWaitError;
use crate::shared::{Engine, is_unavailable};
use informer_core::{Key, ResourceVersion};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// With so many keys, those whose writes have been seen are looked for and forgotten.
const SWEEP_THRESHOLD_KEYS: usize = 1024;

/// One write that a cache will show.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) engine: Arc<Engine>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) version: ResourceVersion,
}

/// What each key wrote in its last turn.
#[derive(Default)]
pub(super) struct PendingWrites(Mutex<HashMap<Key, Vec<Write>>>);

impl PendingWrites {
    /// Notes a write of a key. Of one place only the newest counts.
    pub(super) fn note(&self, key: &Key, write: Write) {
        let mut writes = self.lock();
        // A key that is never heard of again leaves its last ones behind.
        if writes.len() >= SWEEP_THRESHOLD_KEYS && writes.len().is_power_of_two() && !writes.contains_key(key)
        {
            writes.retain(|_, of_key| of_key.iter().any(Write::is_awaited));
        }
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

    /// What a key wrote and the cache does not show yet.
    pub(super) fn take(&self, key: &Key) -> Vec<Write> {
        let mut writes = self.lock().remove(key).unwrap_or_default();
        writes.retain(Write::is_awaited);
        writes
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
    /// Whether the cache does not show it yet, and will. One that is forbidden or not served shows nothing.
    fn is_awaited(&self) -> bool {
        let snapshot = self.engine.reader.snapshot();
        let version = snapshot.resource_version();
        let seen = version.is_some_and(|version| version.compare(&self.version).is_some_and(Ordering::is_ge));
        !seen && !is_unavailable(&self.engine.status().state)
    }

    /// Waits until the cache shows it; otherwise says why it does not.
    pub(super) async fn wait_visible(&self, patience: Duration) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(self.namespace.as_deref(), &self.version, patience).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::factory::SharedInformerFactory;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};

    fn write(engine: &Arc<Engine>, namespace: &str, version: &str) -> Write {
        Write {
            engine: Arc::clone(engine),
            namespace: Some(namespace.into()),
            version: ResourceVersion::new(version),
        }
    }

    #[tokio::test]
    async fn of_each_place_the_newest_counts_and_a_turn_takes_them_all() {
        let server = informer_apiserver::ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        let (pods, maps) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
        let (writes, key) = (PendingWrites::default(), Key::new("default", "a"));
        for (engine, namespace, version) in [
            (pods.engine(), "x", "5"),
            (pods.engine(), "x", "12"),
            (pods.engine(), "x", "7"),
            (pods.engine(), "y", "1"),
            (maps.engine(), "x", "3"),
        ] {
            writes.note(&key, write(engine, namespace, version));
        }
        let taken: Vec<String> = writes
            .take(&key)
            .iter()
            .map(|write| format!("{} {}", write.namespace.as_deref().unwrap_or_default(), write.version))
            .collect();
        assert_eq!(taken, ["x 12", "y 1", "x 3"]);
        assert!(writes.take(&key).is_empty());
        writes.note(&key, write(pods.engine(), "x", "5"));
        writes.clear();
        assert!(writes.take(&key).is_empty());
    }

    /// Keys whose last turn wrote and that are never heard of again stayed for ever.
    #[tokio::test]
    async fn what_has_been_seen_is_forgotten_when_there_is_much() {
        let server = informer_apiserver::ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        let pods = factory.informer::<Pod>();
        factory.start();
        pods.wait_for_sync(Duration::from_mins(1)).await.unwrap();
        let writes = PendingWrites::default();
        for number in 0..10 * SWEEP_THRESHOLD_KEYS {
            writes.note(&Key::cluster(&number.to_string()), write(pods.engine(), "x", "1"));
        }
        assert!(writes.lock().len() <= 2 * SWEEP_THRESHOLD_KEYS, "{}", writes.lock().len());
    }
}
