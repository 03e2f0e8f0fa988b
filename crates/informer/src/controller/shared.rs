//! What every part of one controller shares: its plan, the function to call, its figures, and where it is in its life.
//!
//! Only state and access to it. Nothing here knows how a run proceeds or what a turn does.

use super::external_keys::PendingExternalKeys;
use super::metrics::MetricsRecorder;
use super::outcome::Outcome;
use super::pending_writes::PendingWrites;
use super::plan::{BoxError, Settings};
use super::source::{ErasedSource, Keys};
use crate::error::ControllerError;
use crate::factory::SharedInformerFactory;
use crate::shared::Engine;
use crate::workqueue::WorkQueue;
use futures::future::BoxFuture;
use informer_core::Key;
use informer_core::election::FencingToken;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub(super) type Call =
    Box<dyn Fn(ReconcileRequest) -> BoxFuture<'static, Result<Outcome, BoxError>> + Send + Sync + 'static>;

/// What a controller is, whoever runs it.
pub(super) struct Shared {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) sources: Vec<ErasedSource>,
    pub(super) streams: Vec<Keys>,
    pub(super) settings: Settings,
    pub(super) call: Call,
    pub(super) writes: PendingWrites,
    pub(super) owed: Arc<PendingExternalKeys>,
    pub(super) metrics: MetricsRecorder,
    pub(super) phase: watch::Sender<Phase>,
    /// Of the run that goes on, or the last one.
    pub(super) queue: Mutex<Option<WorkQueue<Key>>>,
    /// Turns of runs that have ended, which were told to end and have not. No run begins before they have.
    pub(super) unfinished_reconciles: Mutex<Vec<JoinSet<()>>>,
    /// Informers that turns read although nobody declared them. Kept, so that they are filled at least once.
    pub(super) undeclared: Mutex<Vec<Arc<Engine>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// For turns of an earlier run.
    WaitingForTurns,
    /// For the sources whose numbers these are.
    Waiting(Vec<usize>),
    Running,
    Stopping,
}

/// What a call knows of its turn.
pub(super) struct ReconcileRequest {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) retries: u32,
    pub(super) fencing_token: Option<Arc<FencingToken>>,
    pub(super) stop_requested: watch::Receiver<bool>,
}

impl Shared {
    pub(super) fn sources_of(&self, engine: &Arc<Engine>) -> impl Iterator<Item = &ErasedSource> {
        self.sources.iter().filter(move |source| Arc::ptr_eq(&source.engine, engine))
    }

    /// Keeps an informer that is no source, and says so the first time.
    pub(super) fn keep_if_undeclared(&self, engine: &Arc<Engine>) {
        if self.sources_of(engine).next().is_some() {
            return;
        }
        let mut undeclared = self.undeclared.lock().unwrap_or_else(PoisonError::into_inner);
        if undeclared.iter().any(|known| Arc::ptr_eq(known, engine)) {
            return;
        }
        undeclared.push(Arc::clone(engine));
        let (controller, resource) = (&*self.name, &*engine.resource);
        tracing::warn!(
            controller,
            resource,
            "read, but no source: it may seem empty (declare it with `reads`)"
        );
    }

    pub(super) fn unfinished_reconciles(&self) -> MutexGuard<'_, Vec<JoinSet<()>>> {
        self.unfinished_reconciles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Option<WorkQueue<Key>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn source_stopped(&self, number: usize) -> ControllerError {
        let resource = self.sources.get(number).map(|source| Arc::clone(&source.engine.resource));
        let controller = Arc::clone(&self.name);
        ControllerError::InformerStopped { controller, informer: resource.unwrap_or_default() }
    }
}
