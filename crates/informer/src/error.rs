//! The error types of this crate, except those of `informer-core` and [`SourceError`].
//!
//! Only definitions, their texts and questions about them. Nothing here knows how an error comes about or how it is handled.

pub use crate::source::SourceError;
pub use informer_core::election::ElectionConfigError;
pub use informer_core::{DecodeError, FieldPathError, ParseKeyError, ProjectionError, SelectorError};

use crate::reference::ObjectReference;
use informer_core::reflector::InformerState;
use informer_core::{Key, Moment, OwnerReference, ResourceVersion};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// A coarse classification of errors, the same for all error types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input cannot be used: it does not parse, or contradicts itself.
    Invalid,
    /// The configuration of the client, a kind, an election or a manager is wrong.
    Config,
    /// The operation did not finish in time.
    Timeout,
    /// The user may not do this.
    Forbidden,
    /// The server does not serve the resource.
    NotServed,
    /// Another writer, or the server's history, got in the way.
    Conflict,
    /// An object does not decode.
    Decode,
    /// The server could not be reached, or the connection broke.
    Connection,
    /// The informer or controller has stopped.
    Stopped,
    /// A defect of this library.
    Internal,
}

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
    /// Whether it has synced.
    pub synced: bool,
    /// Its state.
    pub state: InformerState,
    /// When it was in that state, on the clock of the moments in `state`.
    pub now: Moment,
}

impl SyncError {
    /// Returns an iterator over the informers that have not synced.
    pub fn failed(&self) -> impl Iterator<Item = &InformerSync> {
        self.informers.iter().filter(|informer| !informer.synced)
    }

    /// Classifies the error: a timeout, or the state in which an informer cannot sync (forbidden before not served before stopped).
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

/// The error of waiting until a cache has reached a resource version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("wait for version {wanted}: {informer}: {reason}")]
#[non_exhaustive]
pub struct VersionWaitError {
    /// The description of the informer.
    pub informer: Arc<str>,
    /// The version that was waited for.
    pub wanted: ResourceVersion,
    /// What ended the wait.
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

/// What ended a wait for a resource version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VersionWaitReason {
    /// The server went back during the wait (C1): the version may belong to a history that no longer exists.
    #[error("the server was rewound and may never reach the version")]
    Rewound,
    /// The version has a form without an order, so it is unknown when the cache reaches it.
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
        /// The version of the cache.
        reached: Option<ResourceVersion>,
        /// The state of the informer.
        state: InformerState,
        /// When it was in that state, on the clock of the moments in `state`.
        now: Moment,
    },
}

/// The error of a shutdown or drain that did not finish within its timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownError {
    /// The timeout.
    pub timeout: Duration,
    /// What had not finished. Never empty.
    pub unfinished: Vec<Unfinished>,
}

/// Something that had not finished when a shutdown timed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfinished {
    /// An informer: a handler is still running, or the cache is still busy.
    #[non_exhaustive]
    Informer {
        /// The description of the informer.
        informer: Arc<str>,
    },
    /// Recorded events that were not written. They are lost.
    #[non_exhaustive]
    RecordedEvents {
        /// The number of writes.
        writes: usize,
    },
    /// Keys of a work queue.
    #[non_exhaustive]
    WorkQueue {
        /// Keys that no worker has taken.
        queued: usize,
        /// Keys that workers hold.
        processing: usize,
        /// Keys whose delay has not passed.
        delayed: usize,
    },
}

impl ShutdownError {
    pub(crate) fn of(timeout: Duration, unfinished: Unfinished) -> Self {
        Self { timeout, unfinished: vec![unfinished] }
    }

    /// The errors of several shutdowns with the same timeout as one; `Ok` if there are none.
    pub(crate) fn collect(
        timeout: Duration,
        outcomes: impl IntoIterator<Item = Result<(), Self>>,
    ) -> Result<(), Self> {
        let errors = outcomes.into_iter().filter_map(Result::err);
        let unfinished: Vec<_> = errors.flat_map(|error| error.unfinished).collect();
        if unfinished.is_empty() { Ok(()) } else { Err(Self { timeout, unfinished }) }
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [queue @ Unfinished::WorkQueue { .. }] = &self.unfinished[..] {
            return write!(f, "drain work queue: timed out after {:?} with {queue}", self.timeout);
        }
        let unfinished: Vec<String> = self.unfinished.iter().map(ToString::to_string).collect();
        write!(f, "shutdown: timed out after {:?}: {}", self.timeout, unfinished.join("; "))
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Informer { informer } => {
                write!(f, "{informer}: a handler or the cache is still busy (is a handler blocking?)")
            }
            Self::RecordedEvents { writes } => write!(f, "{writes} writes of recorded events are lost"),
            Self::WorkQueue { queued, processing, delayed } => write!(
                f,
                "{queued} keys queued, {processing} processing, {delayed} delayed (a worker may be stuck)"
            ),
        }
    }
}

impl std::error::Error for ShutdownError {}

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
    InformerStopped {
        /// Its name.
        controller: Arc<str>,
        /// What the informer was about.
        resource: Arc<str>,
    },
    /// Turns did not end in time after it was told to stop, and were dropped where they waited.
    #[error("controller {controller}: {} turns had not ended after {after:?} and were dropped: {}{}", keys.len(), some(keys),
        if *stuck { "; not all of them let go (is something blocking its thread?)" } else { "" })]
    #[non_exhaustive]
    ReconcilesAborted {
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
    AlreadyRunning {
        /// Its name.
        controller: Arc<str>,
    },
}

impl ControllerError {
    /// Whether a turn still goes on, and may act.
    pub(crate) fn is_stuck(&self) -> bool {
        matches!(self, Self::ReconcilesAborted { stuck: true, .. })
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
    DuplicateController(Box<str>),
    /// No leader can be elected like this.
    #[error("leader election: {0}")]
    Election(#[from] ElectionConfigError),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// Informers did not end in time.
    #[error(transparent)]
    Informers(ShutdownError),
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
    IncompleteOwner {
        /// The owner.
        owner: Box<ObjectReference>,
        /// What is missing.
        missing: &'static str,
    },
    /// Another object controls it.
    #[error("{child} is controlled by {} {} (uid {}) and cannot be by {owner} too", by.kind, by.name, by.uid)]
    #[non_exhaustive]
    AlreadyControlled {
        /// The object that was to be owned.
        child: Box<ObjectReference>,
        /// Who was to be its controller.
        owner: Box<ObjectReference>,
        /// Who is.
        by: Box<OwnerReference>,
    },
    /// The two are in different namespaces. The garbage collector would delete the child.
    #[error("{child} cannot be owned by {owner}: an owner is in the same namespace, or in none")]
    #[non_exhaustive]
    CrossNamespace {
        /// The object that was to be owned.
        child: Box<ObjectReference>,
        /// Who was to be its controller.
        owner: Box<ObjectReference>,
    },
    /// The child is in no namespace, and the owner is in one. The garbage collector would delete the child.
    #[error(
        "{child} cannot be owned by {owner}: what is in no namespace cannot have an owner in one; \
         if it is to be in a namespace, say which"
    )]
    #[non_exhaustive]
    ClusterScopedChild {
        /// The object that was to be owned.
        child: Box<ObjectReference>,
        /// Who was to be its controller.
        owner: Box<ObjectReference>,
    },
}

/// What a server says, without the rest of its status.
fn plainly(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    }
}
