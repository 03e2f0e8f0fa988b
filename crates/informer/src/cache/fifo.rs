//! [`DeltaFifo`]: a bounded queue of deltas between a producer and one consumer.

use super::delta::Delta;
use crate::delta_queue::DeltaQueue;
use informer_core::{FifoCapacity, QueueClosed};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// The index of the only scope of the queue.
const SCOPE: usize = 0;

/// A bounded queue of [deltas](Delta) in arrival order, between a producer and one consumer.
///
/// ```
/// use informer::cache::{Delta, DeltaFifo, Store};
/// use informer::{Object, ResourceVersion};
/// use k8s_openapi::api::core::v1::Pod;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let pod = |name: &str| { let mut pod = Pod::default(); pod.metadata.name = Some(name.to_owned()); pod };
/// let (fifo, store) = (DeltaFifo::new(), Store::new());
/// let list = vec![Object::from_typed(pod("a"))?, Object::from_typed(pod("b"))?];
/// fifo.push([Delta::replaced(list, ResourceVersion::new("1"))]).await?;
/// fifo.push([Delta::Added(Object::from_typed(pod("c"))?)]).await?;
/// fifo.close();
///
/// while let Some(deltas) = fifo.pop(100).await {
///     for event in store.apply(deltas) {
///         println!("{event:?}");
///     }
/// }
/// assert!(fifo.has_synced() && store.snapshot().len() == 3);
/// # Ok(())
/// # }
/// ```
///
/// # Differences from client-go
///
/// The queue corresponds to `RealFIFO`, which the informers of client-go use today, not to the older
/// `DeltaFIFO`:
///
/// - **Nothing is compressed.** Every delta is popped, in arrival order. client-go's `DeltaFIFO` collects the
///   deltas of a key, pops them together, and merges consecutive deletions. Here [`Store::apply`](super::Store)
///   compares deltas with the store, and the events of a slow *handler* are coalesced (C8), after the store.
/// - **Nothing is compared with the store.** A list is one [`Delta::Replaced`], popped alone; what it deletes is
///   found when it is applied. There is no `KnownObjects`, and a deletion is queued even if its object is unknown.
/// - **There is no `Sync` delta.** A resync belongs to the informer, which delivers cached objects to the handlers
///   whose period has passed, without the queue.
/// - **The queue is bounded.** [`push`](Self::push) waits while the queue is full: by default at 4096 deltas or
///   16 MiB. client-go's queues grow without a limit.
///
/// A queue is a handle: it is cheap to clone, and all clones are the same queue.
pub struct DeltaFifo<K> {
    queue: Arc<DeltaQueue>,
    kind: PhantomData<fn() -> K>,
}

impl<K> DeltaFifo<K> {
    /// Creates an empty queue for 4096 deltas and 16 MiB.
    pub fn new() -> Self {
        Self { queue: Arc::new(DeltaQueue::new(1)), kind: PhantomData }
    }

    /// Creates an empty queue that is full at `count` deltas or about `bytes` bytes.
    ///
    /// The last delta may cross the bound, by any amount if it is a list.
    pub fn with_capacity(count: usize, bytes: usize) -> Self {
        let capacity = FifoCapacity::new(count.max(1), bytes.max(1));
        Self { queue: Arc::new(DeltaQueue::with_capacity(1, capacity)), kind: PhantomData }
    }

    /// Appends deltas in order, waiting while the queue is full.
    ///
    /// # Errors
    ///
    /// [`QueueClosed`] after [`close`](Self::close); the remaining deltas are dropped.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, a part of the deltas may have been appended.
    pub async fn push(&self, deltas: impl IntoIterator<Item = Delta<K>>) -> Result<(), QueueClosed> {
        let mut deltas = deltas.into_iter().map(Delta::into_core).collect();
        self.queue.push(SCOPE, &mut deltas).await
    }

    /// Waits for deltas and takes up to `max_deltas` of them, but at least one; `None` if the queue is closed
    /// and empty.
    ///
    /// A list is taken alone. The deltas count as processed when the returned iterator is dropped. The queue has
    /// one consumer: with several, deltas would be processed out of order.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn pop(&self, max_deltas: usize) -> Option<Deltas<K>> {
        let (_, batch) = self.queue.pop(max_deltas).await?;
        let processed = Processed { queue: Arc::clone(&self.queue), end: batch.end() };
        let initial = batch.initial;
        Some(Deltas {
            remaining: batch.deltas.into_iter(),
            initial,
            _processed: processed,
            kind: PhantomData,
        })
    }

    /// Returns whether the first list has been processed. Never becomes `false` again.
    pub fn has_synced(&self) -> bool {
        self.queue.has_synced()
    }

    /// Returns the number of queued deltas.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no delta is queued.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rejects further deltas; queued ones can still be popped.
    pub fn close(&self) {
        self.queue.close();
    }
}

/// The deltas taken by one [`DeltaFifo::pop`], in arrival order.
pub struct Deltas<K> {
    remaining: std::vec::IntoIter<informer_core::Delta>,
    initial: bool,
    _processed: Processed,
    kind: PhantomData<fn() -> K>,
}

impl<K> Deltas<K> {
    /// Returns whether the first list had not been processed when the deltas were popped.
    pub fn is_initial(&self) -> bool {
        self.initial
    }
}

impl<K> Iterator for Deltas<K> {
    type Item = Delta<K>;

    fn next(&mut self) -> Option<Delta<K>> {
        self.remaining.by_ref().find_map(Delta::from_core)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.remaining.size_hint()
    }
}

/// Records on drop that deltas were processed.
struct Processed {
    queue: Arc<DeltaQueue>,
    end: u64,
}

impl Drop for Processed {
    fn drop(&mut self) {
        self.queue.applied(SCOPE, self.end);
    }
}

impl<K> Default for DeltaFifo<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> Clone for DeltaFifo<K> {
    fn clone(&self) -> Self {
        Self { queue: Arc::clone(&self.queue), kind: PhantomData }
    }
}

impl<K> fmt::Debug for DeltaFifo<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta FIFO with {} deltas", self.len())
    }
}

impl<K> fmt::Debug for Deltas<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} deltas", self.remaining.len())
    }
}
