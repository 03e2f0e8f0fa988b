//! The projections of a cache, and the task that frees the values of those that were released.

use super::rewrite::{Exit, Rewriter, run_until_stopped};
use crate::status::{Diagnostic, DiagnosticSink};
use informer_core::reflector::Config;
use informer_core::{
    DecodeAhead, Entry, Projection, ProjectionError, ProjectionMetrics, Projections, Retention,
};
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The time between two passes over the cache.
const RELEASE_INTERVAL: Duration = Duration::from_secs(1);

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

    /// Returns the projections, which rewritten entries need.
    pub(super) fn projections(&self) -> &Arc<Projections> {
        &self.projections
    }

    /// Decodes objects as a `K` when they arrive, if the retention is [`Retention::Decoded`].
    pub(super) fn decode_ahead<K: DeserializeOwned + Send + Sync + 'static>(
        &self,
        retention: Retention,
    ) -> Option<DecodeAhead> {
        // Handles of `DynamicObject` are for code that does not know the kind, and often reads no fields.
        let is_typed = TypeId::of::<K>() != TypeId::of::<DynamicObject>();
        (retention == Retention::Decoded && is_typed).then(|| self.projections.decode_ahead::<K>())
    }

    /// Makes a reflector decode the values of the objects it reads.
    pub(super) fn configure(&self, config: &mut Config) {
        config.projections = Arc::clone(&self.projections);
    }

    pub(super) fn metrics(&self) -> Vec<ProjectionMetrics> {
        self.projections.metrics()
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
    pub(super) fn new(
        projections: &CacheProjections,
        rewriter: Rewriter,
        stop: &watch::Sender<bool>,
    ) -> Self {
        Self { projections: projections.clone(), rewriter, stop: stop.clone() }
    }

    /// Runs until the informer stops.
    pub(super) async fn run(self) {
        run_until_stopped(&self.stop, self.work()).await;
    }

    async fn work(&self) -> Exit {
        loop {
            self.projections.released.notified().await;
            if let Err(exit) = self.release().await {
                return exit;
            }
        }
    }

    /// Rewrites the cache until no released values are found. The first pass misses entries that are still in
    /// the delta queue, and those that another rewrite replaces at the same time.
    async fn release(&self) -> Result<(), Exit> {
        loop {
            let projections = Arc::clone(&self.projections.projections);
            let rewrite = move |entry: &Arc<Entry>| projections.without_released(entry).map(Arc::new);
            let found = self.rewriter.rewrite(rewrite).await?;
            tokio::time::sleep(RELEASE_INTERVAL).await;
            if !found {
                return Ok(());
            }
        }
    }
}
