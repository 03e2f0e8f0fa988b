//! Diagnostics of an informer, for the log and for the hook of
//! [`InformerOptions::on_diagnostic`](crate::InformerOptions::on_diagnostic).
//!
//! No failure is silent (C9), and no diagnostic contains contents of objects.

use super::persistence::{ColdStartReason, ForgottenHandler};
use informer_core::reflector::{Failure, ReflectorDiagnostic, RequestKind};
use informer_core::wire::UnreadableObject;
use informer_core::{Key, ProjectionError, ResourceVersion};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

/// A failure, a fallback, or a fault of user code that an informer reports.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Diagnostic {
    /// A request failed, or a stream broke.
    #[non_exhaustive]
    RequestFailed {
        /// The request.
        request: RequestKind,
        /// The failure.
        failure: Failure,
        /// The delay before the next request; zero if it is sent immediately.
        retry_in: Duration,
    },
    /// An object could not be read and was skipped.
    ObjectSkipped(UnreadableObject),
    /// The transform failed on an object; the transform fallback decides what is cached instead.
    #[non_exhaustive]
    TransformFailed {
        /// The key of the object.
        key: Key,
        /// The error of the transform, or the reason why its result is invalid.
        message: Box<str>,
    },
    /// The informer lists and watches from now on, because the server does not support watch-lists.
    #[non_exhaustive]
    WatchListDisabled {
        /// The failure that caused this.
        failure: Failure,
    },
    /// The informer requests JSON from now on, because protobuf bodies arrive malformed.
    #[non_exhaustive]
    ProtobufDisabled {
        /// The failure of the last protobuf body.
        failure: Failure,
    },
    /// A consistent list is older than the cache: the server was restored from a backup.
    #[non_exhaustive]
    ServerRewound {
        /// The version of the cache.
        from: ResourceVersion,
        /// The version of the server.
        to: ResourceVersion,
    },
    /// An audit found differences between cache and server, and corrected them.
    #[non_exhaustive]
    CacheDrift {
        /// The number of changes.
        changes: u64,
    },
    /// An index function panicked; the objects are missing in that index.
    #[non_exhaustive]
    IndexPanicked {
        /// The number of calls that panicked, in one batch.
        calls: u64,
    },
    /// Training a dictionary or recompressing the cache panicked.
    ///
    /// Cached objects are not affected, and no further dictionary is trained.
    CompressionPanicked,
    /// A projection has no value for an object: the object does not fit its type, or the values have reached
    /// their memory limit. Reported for the first object of each kind of error.
    ProjectionFailed(ProjectionError),
    /// The saved cache was not used, although there is one or there should be; the start is cold.
    ColdStart(ColdStartReason),
    /// The cache could not be saved. The next attempt follows.
    #[non_exhaustive]
    SaveFailed {
        /// The error.
        message: Arc<str>,
    },
    /// A durable handler was not used for a long time, and what it knew is forgotten.
    HandlerForgotten(ForgottenHandler),
    /// A handler with a durable name receives events as other handlers do, because it cannot be durable.
    #[non_exhaustive]
    NotDurable {
        /// The name of the handler.
        handler: Arc<str>,
        /// Why.
        reason: Arc<str>,
    },
    /// A task of the informer panicked, and the informer has stopped.
    TaskPanicked,
    /// A handler panicked; it receives the next event.
    #[non_exhaustive]
    HandlerPanicked {
        /// The name of the handler.
        handler: Arc<str>,
    },
    /// A call of an inline handler took 100 ms or more and blocked its worker thread.
    #[non_exhaustive]
    SlowHandler {
        /// The name of the handler.
        handler: Arc<str>,
        /// The duration of the call.
        duration: Duration,
    },
    /// A call of a handler has not returned for 10 s or more. Its events wait; other handlers are not
    /// affected, unless the call blocks their worker thread. Reported once for each call.
    #[non_exhaustive]
    HandlerBlocked {
        /// The name of the handler.
        handler: Arc<str>,
        /// The duration of the call until now.
        duration: Duration,
    },
}

impl Diagnostic {
    /// Returns the failure that caused the diagnostic, if there is one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Self::RequestFailed { failure, .. }
            | Self::WatchListDisabled { failure }
            | Self::ProtobufDisabled { failure } => Some(failure),
            _ => None,
        }
    }

    /// Returns the level at which the diagnostic is logged.
    ///
    /// A failed request that is retried immediately is `INFO`, a panic is `ERROR`, everything else is `WARN`.
    pub fn level(&self) -> Level {
        match self {
            Self::HandlerPanicked { .. }
            | Self::IndexPanicked { .. }
            | Self::CompressionPanicked
            | Self::TaskPanicked => Level::ERROR,
            Self::RequestFailed { retry_in, .. } if retry_in.is_zero() => Level::INFO,
            _ => Level::WARN,
        }
    }
}

impl From<ReflectorDiagnostic> for Diagnostic {
    fn from(diagnostic: ReflectorDiagnostic) -> Self {
        match diagnostic {
            ReflectorDiagnostic::RequestFailed { request, failure, retry_in } => {
                Self::RequestFailed { request, failure, retry_in }
            }
            ReflectorDiagnostic::ObjectSkipped(unreadable) => Self::ObjectSkipped(unreadable),
            ReflectorDiagnostic::TransformFailed { key, message } => Self::TransformFailed { key, message },
            ReflectorDiagnostic::WatchListDisabled { failure } => Self::WatchListDisabled { failure },
            ReflectorDiagnostic::ProtobufDisabled { failure } => Self::ProtobufDisabled { failure },
            ReflectorDiagnostic::ServerRewound { from, to } => Self::ServerRewound { from, to },
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestFailed { request, failure, retry_in } => {
                write!(f, "{request}: {failure}; ")?;
                if retry_in.is_zero() {
                    f.write_str("retrying now")
                } else {
                    write!(f, "next attempt in {retry_in:?}")
                }
            }
            Self::ObjectSkipped(unreadable) => write!(f, "object skipped: {unreadable}"),
            Self::TransformFailed { key, message } => write!(f, "transform of {key} failed: {message}"),
            Self::WatchListDisabled { failure } => {
                write!(f, "watch-list disabled, using list and watch: {failure}")
            }
            Self::ProtobufDisabled { failure } => {
                write!(f, "protobuf disabled, using JSON: {failure} (does a proxy rewrite bodies?)")
            }
            Self::ServerRewound { from, to } => {
                write!(
                    f,
                    "the server was rewound from version {from} to {to} (was etcd restored from a backup?)"
                )
            }
            Self::CacheDrift { changes } => {
                write!(f, "audit: the cache differed from the server in {changes} objects and was corrected")
            }
            Self::IndexPanicked { calls } => {
                write!(f, "an index function panicked for {calls} objects, which are missing in that index")
            }
            Self::CompressionPanicked => {
                f.write_str("compression panicked; no further dictionary is trained")
            }
            Self::ProjectionFailed(error) => {
                write!(f, "projection: {error} (further objects are counted, not reported)")
            }
            Self::ColdStart(reason) => write!(f, "cold start, the saved cache is not used: {reason}"),
            Self::HandlerForgotten(forgotten) => forgotten.fmt(f),
            Self::NotDurable { handler, reason } => write!(f, "handler {handler} is not durable: {reason}"),
            Self::SaveFailed { message } => write!(f, "save cache: {message}"),
            Self::TaskPanicked => f.write_str("a task of the informer panicked; the informer has stopped"),
            Self::HandlerPanicked { handler } => {
                write!(f, "handler {handler} panicked; it receives the next event")
            }
            Self::SlowHandler { handler, duration } => write!(
                f,
                "handler {handler} took {duration:.1?} for one event (run it with `blocking`, or add the key to a work queue)"
            ),
            Self::HandlerBlocked { handler, duration } => {
                write!(f, "handler {handler} has not returned from one event for {duration:.0?}")
            }
        }
    }
}

/// The hook that is called with the description of the informer and the diagnostic.
pub(crate) type DiagnosticHook = Arc<dyn Fn(&str, &Diagnostic) + Send + Sync>;

/// The destination of an informer's diagnostics: the log, and the hook if there is one.
#[derive(Clone)]
pub(crate) struct DiagnosticSink {
    pub(crate) resource: Arc<str>,
    pub(crate) hook: Option<DiagnosticHook>,
}

impl DiagnosticSink {
    pub(crate) fn report(&self, diagnostic: &Diagnostic) {
        let resource = &*self.resource;
        match diagnostic.level() {
            Level::ERROR => tracing::error!(resource, "{diagnostic}"),
            Level::INFO => tracing::info!(resource, "{diagnostic}"),
            _ => tracing::warn!(resource, "{diagnostic}"),
        }
        let Some(hook) = &self.hook else { return };
        if catch_unwind(AssertUnwindSafe(|| hook(resource, diagnostic))).is_err() {
            tracing::error!(resource, "the diagnostic hook panicked");
        }
    }
}
