//! The error types: one per operation, and [`Error`] for all of them.
//!
//! Only definitions, messages and classifications. This module does not know how an error is caused or
//! handled.

mod controller;
mod object;
mod resolve;
mod shutdown;
mod wait;

pub use crate::source::SourceError;
pub use controller::{ControllerError, ManagerError};
pub use informer_core::error::{ConfigError, ParseError, ParseErrorKind};
pub use informer_core::{DecodeError, EncodeError, ProjectionError};
pub use object::{ApplyError, FinalizerError, OwnerError, PatchStatusError};
pub use resolve::ResolveError;
pub use shutdown::{ShutdownError, Unfinished};
pub use wait::{
    ConditionWaitError, InformerSync, ReadinessError, SyncError, VersionWaitError, VersionWaitReason,
};

use crate::source::classify;
use informer_core::reflector::FailureKind;
use kube::config::InferConfigError;

/// Any error of this crate, or of creating the client that it uses.
///
/// Each operation returns its own type; `?` converts them, so that a program needs one error type:
///
/// ```no_run
/// # use informer::SharedInformerFactory;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use std::time::Duration;
/// async fn run() -> Result<(), informer::Error> {
///     let client = informer::client(kube::Config::infer().await?)?;
///     let factory = SharedInformerFactory::new(client);
///     let pods = factory.informer::<Pod>();
///     factory.start();
///     factory.wait_for_sync(Duration::from_secs(30)).await?;
///     println!("{} pods", pods.lister().len());
///     Ok(factory.shutdown(Duration::from_secs(5)).await?)
/// }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key, selector or field path does not parse.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// A kind, an election or a field filter cannot be configured like this.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Informers did not sync.
    #[error(transparent)]
    Sync(#[from] SyncError),
    /// A manager did not become ready.
    #[error(transparent)]
    Readiness(#[from] ReadinessError),
    /// A cache did not reach a resource version.
    #[error(transparent)]
    VersionWait(#[from] VersionWaitError),
    /// A condition did not hold for a cache.
    #[error(transparent)]
    ConditionWait(#[from] ConditionWaitError),
    /// A shutdown or drain did not finish within its timeout.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
    /// An object does not decode.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A request of a source failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A manager ended with an error.
    #[error(transparent)]
    Manager(#[from] ManagerError),
    /// A finalizer could not be added or removed.
    #[error(transparent)]
    Finalizer(#[from] FinalizerError),
    /// An owner reference could not be set.
    #[error(transparent)]
    Owner(#[from] OwnerError),
    /// An object could not be applied in a reconcile.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The status of an object could not be written in a reconcile.
    #[error(transparent)]
    PatchStatus(#[from] PatchStatusError),
    /// A resource could not be found by its name.
    #[error(transparent)]
    Resolve(#[from] ResolveError),
    /// The client failed.
    #[error(transparent)]
    Client(#[from] kube::Error),
    /// The configuration of the client could not be found or read.
    #[error(transparent)]
    ClientConfig(#[from] InferConfigError),
}

impl Error {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Parse(_) | Self::Owner(_) => ErrorKind::Invalid,
            Self::Config(_) | Self::ClientConfig(_) => ErrorKind::Config,
            Self::Sync(error) => error.kind(),
            Self::Readiness(error) => error.kind(),
            Self::VersionWait(error) => error.kind(),
            Self::ConditionWait(error) => error.kind(),
            Self::Shutdown(_) => ErrorKind::Timeout,
            Self::Decode(_) => ErrorKind::Decode,
            Self::Source(error) => ErrorKind::of_failure(error.failure_kind()),
            Self::Controller(error) => error.kind(),
            Self::Manager(error) => error.kind(),
            Self::Finalizer(error) => error.kind(),
            Self::Apply(error) => error.kind(),
            Self::PatchStatus(error) => error.kind(),
            Self::Resolve(error) => error.kind(),
            Self::Client(error) => ErrorKind::of_client_error(error),
        }
    }

    /// Returns whether another writer has changed the object since it was read, so that the same change may
    /// succeed on the current object.
    ///
    /// An object that exists already is not a conflict.
    pub fn is_conflict(&self) -> bool {
        let is_conflict =
            |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.reason == "Conflict");
        match self {
            Self::Client(error) => is_conflict(error),
            Self::Apply(ApplyError::Request { source, .. })
            | Self::PatchStatus(PatchStatusError::Request { source, .. }) => is_conflict(source),
            Self::Finalizer(error) => error.is_conflict(),
            _ => false,
        }
    }
}

/// A coarse classification of errors, the same for all error types.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input cannot be used: it does not parse, contradicts itself, or was rejected by the server.
    Invalid,
    /// The configuration of the client (including credentials and certificates), a kind, an election or a
    /// manager is wrong.
    Config,
    /// The operation did not finish in time.
    Timeout,
    /// The user is not authenticated or lacks the permission.
    Forbidden,
    /// The server does not serve the resource, or a requested object does not exist.
    NotServed,
    /// The operation contradicts the current state: another writer changed the object, the server does not
    /// serve the requested resource version, or the controller is already running.
    Conflict,
    /// An object does not decode.
    Decode,
    /// The server could not be reached or failed, or the connection broke.
    Connection,
    /// The informer, controller or manager has stopped.
    Stopped,
    /// A failure inside the library, of a task of the program, or of the operating system.
    Internal,
}

impl ErrorKind {
    fn of_client_error(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => Self::Conflict,
            kube::Error::Api(_)
            | kube::Error::Service(_)
            | kube::Error::HyperError(_)
            | kube::Error::ReadEvents(_)
            | kube::Error::SerdeError(_)
            | kube::Error::FromUtf8(_)
            | kube::Error::LinesCodecMaxLineLengthExceeded
            | kube::Error::Auth(_) => Self::of_failure(classify(error).kind()),
            kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => Self::Invalid,
            kube::Error::Discovery(_) => Self::NotServed,
            // Creating the client failed: TLS, proxy or kubeconfig.
            _ => Self::Config,
        }
    }

    fn of_failure(kind: FailureKind) -> Self {
        match kind {
            FailureKind::Forbidden | FailureKind::Unauthorized => Self::Forbidden,
            FailureKind::NotServed => Self::NotServed,
            FailureKind::Rejected | FailureKind::InvalidRequest => Self::Invalid,
            FailureKind::Timeout => Self::Timeout,
            FailureKind::MalformedBody => Self::Decode,
            FailureKind::Credentials | FailureKind::Certificate => Self::Config,
            FailureKind::Expired | FailureKind::VersionTooLarge => Self::Conflict,
            _ => Self::Connection,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn kind_of_status(code: u16, reason: &str) -> ErrorKind {
        let status = Status::failure("no", reason).with_code(code);
        Error::from(kube::Error::Api(Box::new(status))).kind()
    }

    #[test]
    fn client_errors_are_classified_by_their_status() {
        assert_eq!(kind_of_status(403, "Forbidden"), ErrorKind::Forbidden);
        assert_eq!(kind_of_status(404, "NotFound"), ErrorKind::NotServed);
        assert_eq!(kind_of_status(409, "Conflict"), ErrorKind::Conflict);
        assert_eq!(kind_of_status(422, "Invalid"), ErrorKind::Invalid);
        assert_eq!(kind_of_status(500, "InternalError"), ErrorKind::Connection);
    }

    /// Regression: an error of creating the client counted as a broken connection.
    #[test]
    fn errors_of_creating_a_client_are_configuration_errors() {
        assert_eq!(Error::from(kube::Error::TlsRequired).kind(), ErrorKind::Config);
    }

    #[test]
    fn errors_of_operations_are_classified() {
        let parse: ParseError = "a/b/c".parse::<informer_core::Key>().unwrap_err();
        assert_eq!(Error::from(parse).kind(), ErrorKind::Invalid);
        let timeout = SourceError::ResponseHeaderTimeout { timeout: std::time::Duration::from_secs(1) };
        assert_eq!(Error::from(timeout).kind(), ErrorKind::Timeout);
        assert_eq!(Error::from(ConfigError::NoIdentity).kind(), ErrorKind::Config);
    }
}
