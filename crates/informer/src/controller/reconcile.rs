//! One turn of a key: waiting for what the last one wrote, the call, and what its end means.

use super::outcome::Outcome;
use super::pending_writes::Write;
use super::plan::BoxError;
use super::shared::{ReconcileRequest, Shared};
use crate::workqueue::{WorkItem, WorkQueue};
use futures::future::{FutureExt as _, join_all};
use informer_core::Key;
use informer_core::election::FencingToken;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

/// What all turns of a run have in common.
pub(super) struct ReconcileRunner {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: WorkQueue<Key>,
    pub(super) fencing_token: Option<Arc<FencingToken>>,
    pub(super) stop_requested: watch::Receiver<bool>,
}

/// How a call ended.
enum ReconcileEnd {
    Outcome(Outcome),
    Failed(BoxError),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
}

impl ReconcileRunner {
    /// Waits until the cache shows what was written, or has been given the time for it.
    pub(super) async fn wait_for_own_writes(
        self: Arc<Self>,
        lease: WorkItem<Key>,
        writes: Vec<Write>,
    ) -> WorkItem<Key> {
        let patience = self.shared.settings.patience;
        let seen = join_all(writes.iter().map(|write| write.wait_visible(patience))).await;
        if let Some(error) = seen.into_iter().find_map(Result::err) {
            self.shared.metrics.count(|figures| figures.invisible_writes += 1);
            let controller = &*self.shared.name;
            tracing::warn!(controller, key = %*lease, %error, "a write has not been seen; going on without it");
        }
        lease
    }

    /// Works on a key.
    pub(super) async fn work(self: Arc<Self>, lease: WorkItem<Key>) {
        // No turn begins after the stop; whoever ends the queue has dropped the key by then.
        if *self.stop_requested.borrow() {
            return;
        }
        let span = tracing::info_span!("reconcile", controller = %self.shared.name, key = %*lease);
        let work = async {
            let (began, owed) = (Instant::now(), self.shared.owed.sequence(lease.key()));
            let end = self.call(&lease).await;
            if let ReconcileEnd::Outcome(_) = end {
                self.shared.owed.complete(lease.key(), owed);
            }
            self.complete(lease, end, began);
        };
        work.instrument(span).await;
    }

    /// Calls the reconcile function. Whatever it does, this returns, or is dropped.
    async fn call(&self, lease: &WorkItem<Key>) -> ReconcileEnd {
        let turn = ReconcileRequest {
            shared: Arc::clone(&self.shared),
            key: lease.key().clone(),
            retries: lease.retries(),
            fencing_token: self.fencing_token.clone(),
            stop_requested: self.stop_requested.clone(),
        };
        // This turn comes instead of one that was to come later: its end says when the next one does.
        self.queue.cancel(lease.key());
        let _active = self.shared.metrics.active();
        let call = AssertUnwindSafe(async { (self.shared.call)(turn).await }).catch_unwind();
        match tokio::time::timeout(self.shared.settings.reconcile_timeout, call).await {
            Ok(Ok(Ok(outcome))) => ReconcileEnd::Outcome(outcome),
            Ok(Ok(Err(error))) => ReconcileEnd::Failed(error),
            Ok(Err(panic)) => ReconcileEnd::Panicked(panic),
            Err(_) => ReconcileEnd::TimedOut,
        }
    }

    /// Gives the key back as the end of its turn says.
    fn complete(&self, lease: WorkItem<Key>, end: ReconcileEnd, began: Instant) {
        let took = began.elapsed();
        self.shared.metrics.count(|figures| {
            figures.reconcile_duration.observe(took);
            match &end {
                ReconcileEnd::Outcome(Outcome::Done) => figures.succeeded += 1,
                ReconcileEnd::Outcome(Outcome::RequeueAfter(_)) => figures.requeued += 1,
                ReconcileEnd::Outcome(Outcome::Terminal(_)) => figures.terminal += 1,
                ReconcileEnd::Failed(_) => figures.failed += 1,
                ReconcileEnd::Panicked(_) => figures.panicked += 1,
                ReconcileEnd::TimedOut => figures.timed_out += 1,
            }
        });
        let failed = |lease: WorkItem<Key>, why: &dyn fmt::Display| {
            let tries = lease.retries() + 1;
            let wait = lease.retry();
            tracing::warn!(error = %why, tries, ?wait, "reconcile failed, and is tried again");
        };
        match end {
            ReconcileEnd::Outcome(Outcome::Done) => lease.done(),
            ReconcileEnd::Outcome(Outcome::RequeueAfter(delay)) => {
                // With the usual priority: that it was there at the start says nothing any more.
                self.queue.add_after(lease.key().clone(), delay);
                lease.done();
            }
            ReconcileEnd::Outcome(Outcome::Terminal(reason)) => {
                tracing::error!(error = %reason, "reconcile failed for good; the next change tries again");
                lease.done();
            }
            ReconcileEnd::Failed(error) => failed(lease, &ErrorChain(&*error)),
            ReconcileEnd::Panicked(panic) => {
                failed(lease, &format_args!("panicked: {}", panic_message(&*panic)))
            }
            ReconcileEnd::TimedOut => {
                failed(lease, &format_args!("no end after {:?}", self.shared.settings.reconcile_timeout))
            }
        }
    }
}

/// What a panic said.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something that is no text")
}

/// An error and what it came from.
struct ErrorChain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for ErrorChain<'_> {
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
        let (stop, stop_requested) = watch::channel(false);
        let queue = WorkQueue::new();
        let shared = Arc::clone(reconciler.shared());
        let turns =
            Arc::new(ReconcileRunner { shared, queue: queue.clone(), fencing_token: None, stop_requested });
        for (stopped, called) in [(false, 1), (true, 1)] {
            stop.send_replace(stopped);
            queue.add(Key::new("default", "a"));
            let lease = queue.get().await.unwrap();
            Arc::clone(&turns).work(lease).await;
            assert_eq!(calls.load(Ordering::Relaxed), called);
        }
    }
}
