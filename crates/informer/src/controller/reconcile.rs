//! One reconcile of a key: waiting until the cache shows the writes of the previous reconcile, calling the
//! reconcile function, handling its result.

use super::outcome::Outcome;
use super::pending_writes::Write;
use super::shard_gate::{Admission, Permit, ShardGate};
use super::shared::{ReconcileRequest, Shared};
use super::spec::BoxError;
use crate::election::Term;
use crate::source::error_chain;
use crate::workqueue::{WorkItem, WorkQueue};
use futures::future::{FutureExt as _, join_all};
use informer_core::Key;
use std::any::Any;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::Instrument as _;

/// The state shared by all reconciles of a run.
pub(super) struct ReconcileRunner {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: WorkQueue<Key>,
    /// The leadership term of the run, with leader election.
    pub(super) term: Option<Arc<Term>>,
    pub(super) stop_requested: watch::Receiver<bool>,
    /// Decides which keys this process reconciles, with sharding.
    pub(super) gate: Option<Arc<ShardGate>>,
}

/// The result of calling the reconcile function.
enum ReconcileEnd {
    Outcome(Outcome),
    Failed(BoxError),
    Panicked(Box<dyn Any + Send>),
    TimedOut,
    /// The hash range of the key was lost.
    Withdrawn,
}

impl ReconcileRunner {
    /// Waits until the cache shows `writes`, at most for the write visibility timeout, and returns the work
    /// item.
    pub(super) async fn wait_for_own_writes(
        self: Arc<Self>,
        item: WorkItem<Key>,
        writes: Vec<Write>,
    ) -> WorkItem<Key> {
        let timeout = self.shared.settings.write_visibility_timeout;
        let results = join_all(writes.iter().map(|write| write.wait_visible(timeout))).await;
        if let Some(error) = results.into_iter().find_map(Result::err) {
            self.shared.metrics.count(|metrics| metrics.invisible_writes += 1);
            let controller = &*self.shared.name;
            tracing::warn!(controller, key = %*item, %error, "reconciling although the cache does not show an earlier write");
        }
        item
    }

    /// Reconciles the key of a work item and completes the item.
    pub(super) async fn run(self: Arc<Self>, item: WorkItem<Key>) {
        // No reconcile starts after a stop request; the shutdown of the queue discards the key.
        if *self.stop_requested.borrow() {
            return;
        }
        // No reconcile starts after the end of the term. The run is dropped as soon as the elector notices
        // the end too, and this task with it.
        if self.term.as_ref().is_some_and(|term| !term.is_current()) {
            std::future::pending::<()>().await;
        }
        let permit = match self.gate.as_ref().map(|gate| gate.admit(item.key(), item.priority())) {
            None => None,
            Some(Admission::Admitted(permit)) => Some(permit),
            Some(Admission::Deferred) => return item.done(),
            Some(Admission::Foreign) => return self.forget(item),
        };
        let span = tracing::info_span!("reconcile", controller = %self.shared.name, key = %*item);
        let work = async {
            let started = Instant::now();
            let (external, unfinished) = (&self.shared.external_keys, &self.shared.unfinished_keys);
            let external_times = external.times_received(item.key());
            let unfinished_times = unfinished.as_ref().and_then(|keys| keys.times_received(item.key()));
            let end = self.call(&item, permit.as_ref()).await;
            if let ReconcileEnd::Outcome(outcome) = &end {
                external.complete(item.key(), external_times);
                // The next reconcile of a deleted object has to be admitted, too.
                if !matches!(outcome, Outcome::RequeueAfter(_)) {
                    permit.iter().for_each(Permit::forget_deleted);
                }
            }
            if let (ReconcileEnd::Outcome(Outcome::Done), Some(unfinished)) = (&end, unfinished) {
                unfinished.complete(item.key(), unfinished_times);
            }
            self.complete(item, end, started);
        };
        work.instrument(span).await;
        // Until here, the range of the key is not released. The next reconcile of the key may have a permit already.
        drop(permit);
    }

    /// Completes a work item for which another process acts.
    fn forget(&self, item: WorkItem<Key>) {
        self.shared.external_keys.remove(item.key());
        if let Some(unfinished) = &self.shared.unfinished_keys {
            unfinished.complete(item.key(), unfinished.times_received(item.key()));
        }
        self.queue.cancel(item.key());
        item.give_up();
    }

    /// Calls the reconcile function; also returns if the function panics or exceeds the reconcile timeout.
    async fn call(&self, item: &WorkItem<Key>, permit: Option<&Permit>) -> ReconcileEnd {
        let request = ReconcileRequest {
            shared: Arc::clone(&self.shared),
            key: item.key().clone(),
            retries: item.retries(),
            term: self.term.clone(),
            stop_requested: self.stop_requested.clone(),
            withdrawal: permit.map(Permit::withdrawal),
            range_token: permit.and_then(Permit::token),
        };
        // This reconcile replaces a delayed reconcile of the same key. The outcome of this reconcile decides
        // when the next one runs.
        self.queue.cancel(item.key());
        let _active = self.shared.metrics.count_active();
        let call = AssertUnwindSafe(async { (self.shared.call)(request).await }).catch_unwind();
        let call = tokio::time::timeout(self.shared.settings.reconcile_timeout, call);
        let ended = match permit {
            None => Some(call.await),
            Some(permit) => permit.guard(call).await,
        };
        match ended {
            Some(Ok(Ok(Ok(outcome)))) => ReconcileEnd::Outcome(outcome),
            Some(Ok(Ok(Err(error)))) => ReconcileEnd::Failed(error),
            Some(Ok(Err(panic))) => ReconcileEnd::Panicked(panic),
            Some(Err(_)) => ReconcileEnd::TimedOut,
            None => ReconcileEnd::Withdrawn,
        }
    }

    /// Counts the result and completes the work item accordingly.
    fn complete(&self, item: WorkItem<Key>, end: ReconcileEnd, started: Instant) {
        let duration = started.elapsed();
        self.shared.metrics.count(|metrics| {
            metrics.reconcile_duration.observe(duration);
            match &end {
                ReconcileEnd::Outcome(Outcome::Done) => metrics.succeeded += 1,
                ReconcileEnd::Outcome(Outcome::RequeueAfter(_)) => metrics.requeued += 1,
                ReconcileEnd::Outcome(Outcome::Terminal(_)) => metrics.terminal += 1,
                ReconcileEnd::Failed(_) => metrics.failed += 1,
                ReconcileEnd::Panicked(_) => metrics.panicked += 1,
                ReconcileEnd::TimedOut => metrics.timed_out += 1,
                ReconcileEnd::Withdrawn => metrics.withdrawn += 1,
            }
        });
        let retry = |item: WorkItem<Key>, error: &dyn fmt::Display| {
            let attempts = item.retries() + 1;
            let delay = item.retry();
            tracing::warn!(%error, attempts, ?delay, "reconcile failed and will be retried");
        };
        match end {
            ReconcileEnd::Outcome(Outcome::Done) => item.done(),
            ReconcileEnd::Outcome(Outcome::RequeueAfter(delay)) => {
                // With normal priority, even if this item came from the initial list.
                self.queue.add_after(item.key().clone(), delay);
                item.done();
            }
            ReconcileEnd::Outcome(Outcome::Terminal(reason)) => {
                tracing::error!(error = %reason, "reconcile failed and will not be retried before the next change");
                item.give_up();
            }
            ReconcileEnd::Failed(error) => retry(item, &error_chain(&*error)),
            ReconcileEnd::Withdrawn => {
                tracing::info!("reconcile dropped, because its hash range was lost, or is released");
                // The gate decides again: the range may have been gained since.
                self.queue.add(item.key().clone());
                item.give_up();
            }
            ReconcileEnd::Panicked(panic) => {
                retry(item, &format_args!("panicked: {}", panic_message(&*panic)));
            }
            ReconcileEnd::TimedOut => {
                retry(item, &format_args!("timed out after {:?}", self.shared.settings.reconcile_timeout));
            }
        }
    }
}

/// Returns the message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(the panic value is not a string)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Controller;
    use crate::election::LeaderElector;
    use crate::factory::SharedInformerFactory;
    use k8s_openapi::api::core::v1::Pod;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Regression: tasks spawned before a stop request did not check for it, so 568 of 17,833 reconciles
    /// started after the stop request.
    #[tokio::test]
    async fn reconcile_does_not_start_after_a_stop_request() {
        let server = informer_apiserver::ApiServer::new();
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let factory = SharedInformerFactory::new(server.client());
        let controller = Controller::new::<Pod>(&factory).reconcile(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, std::convert::Infallible>(Outcome::Done) }
        });
        let (stop, stop_requested) = watch::channel(false);
        let queue = WorkQueue::new();
        let shared = Arc::clone(controller.shared());
        let runner = Arc::new(ReconcileRunner {
            shared,
            queue: queue.clone(),
            term: None,
            stop_requested,
            gate: None,
        });
        for (stopped, expected_calls) in [(false, 1), (true, 1)] {
            stop.send_replace(stopped);
            queue.add(Key::new("default", "a"));
            let item = queue.get().await.unwrap();
            Arc::clone(&runner).run(item).await;
            assert_eq!(calls.load(Ordering::Relaxed), expected_calls);
        }
    }

    /// Regression: a reconcile that waited for a worker or for its own writes started after the end of the
    /// leadership term if the elector had not noticed the end yet, because its thread was blocked. No test
    /// blocked the elector's thread.
    #[tokio::test(start_paused = true)]
    async fn reconcile_does_not_start_after_the_end_of_the_term() {
        let server = informer_apiserver::ApiServer::new();
        let factory = SharedInformerFactory::new(server.client());
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let controller = Controller::new::<Pod>(&factory).reconcile(move |_, _| {
            counter.fetch_add(1, Ordering::Relaxed);
            async { Ok::<_, std::convert::Infallible>(Outcome::Done) }
        });
        let (_stop, stop_requested) = watch::channel(false);
        let (queue, shared) = (WorkQueue::new(), Arc::clone(controller.shared()));
        // The term of an elector that was dropped ends after the renew deadline.
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let mut sender = Some(sender);
        let work = move |term| {
            let _sent = sender.take().map(|sender| sender.send(term));
            std::future::pending()
        };
        let elector = LeaderElector::new(server.client(), "kube-system", "test");
        let elector = tokio::spawn(elector.run(work, std::future::pending()));
        let term = receiver.await.unwrap();
        elector.abort();
        let runner = Arc::new(ReconcileRunner {
            shared,
            queue: queue.clone(),
            term: Some(Arc::new(term)),
            stop_requested,
            gate: None,
        });
        for (elapsed, expected_calls) in [(Duration::ZERO, 1), (Duration::from_secs(16), 1)] {
            tokio::time::advance(elapsed).await;
            queue.add(Key::new("default", "a"));
            let item = queue.get().await.unwrap();
            let _ended = Arc::clone(&runner).run(item).now_or_never();
            assert_eq!(calls.load(Ordering::Relaxed), expected_calls);
        }
    }
}
