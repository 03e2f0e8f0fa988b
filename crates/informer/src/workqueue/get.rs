//! Waiting: for a key, and for the end of a queue.

use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::{Instant, Sleep};

use super::{State, Wakes, WorkItem, WorkQueue};

/// The future of [`WorkQueue::get`].
#[must_use = "nothing is taken until it is awaited"]
pub struct Get<'a, T: Eq + Hash + Clone> {
    queue: &'a WorkQueue<T>,
    /// None while the queue does not know of it.
    number: Option<u64>,
    /// How often it has looked in vain and looks again instead of waiting.
    spin_polls: u32,
    timer: Option<Pin<Box<Sleep>>>,
}

/// How often a task looks again before it waits, where keys come fast: to be woken takes longer than a few looks, on both sides.
const MAX_SPIN_POLLS: u32 = 32;

impl<'a, T: Eq + Hash + Clone> Get<'a, T> {
    pub(super) fn new(queue: &'a WorkQueue<T>) -> Self {
        Get { queue, number: None, spin_polls: 0, timer: None }
    }
}

impl<T: Eq + Hash + Clone> Future for Get<'_, T> {
    type Output = Option<WorkItem<T>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = &self.queue.shared;
        loop {
            let now = shared.clock.now();
            let mut state = shared.state.lock();
            if let Some(number) = self.number {
                state.getters.arrive(number);
            }
            let taken = state.queue.take(now);
            if taken.is_some() || state.queue.is_over() {
                let wakes = self.leave(&mut state);
                drop(state);
                wakes.wake();
                return Poll::Ready(taken.map(|taken| WorkItem::new(shared.clone(), taken)));
            }
            if self.spin_polls < MAX_SPIN_POLLS
                && state.queue.is_fast()
                && let Some(number) = state.getters.spin_again(self.number)
            {
                drop(state);
                self.number = Some(number);
                self.spin_polls += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            let number = state.getters.join(self.number, context.waker());
            self.number = Some(number);
            let due = state.queue.next_deadline().filter(|_| state.getters.is_keeper(number));
            drop(state);
            let Some(due) = due.map(|due| shared.clock.instant(due)) else { return Poll::Pending };
            if self.sleep_until(due, context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<T: Eq + Hash + Clone> Get<'_, T> {
    fn sleep_until(&mut self, due: Instant, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(context)
    }

    /// Stops waiting. Somebody else is sent for if there are keys, and the clock needs a keeper.
    fn leave(&mut self, state: &mut State<T>) -> Wakes {
        let mut wakes = Wakes::default();
        if let Some(number) = self.number.take() {
            let kept = state.getters.is_keeper(number);
            state.getters.leave(number);
            if kept && state.queue.next_deadline().is_some() {
                state.getters.timer_owner().into_iter().for_each(|waker| wakes.push(waker));
            }
        }
        state.settle(&mut wakes);
        wakes
    }
}

impl<T: Eq + Hash + Clone> Drop for Get<'_, T> {
    fn drop(&mut self) {
        if self.number.is_none() {
            return;
        }
        let shared = self.queue.shared.clone();
        let mut state = shared.state.lock();
        let wakes = self.leave(&mut state);
        drop(state);
        wakes.wake();
    }
}

/// The future of [`WorkQueue::drained`].
#[must_use = "nobody waits until it is awaited"]
pub struct Drained<'a, T: Eq + Hash + Clone> {
    queue: &'a WorkQueue<T>,
    number: Option<u64>,
}

impl<'a, T: Eq + Hash + Clone> Drained<'a, T> {
    pub(super) fn new(queue: &'a WorkQueue<T>) -> Self {
        Drained { queue, number: None }
    }
}

impl<T: Eq + Hash + Clone> Future for Drained<'_, T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.queue.shared.state.lock();
        if state.queue.is_drained() {
            return Poll::Ready(());
        }
        let number = state.drainers.join(self.number, context.waker());
        drop(state);
        self.number = Some(number);
        Poll::Pending
    }
}

impl<T: Eq + Hash + Clone> Drop for Drained<'_, T> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.queue.shared.state.lock().drainers.leave(number);
        }
    }
}
