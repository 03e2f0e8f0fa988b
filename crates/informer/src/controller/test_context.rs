//! Contexts without a run, with which unit tests call a reconcile function.

use super::context::Context;
use super::outcome::Outcome;
use super::runnable::RunnableController;
use super::shared::ReconcileRequest;
use super::source::{ErasedSource, OwnerKind, PendingSource};
use super::spec::{ControllerSpec, Settings, UndeclaredReads};
use crate::factory::SharedInformerFactory;
use crate::shared::Engine;
use futures::future::FutureExt as _;
use informer_core::Key;
use std::sync::{Arc, LazyLock};
use tokio::sync::watch;

/// The stop request of all test contexts, which never comes.
static STOP_REQUESTED: LazyLock<watch::Sender<bool>> = LazyLock::new(|| watch::Sender::new(false));

/// The facts about the reconcile for which a test calls its function.
pub(crate) struct TestSettings {
    pub(crate) key: Key,
    pub(crate) retries: u32,
    /// The informers of all kinds that the reconcile may read.
    pub(crate) sources: Vec<Arc<Engine>>,
}

impl<S> Context<S> {
    /// Creates a context that belongs to no run. Reading a kind that is not among the sources panics.
    pub(crate) fn for_test(factory: SharedInformerFactory, settings: TestSettings, state: S) -> Self {
        let TestSettings { key, retries, sources } = settings;
        let spec = ControllerSpec {
            factory,
            name: "test".into(),
            owner_kind: OwnerKind { group: "".into(), kind: "".into(), cluster_scoped: false },
            sources: sources.into_iter().map(only_read).collect(),
            streams: Vec::new(),
            settings: Settings { undeclared_reads: UndeclaredReads::Panic, ..Settings::default() },
            sharding: None,
            deleted_keys: Arc::default(),
        };
        let controller = RunnableController::new(spec, Box::new(|_| async { Ok(Outcome::Done) }.boxed()));
        let shared = Arc::clone(controller.shared());
        let stop_requested = STOP_REQUESTED.subscribe();
        let (term, withdrawal, range_token) = (None, None, None);
        let request =
            ReconcileRequest { shared, key, retries, term, stop_requested, withdrawal, range_token };
        Self::new(request, Arc::new(state))
    }
}

fn only_read(engine: Arc<Engine>) -> PendingSource {
    Box::new(|_| ErasedSource::only_read(engine))
}
