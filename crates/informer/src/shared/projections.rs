//! The projections of a cache, and the task that frees the values of those that were released.

use super::rewrite::{Exit, Rewriter};
use crate::reflector::stopped;
use crate::status::{Diagnostic, DiagnosticSink};
use informer_core::reflector::Config;
use informer_core::{Entry, Projection, ProjectionError, Projections};
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// The projections of one cache.
#[derive(Clone)]
pub(super) struct CacheProjections {
    projections: Arc<Projections>,
    /// Notified when a projection was released.
    released: Arc<Notify>,
}

impl CacheProjections {
    pub(super) fn new(diagnostics: DiagnosticSink) -> Self {
        let report = move |error: &ProjectionError| {
            diagnostics.report(&Diagnostic::ProjectionFailed(error.clone()));
        };
        Self { projections: Arc::new(Projections::new(report)), released: Arc::new(Notify::new()) }
    }

    /// Makes a reflector decode the values of the objects it reads.
    pub(super) fn configure(&self, config: &mut Config) {
        config.projections = Arc::clone(&self.projections);
    }

    /// Adds a projection, or returns another handle to the one of this type.
    pub(super) fn add<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        memory_limit: usize,
    ) -> Projection<P> {
        let released = Arc::clone(&self.released);
        self.projections.add(memory_limit, move || released.notify_one())
    }
}

/// The task that frees the values of projections that were released.
pub(super) struct ReleaseTask {
    pub(super) projections: CacheProjections,
    pub(super) rewriter: Rewriter,
    pub(super) stop: watch::Sender<bool>,
}

impl ReleaseTask {
    /// Runs until the informer stops.
    pub(super) async fn run(self) {
        let mut stop = self.stop.subscribe();
        tokio::select! {
            biased;
            () = stopped(&mut stop) => {}
            _exit = self.work() => {}
        }
    }

    async fn work(&self) -> Exit {
        loop {
            self.projections.released.notified().await;
            let projections = Arc::clone(&self.projections.projections);
            let rewrite = move |entry: &Arc<Entry>| projections.without_released(entry).map(Arc::new);
            if let Err(exit) = self.rewriter.rewrite(rewrite).await {
                return exit;
            }
        }
    }
}
