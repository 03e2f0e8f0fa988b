//! One turn of a key: waiting for what it wrote before, the call, and what its end means.

use super::outcome::Outcome;
use super::reconciler::Shared;
use crate::workqueue::{Lease, WorkQueue};
use futures::future::FutureExt as _;
use informer_core::Key;
use informer_core::lease::Fence;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use tracing::Instrument as _;

/// What a call knows of its turn.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    pub(super) key: Key,
    pub(super) retries: u32,
    pub(super) fence: Option<Arc<Fence>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// What all turns of a run have in common.
pub(super) struct Turns {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: WorkQueue<Key>,
    /// One permit for each turn that may be had at the same time.
    pub(super) slots: Arc<Semaphore>,
    pub(super) fence: Option<Arc<Fence>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// How a call ended.
enum End {
    Outcome(Outcome),
    Failed(super::BoxError),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
}

impl Turns {
    /// The next key, with leave to work on it; none when there are no more.
    pub(super) async fn next(&self) -> Option<(Lease<Key>, OwnedSemaphorePermit)> {
        // The leave first, so that which key is next is decided as late as can be.
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        self.queue.get().await.map(|lease| (lease, permit))
    }

    /// Works on a key.
    pub(super) async fn work(self: Arc<Self>, lease: Lease<Key>, permit: OwnedSemaphorePermit) {
        let key = lease.key().clone();
        let span = tracing::info_span!("reconcile", controller = %self.shared.name, %key);
        let work = async {
            let Some(permit) = self.caught_up(&key, permit).await else { return };
            let began = Instant::now();
            let end = self.call(&lease).await;
            self.settle(lease, end, began);
            drop(permit);
        };
        work.instrument(span).await;
    }

    /// Waits until the cache shows what the key's last turn wrote; none if there is to be no turn any more. Meanwhile others may work.
    async fn caught_up(&self, key: &Key, permit: OwnedSemaphorePermit) -> Option<OwnedSemaphorePermit> {
        let mut writes = self.shared.writes.take(key);
        writes.retain(|write| !write.is_seen());
        if writes.is_empty() {
            return Some(permit);
        }
        drop(permit);
        let seen = async {
            for write in &writes {
                if let Err(error) = write.seen(self.shared.settings.patience).await {
                    self.shared.figures.count(|figures| figures.unseen_writes += 1);
                    tracing::warn!(%error, "a write has not been seen; going on without it");
                }
            }
            Arc::clone(&self.slots).acquire_owned().await.ok()
        };
        let mut stopping = self.stopping.clone();
        tokio::select! {
            permit = seen => permit,
            _ = stopping.wait_for(|stopping| *stopping) => None,
        }
    }

    /// Calls the reconcile function. Whatever it does, this returns, or is dropped.
    async fn call(&self, lease: &Lease<Key>) -> End {
        let turn = Turn {
            shared: Arc::clone(&self.shared),
            key: lease.key().clone(),
            retries: lease.retries(),
            fence: self.fence.clone(),
            stopping: self.stopping.clone(),
        };
        // This turn comes instead of one that was to come later: its end says when the next one does.
        self.queue.cancel(lease.key());
        let _active = self.shared.figures.active();
        let call = AssertUnwindSafe(async { (self.shared.call)(turn).await }).catch_unwind();
        match tokio::time::timeout(self.shared.settings.timeout, call).await {
            Ok(Ok(Ok(outcome))) => End::Outcome(outcome),
            Ok(Ok(Err(error))) => End::Failed(error),
            Ok(Err(panic)) => End::Panicked(panic),
            Err(_) => End::TimedOut,
        }
    }

    /// Gives the key back as the end of its turn says.
    fn settle(&self, lease: Lease<Key>, end: End, began: Instant) {
        let took = began.elapsed();
        self.shared.figures.count(|figures| {
            figures.durations.observe(took);
            match &end {
                End::Outcome(Outcome::Done) => figures.done += 1,
                End::Outcome(Outcome::RequeueAfter(_)) => figures.requeued += 1,
                End::Outcome(Outcome::Terminal(_)) => figures.terminal += 1,
                End::Failed(_) => figures.failed += 1,
                End::Panicked(_) => figures.panicked += 1,
                End::TimedOut => figures.timed_out += 1,
            }
        });
        let failed = |lease: Lease<Key>, why: &dyn fmt::Display| {
            let tries = lease.retries() + 1;
            let wait = lease.retry();
            tracing::warn!(error = %why, tries, ?wait, "reconcile failed, and is tried again");
        };
        match end {
            End::Outcome(Outcome::Done) => lease.done(),
            End::Outcome(Outcome::RequeueAfter(delay)) => {
                self.queue.forget(lease.key());
                lease.retry_after(delay);
            }
            End::Outcome(Outcome::Terminal(reason)) => {
                tracing::error!(error = %reason, "reconcile failed for good; the next change tries again");
                lease.done();
            }
            End::Failed(error) => failed(lease, &Chain(&*error)),
            End::Panicked(panic) => failed(lease, &format_args!("panicked: {}", said(&*panic))),
            End::TimedOut => failed(lease, &format_args!("no end after {:?}", self.shared.settings.timeout)),
        }
    }
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something that is no text")
}

/// An error and what it came from.
struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut error = self.0.source();
        while let Some(source) = error {
            let text = source.to_string();
            // Many errors say what their source says.
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            error = source.source();
        }
        Ok(())
    }
}
