//! The state machine of the queue: which keys are queued, processing or delayed, and the effect of a
//! shutdown.
//!
//! Invariants: a key is queued only if it is not processing, and processing with at most one token. A key
//! that is added while it is processing is queued when the processing ends. A key that is neither queued,
//! processing, delayed nor held by the retry limit has no entry.

mod inspect;
mod limited;

use std::hash::Hash;
use std::time::Duration;

use super::delays::Delays;
use super::limiter::RateLimiter;
use super::metrics::Histogram;
use super::priority::Priority;
use super::priority_levels::{List, PriorityLevels};
use super::retries::Retries;
use super::retry_limit::{RetryLimit, RetryThrottle};
use super::sampling::{SamplingRate, Stamp};
use super::slot::Slot;
use super::slots::{Slots, Stage};
use crate::time::Moment;

/// The right to finish one processing of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkToken {
    slot: Slot,
    generation: u32,
    sampled: bool,
}

impl WorkToken {
    /// Returns whether the end of this processing is measured. If not, any moment may be passed to
    /// [`Queue::done`].
    pub fn is_sampled(&self) -> bool {
        self.sampled
    }
}

/// A key taken from the queue.
#[derive(Debug, Clone)]
pub struct TakenKey<T> {
    /// The key.
    pub key: T,
    /// The token that finishes the processing.
    pub token: WorkToken,
    /// The priority with which the key was queued.
    pub priority: Priority,
}

/// The error for a token whose processing was finished before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("stale work token: this processing of the key was finished before")]
pub struct StaleToken;

/// A queue of keys (C14): one worker per key, at least one processing after each accepted add, and one more
/// if the key is added during processing.
///
/// ```
/// # use informer_core::Moment;
/// # use informer_core::workqueue::{ExponentialBackoff, Priority, Queue};
///
/// let mut queue = Queue::new(ExponentialBackoff::default());
/// let now = Moment::default();
/// queue.add(now, "a", Priority::NORMAL);
/// let taken = queue.take(now).unwrap();
/// queue.add(now, "a", Priority::NORMAL);
/// assert!(queue.take(now).is_none(), "the key is processing");
/// queue.done(now, taken.token)?;
/// assert_eq!(queue.take(now).unwrap().key, "a");
/// # Ok::<(), informer_core::workqueue::StaleToken>(())
/// ```
pub struct Queue<T> {
    slots: Slots<T>,
    queued: PriorityLevels,
    /// Ordered by when they were taken.
    processing: List,
    delays: Delays,
    retries: Retries<T>,
    /// `None` if retries are not limited.
    throttle: Option<RetryThrottle>,
    /// Retries that are due and wait for the throttle, in the order in which they became due.
    held: List,
    phase: Phase,
    sampling_rate: SamplingRate,
    counts: Counts,
    last_generation: u32,
}

/// Whether new keys are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// New keys are rejected. Delayed keys and retries are dropped unless `keeps_delayed` is set.
    Closing {
        keeps_delayed: bool,
    },
}

/// Why a key is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The caller chose the delay.
    Request,
    /// The key has failed.
    Retry,
}

/// How an attempt to process a key ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Succeeded,
    Failed,
    /// Neither: retried after a delay of the caller, given up, or dropped.
    Undecided,
}

#[derive(Debug, Default)]
struct Counts {
    adds: u64,
    retries: u64,
    abandoned: u64,
    dropped: u64,
    /// Number of keys that are processing and were added again.
    dirty: usize,
    /// Sum of the moments at which the processing keys were taken, to compute the unfinished work.
    taken: Duration,
    queue_duration: SampledHistogram,
    work_duration: SampledHistogram,
}

/// A histogram of durations of which only some are measured.
#[derive(Debug, Default)]
struct SampledHistogram {
    histogram: Histogram,
    /// Number of unmeasured durations since the last measured one.
    skipped: u32,
}

impl SampledHistogram {
    /// Counts a duration, or `None` for an unmeasured one. A measured duration also counts for the unmeasured
    /// ones before it.
    #[inline]
    fn count(&mut self, duration: Option<Duration>) {
        match duration {
            Some(duration) => self.histogram.observe_times(duration, 1 + std::mem::take(&mut self.skipped)),
            None => self.skipped = self.skipped.saturating_add(1),
        }
    }
}

impl<T: Eq + Hash + Clone> Queue<T> {
    /// Creates an empty queue whose retries are delayed by `limiter`.
    pub fn new(limiter: impl RateLimiter<T> + 'static) -> Self {
        Queue {
            slots: Slots::new(),
            queued: PriorityLevels::default(),
            processing: List::default(),
            delays: Delays::default(),
            retries: Retries::new(limiter),
            throttle: None,
            held: List::default(),
            phase: Phase::Open,
            sampling_rate: SamplingRate::default(),
            counts: Counts::default(),
            last_generation: 0,
        }
    }

    /// Limits the retries of all keys together, in addition to the delays of each key.
    #[must_use]
    pub fn with_retry_limit(self, limit: RetryLimit) -> Self {
        Queue { throttle: Some(RetryThrottle::new(limit)), ..self }
    }

    /// Returns whether the time of the next add is measured. If not, any moment may be passed to
    /// [`Queue::add`].
    pub fn samples_next_add(&self) -> bool {
        self.sampling_rate.is_sampled(self.counts.adds)
    }

    /// Returns whether keys are taken so fast that a worker should not sleep in between: more than 100,000
    /// per second.
    pub fn is_fast(&self) -> bool {
        self.sampling_rate.is_fast()
    }

    /// Adds a key, unless the queue is shutting down; returns whether one more key can be taken now.
    ///
    /// A key that is already queued stays queued, with the higher of both priorities.
    pub fn add(&mut self, now: Moment, key: T, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let slot = self.slots.find_or_insert(key);
        self.enqueue(now, slot, priority)
    }

    /// Adds a key after a delay, like [`Queue::add`].
    ///
    /// If the key is already delayed, the earlier moment is used.
    pub fn add_after(&mut self, now: Moment, key: T, delay: Duration, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        self.counts.retries += 1;
        let slot = self.slots.find_or_insert(key);
        self.delay(now, slot, delay, priority, Cause::Request)
    }

    /// Adds a key after the delay that the limiter returns, and records a failure of the key.
    ///
    /// If the previous delay of the key has not passed, the failure does not count, and the rest of that delay
    /// is used.
    pub fn add_rate_limited(&mut self, now: Moment, key: T, priority: Priority) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let delay = self.retries.fail(now, &key);
        self.counts.retries += 1;
        let slot = self.slots.find_or_insert(key);
        let is_added = self.delay(now, slot, delay, priority, Cause::Retry);
        // A limited retry without a delay is due already.
        is_added || (delay.is_zero() && self.throttle.is_some() && self.handle_timeout(now) > 0)
    }

    /// Takes the next key, if there is one, and marks it as processing.
    pub fn take(&mut self, now: Moment) -> Option<TakenKey<T>> {
        self.handle_timeout(now);
        let slot = self.queued.next()?;
        let key = self.slots.key(slot)?.clone();
        let (stamp, entries) = (Stamp::from(now), &mut self.slots.entries);
        self.queued.remove(entries, slot);
        self.processing.push(entries, slot);
        self.last_generation = self.last_generation.wrapping_add(1);
        let generation = self.last_generation;
        // The throttle needs the time of every end.
        let sampled = self.throttle.is_some() || self.sampling_rate.is_sampled(u64::from(generation));
        self.sampling_rate.count(stamp);
        let entry = &mut entries[slot];
        (entry.stage, entry.generation, entry.taken_at) = (Stage::Processing, generation, stamp);
        self.counts.queue_duration.count(entry.queued_at.map(|queued_at| stamp.since(queued_at)));
        self.counts.taken = self.counts.taken.saturating_add(stamp.since_origin());
        let taken =
            TakenKey { key, token: WorkToken { slot, generation, sampled }, priority: entry.priority };
        if entry.is_limited_retry {
            self.throttle.iter_mut().for_each(RetryThrottle::take);
            self.release_held(now);
        }
        Some(taken)
    }

    /// Finishes a successful processing and resets the failures of the key.
    pub fn done(&mut self, now: Moment, token: WorkToken) -> Result<(), StaleToken> {
        self.finish(now, token, Attempt::Succeeded)
    }

    /// Finishes a failed processing without a retry and resets the failures of the key. Unlike
    /// [`Queue::done`], this is no success for the retry limit.
    pub fn give_up(&mut self, now: Moment, token: WorkToken) -> Result<(), StaleToken> {
        self.finish(now, token, Attempt::Undecided)
    }

    /// Finishes a failed processing; unless a shutdown drops retries, the key is queued again after the delay
    /// that the limiter returns. Returns the delay.
    ///
    /// If the previous delay of the key has not passed, the failure does not count, and the rest of that delay
    /// is used.
    pub fn retry(&mut self, now: Moment, token: WorkToken) -> Result<Duration, StaleToken> {
        let delay = self.retries.fail(now, key_of(&self.slots, token)?);
        self.end_attempt(now, token.slot, Attempt::Failed);
        self.requeue(now, token, delay, Cause::Retry);
        Ok(delay)
    }

    /// Finishes the processing; unless a shutdown drops retries, the key is queued again after `delay`.
    pub fn retry_after(&mut self, now: Moment, token: WorkToken, delay: Duration) -> Result<(), StaleToken> {
        key_of(&self.slots, token)?;
        self.end_attempt(now, token.slot, Attempt::Undecided);
        self.requeue(now, token, delay, Cause::Request);
        Ok(())
    }

    /// Finishes a processing that ended without a result: the key is retried like a failed one and counted as
    /// abandoned.
    pub fn abandon(&mut self, now: Moment, token: WorkToken) -> Result<Duration, StaleToken> {
        let delay = self.retry(now, token)?;
        self.counts.abandoned += 1;
        Ok(delay)
    }

    /// Resets the failures of a key.
    pub fn forget(&mut self, key: &T) {
        self.retries.forget(key);
    }

    /// Returns the number of counted failures of a key since they were last reset.
    pub fn retries(&self, key: &T) -> u32 {
        self.retries.count(key)
    }

    /// Cancels the delay of a key; returns whether it was delayed. A key that is queued stays queued.
    pub fn cancel(&mut self, key: &T) -> bool {
        let Some(slot) = self.slots.find(key) else { return false };
        let cancelled = self.delays.cancel(slot) | self.unhold(slot);
        self.slots.entries[slot].is_delayed_retry = false;
        self.remove_if_unused(slot);
        cancelled
    }

    /// Queues the keys that are due, as far as the retry limit allows; returns how many more keys can be
    /// taken.
    pub fn handle_timeout(&mut self, now: Moment) -> usize {
        let mut added = 0;
        if self.delays.len() > 0 {
            while let Some(slot) = self.delays.pop(now.into()) {
                if !self.hold(slot) {
                    added += usize::from(self.enqueue(now, slot, self.slots.entries[slot].priority));
                }
            }
        }
        added + self.release_held(now)
    }

    /// Returns the next moment at which [`Queue::handle_timeout`] must be called.
    pub fn next_deadline(&self) -> Option<Moment> {
        let due = self.delays.next_due().map(Moment::from);
        [due, self.next_held_start()].into_iter().flatten().min()
    }

    /// Rejects new keys, and drops delayed keys and retries. Queued keys can still be taken.
    pub fn shutdown(&mut self) {
        self.close(/* keeps_delayed */ false);
    }

    /// Rejects new keys, but still processes delayed keys and retries, unless an earlier shutdown drops them.
    pub fn shutdown_including_delayed(&mut self) {
        self.close(/* keeps_delayed */ true);
    }

    /// Rejects new keys and drops every key that is not processing.
    pub fn shutdown_now(&mut self) {
        self.shutdown();
        while let Some(slot) = self.queued.first() {
            self.queued.remove(&mut self.slots.entries, slot);
            if self.slots.entries[slot].is_limited_retry {
                self.throttle.iter_mut().for_each(RetryThrottle::take);
            }
            self.end_attempt(Moment::default(), slot, Attempt::Undecided);
            self.slots.entries[slot].stage = Stage::Idle;
            self.slots.remove(slot);
            self.counts.dropped += 1;
        }
        let processing: Vec<Slot> = self.processing.iter(&self.slots.entries).collect();
        for slot in processing {
            let entry = &mut self.slots.entries[slot];
            if entry.stage == Stage::ProcessingDirty {
                entry.stage = Stage::Processing;
                self.counts.dirty -= 1;
                self.counts.dropped += 1;
            }
        }
    }

    fn finish(&mut self, now: Moment, token: WorkToken, attempt: Attempt) -> Result<(), StaleToken> {
        self.retries.forget(key_of(&self.slots, token)?);
        self.end_attempt(now, token.slot, attempt);
        self.release(now, token);
        self.release_held(now);
        Ok(())
    }

    /// Adds a known key; returns whether one more key can be taken.
    fn enqueue(&mut self, now: Moment, slot: Slot, priority: Priority) -> bool {
        let sampled = self.samples_next_add();
        let was_held = self.unhold(slot);
        let entry = &mut self.slots.entries[slot];
        match entry.stage {
            Stage::Idle | Stage::Held => {
                let is_delayed = was_held || self.delays.contains(slot);
                entry.priority = if is_delayed { priority.max(entry.priority) } else { priority };
                (entry.stage, entry.queued_at) = (Stage::Queued, sampled.then(|| now.into()));
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
                entry.queued_at = sampled.then(|| now.into());
                self.counts.adds += 1;
                self.counts.dirty += 1;
            }
            Stage::ProcessingDirty => entry.priority = priority.max(entry.priority),
        }
        false
    }

    fn delay(&mut self, now: Moment, slot: Slot, delay: Duration, priority: Priority, cause: Cause) -> bool {
        let is_limited = cause == Cause::Retry && self.throttle.is_some();
        if delay.is_zero() && !is_limited {
            return self.enqueue(now, slot, priority);
        }
        let entry = &mut self.slots.entries[slot];
        // The priority of a queued or processing key is not changed by a delay.
        if matches!(entry.stage, Stage::Idle | Stage::Held) {
            let is_delayed = entry.stage == Stage::Held || self.delays.contains(slot);
            entry.priority = if is_delayed { priority.max(entry.priority) } else { priority };
        }
        if self.delays.set(slot, (now + delay).into()) {
            entry.is_delayed_retry = cause == Cause::Retry;
        }
        false
    }

    /// Finishes a processing; delays the key unless a shutdown drops retries.
    fn requeue(&mut self, now: Moment, token: WorkToken, delay: Duration, cause: Cause) {
        if self.phase == (Phase::Closing { keeps_delayed: false }) {
            self.counts.dropped += 1;
        } else {
            self.counts.retries += 1;
            // Delayed before it is released: `release` removes a key that is not delayed.
            self.delay(now, token.slot, delay, self.slots.entries[token.slot].priority, cause);
        }
        self.release(now, token);
        if delay.is_zero() && self.throttle.is_some() {
            // A limited retry without a delay is due already.
            self.handle_timeout(now);
        }
        self.release_held(now);
    }

    /// Finishes a processing; the key is queued again if it was added in the meantime.
    fn release(&mut self, now: Moment, WorkToken { slot, sampled, .. }: WorkToken) {
        self.processing.remove(&mut self.slots.entries, slot);
        let entry = &mut self.slots.entries[slot];
        self.counts.taken = self.counts.taken.saturating_sub(entry.taken_at.since_origin());
        self.counts.work_duration.count(sampled.then(|| Stamp::from(now).since(entry.taken_at)));
        if entry.stage == Stage::ProcessingDirty {
            entry.stage = Stage::Queued;
            self.counts.dirty -= 1;
            self.queued.push(&mut self.slots.entries, slot);
            return;
        }
        entry.stage = Stage::Idle;
        self.remove_if_unused(slot);
    }

    fn close(&mut self, keeps_delayed: bool) {
        self.phase = match self.phase {
            // Dropped delays cannot be restored.
            Phase::Closing { keeps_delayed: false } => self.phase,
            _ => Phase::Closing { keeps_delayed },
        };
        if keeps_delayed {
            return;
        }
        for slot in self.delays.clear() {
            self.slots.entries[slot].is_delayed_retry = false;
            self.counts.dropped += 1;
            self.remove_if_unused(slot);
        }
        self.drop_held();
    }

    fn remove_if_unused(&mut self, slot: Slot) {
        if self.slots.entries[slot].stage == Stage::Idle && !self.delays.contains(slot) {
            self.slots.remove(slot);
        }
    }
}

/// Returns the key that is processing with this token.
fn key_of<T: Eq + Hash>(slots: &Slots<T>, token: WorkToken) -> Result<&T, StaleToken> {
    let key = slots.key(token.slot).ok_or(StaleToken)?;
    let entry = &slots.entries[token.slot];
    let is_current = matches!(entry.stage, Stage::Processing | Stage::ProcessingDirty)
        && entry.generation == token.generation;
    if is_current { Ok(key) } else { Err(StaleToken) }
}
