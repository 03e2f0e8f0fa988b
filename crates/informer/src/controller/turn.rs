//! One turn of a key: waiting for what the last one wrote, the call, and what its end means.

use super::outcome::Outcome;
use super::plan::BoxError;
use super::shared::{Shared, Turn};
use super::writes::Write;
use crate::workqueue::{Lease, WorkQueue};
use futures::future::{FutureExt as _, join_all};
use informer_core::Key;
use informer_core::lease::Fence;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

/// What all turns of a run have in common.
pub(super) struct Turns {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: WorkQueue<Key>,
    pub(super) fence: Option<Arc<Fence>>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// How a call ended.
enum End {
    Outcome(Outcome),
    Failed(BoxError),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
}

impl Turns {
    /// Waits until the cache shows what was written, or has been given the time for it.
    pub(super) async fn catch_up(self: Arc<Self>, lease: Lease<Key>, writes: Vec<Write>) -> Lease<Key> {
        let patience = self.shared.settings.patience;
        let seen = join_all(writes.iter().map(|write| write.seen(patience))).await;
        if let Some(error) = seen.into_iter().find_map(Result::err) {
            self.shared.figures.count(|figures| figures.unseen_writes += 1);
            let controller = &*self.shared.name;
            tracing::warn!(controller, key = %*lease, %error, "a write has not been seen; going on without it");
        }
        lease
    }

    /// Works on a key.
    pub(super) async fn work(self: Arc<Self>, lease: Lease<Key>) {
        // No turn begins after the stop; whoever ends the queue has dropped the key by then.
        if *self.stopping.borrow() {
            return;
        }
        let span = tracing::info_span!("reconcile", controller = %self.shared.name, key = %*lease);
        let work = async {
            let (began, owed) = (Instant::now(), self.shared.owed.seen(lease.key()));
            let end = self.call(&lease).await;
            if let End::Outcome(_) = end {
                self.shared.owed.settle(lease.key(), owed);
            }
            self.settle(lease, end, began);
        };
        work.instrument(span).await;
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
                // With the usual priority: that it was there at the start says nothing any more.
                self.queue.add_after(lease.key().clone(), delay);
                lease.done();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Controller;
    use crate::factory::SharedInformerFactory;
    use k8s_openapi::api::core::v1::Pod;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Of 17,833 turns 568 began after the stop: their tasks were there already, and did not look.
    #[tokio::test]
    async fn no_turn_begins_after_the_stop() {
        let server = informer_apiserver::ApiServer::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let factory = SharedInformerFactory::new(server.client());
        let reconciler = Controller::new::<Pod>(&factory).reconcile(move |_, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, std::convert::Infallible>(Outcome::Done) }
        });
        let (stop, stopping) = watch::channel(false);
        let queue = WorkQueue::new();
        let shared = Arc::clone(reconciler.shared());
        let turns = Arc::new(Turns { shared, queue: queue.clone(), fence: None, stopping });
        for (stopped, called) in [(false, 1), (true, 1)] {
            stop.send_replace(stopped);
            queue.add(Key::new("default", "a"));
            let lease = queue.get().await.unwrap();
            Arc::clone(&turns).work(lease).await;
            assert_eq!(calls.load(Ordering::Relaxed), called);
        }
    }
}
