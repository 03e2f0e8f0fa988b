//! The machine of one candidate.
//!
//! Invariants: one request at a time; while it leads, `until` lies `renew` after the request that last renewed the lease was sent; a
//! record counts as its own only if it wrote it, whatever name is in it.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::config::ElectionConfig;
use super::record::LeaseRecord;
use crate::error::ConfigError;
use crate::random::Random;
use crate::time::Moment;

/// What is to be asked of the server. One at a time; each is answered by [`Election::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Read the lease.
    Read,
    /// Create it.
    Create(LeaseRecord),
    /// Replace it, if it still has this version.
    Update(LeaseRecord, String),
}

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The lease, read or written, and its version.
    Lease(LeaseRecord, String),
    /// There is none.
    Missing,
    /// Somebody else was faster: it is there already, or has another version.
    Conflict,
    /// Nobody knows what came of it.
    Failed(String),
}

/// What happened to a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// It leads.
    Elected(FencingToken),
    /// It does not lead any more: what it does as a leader has to end.
    LeadershipLost(LossReason),
    /// Somebody else holds the lease, or nobody (empty).
    LeaderChanged(String),
}

/// Tells terms of leadership apart: each has one of its own, and of two the later is greater. What a leader writes to systems that take such a
/// token cannot be mistaken for what a later leader writes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FencingToken {
    /// The version of the lease when it was acquired.
    pub version: String,
    /// How often the lease had changed hands.
    pub transitions: i32,
}

/// Why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease could not be renewed in time; what went wrong last.
    NotRenewed(String),
    /// Somebody else holds the lease.
    HeldByOther(String),
    /// It was asked to stop.
    StopRequested,
}

/// A candidate of an election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    config: ElectionConfig,
    random: Random,
    /// What it last saw.
    observed: Option<ObservedLease>,
    /// Records it has sent since it last knew what the lease says: one of them may have arrived.
    sent: Vec<LeaseRecord>,
    /// What it does next, and when.
    next_request: NextRequest,
    next_try: Moment,
    in_flight: Option<InFlightRequest>,
    term: Option<CurrentTerm>,
    /// What went wrong last.
    last_error: String,
    /// The holder that was last told.
    announced_holder: Option<String>,
    stopping: Stopping,
    events: VecDeque<Event>,
}

/// What a candidate knows of the lease.
#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    version: String,
    /// When it first saw this record.
    since: Moment,
    /// Whether it wrote that itself.
    own: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextRequest {
    Read,
    /// Nobody has a lease.
    Create,
    /// What was just read is free.
    Claim,
    /// What was just read or written is its own.
    Renew,
}

/// A request on its way.
#[derive(Debug)]
struct InFlightRequest {
    at: Moment,
    writes: bool,
}

#[derive(Debug)]
struct CurrentTerm {
    token: FencingToken,
    /// When it must have stopped.
    until: Moment,
}

/// How far it is with ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// No more tries; what it does as a leader is ending.
    Requested,
    /// The work has ended: the lease can be given back.
    Release,
    Finished,
}

impl Election {
    /// A candidate. Its identity must be its own; a lease under it that it did not write is somebody else's all the same.
    pub fn new(identity: impl Into<String>, config: ElectionConfig, seed: u64) -> Result<Self, ConfigError> {
        let identity = identity.into();
        config.check()?;
        if identity.is_empty() {
            return Err(ConfigError::NoIdentity);
        }
        Ok(Election {
            identity,
            config,
            random: Random::new(seed),
            observed: None,
            sent: Vec::new(),
            next_request: NextRequest::Read,
            next_try: Moment::default(),
            in_flight: None,
            term: None,
            last_error: String::new(),
            announced_holder: None,
            stopping: Stopping::No,
            events: VecDeque::new(),
        })
    }

    /// Whether it may act as the leader at this moment.
    pub fn is_leader(&self, now: Moment) -> bool {
        self.term.as_ref().is_some_and(|leads| now < leads.until)
    }

    /// The token of the term in which it leads.
    pub fn fencing_token(&self) -> Option<&FencingToken> {
        self.term.as_ref().map(|leads| &leads.token)
    }

    /// Until when it may act if nothing more is heard.
    pub fn leads_until(&self) -> Option<Moment> {
        self.term.as_ref().map(|leads| leads.until)
    }

    /// Who holds the lease as far as it knows; empty if nobody does.
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |seen| seen.record.holder.as_str())
    }

    /// Whether it has ended, and nothing is left to be asked.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Finished
    }

    /// The next request, if one is due. `wall` is written into the lease, and never compared with anything.
    pub fn poll_request(&mut self, now: Moment, wall: Timestamp) -> Option<LeaseRequest> {
        self.handle_timeout(now);
        if self.in_flight.is_some() {
            return None;
        }
        let request = match self.stopping {
            Stopping::No if now >= self.next_try => self.attempt(wall),
            Stopping::Release => self.release(wall)?,
            _ => return None,
        };
        let record = match &request {
            LeaseRequest::Read => None,
            LeaseRequest::Create(record) | LeaseRequest::Update(record, _) => Some(record.clone()),
        };
        self.in_flight = Some(InFlightRequest { at: now, writes: record.is_some() });
        self.sent.extend(record);
        Some(request)
    }

    /// How the request was answered.
    pub fn handle_response(&mut self, now: Moment, answer: LeaseResponse) {
        let Some(asked) = self.in_flight.take() else { return };
        match answer {
            LeaseResponse::Lease(record, version) if asked.writes => {
                self.handle_written(now, asked.at, record, version);
            }
            LeaseResponse::Lease(record, version) => self.handle_read(now, record, version),
            LeaseResponse::Missing => self.handle_missing(now, asked.writes),
            LeaseResponse::Conflict => {
                // What it says now is worth knowing at once to somebody who leads.
                "somebody else wrote the lease".clone_into(&mut self.last_error);
                let when = if self.term.is_some() { now } else { self.retry_at(now) };
                self.schedule(NextRequest::Read, when);
            }
            LeaseResponse::Failed(why) => {
                self.last_error = why;
                let when =
                    if self.term.is_some() { now + self.config.retry_period } else { self.retry_at(now) };
                // What was sent may have arrived, so the lease has to be read.
                self.schedule(NextRequest::Read, when);
                if self.stopping == Stopping::Release {
                    self.stopping = Stopping::Finished;
                }
            }
        }
        self.handle_timeout(now);
    }

    /// Ends leadership that was not renewed in time.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.term.as_ref().is_some_and(|leads| now >= leads.until) {
            self.lose(LossReason::NotRenewed(self.last_error.clone()));
        }
    }

    /// When [`Election::poll_request`] or [`Election::handle_timeout`] has something to do.
    pub fn next_deadline(&self) -> Option<Moment> {
        let until = self.term.as_ref().map(|leads| leads.until);
        let ask = match self.stopping {
            _ if self.in_flight.is_some() => None,
            Stopping::No => Some(self.next_try),
            Stopping::Release => Some(Moment::default()),
            Stopping::Requested | Stopping::Finished => None,
        };
        until.into_iter().chain(ask).min()
    }

    /// Until when an answer is of use: a leader has none for one that comes after its end.
    pub fn request_deadline(&self) -> Option<Moment> {
        let patience = self.in_flight.as_ref()?.at + self.config.renew_deadline;
        Some(self.term.as_ref().map_or(patience, |leads| patience.min(leads.until)))
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the candidacy. What it does as a leader has to end; then [`Election::stopped`] gives the lease back.
    pub fn stop(&mut self) {
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Requested;
            self.lose(LossReason::StopRequested);
        }
    }

    /// What it did as a leader has ended: the lease is given back if it is still its own.
    pub fn stopped(&mut self) {
        if self.stopping == Stopping::Requested {
            let perhaps = self.observed.as_ref().is_some_and(|seen| seen.own) || !self.sent.is_empty();
            self.stopping = if perhaps { Stopping::Release } else { Stopping::Finished };
        }
    }

    /// What to ask for to get or keep the lease.
    fn attempt(&self, wall: Timestamp) -> LeaseRequest {
        let seconds = i32::try_from(self.config.lease_duration.as_secs()).unwrap_or(i32::MAX);
        let claim = |acquired, transitions| LeaseRecord {
            holder: self.identity.clone(),
            lease_duration_seconds: seconds,
            acquired: Some(acquired),
            renewed: Some(wall),
            transitions,
        };
        match (self.next_request, &self.observed) {
            (NextRequest::Create, _) => LeaseRequest::Create(claim(wall, 0)),
            (NextRequest::Claim, Some(seen)) => LeaseRequest::Update(
                claim(wall, seen.record.transitions.saturating_add(1)),
                seen.version.clone(),
            ),
            (NextRequest::Renew, Some(seen)) => {
                let acquired = seen.record.acquired.unwrap_or(wall);
                LeaseRequest::Update(claim(acquired, seen.record.transitions), seen.version.clone())
            }
            _ => LeaseRequest::Read,
        }
    }

    /// What to ask for to give the lease back; nothing if that is not to be done, or done.
    fn release(&mut self, wall: Timestamp) -> Option<LeaseRequest> {
        match &self.observed {
            Some(seen) if seen.own && self.next_request == NextRequest::Renew => {
                let free = LeaseRecord {
                    holder: String::new(),
                    lease_duration_seconds: 1,
                    acquired: Some(wall),
                    renewed: Some(wall),
                    transitions: seen.record.transitions,
                };
                Some(LeaseRequest::Update(free, seen.version.clone()))
            }
            // Whether it is still its own has to be read.
            Some(seen) if seen.own || !self.sent.is_empty() => Some(LeaseRequest::Read),
            _ => {
                self.stopping = Stopping::Finished;
                None
            }
        }
    }

    /// The lease has what was sent. It is held from when the request was sent, which is the earliest that it can have arrived.
    fn handle_written(&mut self, now: Moment, sent_at: Moment, record: LeaseRecord, version: String) {
        self.sent.clear();
        self.announce_holder(&record.holder);
        let own = !record.holder.is_empty();
        let fence = FencingToken { version: version.clone(), transitions: record.transitions };
        self.observed = Some(ObservedLease { record, version, since: now, own });
        self.schedule(NextRequest::Renew, now + self.config.retry_period);
        "no answer".clone_into(&mut self.last_error);
        if self.stopping == Stopping::Release {
            self.stopping = if own { Stopping::Release } else { Stopping::Finished };
        }
        let until = sent_at + self.config.renew_deadline;
        if self.stopping != Stopping::No || now >= until {
            return;
        }
        if let Some(leads) = &mut self.term {
            leads.until = until;
        } else {
            self.term = Some(CurrentTerm { token: fence.clone(), until });
            self.events.push_back(Event::Elected(fence));
        }
    }

    fn handle_read(&mut self, now: Moment, record: LeaseRecord, version: String) {
        let known = self.observed.as_ref().filter(|seen| seen.record == record);
        let since = known.map_or(now, |seen| seen.since);
        // Under whatever name: what it did not write is not its own.
        let own = self.sent.contains(&record) || known.is_some_and(|seen| seen.own);
        let own = own && !record.holder.is_empty();
        let free = record.holder.is_empty() || now >= since + record.valid_for();
        self.sent.clear();
        self.announce_holder(&record.holder);
        let holder = record.holder.clone();
        self.observed = Some(ObservedLease { record, version, since, own });
        if own {
            // How old it is, is not known: before it counts it is renewed.
            return self.schedule(NextRequest::Renew, now);
        }
        self.lose(LossReason::HeldByOther(holder));
        if free {
            self.schedule(NextRequest::Claim, now);
        } else {
            let when = self.retry_at(now);
            self.schedule(NextRequest::Read, when);
        }
    }

    /// There is no lease. Somebody who was seen to hold one may not know that yet, and is given the time.
    fn handle_missing(&mut self, now: Moment, wrote: bool) {
        self.sent.clear();
        self.lose(LossReason::NotRenewed("the lease was deleted".to_owned()));
        self.observed.take_if(|seen| seen.own);
        let held = self
            .observed
            .as_ref()
            .is_some_and(|seen| !seen.record.holder.is_empty() && now < seen.since + seen.record.valid_for());
        if wrote {
            self.schedule(NextRequest::Read, now);
        } else if held {
            let when = self.retry_at(now);
            self.schedule(NextRequest::Read, when);
        } else {
            self.observed = None;
            self.schedule(NextRequest::Create, now);
        }
    }

    fn schedule(&mut self, plan: NextRequest, when: Moment) {
        (self.next_request, self.next_try) = (plan, when);
    }

    fn lose(&mut self, why: LossReason) {
        if self.term.take().is_some() {
            self.events.push_back(Event::LeadershipLost(why));
        }
    }

    fn announce_holder(&mut self, holder: &str) {
        if self.announced_holder.as_deref() != Some(holder) {
            self.announced_holder = Some(holder.to_owned());
            self.events.push_back(Event::LeaderChanged(holder.to_owned()));
        }
    }

    /// When a candidate tries again: after `retry`, and up to 1.2 times that more.
    fn retry_at(&mut self, now: Moment) -> Moment {
        let retry = u64::try_from(self.config.retry_period.as_nanos()).unwrap_or(u64::MAX);
        now + self.config.retry_period + Duration::from_nanos(self.random.below(retry.saturating_mul(6) / 5))
    }
}
