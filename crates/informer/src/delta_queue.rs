//! The delta queue between the reflector drivers, which fill it, and the pump, which empties it.
//!
//! An async wrapper of one [`DeltaFifo`] per scope. A scope is what one reflector lists and watches: one
//! namespace or all namespaces. [`DeltaQueue::push`] waits for capacity; meanwhile its reflector driver reads
//! nothing from the server. [`DeltaQueue::pop`] waits for deltas and serves the scopes in rotation. The queue
//! does not know the meaning of deltas.

use crate::coop::reschedule;
use informer_core::{Batch, Delta, DeltaFifo, FifoCapacity, QueueClosed};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Upper bound on the reschedules before a batch is taken.
const MAX_LINGER_YIELDS: usize = 16;
/// Upper bound on the time before a batch is taken, because one reschedule can take as long as the handlers
/// of other tasks.
const MAX_LINGER: Duration = Duration::from_millis(1);

/// The bounded queue of deltas of one informer, with one FIFO per scope.
#[derive(Debug)]
pub(crate) struct DeltaQueue {
    scopes: Mutex<ScopeQueues>,
    /// Notified after a push or the close.
    not_empty: Notify,
    /// Notified after a pop or the close.
    not_full: Notify,
    /// Notified after a batch was applied to the store.
    applied: Notify,
}

/// One FIFO per scope.
#[derive(Debug)]
struct ScopeQueues {
    fifos: Vec<DeltaFifo>,
    /// Index of the scope from which the next batch is taken, if it has one.
    next_scope: usize,
}

impl DeltaQueue {
    pub(crate) fn new(scopes: usize) -> Self {
        Self::with_capacity(scopes, FifoCapacity::default())
    }

    pub(crate) fn with_capacity(scopes: usize, capacity: FifoCapacity) -> Self {
        let fifos = (0..scopes).map(|_| DeltaFifo::new(capacity)).collect();
        let scopes = Mutex::new(ScopeQueues { fifos, next_scope: 0 });
        Self { scopes, not_empty: Notify::new(), not_full: Notify::new(), applied: Notify::new() }
    }

    /// Appends deltas of one scope, waiting for capacity.
    ///
    /// As many deltas as fit are added together, so that they become one batch: the pump publishes a
    /// snapshot per batch.
    pub(crate) async fn push(
        &self,
        scope_index: usize,
        deltas: &mut VecDeque<Delta>,
    ) -> Result<(), QueueClosed> {
        while !deltas.is_empty() {
            let mut not_full = std::pin::pin!(self.not_full.notified());
            // Registered before the capacity is checked, so that a pop in between is not missed.
            not_full.as_mut().enable();
            if !self.push_some(scope_index, deltas)? {
                not_full.await;
            }
        }
        Ok(())
    }

    /// Appends the deltas that fit; returns whether any did.
    fn push_some(&self, scope_index: usize, deltas: &mut VecDeque<Delta>) -> Result<bool, QueueClosed> {
        let mut scopes = self.lock();
        let fifo = scopes.fifos.get_mut(scope_index).ok_or(QueueClosed)?;
        let before = deltas.len();
        // A closed FIFO rejects the push, which ends this loop with an error.
        while fifo.is_closed() || fifo.has_capacity() {
            let Some(delta) = deltas.pop_front() else { break };
            fifo.push(delta)?;
        }
        drop(scopes);
        let pushed = deltas.len() < before;
        if pushed {
            self.not_empty.notify_one();
        }
        Ok(pushed)
    }

    /// Waits for deltas and takes a batch of one scope; `None` when the queue is closed and empty.
    pub(crate) async fn pop(&self, max_deltas: usize) -> Option<(usize, Batch)> {
        loop {
            let mut not_empty = std::pin::pin!(self.not_empty.notified());
            not_empty.as_mut().enable();
            {
                let mut scopes = self.lock();
                if let Some(batch) = scopes.pop(max_deltas) {
                    self.not_full.notify_waiters();
                    return Some(batch);
                }
                if scopes.fifos.iter().all(DeltaFifo::is_closed) {
                    return None;
                }
            }
            not_empty.await;
            self.linger(max_deltas).await;
        }
    }

    /// Reschedules the task while more deltas arrive, for a short time: under load, larger batches cost the
    /// store and the handlers less.
    ///
    /// If nothing else arrives, the cost is one reschedule.
    async fn linger(&self, max_deltas: usize) {
        let (mut previously_queued, started) = (0, Instant::now());
        for _ in 0..MAX_LINGER_YIELDS {
            let queued = self.len();
            if queued == previously_queued || queued >= max_deltas || started.elapsed() >= MAX_LINGER {
                return;
            }
            previously_queued = queued;
            reschedule().await;
        }
    }

    /// Records that the store contains all deltas of a scope up to `end`; returns whether it contains the
    /// initial list of every scope.
    pub(crate) fn applied(&self, scope_index: usize, end: u64) -> bool {
        let mut scopes = self.lock();
        if let Some(fifo) = scopes.fifos.get_mut(scope_index) {
            fifo.record_applied(end);
        }
        self.applied.notify_waiters();
        scopes.fifos.iter().all(DeltaFifo::has_synced)
    }

    /// Returns the sequence number of the last delta that was pushed to a scope.
    pub(crate) fn pushed(&self, scope_index: usize) -> u64 {
        self.lock().fifos.get(scope_index).map_or(0, DeltaFifo::pushed)
    }

    /// Returns whether the store contains the deltas of a scope up to a sequence number.
    pub(crate) fn has_applied(&self, scope_index: usize, sequence: u64) -> bool {
        self.lock().fifos.get(scope_index).is_none_or(|fifo| fifo.has_applied(sequence))
    }

    /// Waits until the store contains the deltas of a scope up to a sequence number.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub(crate) async fn wait_until_applied(&self, scope_index: usize, sequence: u64) {
        loop {
            let mut applied = std::pin::pin!(self.applied.notified());
            applied.as_mut().enable();
            if self.has_applied(scope_index, sequence) {
                return;
            }
            applied.await;
        }
    }

    /// Returns whether the initial list of every scope was applied.
    pub(crate) fn has_synced(&self) -> bool {
        self.lock().fifos.iter().all(DeltaFifo::has_synced)
    }

    /// Returns the number of queued deltas.
    pub(crate) fn len(&self) -> usize {
        self.lock().fifos.iter().map(DeltaFifo::len).sum()
    }

    /// Returns whether the queue rejects further deltas.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().fifos.iter().all(DeltaFifo::is_closed)
    }

    /// Rejects further deltas; queued ones can still be taken.
    pub(crate) fn close(&self) {
        self.lock().fifos.iter_mut().for_each(DeltaFifo::close);
        self.not_empty.notify_one();
        self.not_full.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, ScopeQueues> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScopeQueues {
    /// Takes a batch of the first scope that has one, starting with `next_scope`.
    fn pop(&mut self, max_deltas: usize) -> Option<(usize, Batch)> {
        let count = self.fifos.len();
        for offset in 0..count {
            let scope_index = (self.next_scope + offset) % count;
            if let Some(batch) = self.fifos[scope_index].pop(max_deltas) {
                self.next_scope = scope_index + 1;
                return Some((scope_index, batch));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::ResourceVersion;

    fn bookmarks(count: usize) -> VecDeque<Delta> {
        (1..=count).map(|number| Delta::Bookmark(ResourceVersion::new(&number.to_string()))).collect()
    }

    fn versions(batch: Batch) -> impl Iterator<Item = String> {
        batch.deltas.into_iter().map(|delta| match delta {
            Delta::Bookmark(version) => version.to_string(),
            other => panic!("only bookmarks were pushed: {other:?}"),
        })
    }

    /// C8: deltas beyond the capacity wait, and keep their order.
    #[tokio::test]
    async fn deltas_beyond_the_capacity_wait_and_keep_their_order() {
        let capacity = FifoCapacity::default().count;
        let (queue, mut deltas) = (DeltaQueue::new(1), bookmarks(2 * capacity + 7));
        let push = queue.push(0, &mut deltas);
        let pop = async {
            let mut all = Vec::new();
            while all.len() < 2 * capacity + 7 {
                let (_, batch) = queue.pop(1000).await.unwrap();
                assert!(batch.deltas.len() <= 1000);
                all.extend(versions(batch));
            }
            all
        };
        let (pushed, popped) = tokio::join!(push, pop);
        assert_eq!(pushed, Ok(()));
        assert!(popped.iter().map(|version| version.parse::<usize>().unwrap()).eq(1..=2 * capacity + 7));
    }

    /// C10: a push that waits for capacity ends when the queue is closed.
    #[tokio::test]
    async fn waiting_push_fails_when_the_queue_is_closed() {
        let capacity = FifoCapacity::default().count;
        let (queue, mut deltas) = (DeltaQueue::new(1), bookmarks(capacity + 7));
        let (pushed, ()) = tokio::join!(queue.push(0, &mut deltas), async { queue.close() });
        assert_eq!(pushed, Err(QueueClosed));
        let mut popped = 0;
        while let Some((_, batch)) = queue.pop(1000).await {
            popped += versions(batch).count();
        }
        assert_eq!(popped, capacity, "deltas pushed before the close can still be taken");
    }
}
