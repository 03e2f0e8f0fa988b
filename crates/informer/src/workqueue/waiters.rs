//! Tasks that wait for a key: who is woken, and who minds the clock.
//!
//! Wakers and numbers, nothing else. Whoever was woken is on its way until it comes or goes away, and while one is, fewer others have to be woken.
//! One of the waiting tasks is the keeper of the clock: it sleeps until the next delayed key is due. It is woken for a key only when nobody
//! else waits, so that the clock rarely changes hands.

use std::collections::VecDeque;
use std::task::Waker;

/// Tasks that wait, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiting: VecDeque<(u64, Waker)>,
    /// Who will look at the queue soon without being woken again. None of them waits.
    coming: Vec<u64>,
    count: u64,
    timer_owner: Option<u64>,
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
        self.timer_owner.get_or_insert(self.count);
        self.count
    }

    /// Lets a task that does not wait look again soon, if no other is on its way; its number.
    pub(super) fn spin_again(&mut self, known: Option<u64>) -> Option<u64> {
        let waits = known.is_some_and(|number| self.place(number).is_some());
        if waits || !self.coming.is_empty() {
            return None;
        }
        let number = known.unwrap_or_else(|| {
            self.count += 1;
            self.count
        });
        self.coming.push(number);
        Some(number)
    }

    /// A task came that may have been on its way.
    pub(super) fn arrive(&mut self, number: u64) {
        if let Some(place) = self.coming.iter().position(|known| *known == number) {
            self.coming.swap_remove(place);
        }
    }

    /// A task does not wait any more, and is not on its way.
    pub(super) fn leave(&mut self, number: u64) {
        self.arrive(number);
        let Some(place) = self.place(number) else { return };
        self.waiting.remove(place);
        if self.timer_owner == Some(number) {
            self.timer_owner = None;
        }
    }

    /// Whether a task minds the clock.
    pub(super) fn is_keeper(&self, number: u64) -> bool {
        self.timer_owner == Some(number)
    }

    /// The waker of whoever minds the clock; if nobody does, whoever waits longest is asked to.
    pub(super) fn timer_owner(&mut self) -> Option<Waker> {
        if self.timer_owner.is_none() {
            self.timer_owner = self.waiting.front().map(|(number, _)| *number);
        }
        let place = self.place(self.timer_owner?)?;
        self.waiting.get(place).map(|(_, waker)| waker.clone())
    }

    /// Sends for whoever waits longest, the keeper last, if there are too few on their way for so many keys.
    ///
    /// Nobody else needs to be woken while somebody is on its way, since whoever takes a key sends for the next. But a task may be held up on
    /// its way, by the thread it is to run on; so the more keys lie there, the more are woken.
    #[inline]
    pub(super) fn wake_next(&mut self, keys: usize) -> Option<Waker> {
        if self.waiting.is_empty() {
            return None;
        }
        let enough = keys.checked_ilog2().map_or(0, |power| power as usize + 1);
        if self.coming.len() >= enough {
            return None;
        }
        let other = self.waiting.iter().position(|(number, _)| self.timer_owner != Some(*number));
        let (number, waker) = self.waiting.remove(other.unwrap_or(0))?;
        if self.timer_owner == Some(number) {
            self.timer_owner = None;
        }
        self.coming.push(number);
        Some(waker)
    }

    /// Takes all of them out.
    pub(super) fn pop_all(&mut self) -> impl Iterator<Item = Waker> {
        self.timer_owner = None;
        std::mem::take(&mut self.waiting).into_iter().map(|(_, waker)| waker)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.waiting.iter().position(|(known, _)| *known == number)
    }
}
