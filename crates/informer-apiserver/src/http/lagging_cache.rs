//! A watch cache that a fault rule makes lag behind the server, see [`faults::lagging_cache`](crate::faults).

use std::sync::Arc;

use informer_objects::status::Status;

use crate::faults::Active;
use crate::shared::{Shared, VERSION_TIMEOUT};

/// The rule by which the cache lags for a request or a watch.
#[derive(Debug)]
pub(super) struct LaggingCache(Arc<Active>);

impl LaggingCache {
    pub(super) fn new(rule: Arc<Active>) -> Self {
        LaggingCache(rule)
    }

    pub(super) fn lags_more_than(&self, other: &LaggingCache) -> bool {
        self.0.rule.cache_version < other.0.rule.cache_version
    }

    /// Returns the version of the cache, or `None` if it has caught up.
    pub(super) fn version(&self, shared: &Shared) -> Option<u64> {
        shared.faults.is_active(&self.0).then_some(self.0.rule.cache_version)
    }

    /// Waits until the cache has caught up, but not longer than kube-apiserver waits.
    pub(super) async fn wait_for_end(&self, shared: &Shared) {
        let _timed_out = shared.clock.timeout(VERSION_TIMEOUT, shared.faults.wait_for_removal(&self.0)).await;
    }

    /// Waits until the cache has reached a version. Returns the error of kube-apiserver if that takes too long.
    pub(super) async fn wait_for(&self, shared: &Shared, version: u64) -> Result<(), Status> {
        if version <= self.0.rule.cache_version {
            return Ok(());
        }
        self.wait_for_end(shared).await;
        match self.version(shared) {
            Some(current) => Err(Status::version_too_large(version, current)),
            None => Ok(()),
        }
    }
}
