//! A key in the hands of a worker.

use std::fmt;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use informer_core::Moment;
use informer_core::workqueue::{Priority, TakenKey, WorkToken};

use super::Shared;

/// A key in the hands of a worker, who says how its turn ended: [`WorkItem::done`], [`WorkItem::retry`] or [`WorkItem::retry_after`]. Until then nobody
/// else is given the key.
///
/// A lease that is dropped without a word, because its worker was cancelled or panicked, counts as a failure: the key is tried again
/// after a wait that grows, and [`abandoned`](informer_core::workqueue::QueueMetrics::abandoned) counts it.
#[must_use = "a lease that is dropped counts as a failure"]
pub struct WorkItem<T: Eq + Hash + Clone> {
    shared: Arc<Shared<T>>,
    key: T,
    priority: Priority,
    /// None once its end was told.
    ticket: Option<WorkToken>,
}

impl<T: Eq + Hash + Clone> WorkItem<T> {
    pub(super) fn new(shared: Arc<Shared<T>>, taken: TakenKey<T>) -> Self {
        WorkItem { shared, key: taken.key, priority: taken.priority, ticket: Some(taken.token) }
    }

    /// The key.
    pub fn key(&self) -> &T {
        &self.key
    }

    /// The priority it was taken with.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// How often the key was tried again since its failures were last forgotten.
    pub fn retries(&self) -> u32 {
        self.shared.state.lock().queue.retries(&self.key)
    }

    /// The key has been dealt with, and its failures are forgotten.
    pub fn done(mut self) {
        if let Some(ticket) = self.ticket.take() {
            let now = if ticket.is_sampled() { self.shared.clock.now() } else { Moment::default() };
            // A lease has its ticket for itself, so the turn is still its own.
            let _ended = self.shared.with_queue_no_timer(|queue| queue.done(now, ticket));
        }
    }

    /// The turn failed: the key comes again after as long as the limiter says, which is returned.
    pub fn retry(mut self) -> Duration {
        let Some(ticket) = self.ticket.take() else { return Duration::ZERO };
        self.shared.with_queue(|queue, now| queue.retry(now, ticket)).unwrap_or_default()
    }

    /// The key comes again after a while. Its failures stay counted; [`WorkQueue::forget`](super::WorkQueue::forget) forgets them.
    pub fn retry_after(mut self, delay: Duration) {
        if let Some(ticket) = self.ticket.take() {
            let _ended = self.shared.with_queue(|queue, now| queue.retry_after(now, ticket, delay));
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
        if let Some(ticket) = self.ticket.take() {
            let _ended = self.shared.with_queue(|queue, now| queue.abandon(now, ticket));
        }
    }
}

impl<T: Eq + Hash + Clone + fmt::Debug> fmt::Debug for WorkItem<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}
