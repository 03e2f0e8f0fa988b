//! The futures that wait for a key ([`Get`]) and for the end of a drain ([`Drained`]).

use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::{State, Wakes, WorkItem, WorkQueue};

/// The future of [`WorkQueue::get`].
#[must_use = "no key is taken unless the future is awaited"]
pub struct Get<'a, T: Eq + Hash + Clone> {
    queue: &'a WorkQueue<T>,
    /// `None` until the future is registered in [`State::getters`].
    id: Option<u64>,
    /// Number of polls so far that found no key and rescheduled the task instead of waiting for a wake-up.
    spin_polls: u32,
    /// Wakes the task when the next delayed key is due. Polled only while this future owns the queue's timer,
    /// so that one task wakes up per delayed key.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Maximum number of polls without a key before a task waits for a wake-up, while keys are taken at a high
/// rate. A few polls then cost less than a wake-up, both for the worker and for the task that adds keys.
const MAX_SPIN_POLLS: u32 = 32;

impl<'a, T: Eq + Hash + Clone> Get<'a, T> {
    pub(super) fn new(queue: &'a WorkQueue<T>) -> Self {
        Get { queue, id: None, spin_polls: 0, timer: None }
    }
}

impl<T: Eq + Hash + Clone> Future for Get<'_, T> {
    type Output = Option<WorkItem<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &self.queue.shared;
        loop {
            let now = shared.clock.now();
            let mut state = shared.state.lock();
            if let Some(id) = self.id {
                state.getters.mark_polled(id);
            }
            let taken = state.queue.take(now);
            if taken.is_some() || state.queue.is_over() {
                let wakes = self.unregister(&mut state);
                drop(state);
                wakes.wake();
                return Poll::Ready(taken.map(|taken| WorkItem::new(shared.clone(), taken)));
            }
            if self.spin_polls < MAX_SPIN_POLLS
                && state.queue.is_fast()
                && let Some(id) = state.getters.spin_again(self.id)
            {
                drop(state);
                self.id = Some(id);
                self.spin_polls += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let id = state.getters.wait(self.id, context.waker());
            self.id = Some(id);
            let deadline = state.queue.next_deadline().filter(|_| state.getters.is_timer_owner(id));
            drop(state);
            let Some(deadline) = deadline.map(|deadline| shared.clock.instant(deadline)) else {
                return Poll::Pending;
            };
            if self.poll_timer(deadline, context).is_pending() {
                return Poll::Pending;
            }
            // A delayed key is due: the next iteration tries to take it.
        }
    }
}

impl<T: Eq + Hash + Clone> Get<'_, T> {
    fn poll_timer(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context)
    }

    /// Removes this future from the waiting futures; returns the wakers of the tasks that take over queued
    /// keys and the timer.
    fn unregister(&mut self, state: &mut State<T>) -> Wakes {
        let mut wakes = Wakes::default();
        if let Some(id) = self.id.take() {
            let owned_timer = state.getters.is_timer_owner(id);
            state.getters.remove(id);
            if owned_timer && state.queue.next_deadline().is_some() {
                state.getters.timer_owner_waker().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
        state.collect_wakes(&mut wakes);
        wakes
    }
}

impl<T: Eq + Hash + Clone> Drop for Get<'_, T> {
    fn drop(&mut self) {
        if self.id.is_none() {
            return;
        }
        let shared = self.queue.shared.clone();
        let mut state = shared.state.lock();
        let wakes = self.unregister(&mut state);
        drop(state);
        wakes.wake();
    }
}

/// The future of [`WorkQueue::drained`].
#[must_use = "futures do nothing unless awaited"]
pub struct Drained<'a, T: Eq + Hash + Clone> {
    queue: &'a WorkQueue<T>,
    /// `None` until the future is registered in [`State::drainers`].
    id: Option<u64>,
}

impl<'a, T: Eq + Hash + Clone> Drained<'a, T> {
    pub(super) fn new(queue: &'a WorkQueue<T>) -> Self {
        Drained { queue, id: None }
    }
}

impl<T: Eq + Hash + Clone> Future for Drained<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.queue.shared.state.lock();
        if state.queue.is_drained() {
            return Poll::Ready(());
        }
        let id = state.drainers.wait(self.id, context.waker());
        drop(state);
        self.id = Some(id);
        Poll::Pending
    }
}

impl<T: Eq + Hash + Clone> Drop for Drained<'_, T> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.queue.shared.state.lock().drainers.remove(id);
        }
    }
}
