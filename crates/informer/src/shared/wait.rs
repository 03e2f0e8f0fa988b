//! Waiting for an informer, and why a wait ended without success (C7).

use super::engine::Engine;
use crate::clock::Clock;
use crate::error::{InformerSync, SyncError, VersionWaitError, VersionWaitReason};
use crate::status::{InformerStatus, StatusCell};
use informer_core::reflector::InformerState;
use informer_core::{ResourceVersion, Scope};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// What can be known of an informer without keeping it alive.
#[derive(Clone)]
pub(crate) struct SyncWaiter {
    pub(crate) resource: Arc<str>,
    status: Arc<StatusCell>,
    clock: Clock,
    engine: Weak<Engine>,
}

impl SyncWaiter {
    /// Whether nobody has a handle of it any more.
    pub(crate) fn is_dropped(&self) -> bool {
        self.engine.strong_count() == 0
    }

    pub(crate) fn status(&self) -> InformerStatus {
        self.status.get(self.clock.now())
    }

    /// Waits until the first complete set is in the cache, or waiting is useless.
    pub(crate) async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| is_synced(status) || is_unavailable(&status.state));
        let (status, expired) = match tokio::time::timeout(timeout, settled).await {
            Ok(Ok(status)) => (status.clone(), None),
            Ok(Err(_)) => (InformerStatus { state: InformerState::Stopped, ..self.status() }, None),
            Err(_) => (self.status(), Some(timeout)),
        };
        if is_synced(&status) {
            return Ok(());
        }
        let informer = Arc::clone(&self.resource);
        let sync = InformerSync { informer, synced: false, state: status.state, now: self.clock.now() };
        Err(SyncError { informers: vec![sync], timeout: expired })
    }

    /// Where the informer stands now.
    pub(crate) fn sync(&self) -> InformerSync {
        let status = self.status();
        let (informer, synced) = (Arc::clone(&self.resource), is_synced(&status));
        InformerSync { informer, synced, state: status.state, now: status.now }
    }
}

impl Engine {
    pub(crate) fn sync_waiter(self: &Arc<Self>) -> SyncWaiter {
        let (resource, status) = (Arc::clone(&self.resource), Arc::clone(&self.status));
        SyncWaiter { resource, status, clock: self.clock, engine: Arc::downgrade(self) }
    }

    /// Waits until the cache has reached a version.
    pub(crate) async fn wait_for_resource_version(
        &self,
        namespace: Option<&str>,
        wanted: &ResourceVersion,
        timeout: Duration,
    ) -> Result<(), VersionWaitError> {
        let mut status = self.status.subscribe();
        let rewinds = status.borrow().cache.rewinds;
        let settled = status.wait_for(|status| outcome(status, namespace, wanted, rewinds).is_some());
        let reached = match tokio::time::timeout(timeout, settled).await {
            Ok(Ok(status)) => {
                outcome(&status, namespace, wanted, rewinds).unwrap_or(Err(VersionWaitReason::Stopped))
            }
            Ok(Err(_)) => Err(VersionWaitReason::Stopped),
            Err(_) => {
                let InformerStatus { resource_version: reached, state, now, .. } = self.status();
                Err(VersionWaitReason::TimedOut { timeout, reached, state, now })
            }
        };
        let error = |reason| {
            let informer = Arc::clone(&self.resource);
            VersionWaitError { informer, wanted: wanted.clone(), reason }
        };
        reached.map_err(error)
    }
}

/// Whether the cache is complete and somebody keeps it so. One that has stopped was synced once; whoever waits for it now would read a
/// state that is never brought up to date.
pub(crate) fn is_synced(status: &InformerStatus) -> bool {
    status.synced && status.state != InformerState::Stopped
}

/// States in which waiting is useless (C7).
pub(crate) fn is_unavailable(state: &InformerState) -> bool {
    matches!(
        state,
        InformerState::Forbidden { .. } | InformerState::NotServed { .. } | InformerState::Stopped
    )
}

/// What a wait for a version has come to, if it is over.
fn outcome(
    status: &InformerStatus,
    namespace: Option<&str>,
    wanted: &ResourceVersion,
    rewinds: u64,
) -> Option<Result<(), VersionWaitReason>> {
    if status.cache.rewinds != rewinds {
        return Some(Err(VersionWaitReason::Rewound));
    }
    let version = match namespace {
        None => &status.resource_version,
        Some(name) => {
            let holds = |scope: &Scope| *scope == Scope::All || *scope == Scope::namespace(name);
            match status.scopes.iter().find(|scope| holds(&scope.scope)) {
                Some(scope) => &scope.resource_version,
                None => return Some(Err(VersionWaitReason::NotWatched)),
            }
        }
    };
    match version {
        Some(version) => match version.compare(wanted) {
            Some(order) if order.is_ge() => return Some(Ok(())),
            Some(_) => {}
            None => return Some(Err(VersionWaitReason::NotComparable)),
        },
        // Complete, and yet without a version: those of the namespaces have no smallest.
        None if status.synced => return Some(Err(VersionWaitReason::NotComparable)),
        None => {}
    }
    (status.state == InformerState::Stopped).then_some(Err(VersionWaitReason::Stopped))
}
