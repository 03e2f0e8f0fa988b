//! Cooperative scheduling: tasks that yield to other tasks of the runtime.

use std::future::poll_fn;
use std::task::Poll;

/// Counts loop iterations and reschedules the task when the budget is used up.
///
/// Without a budget, a task that never waits would occupy its worker thread. tokio's own budget (128
/// operations at the time of writing) does not suffice: like `tokio::task::yield_now`, it defers the task on
/// the same worker thread; see [`reschedule`].
pub(crate) struct YieldBudget {
    iterations: u32,
    remaining: u32,
}

impl YieldBudget {
    pub(crate) fn new(iterations: u32) -> Self {
        Self { iterations, remaining: iterations }
    }

    /// Counts one iteration and reschedules the task after the last one of the budget.
    pub(crate) async fn consume(&mut self) {
        self.remaining -= 1;
        if self.remaining == 0 {
            self.remaining = self.iterations;
            reschedule().await;
        }
    }
}

/// Reschedules the current task, so that other tasks run first.
///
/// The task wakes itself and goes to a queue from which any worker thread can take it.
/// `tokio::task::yield_now` would keep the task on its worker thread; if a handler blocked that thread next,
/// the task would have to wait for the handler (C8).
pub(crate) async fn reschedule() {
    let mut rescheduled = false;
    poll_fn(|context| {
        if std::mem::replace(&mut rescheduled, true) {
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

    /// C8: a handler that blocks its thread delays no other task. Regression: the pump used `yield_now` and
    /// was stuck on a thread that a handler blocked next.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn c8_rescheduled_task_resumes_while_its_worker_thread_is_blocked() {
        for _ in 0..20 {
            let task = tokio::spawn(async {
                let (resumed, wait) = mpsc::channel();
                // Spawned on this thread, so this thread runs it next.
                let blocking = tokio::spawn(async move { wait.recv_timeout(Duration::from_secs(30)) });
                let mut budget = YieldBudget::new(2);
                budget.consume().await;
                budget.consume().await;
                resumed.send(()).unwrap();
                blocking.await.unwrap()
            });
            assert_eq!(task.await.unwrap(), Ok(()));
        }
    }
}
