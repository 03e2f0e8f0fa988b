//! Turns on the runtime's threads, and how the next one gets its own.

use std::future::poll_fn;
use std::task::Poll;

/// A task's turns, so many steps long. Without them a task that never waits would keep its thread; and of many things the runtime allows only so
/// much before it puts a task aside with its thread (see [`give_way`]), 128 of them at the time of writing.
pub(crate) struct YieldBudget {
    steps: u32,
    left: u32,
}

impl YieldBudget {
    pub(crate) fn new(steps: u32) -> Self {
        Self { steps, left: steps }
    }

    /// Counts a step; behind the last one of its turn, others have theirs.
    pub(crate) async fn consume(&mut self) {
        self.left -= 1;
        if self.left == 0 {
            self.left = self.steps;
            reschedule().await;
        }
    }
}

/// Lets others have a turn. Whoever gives way waits where every thread can take it up again: what the runtime's own means for this puts aside
/// stays with its thread, and a handler that blocks the thread next would hold it up (C8).
pub(crate) async fn reschedule() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    /// C8: a handler that blocks its thread delays nobody. The pump gave way as the runtime has it, and stayed with a thread that a handler blocked next.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c8_whoever_gave_way_goes_on_while_its_thread_is_blocked() {
        for _ in 0..20 {
            let rounds = tokio::spawn(async {
                let (went_on, wait) = mpsc::channel();
                // It is woken here, so this thread takes it next.
                let blocking = tokio::spawn(async move { wait.recv_timeout(Duration::from_secs(30)) });
                let mut turn = YieldBudget::new(2);
                turn.consume().await;
                turn.consume().await;
                went_on.send(()).unwrap();
                blocking.await.unwrap()
            });
            assert_eq!(rounds.await.unwrap(), Ok(()));
        }
    }
}
