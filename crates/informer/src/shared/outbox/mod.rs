//! What one handler has still to be told.
//!
//! Two ways to keep it, with one face: [`merged`] (the default, at most one transition per key) and [`every_state`] (each one, up to a
//! bound). Both are pure: the pump fills them, the listener's task empties them.

mod every_state;
mod merged;

use crate::event::{Delivery, Untyped};
use every_state::EveryState;
use informer_core::{Change, Entry, Moment};
use merged::Merged;
use std::sync::Arc;

/// Pending events of one handler, oldest first.
#[derive(Debug)]
pub(super) enum Outbox {
    Merged(Merged),
    EveryState(EveryState),
}

impl Outbox {
    /// Every state up to `bound` pending ones, or, with no bound, one transition per key. `brief` says that of an object that came and went
    /// unseen the end is told.
    pub(super) fn new(bound: Option<usize>, brief: bool) -> Self {
        match bound {
            Some(bound) => Self::EveryState(EveryState::new(bound, brief)),
            None => Self::Merged(Merged::new(brief)),
        }
    }

    /// Makes room for so many changes that come now. A set that grows into its room step by step leaves holes of the same size behind.
    pub(super) fn reserve(&mut self, changes: usize) {
        match self {
            Self::Merged(outbox) => outbox.reserve(changes),
            Self::EveryState(outbox) => outbox.reserve(changes),
        }
    }

    /// Takes in a change. `initial` says that it belongs to the set that was there before the handler began.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match self {
            Self::Merged(outbox) => outbox.add(change, initial, now),
            Self::EveryState(outbox) => outbox.add(change, initial, now),
        }
    }

    /// Takes in an object that is to be told again.
    pub(super) fn add_again(&mut self, entry: &Arc<Entry>, now: Moment) {
        match self {
            Self::Merged(outbox) => outbox.add_again(entry, now),
            Self::EveryState(outbox) => outbox.add_again(entry, now),
        }
    }

    /// Says that everything of the initial set has been added.
    pub(super) fn end_initial(&mut self) {
        match self {
            Self::Merged(outbox) => outbox.end_initial(),
            Self::EveryState(outbox) => outbox.end_initial(),
        }
    }

    /// The next thing to tell.
    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        match self {
            Self::Merged(outbox) => outbox.pop().map(Delivery::Event),
            Self::EveryState(outbox) => outbox.pop(),
        }
    }

    /// Whether the initial set is known and nothing of it is left.
    pub(super) fn initial_is_told(&mut self) -> bool {
        match self {
            Self::Merged(outbox) => outbox.initial_is_told(),
            Self::EveryState(outbox) => outbox.initial_is_told(),
        }
    }

    /// When the oldest pending event was taken in.
    pub(super) fn oldest(&mut self) -> Option<Moment> {
        match self {
            Self::Merged(outbox) => outbox.oldest(),
            Self::EveryState(outbox) => outbox.oldest(),
        }
    }

    /// How much is pending: keys, or states.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Merged(outbox) => outbox.len(),
            Self::EveryState(outbox) => outbox.len(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Merged(outbox) => outbox.is_empty(),
            Self::EveryState(outbox) => outbox.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests;
