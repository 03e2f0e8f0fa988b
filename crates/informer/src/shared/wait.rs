//! Waiting for an informer, and why a wait ended without success (C7).

use super::engine::Engine;
use crate::clock::Clock;
use crate::status::{Status, StatusCell};
use informer_core::reflector::State;
use informer_core::{Moment, ResourceVersion, Scope};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Why an informer is not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}: not synced{}: {}",
    after.map(|after| format!(" after {after:?}")).unwrap_or_default(),
    state.seen_from(*now)
)]
#[non_exhaustive]
pub struct SyncError {
    /// What it informs about.
    pub resource: Arc<str>,
    /// The state it is in.
    pub state: State,
    /// When that was so, on the clock of the moments in `state`.
    pub now: Moment,
    /// The deadline, if that is what ended the wait.
    pub after: Option<Duration>,
}

/// Why a cache has not reached a version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: version {wanted} was not reached: {because}")]
#[non_exhaustive]
pub struct VersionError {
    /// What it informs about.
    pub resource: Arc<str>,
    /// The version that was waited for.
    pub wanted: ResourceVersion,
    /// Why it was not reached.
    pub because: NotReached,
}

/// Why a version was not reached.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReached {
    /// The server went back while this was waited for (C1): the version may belong to a history that is no more.
    #[error("the server went back, and may never reach it")]
    Rewound,
    /// The version is of a form that has no order, so nobody can tell when it is reached.
    #[error("versions of this server cannot be compared")]
    NotComparable,
    /// The namespace is none of the informer's.
    #[error("the informer does not watch this namespace")]
    NotWatched,
    /// The informer has stopped.
    #[error("the informer has stopped")]
    Stopped,
    /// Time was up.
    #[error("after {after:?} the cache is at {}: {}", at.as_ref().map_or("no version".to_owned(), ToString::to_string), state.seen_from(*now))]
    #[non_exhaustive]
    Deadline {
        /// The deadline.
        after: Duration,
        /// How far the cache was.
        at: Option<ResourceVersion>,
        /// The state it was in.
        state: State,
        /// When that was so.
        now: Moment,
    },
}

/// A shutdown that could not end everything in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: a handler is still running, or the cache still busy, {after:?} after shutdown began")]
#[non_exhaustive]
pub struct ShutdownError {
    /// What it informs about.
    pub resource: Arc<str>,
    /// The deadline.
    pub after: Duration,
}

/// What can be known of an informer without keeping it alive.
#[derive(Clone)]
pub(crate) struct Standing {
    pub(crate) resource: Arc<str>,
    status: Arc<StatusCell>,
    clock: Clock,
    engine: Weak<Engine>,
}

impl Standing {
    /// Whether nobody has a handle of it any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.engine.strong_count() == 0
    }

    pub(crate) fn status(&self) -> Status {
        self.status.get(self.clock.now())
    }

    /// Waits until the first complete set is in the cache, or waiting is useless.
    pub(crate) async fn wait_for_sync(&self, deadline: Duration) -> Result<(), SyncError> {
        let mut status = self.status.subscribe();
        let settled = status.wait_for(|status| is_synced(status) || is_useless(&status.state));
        let (status, after) = match tokio::time::timeout(deadline, settled).await {
            Ok(Ok(status)) => (status.clone(), None),
            Ok(Err(_)) => (Status { state: State::Stopped, ..self.status() }, None),
            Err(_) => (self.status(), Some(deadline)),
        };
        if is_synced(&status) { Ok(()) } else { Err(self.not_synced(status.state, after)) }
    }

    /// The error of an informer in this state.
    pub(crate) fn not_synced(&self, state: State, after: Option<Duration>) -> SyncError {
        SyncError { resource: Arc::clone(&self.resource), state, now: self.clock.now(), after }
    }
}

impl Engine {
    pub(crate) fn standing(self: &Arc<Self>) -> Standing {
        let (resource, status) = (Arc::clone(&self.resource), Arc::clone(&self.status));
        Standing { resource, status, clock: self.clock, engine: Arc::downgrade(self) }
    }

    /// Waits until the cache has reached a version.
    pub(crate) async fn wait_for_version(
        &self,
        namespace: Option<&str>,
        wanted: &ResourceVersion,
        deadline: Duration,
    ) -> Result<(), VersionError> {
        let mut status = self.status.subscribe();
        let rewinds = status.borrow().changes.rewinds;
        let settled = status.wait_for(|status| outcome(status, namespace, wanted, rewinds).is_some());
        let reached = match tokio::time::timeout(deadline, settled).await {
            Ok(Ok(status)) => {
                outcome(&status, namespace, wanted, rewinds).unwrap_or(Err(NotReached::Stopped))
            }
            Ok(Err(_)) => Err(NotReached::Stopped),
            Err(_) => {
                let Status { version: at, state, now, .. } = self.status();
                Err(NotReached::Deadline { after: deadline, at, state, now })
            }
        };
        let error =
            |because| VersionError { resource: Arc::clone(&self.resource), wanted: wanted.clone(), because };
        reached.map_err(error)
    }
}

/// Whether the cache is complete and somebody keeps it so. One that has stopped was synced once; whoever waits for it now would read a
/// state that is never brought up to date.
pub(crate) fn is_synced(status: &Status) -> bool {
    status.synced && status.state != State::Stopped
}

/// States in which waiting is useless (C7).
pub(crate) fn is_useless(state: &State) -> bool {
    matches!(state, State::Forbidden { .. } | State::NotServed { .. } | State::Stopped)
}

/// What a wait for a version has come to, if it is over.
fn outcome(
    status: &Status,
    namespace: Option<&str>,
    wanted: &ResourceVersion,
    rewinds: u64,
) -> Option<Result<(), NotReached>> {
    if status.changes.rewinds != rewinds {
        return Some(Err(NotReached::Rewound));
    }
    let version = match namespace {
        None => &status.version,
        Some(name) => {
            let holds = |scope: &Scope| *scope == Scope::All || *scope == Scope::namespace(name);
            match status.scopes.iter().find(|scope| holds(&scope.scope)) {
                Some(scope) => &scope.version,
                None => return Some(Err(NotReached::NotWatched)),
            }
        }
    };
    match version {
        Some(version) => match version.compare(wanted) {
            Some(order) if order.is_ge() => return Some(Ok(())),
            Some(_) => {}
            None => return Some(Err(NotReached::NotComparable)),
        },
        // Complete, and yet without a version: those of the namespaces have no smallest.
        None if status.synced => return Some(Err(NotReached::NotComparable)),
        None => {}
    }
    (status.state == State::Stopped).then_some(Err(NotReached::Stopped))
}
