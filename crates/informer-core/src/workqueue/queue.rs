//! The machine: which keys wait, which are held, which come later, and what a shutdown means for them.
//!
//! Invariants: a key is queued only if nobody holds it, and held by one ticket at most; what was added while it was held is queued when
//! that ends; a key of which nothing is known any more has no entry.

use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::delays::Delays;
use super::limiter::RateLimiter;
use super::metrics::{Histogram, QueueMetrics};
use super::priority::Priority;
use super::priority_levels::{List, PriorityLevels};
use super::sampling::{SamplingRate, Stamp};
use super::slot::Slot;
use super::slots::{Slots, Stage};
use crate::time::Moment;

/// Says which turn of which key somebody holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkToken {
    slot: Slot,
    generation: u32,
    sampled: bool,
}

impl WorkToken {
    /// Whether it is of interest when its turn ends: if not, [`Queue::done`] may be given any moment.
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }
}

/// A key that was taken.
#[derive(Debug, Clone)]
pub struct TakenKey<T> {
    /// The key.
    pub key: T,
    /// To end its turn with.
    pub token: WorkToken,
    /// The priority it was taken with.
    pub priority: Priority,
}

/// The turn was ended before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the key is not held with this ticket")]
pub struct StaleToken;

/// Keys that need work (C14): one holder per key, at least one turn after each accepted add, one more turn for what is added meanwhile.
///
/// ```
/// use informer_core::Moment;
/// use informer_core::workqueue::{ExponentialBackoff, Priority, Queue};
///
/// let mut queue = Queue::new(ExponentialBackoff::default());
/// let now = Moment::default();
/// queue.add(now, "a", Priority::NORMAL);
/// let held = queue.take(now).unwrap();
/// queue.add(now, "a", Priority::NORMAL);
/// assert!(queue.take(now).is_none(), "somebody holds it");
/// queue.done(now, held.token)?;
/// assert_eq!(queue.take(now).unwrap().key, "a");
/// # Ok::<(), informer_core::workqueue::StaleToken>(())
/// ```
pub struct Queue<T> {
    slots: Slots<T>,
    queued: PriorityLevels,
    /// In the order in which they were taken.
    processing: List,
    delays: Delays,
    limiter: Box<dyn RateLimiter<T>>,
    phase: Phase,
    sampling_rate: SamplingRate,
    counts: Counts,
    last_generation: u32,
}

/// Whether keys are taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Nothing new; what is delayed and what is tried again still comes if `delayed`.
    Closing {
        delayed: bool,
    },
}

#[derive(Debug, Default)]
struct Counts {
    adds: u64,
    retries: u64,
    abandoned: u64,
    dropped: u64,
    dirty: usize,
    /// The moments at which what is held was taken, added up.
    taken: Duration,
    queue_duration: SampledHistogram,
    work_duration: SampledHistogram,
}

/// Durations of turns, of which not all are timed.
#[derive(Debug, Default)]
struct SampledHistogram {
    histogram: Histogram,
    /// Turns that were not, since one was.
    skipped: u32,
}

impl SampledHistogram {
    /// A turn that is timed counts for those before it that were not.
    #[inline]
    fn count(&mut self, duration: Option<Duration>) {
        match duration {
            Some(duration) => self.histogram.observe_times(duration, 1 + std::mem::take(&mut self.skipped)),
            None => self.skipped = self.skipped.saturating_add(1),
        }
    }
}

impl<T: Eq + Hash + Clone> Queue<T> {
    /// An empty queue whose retries wait as long as `limiter` says.
    pub fn new(limiter: impl RateLimiter<T> + 'static) -> Self {
        Queue {
            slots: Slots::new(),
            queued: PriorityLevels::default(),
            processing: List::default(),
            delays: Delays::default(),
            limiter: Box::new(limiter),
            phase: Phase::Open,
            sampling_rate: SamplingRate::default(),
            counts: Counts::default(),
            last_generation: 0,
        }
    }

    /// Whether it is of interest when the next add comes: if not, [`Queue::add`] may be given any moment.
    pub fn samples_next_add(&self) -> bool {
        self.sampling_rate.is_sampled(self.counts.adds)
    }

    /// Whether keys are taken faster than it is worth going to sleep in between: more than a hundred thousand a second.
    pub fn is_fast(&self) -> bool {
        self.sampling_rate.is_fast()
    }

    /// Asks for a turn of a key; whether there is now one more to take. A key that waits already waits on, with the higher of the two
    /// priorities.
    pub fn add(&mut self, now: Moment, key: T, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let slot = self.slots.find_or_insert(key);
        self.enqueue(now, slot, priority)
    }

    /// Asks for a turn of a key in a while; whether there is now one more to take. If it is delayed already, the earlier moment counts.
    pub fn add_after(&mut self, now: Moment, key: T, delay: Duration, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        self.counts.retries += 1;
        let slot = self.slots.find_or_insert(key);
        self.delay(now, slot, delay, priority)
    }

    /// Asks for a turn of a key after as long as the limiter says.
    pub fn add_rate_limited(&mut self, now: Moment, key: T, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let delay = wait(&mut *self.limiter, now, &key);
        self.add_after(now, key, delay, priority)
    }

    /// Takes the next key, if there is one.
    pub fn take(&mut self, now: Moment) -> Option<TakenKey<T>> {
        self.handle_timeout(now);
        let slot = self.queued.next()?;
        let key = self.slots.key(slot)?.clone();
        let (stamp, entries) = (Stamp::from(now), &mut self.slots.entries);
        self.queued.remove(entries, slot);
        self.processing.push(entries, slot);
        self.last_generation = self.last_generation.wrapping_add(1);
        let (turn, timed) =
            (self.last_generation, self.sampling_rate.is_sampled(u64::from(self.last_generation)));
        self.sampling_rate.count(stamp);
        let entry = &mut entries[slot];
        (entry.stage, entry.generation, entry.taken_at) = (Stage::Processing, turn, stamp);
        self.counts.queue_duration.count(entry.queued_at.map(|asked| stamp.since(asked)));
        self.counts.taken = self.counts.taken.saturating_add(stamp.since_origin());
        Some(TakenKey {
            key,
            token: WorkToken { slot, generation: turn, sampled: timed },
            priority: entry.priority,
        })
    }

    /// The key has been dealt with, and so have its failures.
    pub fn done(&mut self, now: Moment, ticket: WorkToken) -> Result<(), StaleToken> {
        self.limiter.forget(key_of(&self.slots, ticket)?);
        self.release(now, ticket);
        Ok(())
    }

    /// The turn is over, and another one follows after as long as the limiter says; how long that is.
    pub fn retry(&mut self, now: Moment, ticket: WorkToken) -> Result<Duration, StaleToken> {
        let delay = wait(&mut *self.limiter, now, key_of(&self.slots, ticket)?);
        self.requeue(now, ticket, delay);
        Ok(delay)
    }

    /// The turn is over, and another one follows after a while.
    pub fn retry_after(&mut self, now: Moment, ticket: WorkToken, delay: Duration) -> Result<(), StaleToken> {
        key_of(&self.slots, ticket)?;
        self.requeue(now, ticket, delay);
        Ok(())
    }

    /// Nobody said how the turn ended: it is tried again like one that failed, and counted.
    pub fn abandon(&mut self, now: Moment, ticket: WorkToken) -> Result<Duration, StaleToken> {
        let delay = self.retry(now, ticket)?;
        self.counts.abandoned += 1;
        Ok(delay)
    }

    /// Forgets the failures of a key.
    pub fn forget(&mut self, key: &T) {
        self.limiter.forget(key);
    }

    /// How often a key was tried again since its failures were last forgotten.
    pub fn retries(&self, key: &T) -> u32 {
        self.limiter.retries(key)
    }

    /// Takes back what was to come later for a key; whether there was something. A turn that it waits for already stays.
    pub fn cancel(&mut self, key: &T) -> bool {
        let Some(slot) = self.slots.find(key) else { return false };
        let cancelled = self.delays.cancel(slot);
        self.forget_if_idle(slot);
        cancelled
    }

    /// Queues what is due; how many keys are there to take that were not.
    pub fn handle_timeout(&mut self, now: Moment) -> usize {
        let mut more = 0;
        if self.delays.len() > 0 {
            while let Some(slot) = self.delays.pop(now.into()) {
                more += usize::from(self.enqueue(now, slot, self.slots.entries[slot].priority));
            }
        }
        more
    }

    /// When [`Queue::handle_timeout`] has something to do.
    pub fn next_deadline(&self) -> Option<Moment> {
        self.delays.next().map(Moment::from)
    }

    /// Takes nothing new in. What is queued can still be taken, what is delayed is dropped.
    pub fn shutdown(&mut self) {
        self.close(false);
    }

    /// Takes nothing new in, but lets what is delayed come, and what is tried again.
    pub fn shutdown_including_delayed(&mut self) {
        self.close(true);
    }

    /// Takes nothing new in and drops everything that nobody holds.
    pub fn shutdown_now(&mut self) {
        self.close(false);
        while let Some(slot) = self.queued.first() {
            self.queued.remove(&mut self.slots.entries, slot);
            self.slots.entries[slot].stage = Stage::Idle;
            self.slots.remove(slot);
            self.counts.dropped += 1;
        }
        let held: Vec<Slot> = self.processing.iter(&self.slots.entries).collect();
        for slot in held {
            let entry = &mut self.slots.entries[slot];
            if entry.stage == Stage::ProcessingDirty {
                entry.stage = Stage::Processing;
                self.counts.dirty -= 1;
                self.counts.dropped += 1;
            }
        }
    }

    /// Whether it takes nothing new in.
    pub fn is_shutting_down(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Whether there will never be anything to take any more.
    pub fn is_over(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::Closing { delayed: false } => self.queued.len() == 0 && self.counts.dirty == 0,
            Phase::Closing { delayed: true } => self.slots.len() == 0,
        }
    }

    /// Whether it is shut down, and nothing is queued, held or to come.
    pub fn is_drained(&self) -> bool {
        self.is_shutting_down() && self.slots.len() == 0
    }

    /// How many keys can be taken.
    pub fn len(&self) -> usize {
        self.queued.len()
    }

    /// Whether there is nothing to take.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that can be taken, the highest priority first.
    pub fn queued(&self) -> impl Iterator<Item = &T> {
        self.queued.iter(&self.slots.entries).filter_map(|slot| self.slots.key(slot))
    }

    /// The keys that are held, the one that is held longest first, and since when.
    pub fn processing(&self) -> impl Iterator<Item = (&T, Moment)> {
        let since = |slot| Moment::from(self.slots.entries[slot].taken_at);
        self.processing
            .iter(&self.slots.entries)
            .filter_map(move |slot| Some((self.slots.key(slot)?, since(slot))))
    }

    /// The keys that come later, and when; in no order.
    pub fn delayed(&self) -> impl Iterator<Item = (&T, Moment)> {
        self.delays.iter().filter_map(|(slot, at)| Some((self.slots.key(slot)?, at.into())))
    }

    /// The figures of the queue.
    pub fn metrics(&self, now: Moment) -> QueueMetrics {
        let held = u32::try_from(self.processing.len()).unwrap_or(u32::MAX);
        let longest = self.processing().next().map(|(_, since)| now - since);
        QueueMetrics {
            adds: self.counts.adds,
            depth: self.queued.len() + self.counts.dirty,
            processing: self.processing.len(),
            delayed: self.delays.len(),
            retries: self.counts.retries,
            abandoned: self.counts.abandoned,
            dropped: self.counts.dropped,
            queue_duration: self.counts.queue_duration.histogram.clone(),
            work_duration: self.counts.work_duration.histogram.clone(),
            unfinished_work: now.since_origin().saturating_mul(held).saturating_sub(self.counts.taken),
            longest_running: longest.unwrap_or_default(),
        }
    }

    /// Asks for a turn of a known key; whether there is now one more to take.
    fn enqueue(&mut self, now: Moment, slot: Slot, priority: Priority) -> bool {
        let timed = self.samples_next_add();
        let entry = &mut self.slots.entries[slot];
        match entry.stage {
            Stage::Idle => {
                let delayed = self.delays.contains(slot);
                entry.priority = if delayed { priority.max(entry.priority) } else { priority };
                (entry.stage, entry.queued_at) = (Stage::Queued, timed.then(|| now.into()));
                self.queued.push(&mut self.slots.entries, slot);
                self.counts.adds += 1;
                return true;
            }
            Stage::Queued if priority > entry.priority => {
                self.queued.remove(&mut self.slots.entries, slot);
                self.slots.entries[slot].priority = priority;
                self.queued.push(&mut self.slots.entries, slot);
            }
            Stage::Queued => {}
            Stage::Processing => {
                (entry.stage, entry.priority) = (Stage::ProcessingDirty, priority);
                entry.queued_at = timed.then(|| now.into());
                self.counts.adds += 1;
                self.counts.dirty += 1;
            }
            Stage::ProcessingDirty => entry.priority = priority.max(entry.priority),
        }
        false
    }

    fn delay(&mut self, now: Moment, slot: Slot, delay: Duration, priority: Priority) -> bool {
        if delay.is_zero() {
            return self.enqueue(now, slot, priority);
        }
        let entry = &mut self.slots.entries[slot];
        // While it waits for a turn, that turn's priority is what counts.
        if entry.stage == Stage::Idle {
            let delayed = self.delays.contains(slot);
            entry.priority = if delayed { priority.max(entry.priority) } else { priority };
        }
        self.delays.set(slot, (now + delay).into());
        false
    }

    /// Ends a turn and asks for another.
    fn requeue(&mut self, now: Moment, ticket: WorkToken, delay: Duration) {
        if self.phase == (Phase::Closing { delayed: false }) {
            self.counts.dropped += 1;
        } else {
            self.counts.retries += 1;
            self.delay(now, ticket.slot, delay, self.slots.entries[ticket.slot].priority);
        }
        self.release(now, ticket);
    }

    /// Ends a turn: the key is queued again if that was asked for meanwhile.
    fn release(&mut self, now: Moment, WorkToken { slot, sampled: timed, .. }: WorkToken) {
        self.processing.remove(&mut self.slots.entries, slot);
        let entry = &mut self.slots.entries[slot];
        self.counts.taken = self.counts.taken.saturating_sub(entry.taken_at.since_origin());
        self.counts.work_duration.count(timed.then(|| Stamp::from(now).since(entry.taken_at)));
        if entry.stage == Stage::ProcessingDirty {
            entry.stage = Stage::Queued;
            self.counts.dirty -= 1;
            self.queued.push(&mut self.slots.entries, slot);
            return;
        }
        entry.stage = Stage::Idle;
        self.forget_if_idle(slot);
    }

    fn close(&mut self, delayed: bool) {
        self.phase = match self.phase {
            // Once delays are dropped they stay so.
            Phase::Closing { delayed: false } => self.phase,
            _ => Phase::Closing { delayed },
        };
        if delayed {
            return;
        }
        for slot in self.delays.clear() {
            self.counts.dropped += 1;
            self.forget_if_idle(slot);
        }
    }

    fn forget_if_idle(&mut self, slot: Slot) {
        if self.slots.entries[slot].stage == Stage::Idle && !self.delays.contains(slot) {
            self.slots.remove(slot);
        }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        self.delays.check();
        let entries = &self.slots.entries;
        let queued: Vec<Slot> = self.queued.iter(entries).collect();
        assert_eq!(queued.len(), self.queued.len(), "the lists are whole");
        assert!(queued.iter().all(|slot| entries[*slot].stage == Stage::Queued));
        let held: Vec<Slot> = self.processing.iter(entries).collect();
        assert_eq!(held.len(), self.processing.len(), "the list of what is held is whole");
        assert!(
            held.iter()
                .all(|slot| matches!(entries[*slot].stage, Stage::Processing | Stage::ProcessingDirty))
        );
        let dirty = held.iter().filter(|slot| entries[**slot].stage == Stage::ProcessingDirty).count();
        assert_eq!(dirty, self.counts.dirty);
        let away = self.delays.iter().filter(|(slot, _)| entries[*slot].stage == Stage::Idle).count();
        assert_eq!(self.slots.len(), queued.len() + held.len() + away, "nothing is kept for nothing");
        assert!(self.phase != (Phase::Closing { delayed: false }) || self.delays.len() == 0);
    }
}

/// How long a key waits. A limiter that panics, which may be anybody's, must not keep the key.
fn wait<T>(limiter: &mut dyn RateLimiter<T>, now: Moment, key: &T) -> Duration {
    /// Long enough to be no hot loop.
    const LIMITER_PANIC_DELAY: Duration = Duration::from_secs(1);
    catch_unwind(AssertUnwindSafe(|| limiter.when(now, key))).unwrap_or(LIMITER_PANIC_DELAY)
}

/// The key that a ticket holds.
fn key_of<T: Eq + Hash>(slots: &Slots<T>, ticket: WorkToken) -> Result<&T, StaleToken> {
    let key = slots.key(ticket.slot).ok_or(StaleToken)?;
    let entry = &slots.entries[ticket.slot];
    let held = matches!(entry.stage, Stage::Processing | Stage::ProcessingDirty)
        && entry.generation == ticket.generation;
    if held { Ok(key) } else { Err(StaleToken) }
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("queued", &self.queued.len())
            .field("held", &self.processing.len())
            .field("delayed", &self.delays.len())
            .field("phase", &self.phase)
            .finish_non_exhaustive()
    }
}
