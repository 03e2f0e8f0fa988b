//! The delta queue between two tasks: the reflector's driver fills it, the pump empties it.
//!
//! A thin async face of [`DeltaFifo`]: [`Queue::push`] waits for room, which is what stops the socket; [`Queue::pop`] waits for deltas.

use informer_core::{Batch, Closed, Delta, DeltaFifo};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    fifo: Mutex<DeltaFifo>,
    /// Something was pushed, or the queue was closed.
    filled: Notify,
    /// Something was popped, or the queue was closed.
    drained: Notify,
}

impl Queue {
    /// Appends a delta as soon as there is room.
    pub(crate) async fn push(&self, delta: Delta) -> Result<(), Closed> {
        loop {
            let mut drained = std::pin::pin!(self.drained.notified());
            // Registered before looking, so that a pop in between is not missed.
            drained.as_mut().enable();
            {
                let mut fifo = self.lock();
                if fifo.is_closed() || fifo.has_room() {
                    fifo.push(delta)?;
                    self.filled.notify_one();
                    return Ok(());
                }
            }
            drained.await;
        }
    }

    /// Takes a batch as soon as there is one; `None` when the queue is closed and empty.
    pub(crate) async fn pop(&self, most: usize) -> Option<Batch> {
        loop {
            let mut filled = std::pin::pin!(self.filled.notified());
            filled.as_mut().enable();
            {
                let mut fifo = self.lock();
                if let Some(batch) = fifo.pop(most) {
                    self.drained.notify_one();
                    return Some(batch);
                }
                if fifo.is_closed() {
                    return None;
                }
            }
            filled.await;
        }
    }

    /// Says that everything up to the end of a batch is in the store; returns whether the first set is.
    pub(crate) fn applied(&self, end: u64) -> bool {
        let mut fifo = self.lock();
        fifo.applied(end);
        fifo.has_synced()
    }

    /// Refuses further deltas.
    pub(crate) fn close(&self) {
        self.lock().close();
        self.filled.notify_one();
        self.drained.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, DeltaFifo> {
        self.fifo.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
