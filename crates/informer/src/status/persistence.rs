//! What an informer reports about its saved cache.

use jiff::Timestamp;
use std::fmt;
use std::sync::Arc;

/// The status of the saved cache of an informer that persists it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PersistenceStatus {
    /// How the informer has started.
    pub start: StartKind,
    /// When the cache was last saved by this process; `None` if it was not.
    pub saved_at: Option<Timestamp>,
    /// Why the last attempt to save it failed; `None` if it did not.
    pub error: Option<Arc<str>>,
    /// The durable handlers that were forgotten by this process.
    pub forgotten_handlers: Vec<ForgottenHandler>,
}

/// A durable handler that was forgotten, because no process has added it for 30 days in which processes ran.
///
/// If it is added again, it is a new handler: it receives all objects, and no deletions of earlier ones.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgottenHandler {
    /// The durable name.
    pub name: Arc<str>,
    /// The number of objects that it knew and whose deletion was not delivered to it. Deletions since the last save are not
    /// counted.
    pub missed_deletions: usize,
}

impl fmt::Display for ForgottenHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, missed_deletions } = self;
        write!(f, "durable handler {name:?} is forgotten after 30 days without use, ")?;
        write!(f, "with {missed_deletions} deletions (if it is added again, it begins as a new handler)")
    }
}

/// How an informer with a saved cache has started.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartKind {
    /// The saved cache is being read.
    Loading,
    /// The saved cache was loaded. The state of the informer tells whether the server has confirmed it.
    #[non_exhaustive]
    Warm {
        /// When it was saved.
        as_of: Timestamp,
        /// The number of objects.
        objects: usize,
    },
    /// No saved cache was used.
    Cold(ColdStartReason),
}

/// Why no saved cache was used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ColdStartReason {
    /// There is no saved cache.
    NothingSaved,
    /// Secrets are persisted only on request. Nothing is saved.
    Secrets,
    /// The options contain a transform, and no name for its version. Nothing is saved.
    UnnamedTransform,
    /// The informer belongs to a shard group, whose ranges move when a process ends. Nothing is saved.
    Sharded,
    /// Another process has opened the file. The informer saves its cache when the file is released.
    InUse,
    /// The cache was saved with other options. It was set aside.
    #[non_exhaustive]
    OtherOptions {
        /// The first setting that differs.
        setting: Box<str>,
    },
    /// The cache was saved by a version of this library with another format. It was set aside.
    #[non_exhaustive]
    OtherFormat {
        /// The format of the file.
        found: Box<str>,
    },
    /// The cache was saved from another cluster with the same address and certificate.
    OtherCluster,
    /// The file is damaged. It was set aside.
    #[non_exhaustive]
    Damaged {
        /// What is wrong.
        message: Box<str>,
    },
    /// The file cannot be opened or written.
    #[non_exhaustive]
    Inaccessible {
        /// The error of the operating system.
        message: Box<str>,
    },
}

#[cfg(feature = "persistence")]
impl ColdStartReason {
    /// Creates the reason for a damaged file.
    pub(crate) fn damaged(message: &str) -> Self {
        Self::Damaged { message: message.into() }
    }

    /// Creates the reason for a file that cannot be read or written.
    pub(crate) fn inaccessible(error: &std::io::Error) -> Self {
        Self::Inaccessible { message: error.to_string().into() }
    }

    /// Returns whether the reason is a failure, and not the usual first start.
    pub(crate) fn is_failure(&self) -> bool {
        *self != Self::NothingSaved
    }
}

impl fmt::Display for ColdStartReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingSaved => f.write_str("nothing was saved before"),
            Self::Secrets => f.write_str("Secrets are not persisted (see Persistence::include_secrets)"),
            Self::UnnamedTransform => {
                f.write_str("the transform has no version (see Persistence::transform_version)")
            }
            Self::Sharded => f.write_str("the informer belongs to a shard group"),
            Self::InUse => f.write_str("another process has opened the file"),
            Self::OtherOptions { setting } => write!(f, "saved with another {setting}"),
            Self::OtherFormat { found } => write!(f, "saved in format {found:?}"),
            Self::OtherCluster => f.write_str("saved from another cluster"),
            Self::Damaged { message } => write!(f, "the file is damaged: {message}"),
            Self::Inaccessible { message } => write!(f, "the file cannot be used: {message}"),
        }
    }
}
