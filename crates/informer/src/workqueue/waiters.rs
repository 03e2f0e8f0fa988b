//! Tasks that wait for a key: who is woken, and who minds the clock.
//!
//! Wakers and numbers, nothing else. One of the waiting tasks is the keeper of the clock: it sleeps until the next delayed key is due. It is
//! woken for a key only when nobody else waits, so that the clock rarely changes hands.

use std::collections::VecDeque;
use std::task::Waker;

/// Tasks that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    count: u64,
    keeper: Option<u64>,
}

impl Waiters {
    /// Lets a task wait, or wait on; its number.
    pub(super) fn join(&mut self, known: Option<u64>, waker: &Waker) -> u64 {
        let place = known.and_then(|number| self.place(number));
        if let Some((number, there)) = place.and_then(|place| self.waiting.get_mut(place)) {
            there.clone_from(waker);
            return *number;
        }
        self.count += 1;
        self.waiting.push_back((self.count, waker.clone()));
        self.keeper.get_or_insert(self.count);
        self.count
    }

    /// A task does not wait any more; false if it was woken before.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let Some(place) = self.place(number) else { return false };
        self.waiting.remove(place);
        if self.keeper == Some(number) {
            self.keeper = None;
        }
        true
    }

    /// Whether a task minds the clock.
    pub(super) fn is_keeper(&self, number: u64) -> bool {
        self.keeper == Some(number)
    }

    /// The waker of whoever minds the clock; if nobody does, whoever waits longest is asked to.
    pub(super) fn keeper(&mut self) -> Option<Waker> {
        if self.keeper.is_none() {
            self.keeper = self.waiting.front().map(|(number, _)| *number);
        }
        let place = self.place(self.keeper?)?;
        self.waiting.get(place).map(|(_, waker)| waker.clone())
    }

    /// Takes out whoever waits longest, the keeper last.
    pub(super) fn pop(&mut self) -> Option<Waker> {
        let other = self.waiting.iter().position(|(number, _)| self.keeper != Some(*number));
        let (number, waker) = self.waiting.remove(other.unwrap_or(0))?;
        if self.keeper == Some(number) {
            self.keeper = None;
        }
        Some(waker)
    }

    /// Takes all of them out.
    pub(super) fn pop_all(&mut self) -> impl Iterator<Item = Waker> {
        self.keeper = None;
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.iter().position(|(known, _)| *known == number)
    }
}
