//! The machine: what is known of each event, and the queue of what is to be written.
//!
//! Invariants: one write at a time; an event is known while it waits for a write or may still become a series, and is in exactly one of
//! `queue` and `quiet`; `queue` has at most `config.queue` places, except after [`Correlator::stop`], and `quiet` at most `config.remembered`;
//! a lane is in `failing` only while something of it is in `queue`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use jiff::Timestamp;

use super::RecorderMetrics;
use super::config::RecorderConfig;
use super::limit::Limit;
use crate::backoff::Backoff;
use crate::random::Random;
use crate::time::Moment;

/// What is to be written. One at a time; each is answered by [`Correlator::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write<E> {
    /// A new event; a series already if it happened again before there was time to write it.
    Create(Occurrence<E>),
    /// The series of an event that was written before.
    Update(Occurrence<E>),
}

/// An event, and how often it has happened so far.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Occurrence<E> {
    /// What happened.
    pub event: E,
    /// Tells this event from all others of one correlator.
    pub number: u64,
    /// How often.
    pub count: u32,
    /// When it happened first.
    pub first: Timestamp,
    /// When it happened last.
    pub last: Timestamp,
}

/// How a write was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResponse {
    /// The server has it.
    Written,
    /// What was to be created is there: an earlier try has arrived after all.
    Exists,
    /// What was to be updated is not there any more, or there is no place to create it in.
    Missing,
    /// The server does not want it, however often it is asked.
    Refused,
    /// The server could not do it, which may be so for everything in its lane. Other lanes go on.
    Failed,
    /// Nobody knows what came of it, or the server can do nothing now; it may say for how long not. Everything waits.
    Unavailable(Option<Duration>),
}

/// Decides what becomes of events of type `E` about subjects of type `S`, in lanes of type `L`: those of one lane fail together, as in a namespace in
/// which nothing can be written.
#[derive(Debug)]
pub struct Correlator<L, S, E> {
    config: RecorderConfig,
    limit: Limit<S>,
    backoff: Backoff,
    random: Random,
    /// The numbers of events that are known.
    numbers: BTreeMap<E, u64>,
    known: BTreeMap<u64, Known<L, E>>,
    /// What waits for a write, in order. What was tried and failed is behind the others.
    queue: VecDeque<u64>,
    /// What waits for something to happen again, by when there is something to do about it.
    quiet: BTreeSet<(Moment, u64)>,
    /// The number of the write on its way, and the count that it tells.
    in_flight: Option<(u64, u32)>,
    next_try: Moment,
    /// The lanes in which the last write failed, each with its next try.
    failing: BTreeMap<L, (Backoff, Moment)>,
    next_number: u64,
    metrics: RecorderMetrics,
    stopping: bool,
}

#[derive(Debug)]
struct Known<L, E> {
    partition: L,
    event: E,
    first: Timestamp,
    last: (Moment, Timestamp),
    count: u32,
    /// The count that the server has; none if it does not have the event.
    acknowledged_count: u32,
    /// When something was last written, or refused.
    written: Moment,
    attempts: u32,
    /// Whether it has been on the server: then the call that began it is accounted for.
    sent: bool,
    refused: bool,
}

impl<L, E> Known<L, E> {
    /// Whether it has happened more often than the server knows.
    fn has_unacknowledged(&self) -> bool {
        self.count > self.acknowledged_count && !self.refused
    }

    /// Whether the server is to know at once: a new event, or that it has become a series.
    fn is_urgent(&self) -> bool {
        self.has_unacknowledged() && self.acknowledged_count < 2
    }

    /// When there is something to do about it if it does not happen again.
    fn due(&self, config: &RecorderConfig) -> Moment {
        let finished = self.last.0 + config.series_timeout;
        if self.refused {
            self.written + config.series_timeout
        } else if self.has_unacknowledged() {
            finished.min(self.written + config.series_update_period)
        } else {
            finished
        }
    }
}

impl<L: Ord + Clone, S: Ord, E: Ord + Clone> Correlator<L, S, E> {
    /// One that knows nothing yet.
    pub fn new(config: RecorderConfig, seed: u64) -> Self {
        Correlator {
            limit: Limit::new(config.burst, config.refill_period, config.max_remembered),
            backoff: Backoff::new(config.backoff),
            config,
            random: Random::new(seed),
            numbers: BTreeMap::new(),
            known: BTreeMap::new(),
            queue: VecDeque::new(),
            quiet: BTreeSet::new(),
            in_flight: None,
            next_try: Moment::default(),
            failing: BTreeMap::new(),
            next_number: 0,
            metrics: RecorderMetrics::default(),
            stopping: false,
        }
    }

    /// What became of everything so far.
    pub fn metrics(&self) -> RecorderMetrics {
        RecorderMetrics { waiting: self.queue.len(), ..self.metrics }
    }

    /// Something happened. `wall` is written down, and never compared with anything.
    pub fn handle_event(&mut self, now: Moment, wall: Timestamp, lane: L, subject: S, event: E) {
        self.handle_timeout(now);
        if self.stopping {
            self.metrics.dropped += 1;
        } else if let Some(number) = self.numbers.get(&event) {
            self.repeat(*number, now, wall);
        } else if !self.has_capacity() && !self.evict_failing(&lane) {
            self.metrics.dropped += 1;
        } else if !self.limit.take(now, subject) {
            self.metrics.limited += 1;
        } else {
            let number = self.next_number;
            self.next_number += 1;
            self.numbers.insert(event.clone(), number);
            let (first, last) = (wall, (now, wall));
            let (count, told, written, tries, sent, refused) = (1, 0, now, 0, false, false);
            let known = Known {
                partition: lane,
                event,
                first,
                last,
                count,
                acknowledged_count: told,
                written,
                attempts: tries,
                sent,
                refused,
            };
            self.known.insert(number, known);
            self.queue.push_back(number);
        }
    }

    /// The next write, if one is due.
    pub fn poll_write(&mut self, now: Moment) -> Option<Write<E>> {
        self.handle_timeout(now);
        if self.in_flight.is_some() || now < self.next_try {
            return None;
        }
        let (number, known) = self.waiting().find(|(_, known)| self.next_try_of(known) <= now)?;
        let occurrence = Occurrence {
            event: known.event.clone(),
            number,
            count: known.count,
            first: known.first,
            last: known.last.1,
        };
        let creates = known.acknowledged_count == 0;
        self.in_flight = Some((number, occurrence.count));
        Some(if creates { Write::Create(occurrence) } else { Write::Update(occurrence) })
    }

    /// How the write was answered.
    pub fn handle_response(&mut self, now: Moment, answer: WriteResponse) {
        let Some((number, count)) = self.in_flight.take() else { return };
        let Some(known) = self.known.get_mut(&number) else { return };
        known.attempts += 1;
        let (creates, worn_out) = (known.acknowledged_count == 0, known.attempts >= self.config.max_attempts);
        match answer {
            WriteResponse::Written | WriteResponse::Exists => {
                // Of what is there already nobody knows which try it was. It counts as one more, so that a server which has an
                // event and does not have it, by turns, is not asked for ever.
                (known.acknowledged_count, known.attempts) =
                    if answer == WriteResponse::Exists { (1, known.attempts) } else { (count, 0) };
                known.written = now;
                self.backoff.reset();
                self.failing.remove(&known.partition);
                let again = std::mem::replace(&mut known.sent, true);
                let counter = if again { &mut self.metrics.updated } else { &mut self.metrics.sent };
                *counter += 1;
                self.leave(number);
                self.settle(now, number);
            }
            WriteResponse::Missing if !creates && !worn_out => known.acknowledged_count = 0,
            WriteResponse::Refused | WriteResponse::Missing => {
                // It is remembered, so that the same is not refused again and again.
                (known.written, known.refused) = (now, true);
                self.metrics.failed += u64::from(!known.sent);
                self.backoff.reset();
                self.failing.remove(&known.partition);
                self.leave(number);
                self.settle(now, number);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                if let WriteResponse::Unavailable(wait) = answer {
                    self.next_try = now + self.backoff.next(&mut self.random).max(wait.unwrap_or_default());
                } else {
                    let fresh = || (Backoff::new(self.config.backoff), now);
                    let (backoff, next_try) =
                        self.failing.entry(known.partition.clone()).or_insert_with(fresh);
                    *next_try = now + backoff.next(&mut self.random);
                }
                // Behind the others: what never succeeds holds up nobody for longer than one wait.
                self.metrics.failed += u64::from(worn_out && !known.sent);
                self.leave(number);
                if worn_out {
                    self.forget(number);
                } else {
                    self.queue.push_back(number);
                }
            }
        }
        self.forget_partitions();
        self.handle_timeout(now);
    }

    /// Ends series that were quiet for long, and tells the server about those that go on.
    pub fn handle_timeout(&mut self, now: Moment) {
        while self.has_capacity()
            && let Some((due, number)) = self.quiet.first().copied()
            && due <= now
        {
            self.quiet.pop_first();
            if self.known.get(&number).is_some_and(Known::has_unacknowledged) {
                self.queue.push_back(number);
            } else {
                self.forget(number);
            }
        }
    }

    /// When [`Correlator::poll_write`] or [`Correlator::handle_timeout`] has something to do.
    pub fn next_deadline(&self) -> Option<Moment> {
        let next_try = |(_, known)| self.next_try_of(known).max(self.next_try);
        let write = if self.in_flight.is_none() { self.waiting().map(next_try).min() } else { None };
        let quiet = self.quiet.first().filter(|_| self.has_capacity()).map(|(due, _)| *due);
        write.into_iter().chain(quiet).min()
    }

    /// Takes no more events. What waits is still written, and the last word about every series.
    pub fn stop(&mut self) {
        self.stopping = true;
        for (_, number) in std::mem::take(&mut self.quiet) {
            if self.known.get(&number).is_some_and(Known::has_unacknowledged) {
                self.queue.push_back(number);
            } else {
                self.forget(number);
            }
        }
    }

    /// Whether it was stopped and everything is written.
    pub fn is_over(&self) -> bool {
        self.stopping && self.queue.is_empty()
    }

    /// Gives up what waits, after [`Correlator::stop`]; how many writes that were.
    pub fn abandon(&mut self) -> usize {
        self.in_flight = None;
        let waiting = std::mem::take(&mut self.queue);
        for number in &waiting {
            let lost = self.known.get(number).is_some_and(|known| !known.sent);
            self.metrics.dropped += u64::from(lost);
            self.forget(*number);
        }
        self.failing.clear();
        waiting.len()
    }

    /// Panics if something that always holds does not.
    pub fn check_invariants(&self) {
        assert_eq!(self.numbers.len(), self.known.len());
        assert_eq!(self.known.len(), self.queue.len() + self.quiet.len(), "each is in one place");
        assert!(self.stopping || self.queue.len() <= self.config.max_queued, "{} wait", self.queue.len());
        assert!(self.quiet.len() <= self.config.max_remembered, "{} are remembered", self.quiet.len());
        assert!(
            self.queue.iter().all(|number| self.known.get(number).is_some_and(Known::has_unacknowledged))
        );
        assert!(
            self.in_flight.is_none_or(|(number, _)| self.queue.contains(&number)),
            "it waits until it is answered"
        );
        assert!(self.failing.keys().all(|lane| self.waiting().any(|(_, known)| known.partition == *lane)));
        for (due, number) in &self.quiet {
            let known = self.known.get(number).expect("what is quiet is known");
            assert_eq!(*due, known.due(&self.config));
        }
    }

    /// What is known has happened again.
    fn repeat(&mut self, number: u64, now: Moment, wall: Timestamp) {
        let Some(known) = self.known.get_mut(&number) else { return };
        if known.refused {
            self.metrics.failed += 1;
            return;
        }
        let was_quiet = self.quiet.remove(&(known.due(&self.config), number));
        known.last = (now, wall);
        known.count = known.count.saturating_add(1);
        self.metrics.aggregated += 1;
        if was_quiet {
            self.settle(now, number);
        }
    }

    /// Finds the place of an event that is in none.
    fn settle(&mut self, now: Moment, number: u64) {
        let room = self.has_capacity();
        let Some(known) = self.known.get(&number) else { return };
        let (news, urgent) = (known.has_unacknowledged(), known.is_urgent());
        if self.stopping && !news {
            return self.forget(number);
        }
        if self.stopping || (urgent && room) {
            return self.queue.push_back(number);
        }
        self.quiet.insert((known.due(&self.config), number));
        if self.quiet.len() > self.config.max_remembered
            && let Some((_, oldest)) = self.quiet.pop_first()
        {
            // As if it had ended: what it comes to is still told, if that can be.
            let news = self.known.get(&oldest).is_some_and(Known::has_unacknowledged);
            if news && self.has_capacity() {
                self.queue.push_back(oldest);
            } else {
                self.forget(oldest);
            }
        }
        self.handle_timeout(now);
    }

    /// What waits for a write, in order.
    fn waiting(&self) -> impl Iterator<Item = (u64, &Known<L, E>)> {
        self.queue.iter().filter_map(|number| Some((*number, self.known.get(number)?)))
    }

    /// When the lane of an event may be tried.
    fn next_try_of(&self, known: &Known<L, E>) -> Moment {
        self.failing.get(&known.partition).map_or(Moment::default(), |(_, next_try)| *next_try)
    }

    /// Drops the oldest of what waits in another lane that fails: such a lane is not to fill the queue for everybody.
    fn evict_failing(&mut self, lane: &L) -> bool {
        let asked = self.in_flight.map(|(number, _)| number);
        let fails =
            |known: &Known<L, E>| known.partition != *lane && self.failing.contains_key(&known.partition);
        let found = self.waiting().find(|(number, known)| asked != Some(*number) && fails(known));
        let Some((number, sent)) = found.map(|(number, known)| (number, known.sent)) else { return false };
        self.metrics.dropped += u64::from(!sent);
        self.leave(number);
        self.forget(number);
        self.forget_partitions();
        true
    }

    /// Takes an event out of the queue, wherever in it.
    fn leave(&mut self, number: u64) {
        self.queue.retain(|waiting| *waiting != number);
    }

    /// Forgets the waits of lanes in which nothing is to be written any more.
    fn forget_partitions(&mut self) {
        let mut failing = std::mem::take(&mut self.failing);
        failing.retain(|lane, _| self.waiting().any(|(_, known)| known.partition == *lane));
        self.failing = failing;
    }

    fn forget(&mut self, number: u64) {
        if let Some(known) = self.known.remove(&number) {
            self.numbers.remove(&known.event);
        }
    }

    fn has_capacity(&self) -> bool {
        self.queue.len() < self.config.max_queued
    }
}
