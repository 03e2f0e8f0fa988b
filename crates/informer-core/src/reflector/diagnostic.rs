//! Diagnostics of the reflector: failures and fallbacks, for the log and for the user's hook.

use super::failure::Failure;
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::fmt;
use std::time::Duration;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// A list, one page of it, or a probe.
    List,
    /// A watch.
    Watch,
    /// A watch that begins with all current objects (`sendInitialEvents`).
    WatchList,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::WatchList => "watch-list",
        })
    }
}

/// A failure or fallback that the reflector reports.
///
/// No failure is silent (C9), and no diagnostic contains contents of objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReflectorDiagnostic {
    /// A request failed, or a stream broke.
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
    /// The transform failed on an object.
    ///
    /// [`TransformFallback`](crate::TransformFallback) decides what is cached instead.
    TransformFailed {
        /// The key of the object.
        key: Key,
        /// The error of the transform, or the reason why its result is invalid.
        message: Box<str>,
    },
    /// The reflector uses lists and watches from now on, because the server does not support watch-lists.
    WatchListDisabled {
        /// The failure that caused this.
        failure: Failure,
    },
    /// The reflector requests JSON from now on, because protobuf bodies arrive malformed.
    ProtobufDisabled {
        /// The failure of the last protobuf body.
        failure: Failure,
    },
    /// A list of the server's most recent state is older than the cache: the server was restored from a
    /// backup.
    ServerRewound {
        /// The version of the cache.
        from: ResourceVersion,
        /// The version of the server.
        to: ResourceVersion,
    },
}
