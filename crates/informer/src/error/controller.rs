//! Errors of running controllers and managers.

use super::{ConfigError, Error, ErrorKind, ShutdownError};
use informer_core::Key;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The error with which a controller ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// An informer of the controller has stopped, so the controller would miss changes.
    #[error("controller {controller}: informer {informer} has stopped (stop controllers before informers)")]
    #[non_exhaustive]
    InformerStopped {
        /// The name of the controller.
        controller: Arc<str>,
        /// The description of the informer.
        informer: Arc<str>,
    },
    /// Reconciles did not end within the shutdown timeout and were aborted.
    #[error(
        "controller {controller}: {} reconciles aborted after {timeout:?}: {}{}",
        keys.len(),
        first_keys(keys),
        if *blocked { " (some still run: does one block its thread?)" } else { "" }
    )]
    #[non_exhaustive]
    ReconcilesAborted {
        /// The name of the controller.
        controller: Arc<str>,
        /// The keys of the aborted reconciles.
        keys: Vec<Key>,
        /// The shutdown timeout.
        timeout: Duration,
        /// Whether some of the aborted reconciles still run. A reconcile ends only at its next await point.
        blocked: bool,
    },
    /// The sources of the controller cannot be divided by its shard group.
    #[error("controller {controller}: {reason}")]
    #[non_exhaustive]
    NotSharded {
        /// The name of the controller.
        controller: Arc<str>,
        /// The reason, and what to do.
        reason: &'static str,
    },
    /// The controller is running already.
    #[error("controller {controller}: already running")]
    #[non_exhaustive]
    AlreadyRunning {
        /// The name of the controller.
        controller: Arc<str>,
    },
}

impl ControllerError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InformerStopped { .. } => ErrorKind::Stopped,
            Self::ReconcilesAborted { .. } => ErrorKind::Timeout,
            Self::AlreadyRunning { .. } => ErrorKind::Conflict,
            Self::NotSharded { .. } => ErrorKind::Config,
        }
    }

    /// Returns whether an aborted reconcile still runs, so that it may still write.
    pub(crate) fn is_blocked(&self) -> bool {
        matches!(self, Self::ReconcilesAborted { blocked: true, .. })
    }
}

/// Formats the first five keys.
fn first_keys(keys: &[Key]) -> String {
    let first: Vec<String> = keys.iter().take(5).map(ToString::to_string).collect();
    first.join(", ") + if keys.len() > first.len() { ", …" } else { "" }
}

/// The error with which a manager ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagerError {
    /// The address of the health and metrics pages cannot be used.
    #[error("serve on {address} (is another process using it?)")]
    #[non_exhaustive]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The process cannot receive signals.
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
    /// Two controllers have the same name.
    #[error("two controllers are named {0} (rename one)")]
    DuplicateController(Box<str>),
    /// The manager has leader election as well as shard groups or sharded controllers.
    #[error(
        "run a manager: leader election and sharding exclude each other, because processes that do not lead would hold hash ranges and reconcile nothing (remove the leader election, or use a manager of its own for what is not sharded)"
    )]
    ElectionWithShards,
    /// The leader election is not configured correctly.
    #[error(transparent)]
    Election(#[from] ConfigError),
    /// A controller ended with an error.
    #[error(transparent)]
    Controller(#[from] ControllerError),
    /// A task of the program returned an error or panicked. [`kind`](Self::kind) is that of the returned error if
    /// it is an [`informer::Error`](Error).
    #[error("task {task} failed")]
    #[non_exhaustive]
    Task {
        /// The name of the task.
        task: Arc<str>,
        /// The error that the task returned, or the message of its panic.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Tasks, informers or recorders did not end in time.
    #[error(transparent)]
    Shutdown(#[from] ShutdownError),
}

impl ManagerError {
    /// Classifies the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Bind { .. }
            | Self::DuplicateController(_)
            | Self::ElectionWithShards
            | Self::Election(_) => ErrorKind::Config,
            Self::Signals(_) => ErrorKind::Internal,
            Self::Task { source, .. } => {
                source.downcast_ref::<Error>().map_or(ErrorKind::Internal, Error::kind)
            }
            Self::Controller(error) => error.kind(),
            Self::Shutdown(_) => ErrorKind::Timeout,
        }
    }
}
