//! Turns on the runtime's threads: how long one lasts, and how the next one gets it.

use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How often a handler is called, one event after the other, before others have a turn: as often as the pump brings something at a time. A count
/// and no time, so that simulations run the same way twice.
const CALLS: u32 = 256;

/// The calls that a handler gets one after the other, timed with one look at the clock for each.
#[derive(Default)]
pub(crate) struct Turn {
    calls: u32,
    /// When the last call ended, or the first one began.
    last: Option<Instant>,
}

impl Turn {
    /// A turn ends when there is nothing to tell.
    pub(crate) fn notice<T>(&mut self, polled: Poll<T>) -> Poll<T> {
        if polled.is_pending() {
            *self = Self::default();
        }
        polled
    }

    pub(crate) fn begin_call(&mut self) {
        self.calls += 1;
        self.last.get_or_insert_with(Instant::now);
    }

    /// How long the call took.
    pub(crate) fn end_call(&mut self) -> Duration {
        let now = Instant::now();
        let began = self.last.replace(now);
        began.map_or(Duration::ZERO, |began| now - began)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.calls >= CALLS
    }
}

/// Lets others have a turn. Whoever gives way waits where every thread can take it up again: what the runtime's own means for this puts aside
/// stays with its thread, and a handler that blocks the thread next would hold it up (C8).
pub(crate) async fn give_way() {
    let mut given = false;
    poll_fn(|context| {
        if std::mem::replace(&mut given, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
