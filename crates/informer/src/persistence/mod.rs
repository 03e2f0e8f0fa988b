//! Caches that survive their process: each informer saves its cache to a file, and the next process starts from
//! it.
//!
//! This module knows files and what durable handlers know of the saved objects, but neither how events reach handlers nor
//! how an informer uses a loaded cache (see `shared::{durable, persist}`).
//! Nothing here calls a loaded cache synced: the server must confirm it first (C1, C7).

mod base;
mod blocks;
mod cluster;
mod file;
mod handlers;
mod identity;
mod knowledge;
mod pages;
mod replace;
mod storage;
mod usage;

pub(crate) use base::Base;
pub(crate) use cluster::{ClusterUid, fetch_cluster_uid};
pub(crate) use file::{AnyError, CacheFile, Contents, SaveInfo, open};
pub(crate) use handlers::{Handlers, SavedHandler, Unfinished, are_same};
pub(crate) use identity::Identity;
pub(crate) use knowledge::{
    ChangedKey, Difference, Differences, SavedState, UnacknowledgedKey, keep_last_states, rebase,
};
#[doc(hidden)]
pub use redb::{DatabaseError, StorageBackend};
pub(crate) use replace::replace;
#[doc(hidden)]
pub use storage::{FileId, Storage};
pub(crate) use usage::Usage;

use identity::fnv1a;
use std::path::PathBuf;
use std::sync::Arc;
use storage::Directory;

/// What readers see of a loaded cache before the server has confirmed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum RestoredReads {
    /// Nothing: the cache is empty until it is synced, as after a cold start.
    #[default]
    Withhold,
    /// The objects as they were saved. They may be out of date, and some may no longer exist; the state of the
    /// informer is [`Restored`](crate::status::InformerState::Restored).
    Serve,
}

/// Where and how an informer saves its cache, for
/// [`InformerOptions::persist`](crate::InformerOptions::persist).
///
/// An informer with a saved cache does not list all objects when it starts. It loads the cache, asks the server
/// for its version, and watches from the saved version. If the server no longer has that version, the informer
/// lists, and the list is never older than the saved cache: a restart does not go back in time (C1).
///
/// - Each informer has its own file in the directory, which only the user of the process can read. It contains the
///   objects as they are cached.
/// - A file is used only for the same cluster, resource, selection, field filters, transform and format.
///   Otherwise, and if it is damaged or in use, the start is cold; the
///   [status](crate::status::InformerStatus::persistence) contains the reason.
/// - The cache is saved about once per second if it has changed, in the background, and when the informer shuts
///   down. A crash loses the last seconds, which the next process receives from the server again.
/// - Handlers and controllers see no difference: they run after the server has confirmed the cache, and receive
///   all objects as initial.
///
/// ```no_run
/// use informer::persistence::Persistence;
/// use informer::{InformerOptions, SharedInformerFactory};
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let config = kube::Config::infer().await?;
/// let persistence = Persistence::new("/var/lib/my-operator", &config);
/// let client = informer::client(config)?;
/// let options = InformerOptions::default().persist(persistence);
/// let factory = SharedInformerFactory::with_options(client, options);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct Persistence {
    pub(crate) storage: Arc<dyn Storage>,
    /// The cluster, as part of the identity of files.
    pub(crate) cluster: Arc<str>,
    pub(crate) restored_reads: RestoredReads,
    pub(crate) includes_secrets: bool,
    pub(crate) transform_version: Option<Arc<str>>,
}

impl Persistence {
    /// Saves caches in this directory, which is created if necessary. The cluster is recognised by the URL and the
    /// certificate authority in `config`, and by the uid of its namespace `kube-system` if that may be read.
    ///
    /// Use a directory per program. Two informers with the same resource and selection must not share one: the
    /// second one finds its file in use and starts cold.
    pub fn new(directory: impl Into<PathBuf>, config: &kube::Config) -> Self {
        let authority = config.root_cert.iter().flatten().fold(0, |hash, cert| hash ^ fnv1a(cert));
        Self::for_cluster(directory, &format!("{} {authority:016x}", config.cluster_url))
    }

    /// Saves caches in this directory, for a cluster that is recognised by this name: for clients without a
    /// `kube::Config`, and for sources that are no API server.
    pub fn for_cluster(directory: impl Into<PathBuf>, cluster: &str) -> Self {
        Self::with_storage(Arc::new(Directory(directory.into())), cluster)
    }

    /// Saves caches in a storage of the caller; for tests.
    #[doc(hidden)]
    pub fn with_storage(storage: Arc<dyn Storage>, cluster: &str) -> Self {
        Self {
            storage,
            cluster: cluster.into(),
            restored_reads: RestoredReads::default(),
            includes_secrets: false,
            transform_version: None,
        }
    }

    /// Sets what readers see before the server has confirmed the loaded cache.
    ///
    /// Defaults to [`RestoredReads::Withhold`].
    pub fn restored_reads(mut self, reads: RestoredReads) -> Self {
        self.restored_reads = reads;
        self
    }

    /// Persists the caches of Secrets, too. They are stored in plain text, in files that only the user of the
    /// process can read. By default, they are not persisted.
    pub fn include_secrets(mut self) -> Self {
        self.includes_secrets = true;
        self
    }

    /// Names the version of the [transform](crate::InformerOptions::transform) in the options. Change the name
    /// whenever the function changes: caches with another name are not used.
    ///
    /// Without a name, caches with a transform are not persisted.
    pub fn transform_version(mut self, version: impl Into<Arc<str>>) -> Self {
        self.transform_version = Some(version.into());
        self
    }
}
