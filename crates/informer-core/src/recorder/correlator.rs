//! The state machine: the tracked events and the queue of writes.
//!
//! Invariants: at most one write is in flight. An event is tracked while a write of it is queued, while it
//! may still become a series, or for a time after the server rejected it. A tracked event is in exactly one
//! of `queue` and `quiet`. `queue` has at most `config.max_queued` elements, except after
//! [`Correlator::stop`], and `quiet` at most `config.max_remembered`. A partition is in `failing` only while
//! a write of it is queued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::RecorderMetrics;
use super::config::RecorderConfig;
use super::limit::Limit;
use crate::backoff::Backoff;
use crate::random::Random;
use crate::time::Moment;

/// A write to the server.
///
/// At most one is in flight; each is completed by [`Correlator::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<E> {
    /// A new event; already a series if it recurred before it could be written.
    Create(Occurrence<E>),
    /// The update of the series of an event that was created before.
    Update(Occurrence<E>),
}

/// An event as it is written, with the count and times of its occurrences so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence<E> {
    /// The event.
    pub event: E,
    /// The number that identifies the event within its correlator.
    pub number: u64,
    /// Number of occurrences.
    pub count: u32,
    /// The time of the first occurrence.
    pub first: Timestamp,
    /// The time of the last occurrence.
    pub last: Timestamp,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResponse {
    /// The write succeeded.
    Written,
    /// The event to create exists: an earlier attempt succeeded after all.
    Exists,
    /// The event to update no longer exists, or the namespace for it does not exist.
    Missing,
    /// The server rejected the write permanently.
    Refused,
    /// The write failed, possibly like every write in its partition. Other partitions continue.
    Failed,
    /// The result is unknown, or the server is unavailable, optionally with the duration after which to
    /// retry. All writes wait.
    Unavailable(Option<Duration>),
}

/// The state machine that correlates events of type `E` about subjects of type `S` in partitions of type `P`.
///
/// Writes in one partition tend to fail together, for example in a namespace to which nothing can be written.
#[derive(Debug)]
pub struct Correlator<P, S, E> {
    config: RecorderConfig,
    limit: Limit<S>,
    backoff: Backoff,
    random: Random,
    /// The numbers of tracked events.
    numbers: BTreeMap<E, u64>,
    events: BTreeMap<u64, TrackedEvent<P, E>>,
    /// Numbers of events with a queued write, in order. Failed attempts are queued again at the end.
    queue: VecDeque<u64>,
    /// Numbers of events without a queued write, by the moment at which they are due.
    quiet: BTreeSet<(Moment, u64)>,
    /// The number of the event whose write is in flight, and the count that it writes.
    in_flight: Option<(u64, u32)>,
    /// The moment before which nothing is written, because the server was unavailable.
    next_attempt: Moment,
    /// The partitions in which the last write failed, with the moment of the next attempt.
    failing: BTreeMap<P, (Backoff, Moment)>,
    next_number: u64,
    metrics: RecorderMetrics,
    stopping: bool,
}

/// An event that may still have to be written or become a series.
#[derive(Debug)]
struct TrackedEvent<P, E> {
    partition: P,
    event: E,
    first: Timestamp,
    last: (Moment, Timestamp),
    count: u32,
    /// The count that the server has confirmed; zero if the event does not exist on the server.
    acknowledged_count: u32,
    /// When a write last succeeded or was rejected; until then, when the event first occurred.
    written: Moment,
    /// Number of attempts since the last [`WriteResponse::Written`].
    attempts: u32,
    /// Whether the event was ever created: then its first occurrence is counted in the metrics.
    sent: bool,
    /// Whether the server rejected the event. Repeats are then not sent.
    refused: bool,
}

impl<P, E> TrackedEvent<P, E> {
    /// Returns whether there are occurrences that the server does not know.
    fn has_unacknowledged(&self) -> bool {
        self.count > self.acknowledged_count && !self.refused
    }

    /// Returns whether the event must be written immediately: it is new, or has become a series.
    fn is_urgent(&self) -> bool {
        self.has_unacknowledged() && self.acknowledged_count < 2
    }

    /// Returns the moment at which the event must be handled if it does not recur.
    fn due(&self, config: &RecorderConfig) -> Moment {
        let ends_at = self.last.0 + config.series_timeout;
        if self.refused {
            self.written + config.series_timeout
        } else if self.has_unacknowledged() {
            ends_at.min(self.written + config.series_update_period)
        } else {
            ends_at
        }
    }
}

impl<P: Ord + Clone, S: Ord, E: Ord + Clone> Correlator<P, S, E> {
    /// Creates a correlator without events.
    pub fn new(config: RecorderConfig, seed: u64) -> Self {
        Correlator {
            limit: Limit::new(config.burst, config.refill_period, config.max_remembered),
            backoff: Backoff::new(config.backoff),
            config,
            random: Random::new(seed),
            numbers: BTreeMap::new(),
            events: BTreeMap::new(),
            queue: VecDeque::new(),
            quiet: BTreeSet::new(),
            in_flight: None,
            next_attempt: Moment::default(),
            failing: BTreeMap::new(),
            next_number: 0,
            metrics: RecorderMetrics::default(),
            stopping: false,
        }
    }

    /// Returns the counters.
    pub fn metrics(&self) -> RecorderMetrics {
        RecorderMetrics { waiting: self.queue.len(), ..self.metrics }
    }

    /// Handles an occurrence of an event. `wall` is written to the server and never compared.
    pub fn handle_event(&mut self, now: Moment, wall: Timestamp, partition: P, subject: S, event: E) {
        self.handle_timeout(now);
        if self.stopping {
            self.metrics.dropped += 1;
        } else if let Some(number) = self.numbers.get(&event) {
            self.repeat(*number, now, wall);
        } else if !self.has_capacity() && !self.evict_failing(&partition) {
            self.metrics.dropped += 1;
        } else if !self.limit.take(now, subject) {
            self.metrics.limited += 1;
        } else {
            let number = self.next_number;
            self.next_number += 1;
            self.numbers.insert(event.clone(), number);
            let (first, last) = (wall, (now, wall));
            let (count, acknowledged_count, written, attempts) = (1, 0, now, 0);
            let (sent, refused) = (false, false);
            let tracked = TrackedEvent {
                partition,
                event,
                first,
                last,
                count,
                acknowledged_count,
                written,
                attempts,
                sent,
                refused,
            };
            self.events.insert(number, tracked);
            self.queue.push_back(number);
        }
    }

    /// Returns the next write if one is due.
    pub fn poll_write(&mut self, now: Moment) -> Option<Write<E>> {
        self.handle_timeout(now);
        if self.in_flight.is_some() || now < self.next_attempt {
            return None;
        }
        let (number, tracked) = self.queued().find(|(_, tracked)| self.next_attempt_of(tracked) <= now)?;
        let occurrence = Occurrence {
            event: tracked.event.clone(),
            number,
            count: tracked.count,
            first: tracked.first,
            last: tracked.last.1,
        };
        let creates = tracked.acknowledged_count == 0;
        self.in_flight = Some((number, occurrence.count));
        Some(if creates { Write::Create(occurrence) } else { Write::Update(occurrence) })
    }

    /// Handles the response to the write in flight.
    pub fn handle_response(&mut self, now: Moment, response: WriteResponse) {
        let Some((number, count)) = self.in_flight.take() else { return };
        let Some(tracked) = self.events.get_mut(&number) else { return };
        tracked.attempts += 1;
        let (creates, is_last_attempt) =
            (tracked.acknowledged_count == 0, tracked.attempts >= self.config.max_attempts);
        match response {
            WriteResponse::Written | WriteResponse::Exists => {
                // After `Exists`, it is unknown which attempt created the event, so only its first occurrence
                // counts as acknowledged. The attempts are not reset, so that a server that alternates
                // between `Exists` and `Missing` does not cause an endless loop.
                (tracked.acknowledged_count, tracked.attempts) =
                    if response == WriteResponse::Exists { (1, tracked.attempts) } else { (count, 0) };
                tracked.written = now;
                self.backoff.reset();
                self.failing.remove(&tracked.partition);
                let was_sent = std::mem::replace(&mut tracked.sent, true);
                let counter = if was_sent { &mut self.metrics.updated } else { &mut self.metrics.sent };
                *counter += 1;
                self.dequeue(number);
                self.queue_or_quiet(now, number);
            }
            // Still queued: the next attempt creates the event again.
            WriteResponse::Missing if !creates && !is_last_attempt => tracked.acknowledged_count = 0,
            WriteResponse::Refused | WriteResponse::Missing => {
                // The event stays tracked, so that repeats are not sent and rejected again.
                (tracked.written, tracked.refused) = (now, true);
                self.metrics.failed += u64::from(!tracked.sent);
                self.backoff.reset();
                self.failing.remove(&tracked.partition);
                self.dequeue(number);
                self.queue_or_quiet(now, number);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                if let WriteResponse::Unavailable(retry_after) = response {
                    self.next_attempt =
                        now + self.backoff.next(&mut self.random).max(retry_after.unwrap_or_default());
                } else {
                    let initial = || (Backoff::new(self.config.backoff), now);
                    let (backoff, next_attempt) =
                        self.failing.entry(tracked.partition.clone()).or_insert_with(initial);
                    *next_attempt = now + backoff.next(&mut self.random);
                }
                self.metrics.failed += u64::from(is_last_attempt && !tracked.sent);
                self.dequeue(number);
                if is_last_attempt {
                    self.forget(number);
                } else {
                    // At the end, so that a write that never succeeds delays others by at most one backoff.
                    self.queue.push_back(number);
                }
            }
        }
        self.forget_partitions();
        self.handle_timeout(now);
    }

    /// Ends series that have timed out and queues updates of ongoing ones.
    pub fn handle_timeout(&mut self, now: Moment) {
        while self.has_capacity()
            && let Some((due, number)) = self.quiet.first().copied()
            && due <= now
        {
            self.quiet.pop_first();
            if self.events.get(&number).is_some_and(TrackedEvent::has_unacknowledged) {
                self.queue.push_back(number);
            } else {
                self.forget(number);
            }
        }
    }

    /// Returns the next moment at which [`Correlator::poll_write`] or [`Correlator::handle_timeout`] must be
    /// called.
    pub fn next_deadline(&self) -> Option<Moment> {
        let next_attempt = |(_, tracked)| self.next_attempt_of(tracked).max(self.next_attempt);
        let write = if self.in_flight.is_none() { self.queued().map(next_attempt).min() } else { None };
        let quiet = self.quiet.first().filter(|_| self.has_capacity()).map(|(due, _)| *due);
        write.into_iter().chain(quiet).min()
    }

    /// Rejects further events. Queued writes and the final count of every series are still written.
    pub fn stop(&mut self) {
        self.stopping = true;
        for (_, number) in std::mem::take(&mut self.quiet) {
            if self.events.get(&number).is_some_and(TrackedEvent::has_unacknowledged) {
                self.queue.push_back(number);
            } else {
                self.forget(number);
            }
        }
    }

    /// Returns whether the correlator was stopped and everything is written.
    pub fn is_over(&self) -> bool {
        self.stopping && self.queue.is_empty()
    }

    /// Drops the queued writes after [`Correlator::stop`]; returns their number.
    pub fn abandon(&mut self) -> usize {
        self.in_flight = None;
        let queued = std::mem::take(&mut self.queue);
        for number in &queued {
            let is_unsent = self.events.get(number).is_some_and(|tracked| !tracked.sent);
            self.metrics.dropped += u64::from(is_unsent);
            self.forget(*number);
        }
        self.failing.clear();
        queued.len()
    }

    /// Checks the invariants; for tests and simulations.
    ///
    /// # Panics
    ///
    /// If an invariant is violated.
    pub fn check_invariants(&self) {
        assert_eq!(self.numbers.len(), self.events.len());
        assert_eq!(
            self.events.len(),
            self.queue.len() + self.quiet.len(),
            "each event is in one of queue and quiet"
        );
        assert!(
            self.stopping || self.queue.len() <= self.config.max_queued,
            "{} are queued",
            self.queue.len()
        );
        assert!(self.quiet.len() <= self.config.max_remembered, "{} are remembered", self.quiet.len());
        assert!(
            self.queue
                .iter()
                .all(|number| self.events.get(number).is_some_and(TrackedEvent::has_unacknowledged))
        );
        assert!(
            self.in_flight.is_none_or(|(number, _)| self.queue.contains(&number)),
            "an event stays queued until its response"
        );
        assert!(
            self.failing
                .keys()
                .all(|partition| self.queued().any(|(_, tracked)| tracked.partition == *partition))
        );
        for (due, number) in &self.quiet {
            let tracked = self.events.get(number).expect("quiet events are tracked");
            assert_eq!(*due, tracked.due(&self.config));
        }
    }

    /// Counts a repeat of a tracked event.
    fn repeat(&mut self, number: u64, now: Moment, wall: Timestamp) {
        let Some(tracked) = self.events.get_mut(&number) else { return };
        if tracked.refused {
            self.metrics.failed += 1;
            return;
        }
        let was_quiet = self.quiet.remove(&(tracked.due(&self.config), number));
        tracked.last = (now, wall);
        tracked.count = tracked.count.saturating_add(1);
        self.metrics.aggregated += 1;
        if was_quiet {
            self.queue_or_quiet(now, number);
        }
    }

    /// Adds an event to `queue` or to `quiet`; it must be in neither. While stopping, an event without
    /// anything left to write is forgotten.
    fn queue_or_quiet(&mut self, now: Moment, number: u64) {
        let has_capacity = self.has_capacity();
        let Some(tracked) = self.events.get(&number) else { return };
        let (unacknowledged, urgent) = (tracked.has_unacknowledged(), tracked.is_urgent());
        if self.stopping && !unacknowledged {
            return self.forget(number);
        }
        if self.stopping || (urgent && has_capacity) {
            return self.queue.push_back(number);
        }
        self.quiet.insert((tracked.due(&self.config), number));
        if self.quiet.len() > self.config.max_remembered
            && let Some((_, oldest)) = self.quiet.pop_first()
        {
            // The series is ended early; its final count is still written if the queue has capacity.
            let unacknowledged = self.events.get(&oldest).is_some_and(TrackedEvent::has_unacknowledged);
            if unacknowledged && self.has_capacity() {
                self.queue.push_back(oldest);
            } else {
                self.forget(oldest);
            }
        }
        self.handle_timeout(now);
    }

    /// Returns the events with a queued write, in order.
    fn queued(&self) -> impl Iterator<Item = (u64, &TrackedEvent<P, E>)> {
        self.queue.iter().filter_map(|number| Some((*number, self.events.get(number)?)))
    }

    /// Returns the moment at which the partition of an event may be tried again.
    fn next_attempt_of(&self, tracked: &TrackedEvent<P, E>) -> Moment {
        self.failing.get(&tracked.partition).map_or(Moment::default(), |(_, next_attempt)| *next_attempt)
    }

    /// Drops the oldest queued write of a failing partition other than `partition`, so that a failing
    /// partition cannot fill the queue. Returns whether there was such a write.
    fn evict_failing(&mut self, partition: &P) -> bool {
        let in_flight = self.in_flight.map(|(number, _)| number);
        let is_failing = |tracked: &TrackedEvent<P, E>| {
            tracked.partition != *partition && self.failing.contains_key(&tracked.partition)
        };
        let write = self.queued().find(|(number, tracked)| in_flight != Some(*number) && is_failing(tracked));
        let Some((number, sent)) = write.map(|(number, tracked)| (number, tracked.sent)) else {
            return false;
        };
        self.metrics.dropped += u64::from(!sent);
        self.dequeue(number);
        self.forget(number);
        self.forget_partitions();
        true
    }

    /// Removes an event from the queue.
    fn dequeue(&mut self, number: u64) {
        self.queue.retain(|queued| *queued != number);
    }

    /// Removes the backoff of partitions without queued writes.
    fn forget_partitions(&mut self) {
        let mut failing = std::mem::take(&mut self.failing);
        failing.retain(|partition, _| self.queued().any(|(_, tracked)| tracked.partition == *partition));
        self.failing = failing;
    }

    /// Ends the tracking of an event that is in neither `queue` nor `quiet`.
    fn forget(&mut self, number: u64) {
        if let Some(tracked) = self.events.remove(&number) {
            self.numbers.remove(&tracked.event);
        }
    }

    fn has_capacity(&self) -> bool {
        self.queue.len() < self.config.max_queued
    }
}
