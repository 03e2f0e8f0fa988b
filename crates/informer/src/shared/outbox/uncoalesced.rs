//! Every state, up to a bound; past it, merged ones and word of how many were lost in them.
//!
//! Invariants: what is in the queue was taken in before anything that is merged; a change is told, pending, or counted as skipped. What is
//! only told again (a resync) is left out where there is no room: it carries no news.

use super::coalescing::CoalescingOutbox;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
use informer_core::{Change, Entry, Moment, Object};
use std::collections::VecDeque;
use std::sync::Arc;

/// Pending events, oldest first.
#[derive(Debug)]
pub(in crate::shared) struct UncoalescedOutbox {
    bound: usize,
    queue: VecDeque<Step>,
    /// How many steps of the queue count against the bound: the initial set does not, it is one state per object anyway.
    counted: usize,
    last_number: u64,
    /// Every number up to this one belongs to the initial set.
    initial_end: Option<u64>,
    /// What came while the queue was full.
    merged: CoalescingOutbox,
    /// Changes that went to `merged`, how many steps of it were told, and how many changes were told to be skipped.
    taken: u64,
    delivered: u64,
    skipped: u64,
}

#[derive(Debug)]
struct Step {
    number: u64,
    at: Moment,
    counted: bool,
    event: Event<Untyped>,
}

impl UncoalescedOutbox {
    pub(super) fn new(bound: usize, brief: bool) -> Self {
        Self {
            bound: bound.max(1),
            queue: VecDeque::new(),
            counted: 0,
            last_number: 0,
            initial_end: None,
            merged: CoalescingOutbox::new(brief),
            taken: 0,
            delivered: 0,
            skipped: 0,
        }
    }

    /// Makes room for so many changes of the initial set, which no bound holds up.
    pub(super) fn reserve(&mut self, changes: usize) {
        self.queue.reserve(changes);
    }

    pub(super) fn add(&mut self, change: &Change, initial: bool, now: Moment) {
        let object = |entry: &Arc<Entry>| Object::new(Arc::clone(entry));
        let event = match change {
            Change::Added(entry) => Event::Added { object: object(entry), initial },
            Change::Updated { old, new } => {
                Event::Updated { old: object(old), new: object(new), cause: UpdateCause::Change }
            }
            Change::Deleted { last, observed } => Event::Deleted { last: object(last), observed: *observed },
        };
        if self.has_room() || (initial && self.merged.is_empty()) {
            return self.push(event, !initial, now);
        }
        self.taken += 1;
        self.merged.add(change, initial, now);
    }

    /// An object that is to be told again; where there is no room it is not, since nothing is lost by it.
    pub(super) fn add_resync(&mut self, entry: &Arc<Entry>, now: Moment) {
        if self.has_room() {
            let (old, new) = (Object::new(Arc::clone(entry)), Object::new(Arc::clone(entry)));
            self.push(Event::Updated { old, new, cause: UpdateCause::Resync }, true, now);
        }
    }

    pub(super) fn mark_initial_list_complete(&mut self) {
        self.initial_end.get_or_insert(self.last_number);
        self.merged.mark_initial_list_complete();
    }

    pub(super) fn pop(&mut self) -> Option<Delivery<Untyped>> {
        if let Some(step) = self.queue.pop_front() {
            self.counted -= usize::from(step.counted);
            if self.queue.is_empty() {
                self.queue.shrink_to(256);
            }
            return Some(Delivery::Event(step.event));
        }
        let lost = self.lost();
        if lost > 0 {
            self.skipped += lost;
            return Some(Delivery::Lagged { skipped: lost });
        }
        let event = self.merged.pop()?;
        self.delivered += 1;
        Some(Delivery::Event(event))
    }

    pub(super) fn initial_list_delivered(&mut self) -> bool {
        let queued = self.queue.front().map(|step| step.number);
        let queue_is_told = self.initial_end.is_some_and(|end| queued.is_none_or(|number| number > end));
        queue_is_told && self.merged.initial_list_delivered()
    }

    pub(super) fn oldest(&mut self) -> Option<Moment> {
        self.queue.front().map(|step| step.at).or_else(|| self.merged.oldest())
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.merged.steps()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.merged.is_empty() && self.lost() == 0
    }

    /// Events that were merged away and not yet told to be.
    fn lost(&self) -> u64 {
        self.taken - self.delivered - self.merged.steps() as u64 - self.skipped
    }

    /// Nothing may overtake what is merged.
    fn has_room(&self) -> bool {
        self.merged.is_empty() && self.counted < self.bound
    }

    fn push(&mut self, event: Event<Untyped>, counted: bool, now: Moment) {
        self.last_number += 1;
        self.counted += usize::from(counted);
        self.queue.push_back(Step { number: self.last_number, at: now, counted, event });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{added, deleted, text, updated};

    fn now() -> Moment {
        Moment::default()
    }

    fn drain(outbox: &mut UncoalescedOutbox) -> String {
        std::iter::from_fn(|| outbox.pop()).map(|told| text(&told)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_state_is_told_up_to_the_bound() {
        let mut outbox = UncoalescedOutbox::new(3, false);
        for change in [added("a", 1), updated("a", 1, 2), updated("a", 2, 3)] {
            outbox.add(&change, false, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 ~a@1>a@2 ~a@2>a@3");
        assert!(outbox.is_empty());
    }

    #[test]
    fn past_the_bound_states_are_merged_and_counted() {
        let mut outbox = UncoalescedOutbox::new(2, false);
        let changes =
            [added("a", 1), updated("a", 1, 2), updated("a", 2, 3), updated("a", 3, 4), added("b", 5)];
        for change in &changes {
            outbox.add(change, false, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 ~a@1>a@2 lagged 1 ~a@2>a@4 +b@5");
        // It has caught up, and gets every state again.
        outbox.add(&updated("a", 4, 6), false, now());
        outbox.add(&updated("a", 6, 7), false, now());
        assert_eq!(drain(&mut outbox), "~a@4>a@6 ~a@6>a@7");
    }

    #[test]
    fn an_object_that_came_and_went_counts_as_two() {
        let mut outbox = UncoalescedOutbox::new(1, false);
        for change in [added("a", 1), added("b", 2), deleted("b", 3)] {
            outbox.add(&change, false, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 lagged 2");
        assert!(outbox.is_empty());
    }

    /// C8 for controllers: no more is kept than one transition per key, and yet no key is left out.
    #[test]
    fn of_what_came_and_went_the_end_is_told_if_that_is_asked_for() {
        let mut outbox = UncoalescedOutbox::new(1, true);
        for change in [added("a", 1), added("b", 2), updated("b", 2, 3), deleted("b", 4), added("c", 5)] {
            outbox.add(&change, false, now());
        }
        assert_eq!(drain(&mut outbox), "+a@1 lagged 2 -b@4 +c@5");
        // The next life of it comes behind.
        for change in [added("a", 6), added("b", 7), deleted("b", 8), added("b", 9)] {
            outbox.add(&change, false, now());
        }
        assert_eq!(drain(&mut outbox), "+a@6 lagged 1 -b@8 +b@9");
        assert!(outbox.is_empty());
    }

    #[test]
    fn the_initial_set_does_not_count_against_the_bound() {
        let mut outbox = UncoalescedOutbox::new(1, false);
        for name in ["a", "b", "c"] {
            outbox.add(&added(name, 1), true, now());
        }
        outbox.mark_initial_list_complete();
        outbox.add(&updated("a", 1, 2), false, now());
        assert!(!outbox.initial_list_delivered());
        assert_eq!(drain(&mut outbox), "+a@1! +b@1! +c@1! ~a@1>a@2");
        assert!(outbox.initial_list_delivered());
    }
}
