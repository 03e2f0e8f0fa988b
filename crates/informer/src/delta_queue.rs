//! The delta queues between tasks: each reflector's driver fills its own, the pump empties them all.
//!
//! A thin async face of one [`DeltaFifo`] per scope: [`Queue::push`] waits for room, which is what stops that scope's socket;
//! [`Queue::pop`] waits for deltas, and takes from the scopes in turn.

use crate::coop::reschedule;
use informer_core::{Batch, Delta, DeltaFifo, QueueClosed};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// At most so often others have a turn before what came is taken, and no more once so much time has passed: a turn takes as long as their handlers do.
const MAX_LINGER_YIELDS: usize = 16;
const MAX_LINGER: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct DeltaQueue {
    lanes: Mutex<ScopeQueues>,
    /// Something was pushed, or the queue was closed.
    not_empty: Notify,
    /// Something was popped, or the queue was closed.
    not_full: Notify,
}

/// One queue per scope.
#[derive(Debug)]
struct ScopeQueues {
    fifos: Vec<DeltaFifo>,
    /// Whose turn it is.
    next_scope: usize,
}

impl DeltaQueue {
    pub(crate) fn new(lanes: usize) -> Self {
        let fifos = (0..lanes).map(|_| DeltaFifo::default()).collect();
        let lanes = Mutex::new(ScopeQueues { fifos, next_scope: 0 });
        Self { lanes, not_empty: Notify::new(), not_full: Notify::new() }
    }

    /// Appends deltas to a lane, as many at a time as there is room for. What comes together is taken together: the pump publishes a state
    /// for each batch.
    pub(crate) async fn push(&self, lane: usize, deltas: &mut VecDeque<Delta>) -> Result<(), QueueClosed> {
        while !deltas.is_empty() {
            let mut drained = std::pin::pin!(self.not_full.notified());
            // Registered before looking, so that a pop in between is not missed.
            drained.as_mut().enable();
            if !self.push_some(lane, deltas)? {
                drained.await;
            }
        }
        Ok(())
    }

    /// Appends what there is room for; returns whether that was anything.
    fn push_some(&self, lane: usize, deltas: &mut VecDeque<Delta>) -> Result<bool, QueueClosed> {
        let mut lanes = self.lock();
        let fifo = lanes.fifos.get_mut(lane).ok_or(QueueClosed)?;
        let before = deltas.len();
        while fifo.is_closed() || fifo.has_capacity() {
            let Some(delta) = deltas.pop_front() else { break };
            fifo.push(delta)?;
        }
        drop(lanes);
        let pushed = deltas.len() < before;
        if pushed {
            self.not_empty.notify_one();
        }
        Ok(pushed)
    }

    /// Takes a batch of one lane as soon as there is one; `None` when the queue is closed and empty.
    pub(crate) async fn pop(&self, most: usize) -> Option<(usize, Batch)> {
        loop {
            let mut filled = std::pin::pin!(self.not_empty.notified());
            filled.as_mut().enable();
            {
                let mut lanes = self.lock();
                if let Some(found) = lanes.pop(most) {
                    self.not_full.notify_waiters();
                    return Some(found);
                }
                if lanes.fifos.iter().all(DeltaFifo::is_closed) {
                    return None;
                }
            }
            filled.await;
            self.linger(most).await;
        }
    }

    /// Gives way while more comes, for a short while: under load, fewer and larger batches cost the store and the handlers less. Where nothing else
    /// comes this is one turn of whoever else is ready.
    async fn linger(&self, most: usize) {
        let (mut before, begun) = (0, Instant::now());
        for _ in 0..MAX_LINGER_YIELDS {
            let waiting: usize = self.lock().fifos.iter().map(DeltaFifo::len).sum();
            if waiting == before || waiting >= most || begun.elapsed() >= MAX_LINGER {
                return;
            }
            before = waiting;
            reschedule().await;
        }
    }

    /// Says that everything up to the end of a lane's batch is in the store; returns whether every lane's first set is.
    pub(crate) fn applied(&self, lane: usize, end: u64) -> bool {
        let mut lanes = self.lock();
        if let Some(fifo) = lanes.fifos.get_mut(lane) {
            fifo.applied(end);
        }
        lanes.fifos.iter().all(DeltaFifo::has_synced)
    }

    /// Whether further deltas are refused.
    pub(crate) fn is_closed(&self) -> bool {
        self.lock().fifos.iter().all(DeltaFifo::is_closed)
    }

    /// Refuses further deltas.
    pub(crate) fn close(&self) {
        self.lock().fifos.iter_mut().for_each(DeltaFifo::close);
        self.not_empty.notify_one();
        self.not_full.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, ScopeQueues> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ScopeQueues {
    /// A batch of the first lane that has one, from the one whose turn it is on.
    fn pop(&mut self, most: usize) -> Option<(usize, Batch)> {
        let count = self.fifos.len();
        for step in 0..count {
            let lane = (self.next_scope + step) % count;
            if let Some(batch) = self.fifos[lane].pop(most) {
                self.next_scope = lane + 1;
                return Some((lane, batch));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::{FifoCapacity, ResourceVersion};

    fn bookmarks(count: usize) -> VecDeque<Delta> {
        (1..=count).map(|number| Delta::Bookmark(ResourceVersion::new(&number.to_string()))).collect()
    }

    fn versions(batch: Batch) -> impl Iterator<Item = String> {
        batch.deltas.into_iter().map(|delta| match delta {
            Delta::Bookmark(version) => version.to_string(),
            other => panic!("nothing else was pushed: {other:?}"),
        })
    }

    /// C8: what there is no room for waits, and comes behind what went before it.
    #[tokio::test]
    async fn deltas_that_find_no_room_wait_and_keep_their_order() {
        let room = FifoCapacity::default().count;
        let (queue, mut deltas) = (DeltaQueue::new(1), bookmarks(2 * room + 7));
        let push = queue.push(0, &mut deltas);
        let pop = async {
            let mut all = Vec::new();
            while all.len() < 2 * room + 7 {
                let (_, batch) = queue.pop(1000).await.unwrap();
                assert!(batch.deltas.len() <= 1000);
                all.extend(versions(batch));
            }
            all
        };
        let (pushed, popped) = tokio::join!(push, pop);
        assert_eq!(pushed, Ok(()));
        assert!(popped.iter().map(|version| version.parse::<usize>().unwrap()).eq(1..=2 * room + 7));
    }

    /// C10: whoever waits for room does not wait for ever.
    #[tokio::test]
    async fn a_queue_that_is_closed_half_way_takes_no_more() {
        let room = FifoCapacity::default().count;
        let (queue, mut deltas) = (DeltaQueue::new(1), bookmarks(room + 7));
        let (pushed, ()) = tokio::join!(queue.push(0, &mut deltas), async { queue.close() });
        assert_eq!(pushed, Err(QueueClosed));
        let mut popped = 0;
        while let Some((_, batch)) = queue.pop(1000).await {
            popped += versions(batch).count();
        }
        assert_eq!(popped, room, "what was pushed before is still there");
    }
}
