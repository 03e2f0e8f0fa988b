//! Waiting until an informer has synced, has reached a resource version or fulfils a condition, and why a wait
//! fails (C7).

use super::engine::Engine;
use crate::clock::Clock;
use crate::error::{ConditionWaitError, InformerSync, SyncError, VersionWaitError, VersionWaitReason};
use crate::status::{InformerStatus, StatusCell};
use informer_core::reflector::InformerState;
use informer_core::{ResourceVersion, Scope, StoreSnapshot};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A handle that reads the status of an informer without keeping the informer alive.
#[derive(Clone)]
pub(crate) struct SyncWaiter {
    /// Description of the informer for messages.
    pub(crate) description: Arc<str>,
    status: Arc<StatusCell>,
    clock: Clock,
    engine: Weak<Engine>,
}

impl SyncWaiter {
    /// Creates a handle of a status that no engine updates.
    pub(crate) fn without_engine(description: Arc<str>, status: Arc<StatusCell>, clock: Clock) -> Self {
        Self { description, status, clock, engine: Weak::new() }
    }

    /// Returns whether all handles of the informer were dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.engine.strong_count() == 0
    }

    pub(crate) fn status(&self) -> InformerStatus {
        self.status.get(self.clock.now())
    }

    /// Waits until the initial list is in the cache.
    ///
    /// Returns an error immediately if the informer is in a state in which it cannot sync, and otherwise
    /// after `timeout`.
    pub(crate) async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| is_synced(status) || is_unavailable(&status.state));
        let (status, elapsed_timeout) = match tokio::time::timeout(timeout, settled).await {
            Ok(Ok(status)) => (status.clone(), None),
            Ok(Err(_)) => (InformerStatus { state: InformerState::Stopped, ..self.status() }, None),
            Err(_) => (self.status(), Some(timeout)),
        };
        if is_synced(&status) {
            return Ok(());
        }
        let informer = Arc::clone(&self.description);
        let sync = InformerSync { informer, synced: false, state: status.state, now: self.clock.now() };
        Err(SyncError { informers: vec![sync], timeout: elapsed_timeout })
    }

    /// Returns the current sync state of the informer.
    pub(crate) fn sync_state(&self) -> InformerSync {
        let status = self.status();
        let (informer, synced) = (Arc::clone(&self.description), is_synced(&status));
        InformerSync { informer, synced, state: status.state, now: status.now }
    }
}

impl Engine {
    pub(crate) fn sync_waiter(self: &Arc<Self>) -> SyncWaiter {
        let (description, status) = (Arc::clone(&self.description), Arc::clone(&self.status));
        SyncWaiter { description, status, clock: self.clock, engine: Arc::downgrade(self) }
    }

    /// Waits until the cache, or its part for one namespace, has reached a resource version.
    pub(crate) async fn wait_for_resource_version(
        &self,
        namespace: Option<&str>,
        wanted: &ResourceVersion,
        timeout: Duration,
    ) -> Result<(), VersionWaitError> {
        let mut status = self.status.subscribe();
        let rewinds = status.borrow().cache.rewinds;
        let settled = status.wait_for(|status| outcome(status, namespace, wanted, rewinds).is_some());
        let result = match tokio::time::timeout(timeout, settled).await {
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
            let informer = Arc::clone(&self.description);
            VersionWaitError { informer, wanted: wanted.clone(), reason }
        };
        result.map_err(error)
    }

    /// Waits until `check` returns a value for a published snapshot of the complete cache.
    pub(crate) async fn wait_for<R>(
        &self,
        condition: &str,
        mut check: impl FnMut(StoreSnapshot) -> Option<R>,
        timeout: Duration,
    ) -> Result<R, ConditionWaitError> {
        let mut status = self.status.subscribe();
        let checked = async {
            loop {
                // Before the snapshot is read, so that a change published after that wakes this loop again.
                let can_change = can_change(&status.borrow_and_update());
                let snapshot = self.reader.snapshot();
                if snapshot.has_synced()
                    && let Some(value) = check(snapshot)
                {
                    return Some(value);
                }
                if !can_change || status.changed().await.is_err() {
                    return None;
                }
            }
        };
        let elapsed_timeout = match tokio::time::timeout(timeout, checked).await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(_) => Some(timeout),
        };
        let InformerStatus { state, now, .. } = self.status();
        let informer = Arc::clone(&self.description);
        Err(ConditionWaitError {
            informer,
            condition: condition.into(),
            state,
            now,
            timeout: elapsed_timeout,
        })
    }
}

/// Returns whether the cache can still change: its informer has not stopped, and has synced or can sync.
fn can_change(status: &InformerStatus) -> bool {
    status.state != InformerState::Stopped && (status.synced || !is_unavailable(&status.state))
}

/// Returns whether the cache is complete and still updated. A stopped informer does not count as synced,
/// because its cache is outdated.
pub(crate) fn is_synced(status: &InformerStatus) -> bool {
    status.synced && status.state != InformerState::Stopped
}

/// Returns whether waiting for a sync cannot succeed in this state (C7).
pub(crate) fn is_unavailable(state: &InformerState) -> bool {
    matches!(
        state,
        InformerState::Forbidden { .. } | InformerState::NotServed { .. } | InformerState::Stopped
    )
}

/// Returns the result of a wait for a version, or `None` if the wait must continue.
///
/// `rewinds` is the number of rewinds (restores of the server from a backup) when the wait began.
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
            let covers = |scope: &Scope| *scope == Scope::All || *scope == Scope::namespace(name);
            match status.scopes.iter().find(|scope| covers(&scope.scope)) {
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
        // Synced without a version: the versions of the namespaces cannot be compared, so there is no
        // smallest.
        None if status.synced => return Some(Err(VersionWaitReason::NotComparable)),
        None => {}
    }
    (status.state == InformerState::Stopped).then_some(Err(VersionWaitReason::Stopped))
}
