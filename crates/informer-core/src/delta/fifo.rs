//! The queue between the reflector and the store.
//!
//! It keeps every delta in arrival order and never merges two. It is bounded by count and by bytes: whoever fills it asks
//! [`DeltaFifo::has_capacity`] before reading on from the socket, so a slow store slows the server down instead of filling memory. One delta may
//! overshoot the bound, since a relist is a single delta. It does not know what deltas mean.

use super::{Delta, Replaced};
use std::collections::VecDeque;

/// How much a [`DeltaFifo`] takes before it asks to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FifoCapacity {
    /// Deltas.
    pub count: usize,
    /// Bytes of the objects in them.
    pub bytes: usize,
}

impl FifoCapacity {
    /// Room for `count` deltas and `bytes` of objects.
    pub fn new(count: usize, bytes: usize) -> Self {
        Self { count, bytes }
    }
}

impl Default for FifoCapacity {
    fn default() -> Self {
        Self::new(4096, 16 << 20)
    }
}

/// The queue was closed: nothing more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// What one pop takes.
#[derive(Debug)]
pub struct Batch {
    /// The deltas, in arrival order; never empty.
    pub deltas: Vec<Delta>,
    /// Whether they belong to the initial set.
    pub initial: bool,
    /// The sequence number of the last delta; hand it to [`DeltaFifo::applied`].
    end: u64,
}

/// Deltas in arrival order.
///
/// ```
/// use informer_core::{Delta, DeltaFifo, ResourceVersion};
///
/// let mut fifo = DeltaFifo::default();
/// fifo.push(Delta::Bookmark(ResourceVersion::new("7")))?;
/// let batch = fifo.pop(64).unwrap();
/// assert_eq!(batch.deltas.len(), 1);
/// fifo.applied(batch.end());
/// assert!(fifo.pop(64).is_none());
/// # Ok::<(), informer_core::QueueClosed>(())
/// ```
#[derive(Debug, Default)]
pub struct DeltaFifo {
    /// Each delta with its cost.
    queue: VecDeque<(Delta, usize)>,
    /// The sum of the costs in `queue`.
    bytes: usize,
    capacity: FifoCapacity,
    closed: bool,
    /// How many deltas were ever pushed; a delta's sequence number is this count behind it.
    pushed: u64,
    /// The sequence number of the last delta that was applied.
    applied: u64,
    /// The sequence number of the first `Replaced`: synced once it is applied.
    first_set: Option<u64>,
}

impl DeltaFifo {
    /// An empty queue with these bounds.
    pub fn new(limits: FifoCapacity) -> Self {
        Self { capacity: limits, ..Self::default() }
    }

    /// Whether the next delta is welcome. `false` is the back-pressure that stops the socket.
    pub fn has_capacity(&self) -> bool {
        self.queue.len() < self.capacity.count && self.bytes < self.capacity.bytes
    }

    /// Appends a delta. It is taken even when there is no room: asking first is the caller's part.
    pub fn push(&mut self, delta: Delta) -> Result<(), QueueClosed> {
        if self.closed {
            return Err(QueueClosed);
        }
        self.pushed += 1;
        if matches!(delta, Delta::Replaced(_)) {
            self.first_set.get_or_insert(self.pushed);
        }
        let cost = delta.memory_size();
        self.bytes += cost;
        self.queue.push_back((delta, cost));
        Ok(())
    }

    /// Appends a complete list.
    pub fn replace(&mut self, replaced: Replaced) -> Result<(), QueueClosed> {
        self.push(Delta::Replaced(replaced))
    }

    /// Takes up to `most` deltas; a relist comes alone. `None` while there is nothing.
    pub fn pop(&mut self, most: usize) -> Option<Batch> {
        let mut deltas = Vec::with_capacity(self.queue.len().min(most));
        while deltas.len() < most.max(1) {
            match self.queue.front() {
                Some((next, _)) if deltas.is_empty() || !next.stands_alone() => {}
                _ => break,
            }
            let Some((delta, cost)) = self.queue.pop_front() else { break };
            self.bytes -= cost;
            let alone = delta.stands_alone();
            deltas.push(delta);
            if alone {
                break;
            }
        }
        let end = self.pushed - self.queue.len() as u64;
        (!deltas.is_empty()).then(|| Batch { deltas, initial: !self.has_synced(), end })
    }

    /// Says that a popped batch is in the store, by its [`Batch::end`]: the deltas themselves are gone by then.
    pub fn applied(&mut self, end: u64) {
        self.applied = self.applied.max(end);
    }

    /// Whether the first complete list is in the store. Never goes back.
    pub fn has_synced(&self) -> bool {
        self.first_set.is_some_and(|first| self.applied >= first)
    }

    /// Refuses further deltas; those in the queue can still be popped.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// How many deltas wait.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many bytes of objects wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Panics if the queue contradicts itself; for tests and simulations.
    pub fn check_invariants(&self) {
        assert_eq!(
            self.bytes,
            self.queue.iter().map(|(_, cost)| cost).sum::<usize>(),
            "bytes is the sum of costs"
        );
        assert!(
            self.applied <= self.pushed - self.queue.len() as u64,
            "nothing is applied before it is popped"
        );
    }
}

impl Batch {
    /// The sequence number of the last delta in this batch.
    pub fn end(&self) -> u64 {
        self.end
    }
}
