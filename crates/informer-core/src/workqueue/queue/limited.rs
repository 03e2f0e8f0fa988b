//! The retry limit in the queue: retries that are due are held until the limit allows them to start.
//!
//! Invariant: the throttle counts exactly the keys that are queued or processing as limited retries. Without a
//! limit, no key is held.

use std::hash::Hash;

use super::{Attempt, Queue};
use crate::time::Moment;
use crate::workqueue::retry_limit::{MAX_DELAY_AFTER_OUTAGE, Recovery};
use crate::workqueue::sampling::Stamp;
use crate::workqueue::slot::Slot;
use crate::workqueue::slots::Stage;

impl<T: Eq + Hash + Clone> Queue<T> {
    /// Holds a key whose delay has passed if it is a retry and retries are limited; returns whether it is
    /// held. A key that is queued or processing is not, since it causes no attempt of its own.
    pub(super) fn hold(&mut self, slot: Slot) -> bool {
        let entry = &mut self.slots.entries[slot];
        let is_retry = std::mem::take(&mut entry.is_delayed_retry);
        if !is_retry || self.throttle.is_none() {
            return false;
        }
        if entry.stage == Stage::Idle {
            entry.stage = Stage::Held;
            self.held.push(&mut self.slots.entries, slot);
        }
        self.slots.entries[slot].stage == Stage::Held
    }

    /// Makes a held key idle; returns whether it was held.
    pub(super) fn unhold(&mut self, slot: Slot) -> bool {
        let is_held = self.slots.entries[slot].stage == Stage::Held;
        if is_held {
            self.held.remove(&mut self.slots.entries, slot);
            self.slots.entries[slot].stage = Stage::Idle;
        }
        is_held
    }

    /// Queues as many held keys as the limit allows; returns how many.
    pub(super) fn release_held(&mut self, now: Moment) -> usize {
        let mut released = 0;
        while let Some(slot) = self.held.first()
            && let Some(throttle) = &mut self.throttle
            && throttle.try_start(now)
        {
            self.unhold(slot);
            let entry = &mut self.slots.entries[slot];
            entry.is_limited_retry = true;
            let priority = entry.priority;
            released += usize::from(self.enqueue(now, slot, priority));
        }
        released
    }

    /// Returns when the next held key can be queued; `None` if there is none, or if a retry must end first.
    pub(super) fn next_held_start(&self) -> Option<Moment> {
        self.held.first()?;
        self.throttle.as_ref()?.next_start()
    }

    /// Drops all held keys.
    pub(super) fn drop_held(&mut self) {
        while let Some(slot) = self.held.first() {
            self.unhold(slot);
            self.counts.dropped += 1;
            self.remove_if_unused(slot);
        }
    }

    /// Records the result of an attempt in the throttle.
    pub(super) fn end_attempt(&mut self, now: Moment, slot: Slot, attempt: Attempt) {
        let Some(throttle) = &mut self.throttle else { return };
        let is_retry = std::mem::take(&mut self.slots.entries[slot].is_limited_retry);
        if is_retry {
            throttle.end();
        }
        match attempt {
            Attempt::Failed => throttle.fail(now),
            Attempt::Undecided => {}
            Attempt::Succeeded => {
                if throttle.succeed(now, is_retry) == Recovery::OutageOver {
                    self.shorten_retry_delays(now);
                }
            }
        }
    }

    /// Spreads the retries that are due later than [`MAX_DELAY_AFTER_OUTAGE`] evenly over that time, in their
    /// order.
    fn shorten_retry_delays(&mut self, now: Moment) {
        let latest = Stamp::from(now + MAX_DELAY_AFTER_OUTAGE);
        let entries = &self.slots.entries;
        let is_late = |(slot, due): &(Slot, Stamp)| *due > latest && entries[*slot].is_delayed_retry;
        let mut late: Vec<(Stamp, Slot)> =
            self.delays.iter().filter(is_late).map(|(slot, due)| (due, slot)).collect();
        late.sort_unstable();
        let count = u32::try_from(late.len()).unwrap_or(u32::MAX);
        for (position, (_, slot)) in (1..=count).zip(late) {
            let delay = MAX_DELAY_AFTER_OUTAGE.saturating_mul(position) / count;
            self.delays.set(slot, (now + delay).into());
        }
    }
}
