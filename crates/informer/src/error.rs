//! The error types of this crate, except those of `informer-core` and [`SourceError`](crate::source::SourceError).
//!
//! Only definitions, their texts and questions about them. Nothing here knows how an error comes about or how it is handled.

use crate::reference::Reference;
use informer_core::lease::ElectionConfigError;
use informer_core::reflector::State;
use informer_core::{FieldPathError, Key, Moment, OwnerReference, ResourceVersion};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
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

/// Not every kind is synced. It says how each of them stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FactorySyncError {
    /// Every kind of the factory, in order.
    pub kinds: Vec<KindState>,
}

/// How one kind stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct KindState {
    /// What the informer is about.
    pub resource: Arc<str>,
    /// Why it is not synced; `None` if it is.
    pub error: Option<SyncError>,
}

impl FactorySyncError {
    /// Those that are not synced.
    pub fn failed(&self) -> impl Iterator<Item = &SyncError> {
        self.kinds.iter().filter_map(|kind| kind.error.as_ref())
    }
}

impl fmt::Display for FactorySyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed: Vec<String> = self
            .failed()
            .map(|error| format!("{}: {}", error.resource, error.state.seen_from(error.now)))
            .collect();
        write!(f, "{} of {} kinds not synced", failed.len(), self.kinds.len())?;
        if let Some(after) = self.failed().find_map(|error| error.after) {
            write!(f, " after {after:?}")?;
        }
        write!(f, ": {}", failed.join("; "))
    }
}

impl std::error::Error for FactorySyncError {}

/// Not every informer ended in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", late.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
#[non_exhaustive]
pub struct FactoryShutdownError {
    /// Those that did not.
    pub late: Vec<ShutdownError>,
}

/// A kind that was to be configured otherwise than it is.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}: another `{option}` is in use already (configure a kind before it is first asked for, and the same everywhere)"
)]
#[non_exhaustive]
pub struct ConfigureError {
    /// Which kind.
    pub resource: Box<str>,
    /// The option that differs.
    pub option: &'static str,
}

/// An index that cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddIndexError {
    /// The field path does not parse.
    #[error(transparent)]
    Path(#[from] FieldPathError),
}

/// Why a controller has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its informers was stopped: it would miss changes from now on.
    #[error(
        "controller {controller}: the informer for {resource} has stopped (stop controllers before informers)"
    )]
    #[non_exhaustive]
    SourceStopped {
        /// Its name.
        controller: Arc<str>,
        /// What the informer was about.
        resource: Arc<str>,
    },
    /// Turns did not end in time after it was told to stop, and were dropped where they waited.
    #[error("controller {controller}: {} turns had not ended after {after:?} and were dropped: {}{}", keys.len(), some(keys),
        if *stuck { "; not all of them let go (is something blocking its thread?)" } else { "" })]
    #[non_exhaustive]
    TurnsDropped {
        /// Its name.
        controller: Arc<str>,
        /// Whose turns they were.
        keys: Vec<Key>,
        /// The time they were given.
        after: Duration,
        /// Whether some of them still go on: they do not wait for anything that could be dropped.
        stuck: bool,
    },
    /// It runs already.
    #[error("controller {controller}: it runs already")]
    #[non_exhaustive]
    RunsAlready {
        /// Its name.
        controller: Arc<str>,
    },
}

impl ControllerError {
    /// Whether a turn still goes on, and may act.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self, Self::TurnsDropped { stuck: true, .. })
    }
}

/// The first of many.
fn some(keys: &[Key]) -> String {
    let few: Vec<String> = keys.iter().take(5).map(ToString::to_string).collect();
    few.join(", ") + if keys.len() > few.len() { ", …" } else { "" }
}

/// Why a manager has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// Its pages cannot be served there.
    #[error("cannot serve on {address}: {because} (another address or port may be free)")]
    #[non_exhaustive]
    Serve {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        because: std::io::Error,
    },
    /// Signals cannot be waited for.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// Two controllers have one name, so nobody could tell them apart.
    #[error("two controllers are called {0} (give one another name)")]
    SameName(Box<str>),
    /// No leader can be elected like this.
    #[error("leader election: {0}")]
    Election(#[from] ElectionConfigError),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// Informers did not end in time.
    #[error(transparent)]
    Informers(#[from] FactoryShutdownError),
}

/// What a queue was still busy with when the time for its end was over.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the work queue is not drained after {within:?}: {queued} queued, {held} being worked on, {delayed} to come"
)]
#[non_exhaustive]
pub struct DrainError {
    /// How long it was waited for.
    pub within: Duration,
    /// Keys that nobody took.
    pub queued: usize,
    /// Keys whose turns have not ended.
    pub held: usize,
    /// Keys that were to come later.
    pub delayed: usize,
}

/// Events that were not written when the time for it was over. They are lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{lost} writes of events were not done within {within:?} and are lost")]
#[non_exhaustive]
pub struct RecorderShutdownError {
    /// How long it was waited for.
    pub within: Duration,
    /// Writes that were not done.
    pub lost: usize,
}

/// Why a finalizer could not be put in or taken out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerError {
    /// The finalizers of the object cannot be read.
    #[error("the finalizers of {object} cannot be read: {reason}")]
    #[non_exhaustive]
    Read {
        /// The object, with its kind.
        object: String,
        /// Why not.
        reason: String,
    },
    /// The server did not put it in.
    #[error("finalizer {finalizer} could not be added to {object}: {}", plainly(source))]
    #[non_exhaustive]
    Add {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
        /// What went wrong.
        source: Box<kube::Error>,
    },
    /// The server did not take it out.
    #[error("finalizer {finalizer} could not be removed from {object}: {}", plainly(source))]
    #[non_exhaustive]
    Remove {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
        /// What went wrong.
        source: Box<kube::Error>,
    },
    /// Others changed the object's finalizers each time. Nothing is wrong with it: try again later.
    #[error("the finalizers of {object} were changed by others meanwhile; try again with {finalizer} later")]
    #[non_exhaustive]
    Conflict {
        /// The object, with its kind.
        object: String,
        /// The finalizer.
        finalizer: Arc<str>,
    },
}

impl FinalizerError {
    /// Whether others were faster, and the same may succeed in a moment.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Conflict { .. })
    }
}

/// Why an object cannot be put under the control of another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner is not on a server, or what is known of it is not enough.
    #[error("{owner} cannot own anything: it has no {missing}; take it as the server has it")]
    #[non_exhaustive]
    Unknown {
        /// The owner.
        owner: Box<Reference>,
        /// What is missing.
        missing: &'static str,
    },
    /// Another object controls it.
    #[error("{child} is controlled by {} {} (uid {}) and cannot be by {owner} too", by.kind, by.name, by.uid)]
    #[non_exhaustive]
    Controlled {
        /// The object that was to be owned.
        child: Box<Reference>,
        /// Who was to be its controller.
        owner: Box<Reference>,
        /// Who is.
        by: Box<OwnerReference>,
    },
    /// The two are in different namespaces. The garbage collector would delete the child.
    #[error("{child} cannot be owned by {owner}: an owner is in the same namespace, or in none")]
    #[non_exhaustive]
    OtherNamespace {
        /// The object that was to be owned.
        child: Box<Reference>,
        /// Who was to be its controller.
        owner: Box<Reference>,
    },
    /// The child is in no namespace, and the owner is in one. The garbage collector would delete the child.
    #[error(
        "{child} cannot be owned by {owner}: what is in no namespace cannot have an owner in one; \
         if it is to be in a namespace, say which"
    )]
    #[non_exhaustive]
    ClusterScopedChild {
        /// The object that was to be owned.
        child: Box<Reference>,
        /// Who was to be its controller.
        owner: Box<Reference>,
    },
}

/// What a server says, without the rest of its status.
fn plainly(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}
