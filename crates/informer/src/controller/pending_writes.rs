//! Writes of reconciles that the cache may not show yet.
//!
//! The writes of a key are removed when the key is next taken from the queue. Because some keys are never
//! taken again, a sweep removes all keys without pending writes each time the number of keys reaches a power
//! of two, from [`SWEEP_THRESHOLD_KEYS`] on.

use crate::error::VersionWaitError;
use crate::shared::{Engine, is_unavailable};
use informer_core::{Key, ResourceVersion};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The number of keys at the first sweep; further sweeps follow at each higher power of two.
const SWEEP_THRESHOLD_KEYS: usize = 1024;

/// A written version that the cache of one informer is expected to reach.
#[derive(Clone)]
pub(super) struct Write {
    pub(super) engine: Arc<Engine>,
    pub(super) namespace: Option<Box<str>>,
    pub(super) version: ResourceVersion,
}

/// The writes of the last reconcile of each key.
#[derive(Default)]
pub(super) struct PendingWrites(Mutex<HashMap<Key, Vec<Write>>>);

impl PendingWrites {
    /// Records a write by the reconcile of a key; per informer and namespace, only the newest version is
    /// kept.
    pub(super) fn record(&self, key: &Key, write: Write) {
        let mut writes = self.lock();
        // The writes of a key that is never reconciled again are not removed by `take`.
        if writes.len() >= SWEEP_THRESHOLD_KEYS && writes.len().is_power_of_two() && !writes.contains_key(key)
        {
            writes.retain(|_, key_writes| key_writes.iter().any(Write::is_pending));
        }
        let key_writes = writes.entry(key.clone()).or_default();
        let same_scope = |known: &&mut Write| {
            Arc::ptr_eq(&known.engine, &write.engine) && known.namespace == write.namespace
        };
        match key_writes.iter_mut().find(same_scope) {
            Some(known) if write.version.is_before(&known.version) => {}
            Some(known) => known.version = write.version,
            None => key_writes.push(write),
        }
    }

    /// Removes all writes of a key and returns those that are still pending.
    pub(super) fn take(&self, key: &Key) -> Vec<Write> {
        let mut writes = self.lock().remove(key).unwrap_or_default();
        writes.retain(Write::is_pending);
        writes
    }

    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Vec<Write>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write {
    /// Returns whether the cache does not show the write yet but is expected to. The cache of an informer
    /// that is forbidden, not served or stopped is not expected to show anything.
    fn is_pending(&self) -> bool {
        let snapshot = self.engine.reader.snapshot();
        let version = snapshot.resource_version();
        let visible =
            version.is_some_and(|version| version.compare(&self.version).is_some_and(Ordering::is_ge));
        !visible && !is_unavailable(&self.engine.status().state)
    }

    /// Waits until the cache shows the write; returns an error if it does not within `timeout`, or cannot.
    pub(super) async fn wait_visible(&self, timeout: Duration) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(self.namespace.as_deref(), &self.version, timeout).await
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
    async fn take_returns_the_newest_write_of_each_informer_and_namespace() {
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
            writes.record(&key, write(engine, namespace, version));
        }
        let taken: Vec<String> = writes
            .take(&key)
            .iter()
            .map(|write| format!("{} {}", write.namespace.as_deref().unwrap_or_default(), write.version))
            .collect();
        assert_eq!(taken, ["x 12", "y 1", "x 3"]);
        assert!(writes.take(&key).is_empty());
        writes.record(&key, write(pods.engine(), "x", "5"));
        writes.clear();
        assert!(writes.take(&key).is_empty());
    }

    /// Regression: writes of keys that were never reconciled again were never removed.
    #[tokio::test]
    async fn visible_writes_are_swept_above_the_threshold() {
        let server = informer_apiserver::ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        let pods = factory.informer::<Pod>();
        factory.start();
        pods.wait_for_sync(Duration::from_secs(60)).await.unwrap();
        let writes = PendingWrites::default();
        for number in 0..10 * SWEEP_THRESHOLD_KEYS {
            writes.record(&Key::cluster(&number.to_string()), write(pods.engine(), "x", "1"));
        }
        assert!(writes.lock().len() <= 2 * SWEEP_THRESHOLD_KEYS, "{}", writes.lock().len());
    }
}
