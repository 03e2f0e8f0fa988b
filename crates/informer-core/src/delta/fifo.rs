//! The queue between the reflector and the store.
//!
//! It holds every delta in arrival order and never merges two. It is bounded by count and by bytes: the
//! producer calls [`DeltaFifo::has_capacity`] before it reads more from the socket, so a slow store slows
//! down the stream from the server instead of filling memory. The last delta may cross the bound, by any
//! amount if it is a complete list. Only complete lists are treated specially: they are popped alone, and the
//! first one decides [`DeltaFifo::has_synced`].

use super::{Delta, Replaced};
use std::collections::VecDeque;

/// The bound at which a [`DeltaFifo`] reports no capacity.
///
/// Defaults to 4096 deltas and 16 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct FifoCapacity {
    /// Number of deltas.
    pub count: usize,
    /// Approximate memory of the deltas, in bytes.
    pub bytes: usize,
}

impl FifoCapacity {
    /// Creates a bound of `count` deltas and `bytes` bytes.
    pub fn new(count: usize, bytes: usize) -> Self {
        Self { count, bytes }
    }
}

impl Default for FifoCapacity {
    fn default() -> Self {
        Self::new(4096, 16 << 20)
    }
}

/// The queue was closed and accepts no more deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the delta queue is closed")]
pub struct QueueClosed;

/// The deltas taken by one [`DeltaFifo::pop`].
#[derive(Debug)]
pub struct Batch {
    /// The deltas, in arrival order; never empty.
    pub deltas: Vec<Delta>,
    /// Whether the objects existed before they were received: the first complete list had not been applied when the
    /// batch was popped, or the batch is the list of hash ranges that were gained.
    pub initial: bool,
    /// The sequence number of the last delta (deltas are numbered from one, in arrival order), to be passed
    /// to [`DeltaFifo::record_applied`].
    end: u64,
}

/// A bounded queue of deltas in arrival order.
///
/// ```
/// # use informer_core::{Delta, DeltaFifo, ResourceVersion};
///
/// let mut fifo = DeltaFifo::default();
/// fifo.push(Delta::Bookmark(ResourceVersion::new("7")))?;
/// let batch = fifo.pop(64).unwrap();
/// assert_eq!(batch.deltas.len(), 1);
/// fifo.record_applied(batch.end());
/// assert!(fifo.pop(64).is_none());
/// # Ok::<(), informer_core::QueueClosed>(())
/// ```
#[derive(Debug, Default)]
pub struct DeltaFifo {
    /// Each delta with its memory size.
    queue: VecDeque<(Delta, usize)>,
    /// The sum of the memory sizes in `queue`.
    bytes: usize,
    capacity: FifoCapacity,
    closed: bool,
    /// Number of deltas pushed so far; the sequence number of a delta is this number right after its push.
    pushed: u64,
    /// The sequence number of the last applied delta.
    applied: u64,
    /// The sequence number of the first `Replaced`; the queue is synced once that delta is applied.
    first_list: Option<u64>,
}

impl DeltaFifo {
    /// Creates an empty queue with this capacity.
    pub fn new(capacity: FifoCapacity) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// Returns whether the queue is below its bound; the size of the next delta is not considered.
    ///
    /// `false` is the back-pressure that stops reading from the socket.
    pub fn has_capacity(&self) -> bool {
        self.queue.len() < self.capacity.count && self.bytes < self.capacity.bytes
    }

    /// Appends a delta, also beyond the capacity: the caller checks [`DeltaFifo::has_capacity`] first.
    ///
    /// # Errors
    ///
    /// [`QueueClosed`] after [`DeltaFifo::close`].
    pub fn push(&mut self, delta: Delta) -> Result<(), QueueClosed> {
        if self.closed {
            return Err(QueueClosed);
        }
        self.pushed += 1;
        if matches!(delta, Delta::Replaced(_)) {
            self.first_list.get_or_insert(self.pushed);
        }
        let size = delta.memory_size();
        self.bytes += size;
        self.queue.push_back((delta, size));
        Ok(())
    }

    /// Appends a complete list; see [`DeltaFifo::push`].
    pub fn replace(&mut self, replaced: Replaced) -> Result<(), QueueClosed> {
        self.push(Delta::Replaced(replaced))
    }

    /// Takes up to `max_deltas` deltas, but at least one. A complete list is taken alone. `None` if the queue
    /// is empty.
    pub fn pop(&mut self, max_deltas: usize) -> Option<Batch> {
        let mut deltas = Vec::with_capacity(self.queue.len().min(max_deltas));
        while deltas.len() < max_deltas.max(1) {
            match self.queue.front() {
                Some((next, _)) if deltas.is_empty() || !next.is_popped_alone() => {}
                _ => break,
            }
            let Some((delta, size)) = self.queue.pop_front() else { break };
            self.bytes -= size;
            let is_alone = delta.is_popped_alone();
            deltas.push(delta);
            if is_alone {
                break;
            }
        }
        let end = self.pushed - self.queue.len() as u64;
        let initial = !self.has_synced() || matches!(deltas[..], [Delta::Gained(_)]);
        (!deltas.is_empty()).then(|| Batch { deltas, initial, end })
    }

    /// Records that the popped batch with this [`Batch::end`] was applied to the store.
    ///
    /// The batch itself is consumed by then, so it is identified by number.
    pub fn record_applied(&mut self, end: u64) {
        self.applied = self.applied.max(end);
    }

    /// Returns the sequence number of the last delta that was pushed.
    pub fn pushed(&self) -> u64 {
        self.pushed
    }

    /// Returns whether the delta with this sequence number was applied to the store.
    pub fn has_applied(&self, sequence: u64) -> bool {
        self.applied >= sequence
    }

    /// Returns whether the first complete list was applied to the store. Never becomes false again.
    pub fn has_synced(&self) -> bool {
        self.first_list.is_some_and(|first| self.applied >= first)
    }

    /// Rejects further deltas; those in the queue can still be popped.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// Returns whether the queue was closed.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of queued deltas.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no delta is queued.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the approximate memory of the queued deltas, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks the internal invariants, for tests and simulations.
    ///
    /// # Panics
    ///
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        assert_eq!(
            self.bytes,
            self.queue.iter().map(|(_, size)| size).sum::<usize>(),
            "bytes is the sum of the memory sizes"
        );
        assert!(
            self.applied <= self.pushed - self.queue.len() as u64,
            "no delta is applied before it is popped"
        );
    }
}

impl Batch {
    /// Returns the sequence number of the last delta in this batch.
    pub fn end(&self) -> u64 {
        self.end
    }
}
