//! Errors of waiting for a sync, for a resource version or a condition, or until a manager is ready.

use super::ErrorKind;
use informer_core::reflector::InformerState;
use informer_core::{Moment, ResourceVersion};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of waiting until informers have synced.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SyncError {
    /// The informers that were waited for, synced or not.
    pub informers: Vec<InformerSync>,
    /// The timeout, if it ended the wait; `None` if an informer cannot sync in its current state.
    pub timeout: Option<Duration>,
}

/// The state of one informer in a [`SyncError`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerSync {
    /// The description of the informer.
    pub informer: Arc<str>,
    /// Whether the informer has synced.
    pub synced: bool,
    /// The state of the informer.
    pub state: InformerState,
    /// When the state was read, on the clock of the moments in `state`.
    pub now: Moment,
}

impl SyncError {
    /// Returns an iterator over the informers that have not synced.
    pub fn failed(&self) -> impl Iterator<Item = &InformerSync> {
        self.informers.iter().filter(|informer| !informer.synced)
    }

    /// Classifies the error: a timeout, or the state in which an informer cannot sync.
    ///
    /// With several such states, forbidden takes precedence over not served, and not served over stopped.
    pub fn kind(&self) -> ErrorKind {
        let states = || self.failed().map(|informer| &informer.state);
        match self.timeout {
            Some(_) => ErrorKind::Timeout,
            None if states().any(|state| matches!(state, InformerState::Forbidden { .. })) => {
                ErrorKind::Forbidden
            }
            None if states().any(|state| matches!(state, InformerState::NotServed { .. })) => {
                ErrorKind::NotServed
            }
            None => ErrorKind::Stopped,
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("wait for sync: ")?;
        if let Some(timeout) = self.timeout {
            write!(f, "timed out after {timeout:?}: ")?;
        }
        let failed: Vec<String> = self.failed().map(ToString::to_string).collect();
        if self.informers.len() > 1 {
            write!(f, "{} of {} informers not synced: ", failed.len(), self.informers.len())?;
        }
        f.write_str(&failed.join("; "))
    }
}

impl fmt::Display for InformerSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.informer, self.state.display_at(self.now))
    }
}

impl std::error::Error for SyncError {}

/// The error of waiting until a manager is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReadinessError {
    /// The reasons why the program was not ready, as served at `/readyz`.
    pub failures: Vec<String>,
    /// The timeout, if it ended the wait; `None` if the manager stops or has ended.
    pub timeout: Option<Duration>,
}

impl ReadinessError {
    /// Classifies the error: a timeout, or a manager that has stopped.
    pub fn kind(&self) -> ErrorKind {
        if self.timeout.is_some() { ErrorKind::Timeout } else { ErrorKind::Stopped }
    }
}

impl fmt::Display for ReadinessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = self.failures.join("; ");
        match self.timeout {
            Some(timeout) => write!(f, "wait until ready: timed out after {timeout:?}: {failures}"),
            None => write!(f, "wait until ready: manager: {failures} (see the result of its run)"),
        }
    }
}

impl std::error::Error for ReadinessError {}

/// The error of waiting until a condition holds for a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConditionWaitError {
    /// The description of the informer.
    pub informer: Arc<str>,
    /// The description of the condition.
    pub condition: Box<str>,
    /// The state of the informer.
    pub state: InformerState,
    /// When the state was read, on the clock of the moments in `state`.
    pub now: Moment,
    /// The timeout, if it ended the wait; `None` if the condition cannot hold in this state of the informer.
    pub timeout: Option<Duration>,
}

impl ConditionWaitError {
    /// Classifies the error: a timeout, or the state of the informer that ended the wait.
    pub fn kind(&self) -> ErrorKind {
        match (self.timeout, &self.state) {
            (Some(_), _) => ErrorKind::Timeout,
            (None, InformerState::Forbidden { .. }) => ErrorKind::Forbidden,
            (None, InformerState::NotServed { .. }) => ErrorKind::NotServed,
            (None, _) => ErrorKind::Stopped,
        }
    }
}

impl fmt::Display for ConditionWaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wait for {}: {}: ", self.condition, self.informer)?;
        if let Some(timeout) = self.timeout {
            write!(f, "timed out after {timeout:?}: ")?;
        }
        write!(f, "{}", self.state.display_at(self.now))
    }
}

impl std::error::Error for ConditionWaitError {}

/// The error of waiting until a cache has reached a resource version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("wait for version {wanted}: {informer}: {reason}")]
#[non_exhaustive]
pub struct VersionWaitError {
    /// The description of the informer.
    pub informer: Arc<str>,
    /// The version that was waited for.
    pub wanted: ResourceVersion,
    /// The reason why the wait failed.
    pub reason: VersionWaitReason,
}

impl VersionWaitError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self.reason {
            VersionWaitReason::TimedOut { .. } => ErrorKind::Timeout,
            VersionWaitReason::Stopped => ErrorKind::Stopped,
            VersionWaitReason::Rewound => ErrorKind::Conflict,
            VersionWaitReason::NotComparable | VersionWaitReason::NotWatched => ErrorKind::Invalid,
        }
    }
}

/// The reason why a wait for a resource version failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionWaitReason {
    /// The server was rewound during the wait (C1), so the version may belong to a history that no longer
    /// exists.
    #[error("the server was rewound and may never reach the version")]
    Rewound,
    /// Versions of this form cannot be compared, so it is unknown when the cache reaches the version.
    #[error("versions of this server cannot be compared")]
    NotComparable,
    /// The informer does not watch the namespace.
    #[error("the informer does not watch this namespace")]
    NotWatched,
    /// The informer has stopped.
    #[error("the informer has stopped")]
    Stopped,
    /// The version was not reached in time.
    #[error(
        "timed out after {timeout:?} at {}: {}",
        reached.as_ref().map_or("no version".to_owned(), |version| format!("version {version}")),
        state.display_at(*now)
    )]
    #[non_exhaustive]
    TimedOut {
        /// The timeout.
        timeout: Duration,
        /// The version that the cache had reached; `None` if it has no version yet.
        reached: Option<ResourceVersion>,
        /// The state of the informer.
        state: InformerState,
        /// When the state was read, on the clock of the moments in `state`.
        now: Moment,
    },
}
