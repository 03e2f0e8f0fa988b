//! A reference model of the correlator: one list that is searched for everything.
//!
//! It implements the rules without queues or ordered sets. Queued events have an order number, and the lowest
//! one whose partition is not backing off is written next.

use jiff::Timestamp;

use super::*;
use crate::backoff::Backoff;
use crate::random::Random;
use crate::time::Moment;

pub(super) struct ReferenceModel {
    config: RecorderConfig,
    backoff: Backoff,
    random: Random,
    all: Vec<TrackedEvent>,
    /// The times at which new events about each subject were accepted.
    accepted: Vec<(char, Moment)>,
    in_flight: Option<(u64, u32)>,
    next_attempt: Moment,
    /// The failing partitions, each with its backoff and the moment of its next attempt.
    failing: Vec<(char, Backoff, Moment)>,
    next_number: u64,
    last_order: u64,
    metrics: RecorderMetrics,
}

#[derive(Clone)]
struct TrackedEvent {
    event: &'static str,
    number: u64,
    first: Timestamp,
    last: Moment,
    last_wall: Timestamp,
    count: u32,
    acknowledged_count: u32,
    written: Moment,
    attempts: u32,
    sent: bool,
    refused: bool,
    /// The order number in the queue; `None` if no write is queued.
    order: Option<u64>,
}

impl ReferenceModel {
    pub(super) fn new(config: RecorderConfig, seed: u64) -> Self {
        ReferenceModel {
            config,
            backoff: Backoff::new(config.backoff),
            random: Random::new(seed),
            all: Vec::new(),
            accepted: Vec::new(),
            in_flight: None,
            next_attempt: Moment::default(),
            failing: Vec::new(),
            next_number: 0,
            last_order: 0,
            metrics: RecorderMetrics::default(),
        }
    }

    pub(super) fn metrics(&self) -> RecorderMetrics {
        RecorderMetrics { waiting: self.queued(), ..self.metrics }
    }

    /// Returns the number of events that wait for their first write.
    pub(super) fn unsent(&self) -> u64 {
        self.all.iter().filter(|tracked| !tracked.sent && !tracked.refused).count() as u64
    }

    pub(super) fn record(&mut self, now: Moment, wall: Timestamp, event: &'static str) {
        self.handle_timeout(now);
        let subject = event.chars().next().unwrap();
        if let Some(index) = self.all.iter().position(|tracked| tracked.event == event) {
            let tracked = &mut self.all[index];
            if tracked.refused {
                self.metrics.failed += 1;
                return;
            }
            (tracked.last, tracked.last_wall, tracked.count) = (now, wall, tracked.count + 1);
            self.metrics.aggregated += 1;
            if tracked.order.is_none() {
                self.queue_or_quiet(index, now);
            }
        } else if self.queued() >= self.config.max_queued && !self.evict_failing(partition_of(event)) {
            self.metrics.dropped += 1;
        } else if !self.accept(now, subject) {
            self.metrics.limited += 1;
        } else {
            let order = Some(self.next_order());
            self.all.push(TrackedEvent {
                event,
                number: self.next_number,
                first: wall,
                last: now,
                last_wall: wall,
                count: 1,
                acknowledged_count: 0,
                written: now,
                attempts: 0,
                sent: false,
                refused: false,
                order,
            });
            self.next_number += 1;
        }
    }

    pub(super) fn poll(&mut self, now: Moment) -> Option<Write<&'static str>> {
        self.handle_timeout(now);
        if self.in_flight.is_some() || now < self.next_attempt {
            return None;
        }
        let is_delayed = |tracked: &TrackedEvent| {
            self.failing
                .iter()
                .any(|(partition, _, next)| *partition == partition_of(tracked.event) && now < *next)
        };
        let ready = self.all.iter().filter(|tracked| tracked.order.is_some() && !is_delayed(tracked));
        let tracked = ready.min_by_key(|tracked| tracked.order)?;
        self.in_flight = Some((tracked.number, tracked.count));
        let TrackedEvent { event, number, count, first, last_wall: last, .. } = tracked.clone();
        let occurrence = Occurrence { event, number, count, first, last };
        Some(if tracked.acknowledged_count == 0 {
            Write::Create(occurrence)
        } else {
            Write::Update(occurrence)
        })
    }

    pub(super) fn handle_response(&mut self, now: Moment, response: WriteResponse) {
        let Some((number, count)) = self.in_flight.take() else { return };
        let index = self.all.iter().position(|tracked| tracked.number == number).unwrap();
        let tracked = &mut self.all[index];
        tracked.attempts += 1;
        let is_last_attempt = tracked.attempts >= self.config.max_attempts;
        let partition = partition_of(tracked.event);
        match response {
            WriteResponse::Written | WriteResponse::Exists => {
                (tracked.written, tracked.order, tracked.acknowledged_count) = (now, None, 1);
                if response == WriteResponse::Written {
                    (tracked.acknowledged_count, tracked.attempts) = (count, 0);
                }
                if tracked.sent {
                    self.metrics.updated += 1;
                } else {
                    self.metrics.sent += 1;
                }
                tracked.sent = true;
                self.backoff.reset();
                self.failing.retain(|(other, ..)| *other != partition);
                self.queue_or_quiet(index, now);
            }
            WriteResponse::Missing if tracked.acknowledged_count > 0 && !is_last_attempt => {
                tracked.acknowledged_count = 0;
            }
            WriteResponse::Missing | WriteResponse::Refused => {
                (tracked.written, tracked.refused, tracked.order) = (now, true, None);
                self.metrics.failed += u64::from(!tracked.sent);
                self.backoff.reset();
                self.failing.retain(|(other, ..)| *other != partition);
                self.queue_or_quiet(index, now);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) if is_last_attempt => {
                self.metrics.failed += u64::from(!tracked.sent);
                self.all.remove(index);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                self.all[index].order = Some(self.next_order());
            }
        }
        match response {
            WriteResponse::Unavailable(retry_after) => {
                self.next_attempt =
                    now + self.backoff.next(&mut self.random).max(retry_after.unwrap_or_default());
            }
            WriteResponse::Failed => {
                let position = self.failing.iter().position(|(other, ..)| *other == partition);
                let position = position.unwrap_or_else(|| {
                    self.failing.push((partition, Backoff::new(self.config.backoff), now));
                    self.failing.len() - 1
                });
                self.failing[position].2 = now + self.failing[position].1.next(&mut self.random);
            }
            _ => {}
        }
        self.forget_partitions();
        self.handle_timeout(now);
    }

    /// Drops the oldest queued event of another partition that is failing.
    fn evict_failing(&mut self, partition: char) -> bool {
        let in_flight = self.in_flight.map(|(number, _)| number);
        let is_failing =
            |other: char| other != partition && self.failing.iter().any(|(failing, ..)| *failing == other);
        let queued = (0..self.all.len()).filter(|index| self.all[*index].order.is_some());
        let evictable = queued.filter(|index| {
            is_failing(partition_of(self.all[*index].event)) && in_flight != Some(self.all[*index].number)
        });
        let Some(index) = evictable.min_by_key(|index| self.all[*index].order) else { return false };
        self.metrics.dropped += u64::from(!self.all[index].sent);
        self.all.remove(index);
        self.forget_partitions();
        true
    }

    fn forget_partitions(&mut self) {
        let all = &self.all;
        self.failing.retain(|(partition, ..)| {
            all.iter().any(|tracked| tracked.order.is_some() && partition_of(tracked.event) == *partition)
        });
    }

    /// Handles due events, the earliest first, while the queue has capacity.
    fn handle_timeout(&mut self, now: Moment) {
        while self.queued() < self.config.max_queued
            && let Some(index) = self.earliest()
            && self.due(index) <= now
        {
            self.end_series(index);
        }
    }

    fn queue_or_quiet(&mut self, index: usize, now: Moment) {
        let tracked = &self.all[index];
        let urgent =
            !tracked.refused && tracked.acknowledged_count < 2 && tracked.count > tracked.acknowledged_count;
        if urgent && self.queued() < self.config.max_queued {
            self.all[index].order = Some(self.next_order());
        } else if self.all.len() - self.queued() > self.config.max_remembered {
            let earliest = self.earliest().unwrap();
            self.end_series(earliest);
        }
        self.handle_timeout(now);
    }

    /// Queues the final count of a series, or removes the event if the count is written or the queue is full.
    fn end_series(&mut self, index: usize) {
        let tracked = &self.all[index];
        if !tracked.refused
            && tracked.count > tracked.acknowledged_count
            && self.queued() < self.config.max_queued
        {
            self.all[index].order = Some(self.next_order());
        } else {
            self.all.remove(index);
        }
    }

    fn earliest(&self) -> Option<usize> {
        let quiet = (0..self.all.len()).filter(|index| self.all[*index].order.is_none());
        quiet.min_by_key(|index| (self.due(*index), self.all[*index].number))
    }

    fn due(&self, index: usize) -> Moment {
        let tracked = &self.all[index];
        let (ends_at, update_at) =
            (tracked.last + self.config.series_timeout, tracked.written + self.config.series_update_period);
        if tracked.refused {
            tracked.written + self.config.series_timeout
        } else if tracked.count > tracked.acknowledged_count {
            ends_at.min(update_at)
        } else {
            ends_at
        }
    }

    fn queued(&self) -> usize {
        self.all.iter().filter(|tracked| tracked.order.is_some()).count()
    }

    fn next_order(&mut self) -> u64 {
        self.last_order += 1;
        self.last_order
    }

    /// Replays the token bucket: one token per `refill_period`, starting full, never more than `burst`.
    fn accept(&mut self, now: Moment, subject: char) -> bool {
        let refill_period = self.config.refill_period;
        let mut full_at = Moment::default();
        for (_, accepted_at) in self.accepted.iter().filter(|(other, _)| *other == subject) {
            full_at = full_at.max(*accepted_at) + refill_period;
        }
        let missing = full_at.max(now) - now;
        let accepted = missing + refill_period <= refill_period * self.config.burst;
        if accepted {
            self.accepted.push((subject, now));
        }
        accepted
    }
}

/// Returns the partition of an event: its second letter.
pub(super) fn partition_of(event: &str) -> char {
    event.chars().nth(1).unwrap_or_default()
}
