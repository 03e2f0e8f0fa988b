//! The limit of [`Retention::RecentlyDecoded`]: the task that drops decoded objects which were not used recently.

use super::projections::CacheProjections;
use super::rewrite::{Exit, Rewriter, run_until_stopped};
use informer_core::reflector::Config;
use informer_core::{DecodedMetrics, Decoding, Entry, Retention};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The minimum time between two evictions, so that a limit far below what is in use costs little.
const EVICTION_INTERVAL: Duration = Duration::from_millis(250);

/// The maximum time between two evictions while nothing can be evicted.
const MAX_EVICTION_INTERVAL: Duration = Duration::from_secs(30);

/// The decoded objects of one cache.
#[derive(Clone)]
pub(super) struct DecodedObjects {
    decoding: Arc<Decoding>,
    /// Notified when a decoded object was not kept because of the limit.
    full: Arc<Notify>,
    retention: Retention,
}

impl DecodedObjects {
    pub(super) fn new(retention: Retention) -> Self {
        let limit = match retention {
            Retention::RecentlyDecoded { max_encoded_bytes } => max_encoded_bytes,
            _ => usize::MAX,
        };
        let full = Arc::new(Notify::new());
        let notify = Arc::clone(&full);
        Self { decoding: Arc::new(Decoding::new(limit, move || notify.notify_one())), full, retention }
    }

    /// Returns how the cache stores objects.
    pub(super) fn retention(&self) -> Retention {
        self.retention
    }

    /// Returns the task that enforces the limit, if there is one.
    pub(super) fn eviction_task(
        &self,
        projections: &CacheProjections,
        rewriter: &Rewriter,
        stop: &watch::Sender<bool>,
    ) -> Option<EvictionTask> {
        matches!(self.retention, Retention::RecentlyDecoded { .. }).then(|| EvictionTask {
            decoded: self.clone(),
            projections: projections.clone(),
            rewriter: rewriter.clone(),
            stop: stop.clone(),
        })
    }

    /// Makes the entries of a reflector share metrics and limit.
    pub(super) fn configure(&self, config: &mut Config) {
        config.decoding = Arc::clone(&self.decoding);
    }

    pub(super) fn errors(&self) -> u64 {
        self.decoding.errors()
    }

    pub(super) fn metrics(&self) -> DecodedMetrics {
        self.decoding.metrics()
    }
}

/// The task that frees space for new decoded objects.
pub(super) struct EvictionTask {
    decoded: DecodedObjects,
    projections: CacheProjections,
    rewriter: Rewriter,
    stop: watch::Sender<bool>,
}

impl EvictionTask {
    /// Runs until the informer stops.
    pub(super) async fn run(self) {
        run_until_stopped(&self.stop, self.work()).await;
    }

    async fn work(&self) -> Exit {
        // Continues where the last eviction ended, so that every entry has the same time to be used again.
        let (mut next_slot, mut pause) = (0, EVICTION_INTERVAL);
        loop {
            self.decoded.full.notified().await;
            let evicted = match self.evict(&mut next_slot).await {
                Ok(evicted) => evicted,
                Err(exit) => return exit,
            };
            self.decoded.decoding.record_eviction(evicted);
            // If callers hold all values, further sweeps would find nothing either.
            pause = if evicted > 0 { EVICTION_INTERVAL } else { (2 * pause).min(MAX_EVICTION_INTERVAL) };
            tokio::time::sleep(pause).await;
        }
    }

    /// Evicts until enough is free. Returns the number of entries that were replaced.
    ///
    /// The first round over the cache may find only entries that were used since the last one. After the second
    /// round, the remaining values belong to snapshots and handles that callers hold.
    async fn evict(&self, next_slot: &mut u32) -> Result<usize, Exit> {
        let (mut rounds, mut evicted) = (0, 0);
        while rounds < 2 && self.decoded.decoding.needs_eviction() {
            let projections = Arc::clone(self.projections.projections());
            let rewrite = move |entry: &Arc<Entry>| projections.evicted(entry).map(Arc::new);
            let slice = self.rewriter.rewrite_slice(*next_slot, rewrite).await?;
            *next_slot = slice.next_slot.unwrap_or(0);
            rounds += u32::from(slice.next_slot.is_none());
            evicted += slice.replaced;
        }
        Ok(evicted)
    }
}
