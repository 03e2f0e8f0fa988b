//! State shared by all parts of one controller: configuration, reconcile function, metrics, phase.
//!
//! This module contains only state and access to it. It knows neither how a run proceeds nor how a key is
//! reconciled.

use super::metrics::MetricsRecorder;
use super::outcome::Outcome;
use super::pending_keys::PendingKeys;
use super::pending_writes::PendingWrites;
use super::resume::UnfinishedKeys;
use super::shard_gate::Withdrawal;
use super::sharding::{ControllerShard, DeletedKeys};
use super::source::{ErasedSource, KeySink, KeyStream};
use super::spec::{BoxError, Settings, UndeclaredReads};
use crate::election::Term;
use crate::error::ControllerError;
use crate::factory::SharedInformerFactory;
use crate::resource::ResourceType;
use crate::shared::Engine;
use crate::workqueue::WorkQueue;
use futures::future::BoxFuture;
use informer_core::Key;
use informer_core::shard::RangeToken;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The reconcile function, without the types of its state and its error.
pub(super) type Call =
    Box<dyn Fn(ReconcileRequest) -> BoxFuture<'static, Result<Outcome, BoxError>> + Send + Sync + 'static>;

/// The state of a controller that outlives a run.
pub(super) struct Shared {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) sources: Vec<ErasedSource>,
    /// The shard group, if only some keys are reconciled.
    pub(super) shard: Option<ControllerShard>,
    pub(super) deleted_keys: Arc<DeletedKeys>,
    /// Why the controller cannot run, if so.
    pub(super) rejection: Option<&'static str>,
    pub(super) streams: Vec<KeyStream>,
    pub(super) settings: Settings,
    pub(super) call: Call,
    pub(super) pending_writes: PendingWrites,
    /// Keys from external streams for which no reconcile has returned an [`Outcome`]. No informer delivers them
    /// again, so the next run starts with them.
    pub(super) external_keys: Arc<PendingKeys>,
    /// Keys for which no reconcile has returned [`Outcome::Done`]; set if a restart does not reconcile every key.
    pub(super) unfinished_keys: Option<Arc<UnfinishedKeys>>,
    pub(super) metrics: MetricsRecorder,
    pub(super) phase: watch::Sender<Phase>,
    /// The queue of the current or the last run.
    pub(super) queue: Mutex<Option<WorkQueue<Key>>>,
    /// Reconciles of ended runs that were aborted and have not ended yet. The next run waits for them.
    pub(super) unfinished_reconciles: Mutex<Vec<JoinSet<()>>>,
    /// Informers that reconciles read although they are not sources. Kept alive so that they sync at least
    /// once.
    pub(super) undeclared: Mutex<Vec<Arc<Engine>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// Waiting for reconciles of an earlier run, if there are any. The first phase of every run.
    WaitingForEarlierRun,
    /// Waiting for the sources with these indexes.
    Waiting(Vec<usize>),
    Running,
    Stopping,
}

/// The request for one call of the reconcile function.
pub(super) struct ReconcileRequest {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) retries: u32,
    pub(super) term: Option<Arc<Term>>,
    pub(super) stop_requested: watch::Receiver<bool>,
    /// Whether the reconcile may go on, with sharding.
    pub(super) withdrawal: Option<watch::Receiver<Withdrawal>>,
    /// The token of the hash range of the key, with sharding.
    pub(super) range_token: Option<RangeToken>,
}

impl Shared {
    pub(super) fn sources_of(&self, engine: &Arc<Engine>) -> impl Iterator<Item = &ErasedSource> {
        self.sources.iter().filter(move |source| Arc::ptr_eq(&source.engine, engine))
    }

    /// Returns the informer of a kind that is a source, with sharding. Without it, the factory knows.
    pub(super) fn sharded_engine(&self, resource: &ResourceType) -> Option<Arc<Engine>> {
        self.shard.as_ref()?;
        let mut sources = self.sources.iter().filter(|source| source.engine.kind == *resource);
        sources.next().map(|source| Arc::clone(&source.engine))
    }

    /// Returns the destination of keys that are to be reconciled.
    pub(super) fn key_sink(&self, queue: &WorkQueue<Key>) -> KeySink {
        KeySink { queue: queue.clone(), unfinished: self.unfinished_keys.clone() }
    }

    /// Keeps an informer that is not a source alive, and logs a warning the first time; panics in a unit test.
    pub(super) fn keep_if_undeclared(&self, engine: &Arc<Engine>) {
        if self.sources_of(engine).next().is_some() {
            return;
        }
        if self.settings.undeclared_reads == UndeclaredReads::Panic {
            let (name, kind) = (engine.kind.name(), &engine.kind.kind);
            panic!(
                "the reconcile reads {name}, which the test context does not contain (add `.objects::<{kind}>([])`)"
            );
        }
        let mut undeclared = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner);
        if undeclared.iter().any(|known| Arc::ptr_eq(known, engine)) {
            return;
        }
        undeclared.push(Arc::clone(engine));
        let (controller, resource) = (&*self.name, &*engine.description);
        tracing::warn!(
            controller,
            resource,
            "read by a reconcile, but not a source: it may appear empty (declare it with `reads`)"
        );
    }

    /// Returns the field manager of writes.
    pub(super) fn field_manager(&self) -> &Arc<str> {
        self.settings.field_manager.as_ref().unwrap_or(&self.name)
    }

    pub(super) fn unfinished_reconciles(&self) -> MutexGuard<'_, Vec<JoinSet<()>>> {
        self.unfinished_reconciles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Option<WorkQueue<Key>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for a source whose informer has stopped.
    pub(super) fn source_stopped_error(&self, index: usize) -> ControllerError {
        let resource = self.sources.get(index).map(|source| Arc::clone(&source.engine.description));
        let controller = Arc::clone(&self.name);
        ControllerError::InformerStopped { controller, informer: resource.unwrap_or_default() }
    }
}
