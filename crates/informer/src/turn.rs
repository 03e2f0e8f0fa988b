//! Turns on the runtime's threads, and how the next one gets its own.

use std::future::poll_fn;
use std::task::Poll;

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
