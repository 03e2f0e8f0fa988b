//! [`WorkItem`], the guard of a key that a worker processes.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use informer_core::Moment;
use informer_core::workqueue::{Priority, Queue, StaleToken, TakenKey, WorkToken};

use super::Shared;

/// A key taken from a [`WorkQueue`](super::WorkQueue), held exclusively until it is completed.
///
/// No other worker receives the same key while a `WorkItem` for it exists. Finish it with
/// [`done`](Self::done) on success, [`retry`](Self::retry) to requeue it with the queue's rate limiter,
/// [`retry_after`](Self::retry_after) to requeue it after a fixed delay, or [`give_up`](Self::give_up) to stop
/// retrying it. If the key was added again in the meantime, it is queued once more in every case.
///
/// Dropping a `WorkItem` without finishing it, for example because the worker panicked or was cancelled,
/// counts as a failure: the key is requeued with the rate limiter, and
/// [`QueueMetrics::abandoned`](crate::metrics::QueueMetrics::abandoned) is incremented. So no key is lost
/// with its worker (C14).
#[must_use = "dropping a work item requeues its key as failed; call done() when it succeeded"]
pub struct WorkItem<T: Eq + Hash + Clone> {
    shared: Arc<Shared<T>>,
    key: T,
    priority: Priority,
    /// `None` once the item is finished.
    token: Option<WorkToken>,
}

impl<T: Eq + Hash + Clone> WorkItem<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, taken: TakenKey<T>) -> Self {
        WorkItem { shared, key: taken.key, priority: taken.priority, token: Some(taken.token) }
    }

    /// Returns the key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// Returns the priority with which the key was queued.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the number of retries of the key since it last succeeded or its failures were forgotten. An
    /// attempt before the delay of a retry has passed does not count.
    pub fn retries(&self) -> u32 {
        self.shared.state.lock().queue.retries(&self.key)
    }

    /// Finishes the item as succeeded and forgets the failures of the key.
    pub fn done(self) {
        self.finish(Queue::done);
    }

    /// Finishes the item as failed without a retry, and forgets the failures of the key: client-go's `Forget`
    /// after too many failures.
    ///
    /// The key is processed again when it is added again. Unlike [`done`](Self::done), this does not count as a
    /// success for the queue's [`RetryLimit`](super::RetryLimit).
    pub fn give_up(self) {
        self.finish(Queue::give_up);
    }

    #[inline]
    fn finish(mut self, end: impl FnOnce(&mut Queue<T>, Moment, WorkToken) -> Result<(), StaleToken>) {
        if let Some(token) = self.token.take() {
            // Neither result can be an error: no other owner of this token exists.
            if self.shared.limits_retries {
                // The end of an attempt may allow a retry to start, now or at a later moment.
                let _result = self.shared.with_queue(|queue, now| end(queue, now, token));
                return;
            }
            // Only keys whose durations are sampled for metrics need the time.
            let now = if token.is_sampled() { self.shared.clock.now() } else { Moment::default() };
            let _result = self.shared.with_queue_no_timer(|queue| end(queue, now, token));
        }
    }

    /// Finishes the item as failed, requeues the key with the rate limiter's delay and returns that delay.
    ///
    /// If the key was added before its previous delay had passed, the failure does not count: the key is
    /// requeued when it was due anyway, and its next delay does not grow.
    pub fn retry(mut self) -> Duration {
        let Some(token) = self.token.take() else { return Duration::ZERO };
        self.shared.with_queue(|queue, now| queue.retry(now, token)).unwrap_or_default()
    }

    /// Finishes the item and requeues the key after `delay`.
    ///
    /// The failures of the key stay counted; [`WorkQueue::forget`](super::WorkQueue::forget) resets them.
    pub fn retry_after(mut self, delay: Duration) {
        if let Some(token) = self.token.take() {
            let _result = self.shared.with_queue(|queue, now| queue.retry_after(now, token, delay));
        }
    }
}

impl<T: Eq + Hash + Clone> Deref for WorkItem<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.key
    }
}

impl<T: Eq + Hash + Clone> Drop for WorkItem<T> {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            let _result = self.shared.with_queue(|queue, now| queue.abandon(now, token));
        }
    }
}

impl<T: Eq + Hash + Clone + fmt::Debug> fmt::Debug for WorkItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkItem")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
