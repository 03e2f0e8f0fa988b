//! The correlator once more, without any structure: one list, looked through for everything.
//!
//! It knows the rules and nothing of queues or ordered sets. What waits has a ticket, and the lowest whose lane may be tried is next.

use jiff::Timestamp;

use super::*;
use crate::backoff::Backoff;
use crate::random::Random;
use crate::time::Moment;

pub(super) struct ReferenceModel {
    config: RecorderConfig,
    backoff: Backoff,
    random: Random,
    all: Vec<One>,
    /// When new events about each subject were accepted.
    accepted: Vec<(char, Moment)>,
    in_flight: Option<(u64, u32)>,
    next_try: Moment,
    /// The lanes that fail, each with its waits and its next try.
    failing: Vec<(char, Backoff, Moment)>,
    numbers: u64,
    tickets: u64,
    metrics: RecorderMetrics,
}

#[derive(Clone)]
struct One {
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
    ticket: Option<u64>,
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
            next_try: Moment::default(),
            failing: Vec::new(),
            numbers: 0,
            tickets: 0,
            metrics: RecorderMetrics::default(),
        }
    }

    pub(super) fn metrics(&self) -> RecorderMetrics {
        RecorderMetrics { waiting: self.waiting(), ..self.metrics }
    }

    /// Events that wait for their first write.
    pub(super) fn unsent(&self) -> u64 {
        self.all.iter().filter(|one| !one.sent && !one.refused).count() as u64
    }

    pub(super) fn record(&mut self, now: Moment, wall: Timestamp, event: &'static str) {
        self.tick(now);
        let subject = event.chars().next().unwrap();
        if let Some(place) = self.all.iter().position(|one| one.event == event) {
            let one = &mut self.all[place];
            if one.refused {
                self.metrics.failed += 1;
                return;
            }
            (one.last, one.last_wall, one.count) = (now, wall, one.count + 1);
            self.metrics.aggregated += 1;
            if one.ticket.is_none() {
                self.place(place, now);
            }
        } else if self.waiting() >= self.config.max_queued && !self.sacrifice(partition_of(event)) {
            self.metrics.dropped += 1;
        } else if !self.accept(now, subject) {
            self.metrics.limited += 1;
        } else {
            let ticket = Some(self.ticket());
            self.all.push(One {
                event,
                number: self.numbers,
                first: wall,
                last: now,
                last_wall: wall,
                count: 1,
                acknowledged_count: 0,
                written: now,
                attempts: 0,
                sent: false,
                refused: false,
                ticket,
            });
            self.numbers += 1;
        }
    }

    pub(super) fn poll(&mut self, now: Moment) -> Option<Write<&'static str>> {
        self.tick(now);
        if self.in_flight.is_some() || now < self.next_try {
            return None;
        }
        let waits = |one: &One| {
            self.failing.iter().any(|(lane, _, next)| *lane == partition_of(one.event) && now < *next)
        };
        let ready = self.all.iter().filter(|one| one.ticket.is_some() && !waits(one));
        let one = ready.min_by_key(|one| one.ticket)?;
        self.in_flight = Some((one.number, one.count));
        let One { event, number, count, first, last_wall: last, .. } = one.clone();
        let occurrence = Occurrence { event, number, count, first, last };
        Some(if one.acknowledged_count == 0 { Write::Create(occurrence) } else { Write::Update(occurrence) })
    }

    pub(super) fn answer(&mut self, now: Moment, answer: WriteResponse) {
        let Some((number, count)) = self.in_flight.take() else { return };
        let place = self.all.iter().position(|one| one.number == number).unwrap();
        let one = &mut self.all[place];
        one.attempts += 1;
        let last_try = one.attempts >= self.config.max_attempts;
        let lane = partition_of(one.event);
        match answer {
            WriteResponse::Written | WriteResponse::Exists => {
                (one.written, one.ticket, one.acknowledged_count) = (now, None, 1);
                if answer == WriteResponse::Written {
                    (one.acknowledged_count, one.attempts) = (count, 0);
                }
                if one.sent {
                    self.metrics.updated += 1;
                } else {
                    self.metrics.sent += 1;
                }
                one.sent = true;
                self.backoff.reset();
                self.failing.retain(|(other, ..)| *other != lane);
                self.place(place, now);
            }
            WriteResponse::Missing if one.acknowledged_count > 0 && !last_try => one.acknowledged_count = 0,
            WriteResponse::Missing | WriteResponse::Refused => {
                (one.written, one.refused, one.ticket) = (now, true, None);
                self.metrics.failed += u64::from(!one.sent);
                self.backoff.reset();
                self.failing.retain(|(other, ..)| *other != lane);
                self.place(place, now);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) if last_try => {
                self.metrics.failed += u64::from(!one.sent);
                self.all.remove(place);
            }
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                self.all[place].ticket = Some(self.ticket())
            }
        }
        match answer {
            WriteResponse::Unavailable(wait) => {
                self.next_try = now + self.backoff.next(&mut self.random).max(wait.unwrap_or_default());
            }
            WriteResponse::Failed => {
                let known = self.failing.iter().position(|(other, ..)| *other == lane);
                let known = known.unwrap_or_else(|| {
                    self.failing.push((lane, Backoff::new(self.config.backoff), now));
                    self.failing.len() - 1
                });
                self.failing[known].2 = now + self.failing[known].1.next(&mut self.random);
            }
            _ => {}
        }
        self.forget_partitions();
        self.tick(now);
    }

    /// Gives up the oldest of another lane that fails.
    fn sacrifice(&mut self, lane: char) -> bool {
        let asked = self.in_flight.map(|(number, _)| number);
        let fails = |other: char| other != lane && self.failing.iter().any(|(failing, ..)| *failing == other);
        let waiting = (0..self.all.len()).filter(|place| self.all[*place].ticket.is_some());
        let given = waiting.filter(|place| {
            fails(partition_of(self.all[*place].event)) && asked != Some(self.all[*place].number)
        });
        let Some(place) = given.min_by_key(|place| self.all[*place].ticket) else { return false };
        self.metrics.dropped += u64::from(!self.all[place].sent);
        self.all.remove(place);
        self.forget_partitions();
        true
    }

    fn forget_partitions(&mut self) {
        let all = &self.all;
        self.failing.retain(|(lane, ..)| {
            all.iter().any(|one| one.ticket.is_some() && partition_of(one.event) == *lane)
        });
    }

    /// Of those for which something is to be done, the earliest first, while there is room.
    fn tick(&mut self, now: Moment) {
        while self.waiting() < self.config.max_queued
            && let Some(place) = self.earliest()
            && self.due(place) <= now
        {
            self.end(place);
        }
    }

    fn place(&mut self, place: usize, now: Moment) {
        let one = &self.all[place];
        let urgent = !one.refused && one.acknowledged_count < 2 && one.count > one.acknowledged_count;
        if urgent && self.waiting() < self.config.max_queued {
            self.all[place].ticket = Some(self.ticket());
        } else if self.all.len() - self.waiting() > self.config.max_remembered {
            let earliest = self.earliest().unwrap();
            self.end(earliest);
        }
        self.tick(now);
    }

    /// Tells what is not told, or forgets it.
    fn end(&mut self, place: usize) {
        let one = &self.all[place];
        if !one.refused && one.count > one.acknowledged_count && self.waiting() < self.config.max_queued {
            self.all[place].ticket = Some(self.ticket());
        } else {
            self.all.remove(place);
        }
    }

    fn earliest(&self) -> Option<usize> {
        let quiet = (0..self.all.len()).filter(|place| self.all[*place].ticket.is_none());
        quiet.min_by_key(|place| (self.due(*place), self.all[*place].number))
    }

    fn due(&self, place: usize) -> Moment {
        let one = &self.all[place];
        let (ended, beat) =
            (one.last + self.config.series_timeout, one.written + self.config.series_update_period);
        match () {
            () if one.refused => one.written + self.config.series_timeout,
            () if one.count > one.acknowledged_count => ended.min(beat),
            () => ended,
        }
    }

    fn waiting(&self) -> usize {
        self.all.iter().filter(|one| one.ticket.is_some()).count()
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Counts tokens as they come: one each `refill`, from a full bucket, never more than `burst`.
    fn accept(&mut self, now: Moment, subject: char) -> bool {
        let refill = self.config.refill_period;
        let mut full = Moment::default();
        for (_, then) in self.accepted.iter().filter(|(other, _)| *other == subject) {
            full = full.max(*then) + refill;
        }
        let missing = full.max(now) - now;
        let accepted = missing + refill <= refill * self.config.burst;
        if accepted {
            self.accepted.push((subject, now));
        }
        accepted
    }
}

/// The lane is the second letter.
pub(super) fn partition_of(event: &str) -> char {
    event.chars().nth(1).unwrap_or_default()
}
