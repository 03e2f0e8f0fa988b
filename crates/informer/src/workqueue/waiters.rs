//! Tasks that wait for a key or for the end of a drain: which of them is woken, and which of them runs the
//! timer.
//!
//! This module knows wakers and ids only, not the queue. A task that was woken counts as *polling soon* until
//! it polls or is dropped; the more tasks poll soon, the fewer waiting tasks have to be woken. One of the
//! tasks that wait for a key is the timer owner: it sleeps until the next delayed key is due. The timer owner
//! is woken for a key only if no other task waits, so that the timer rarely moves to another task.

use std::collections::VecDeque;
use std::task::Waker;

/// Waiting tasks, in the order in which they started to wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    /// Tasks that will poll the queue soon without being woken again. None of them is in `waiting`.
    polling_soon: Vec<u64>,
    last_id: u64,
    timer_owner: Option<u64>,
}

impl Waiters {
    /// Adds a task, or updates the waker of a task that waits already; returns its id.
    pub(super) fn wait(&mut self, id: Option<u64>, waker: &Waker) -> u64 {
        let position = id.and_then(|id| self.position(id));
        if let Some((id, stored)) = position.and_then(|position| self.waiting.get_mut(position)) {
            stored.clone_from(waker);
            return *id;
        }
        self.last_id += 1;
        self.waiting.push_back((self.last_id, waker.clone()));
        self.timer_owner.get_or_insert(self.last_id);
        self.last_id
    }

    /// Marks a task as polling soon and returns its id; does nothing and returns `None` if the task waits, or
    /// if another task polls soon.
    pub(super) fn spin_again(&mut self, id: Option<u64>) -> Option<u64> {
        let is_waiting = id.is_some_and(|id| self.position(id).is_some());
        if is_waiting || !self.polling_soon.is_empty() {
            return None;
        }
        let id = id.unwrap_or_else(|| {
            self.last_id += 1;
            self.last_id
        });
        self.polling_soon.push(id);
        Some(id)
    }

    /// Marks a task as no longer polling soon, because it polls now.
    pub(super) fn mark_polled(&mut self, id: u64) {
        if let Some(position) = self.polling_soon.iter().position(|polling| *polling == id) {
            self.polling_soon.swap_remove(position);
        }
    }

    /// Removes a task, whether it waits or polls soon.
    pub(super) fn remove(&mut self, id: u64) {
        self.mark_polled(id);
        let Some(position) = self.position(id) else { return };
        self.waiting.remove(position);
        if self.timer_owner == Some(id) {
            self.timer_owner = None;
        }
    }

    /// Returns whether a task owns the timer.
    pub(super) fn is_timer_owner(&self, id: u64) -> bool {
        self.timer_owner == Some(id)
    }

    /// Returns the waker of the timer owner; if there is none, the task that waits longest becomes the owner.
    pub(super) fn timer_owner_waker(&mut self) -> Option<Waker> {
        if self.timer_owner.is_none() {
            self.timer_owner = self.waiting.front().map(|(id, _)| *id);
        }
        let position = self.position(self.timer_owner?)?;
        self.waiting.get(position).map(|(_, waker)| waker.clone())
    }

    /// Returns the waker of the next task to wake for `keys` queued keys; `None` if enough tasks poll soon.
    ///
    /// The task that waits longest is woken first, the timer owner last. One task that polls soon would
    /// suffice, since each task that takes a key wakes the next one. But its thread may be busy; so the more
    /// keys are queued, the more tasks are woken.
    #[inline]
    pub(super) fn wake_next(&mut self, keys: usize) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        let needed = keys.checked_ilog2().map_or(0, |power| power as usize + 1);
        if self.polling_soon.len() >= needed {
            return None;
        }
        let not_timer_owner = self.waiting.iter().position(|(id, _)| self.timer_owner != Some(*id));
        let (id, waker) = self.waiting.remove(not_timer_owner.unwrap_or(0))?;
        if self.timer_owner == Some(id) {
            self.timer_owner = None;
        }
        self.polling_soon.push(id);
        Some(waker)
    }

    /// Removes all waiting tasks and returns their wakers.
    pub(super) fn pop_all(&mut self) -> impl Iterator<Item = Waker> {
        self.timer_owner = None;
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.waiting.iter().position(|(other, _)| *other == id)
    }
}
