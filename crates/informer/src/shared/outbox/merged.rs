//! At most one pending transition per key (C8).
//!
//! A handler that falls behind gets fewer, larger steps, never a wrong one: what is pending leads from what this handler last saw to what is
//! there now. Nothing is told about an object that came and went in between. A deletion and the re-creation after it keep a place
//! each, so that the deletions of a relist stay in front. Pure: the listener's task drives it.

use crate::event::{Cause, Told};
use informer_core::{Change, Entry, Key, Moment};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// Pending steps, oldest first.
#[derive(Debug, Default)]
pub(in crate::shared) struct Merged {
    /// The places of the steps, by ascending number, with the time each was taken. May hold places whose step is settled; those are skipped.
    order: VecDeque<(u64, Moment, Key)>,
    /// What is pending for each key. Invariant: every step's number stands in `order`; no key is here without a step.
    pending: HashMap<Key, Steps>,
    /// Whether the end of an object that came and went unseen is told.
    brief: bool,
    /// How many steps are pending.
    steps: usize,
    last_number: u64,
    /// Every number up to this one belongs to the initial set; known once the informer has synced.
    initial_end: Option<u64>,
}

/// The steps of one key, in this order.
#[derive(Debug, Default)]
struct Steps {
    /// The object that the handler knows is gone.
    gone: Option<Gone>,
    /// An object is there, or changed.
    here: Option<Here>,
}

#[derive(Debug)]
struct Gone {
    number: u64,
    last: Arc<Entry>,
    observed: bool,
}

#[derive(Debug)]
struct Here {
    number: u64,
    /// What the handler saw last; `None` if it does not know this object.
    before: Option<Arc<Entry>>,
    after: Arc<Entry>,
    initial: bool,
    cause: Cause,
}

impl Merged {
    pub(super) fn new(brief: bool) -> Self {
        Self { brief, ..Self::default() }
    }

    /// Takes in a change. `initial` says that it belongs to the set that was there before the handler began.
    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        match change {
            Change::Added(entry) => self.add_here(None, entry, initial, Cause::Change, now),
            Change::Updated { old, new } => self.add_here(Some(old), new, false, Cause::Change, now),
            Change::Deleted { last, observed } => self.add_gone(last, *observed, now),
            Change::Resync { .. } => {}
        }
    }

    /// Takes in an object that is to be told again. What is pending will be told anyway, and is newer.
    pub(super) fn add_again(&mut self, entry: &Arc<Entry>, now: Moment) {
        if !self.pending.contains_key(entry.key()) {
            self.add_here(Some(entry), entry, false, Cause::Resync, now);
        }
    }

    /// Says that everything of the initial set has been added.
    pub(super) fn end_initial(&mut self) {
        self.initial_end.get_or_insert(self.last_number);
    }

    /// The next thing to tell.
    pub(super) fn pop(&mut self) -> Option<Told> {
        loop {
            let Some((number, _, key)) = self.order.pop_front() else {
                self.let_go();
                return None;
            };
            let Some(steps) = self.pending.get_mut(&key) else { continue };
            let told = steps.take(number);
            if steps.gone.is_none() && steps.here.is_none() {
                self.pending.remove(&key);
            }
            if told.is_some() {
                self.steps -= 1;
                return told;
            }
        }
    }

    /// Whether the initial set is known and nothing of it is left.
    pub(super) fn initial_is_told(&mut self) -> bool {
        self.clear_front();
        let oldest = self.order.front().map(|(number, ..)| *number);
        self.initial_end.is_some_and(|end| oldest.is_none_or(|oldest| oldest > end))
    }

    /// When the oldest pending step was taken in.
    pub(super) fn oldest(&mut self) -> Option<Moment> {
        self.clear_front();
        self.order.front().map(|(_, at, _)| *at)
    }

    /// How many steps are pending.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// How many keys have something pending.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    fn add_here(
        &mut self,
        before: Option<&Arc<Entry>>,
        after: &Arc<Entry>,
        initial: bool,
        cause: Cause,
        now: Moment,
    ) {
        let steps = self.pending.entry(after.key().clone()).or_default();
        if let Some(here) = &mut steps.here {
            here.after = Arc::clone(after);
            here.cause = cause;
            return;
        }
        self.last_number += 1;
        let number = self.last_number;
        steps.here = Some(Here { number, before: before.cloned(), after: Arc::clone(after), initial, cause });
        self.steps += 1;
        self.place(number, after.key(), now);
    }

    fn add_gone(&mut self, last: &Arc<Entry>, observed: bool, now: Moment) {
        let key = last.key();
        let steps = self.pending.entry(key.clone()).or_default();
        match steps.here.take() {
            // The handler never saw it: there is nothing to tell. How the life before it ended is still to be told, if it is.
            Some(Here { before: None, .. }) if !self.brief || steps.gone.is_some() => {
                self.steps -= 1;
                if steps.gone.is_none() {
                    self.pending.remove(key);
                }
            }
            Some(Here { number, .. }) => steps.gone = Some(Gone { number, last: Arc::clone(last), observed }),
            None => {
                self.last_number += 1;
                let number = self.last_number;
                steps.gone = Some(Gone { number, last: Arc::clone(last), observed });
                self.steps += 1;
                self.place(number, key, now);
            }
        }
    }

    /// Puts a new step at the end. Settled places are cleared away once they are the greater part.
    fn place(&mut self, number: u64, key: &Key, now: Moment) {
        self.order.push_back((number, now, key.clone()));
        if self.order.len() > 2 * self.steps + 64 {
            let order = std::mem::take(&mut self.order);
            self.order = order.into_iter().filter(|(number, _, key)| self.is_pending(*number, key)).collect();
        }
    }

    /// Gives back the memory that a burst took, the initial set above all: an idle handler must not cost what a busy one does.
    fn let_go(&mut self) {
        /// What a batch of the pump brings stays in place.
        const USUAL: usize = 256;
        debug_assert!(self.pending.is_empty(), "every pending step has a place");
        self.order.shrink_to(USUAL);
        self.pending.shrink_to(USUAL);
    }

    /// Takes away places in front whose step is settled.
    fn clear_front(&mut self) {
        while let Some((number, _, key)) = self.order.front() {
            if self.is_pending(*number, key) {
                break;
            }
            self.order.pop_front();
        }
    }

    fn is_pending(&self, number: u64, key: &Key) -> bool {
        self.pending.get(key).is_some_and(|steps| {
            let gone = steps.gone.as_ref().map(|gone| gone.number);
            let here = steps.here.as_ref().map(|here| here.number);
            gone == Some(number) || here == Some(number)
        })
    }
}

impl Steps {
    /// Takes the step with this number, if it is still pending.
    fn take(&mut self, number: u64) -> Option<Told> {
        if let Some(Gone { last, observed, .. }) = self.gone.take_if(|gone| gone.number == number) {
            return Some(Told::Deleted { last, observed });
        }
        let Here { before, after, initial, cause, .. } = self.here.take_if(|here| here.number == number)?;
        Some(match before {
            Some(old) => Told::Updated { old, new: after, cause },
            None => Told::Added { entry: after, initial },
        })
    }
}

#[cfg(test)]
#[path = "merged_tests.rs"]
mod tests;
