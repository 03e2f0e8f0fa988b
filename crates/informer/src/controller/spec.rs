//! The configuration of a controller: its sources and its settings.
//!
//! This module knows neither the types of objects nor how a controller runs.

use super::sharding::DeletedKeys;
use super::source::{KeyStream, OwnerKind, PendingSource};
use crate::factory::SharedInformerFactory;
use crate::shard_view::ShardHandle;
use crate::workqueue::{WorkQueue, seed};
use informer_core::Key;
use informer_core::workqueue::{ExponentialBackoff, RetryLimit};
use std::sync::Arc;
use std::time::Duration;

/// The error of a reconcile function: any error type, including `anyhow`'s, or a text.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The configuration of a controller, without the types of its sources.
pub(super) struct ControllerSpec {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) owner_kind: OwnerKind,
    pub(super) sources: Vec<PendingSource>,
    pub(super) streams: Vec<KeyStream>,
    pub(super) settings: Settings,
    /// The shard group that divides the keys among processes.
    pub(super) sharding: Option<ShardHandle>,
    /// The uids of deleted objects of the controller's kind, with sharding.
    pub(super) deleted_keys: Arc<DeletedKeys>,
}

/// The settings of a controller.
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) reconcile_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) write_visibility_timeout: Duration,
    /// The field manager of applied objects; `None` for the name of the controller.
    pub(super) field_manager: Option<Arc<str>>,
    /// The limit on retries of all keys together.
    pub(super) retry_limit: Option<RetryLimit>,
    pub(super) undeclared_reads: UndeclaredReads,
    /// The version of the reconcile function, if a restart does not reconcile every key.
    pub(super) resume: Option<Arc<str>>,
    /// Creates the work queue of a run, with its rate limiter and this limit on retries.
    pub(super) new_queue: Box<dyn Fn(Option<RetryLimit>) -> WorkQueue<Key> + Send + Sync>,
}

/// The reaction to a reconcile that reads a kind which is not a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndeclaredReads {
    /// Keeps the informer of the kind, and logs a warning.
    Warn,
    /// Panics, in a unit test: the cache of the kind would always appear empty.
    Panic,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 1,
            reconcile_timeout: Duration::from_secs(300),
            shutdown_timeout: Duration::from_secs(30),
            write_visibility_timeout: Duration::from_secs(30),
            field_manager: None,
            retry_limit: Some(RetryLimit::default()),
            undeclared_reads: UndeclaredReads::Warn,
            resume: None,
            new_queue: Box::new(|limit| {
                WorkQueue::with_limits(ExponentialBackoff::default().jitter(seed()), limit)
            }),
        }
    }
}

impl Settings {
    /// Creates the work queue of a run. Unless the limit sets a number, half of the workers are for keys
    /// that are not retried.
    pub(super) fn new_queue(&self) -> WorkQueue<Key> {
        let limit = self.retry_limit.map(|limit| limit.or_max_processing(self.concurrency / 2));
        (self.new_queue)(limit)
    }
}
