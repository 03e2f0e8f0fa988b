//! The machine of one candidate.
//!
//! Invariants: one request at a time; while it leads, `until` lies `renew` after the request that last renewed the lease was sent; a
//! record counts as its own only if it wrote it, whatever name is in it.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::config::{ElectionConfig, ElectionConfigError};
use super::record::Record;
use crate::random::Random;
use crate::time::Moment;

/// What is to be asked of the server. One at a time; each is answered by [`Election::handle_answer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Read the lease.
    Read,
    /// Create it.
    Create(Record),
    /// Replace it, if it still has this version.
    Update(Record, String),
}

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The lease, read or written, and its version.
    Lease(Record, String),
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
    Leads(Fence),
    /// It does not lead any more: what it does as a leader has to end.
    Stops(Lost),
    /// Somebody else holds the lease, or nobody (empty).
    Leader(String),
}

/// Tells terms of leadership apart: each has one of its own, and of two the later is greater. What a leader writes to systems that take such a
/// token cannot be mistaken for what a later leader writes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fence {
    /// The version of the lease when it was acquired.
    pub version: String,
    /// How often the lease had changed hands.
    pub transitions: i32,
}

/// Why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The lease could not be renewed in time; what went wrong last.
    Deadline(String),
    /// Somebody else holds the lease.
    Taken(String),
    /// It was asked to stop.
    Asked,
}

/// A candidate of an election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    config: ElectionConfig,
    random: Random,
    /// What it last saw.
    seen: Option<Seen>,
    /// Records it has sent since it last knew what the lease says: one of them may have arrived.
    sent: Vec<Record>,
    /// What it does next, and when.
    plan: Plan,
    next_try: Moment,
    asked: Option<Asked>,
    leads: Option<Leads>,
    /// What went wrong last.
    trouble: String,
    /// The holder that was last told.
    told: Option<String>,
    stopping: Stopping,
    events: VecDeque<Event>,
}

/// What a candidate knows of the lease.
#[derive(Debug)]
struct Seen {
    record: Record,
    version: String,
    /// When it first saw this record.
    since: Moment,
    /// Whether it wrote that itself.
    own: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Plan {
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
struct Asked {
    at: Moment,
    writes: bool,
}

#[derive(Debug)]
struct Leads {
    fence: Fence,
    /// When it must have stopped.
    until: Moment,
}

/// How far it is with ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// No more tries; what it does as a leader is ending.
    Asked,
    /// The work has ended: the lease can be given back.
    Release,
    Over,
}

impl Election {
    /// A candidate. Its identity must be its own; a lease under it that it did not write is somebody else's all the same.
    pub fn new(
        identity: impl Into<String>,
        config: ElectionConfig,
        seed: u64,
    ) -> Result<Self, ElectionConfigError> {
        let identity = identity.into();
        config.check()?;
        if identity.is_empty() {
            return Err(ElectionConfigError::NoIdentity);
        }
        Ok(Election {
            identity,
            config,
            random: Random::new(seed),
            seen: None,
            sent: Vec::new(),
            plan: Plan::Read,
            next_try: Moment::default(),
            asked: None,
            leads: None,
            trouble: String::new(),
            told: None,
            stopping: Stopping::No,
            events: VecDeque::new(),
        })
    }

    /// Whether it may act as the leader at this moment.
    pub fn leads(&self, now: Moment) -> bool {
        self.leads.as_ref().is_some_and(|leads| now < leads.until)
    }

    /// The token of the term in which it leads.
    pub fn fence(&self) -> Option<&Fence> {
        self.leads.as_ref().map(|leads| &leads.fence)
    }

    /// Until when it may act if nothing more is heard.
    pub fn leads_until(&self) -> Option<Moment> {
        self.leads.as_ref().map(|leads| leads.until)
    }

    /// Who holds the lease as far as it knows; empty if nobody does.
    pub fn holder(&self) -> &str {
        self.seen.as_ref().map_or("", |seen| seen.record.holder.as_str())
    }

    /// Whether it has ended, and nothing is left to be asked.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Over
    }

    /// The next request, if one is due. `wall` is written into the lease, and never compared with anything.
    pub fn poll_request(&mut self, now: Moment, wall: Timestamp) -> Option<Request> {
        self.handle_timeout(now);
        if self.asked.is_some() {
            return None;
        }
        let request = match self.stopping {
            Stopping::No if now >= self.next_try => self.attempt(wall),
            Stopping::Release => self.release(wall)?,
            _ => return None,
        };
        let record = match &request {
            Request::Read => None,
            Request::Create(record) | Request::Update(record, _) => Some(record.clone()),
        };
        self.asked = Some(Asked { at: now, writes: record.is_some() });
        self.sent.extend(record);
        Some(request)
    }

    /// How the request was answered.
    pub fn handle_answer(&mut self, now: Moment, answer: Answer) {
        let Some(asked) = self.asked.take() else { return };
        match answer {
            Answer::Lease(record, version) if asked.writes => {
                self.handle_written(now, asked.at, record, version);
            }
            Answer::Lease(record, version) => self.handle_read(now, record, version),
            Answer::Missing => self.handle_missing(now, asked.writes),
            Answer::Conflict => {
                // What it says now is worth knowing at once to somebody who leads.
                "somebody else wrote the lease".clone_into(&mut self.trouble);
                let when = if self.leads.is_some() { now } else { self.later(now) };
                self.plan(Plan::Read, when);
            }
            Answer::Failed(why) => {
                self.trouble = why;
                let when = if self.leads.is_some() { now + self.config.retry } else { self.later(now) };
                // What was sent may have arrived, so the lease has to be read.
                self.plan(Plan::Read, when);
                if self.stopping == Stopping::Release {
                    self.stopping = Stopping::Over;
                }
            }
        }
        self.handle_timeout(now);
    }

    /// Ends leadership that was not renewed in time.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.leads.as_ref().is_some_and(|leads| now >= leads.until) {
            self.lose(Lost::Deadline(self.trouble.clone()));
        }
    }

    /// When [`Election::poll_request`] or [`Election::handle_timeout`] has something to do.
    pub fn next_deadline(&self) -> Option<Moment> {
        let until = self.leads.as_ref().map(|leads| leads.until);
        let ask = match self.stopping {
            _ if self.asked.is_some() => None,
            Stopping::No => Some(self.next_try),
            Stopping::Release => Some(Moment::default()),
            Stopping::Asked | Stopping::Over => None,
        };
        until.into_iter().chain(ask).min()
    }

    /// Until when an answer is of use: a leader has none for one that comes after its end.
    pub fn request_deadline(&self) -> Option<Moment> {
        let patience = self.asked.as_ref()?.at + self.config.renew;
        Some(self.leads.as_ref().map_or(patience, |leads| patience.min(leads.until)))
    }

    /// What has happened, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the candidacy. What it does as a leader has to end; then [`Election::stopped`] gives the lease back.
    pub fn stop(&mut self) {
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Asked;
            self.lose(Lost::Asked);
        }
    }

    /// What it did as a leader has ended: the lease is given back if it is still its own.
    pub fn stopped(&mut self) {
        if self.stopping == Stopping::Asked {
            let perhaps = self.seen.as_ref().is_some_and(|seen| seen.own) || !self.sent.is_empty();
            self.stopping = if perhaps { Stopping::Release } else { Stopping::Over };
        }
    }

    /// What to ask for to get or keep the lease.
    fn attempt(&self, wall: Timestamp) -> Request {
        let seconds = i32::try_from(self.config.lease.as_secs()).unwrap_or(i32::MAX);
        let claim = |acquired, transitions| Record {
            holder: self.identity.clone(),
            seconds,
            acquired: Some(acquired),
            renewed: Some(wall),
            transitions,
        };
        match (self.plan, &self.seen) {
            (Plan::Create, _) => Request::Create(claim(wall, 0)),
            (Plan::Claim, Some(seen)) => {
                Request::Update(claim(wall, seen.record.transitions.saturating_add(1)), seen.version.clone())
            }
            (Plan::Renew, Some(seen)) => {
                let acquired = seen.record.acquired.unwrap_or(wall);
                Request::Update(claim(acquired, seen.record.transitions), seen.version.clone())
            }
            _ => Request::Read,
        }
    }

    /// What to ask for to give the lease back; nothing if that is not to be done, or done.
    fn release(&mut self, wall: Timestamp) -> Option<Request> {
        match &self.seen {
            Some(seen) if seen.own && self.plan == Plan::Renew => {
                let free = Record {
                    holder: String::new(),
                    seconds: 1,
                    acquired: Some(wall),
                    renewed: Some(wall),
                    transitions: seen.record.transitions,
                };
                Some(Request::Update(free, seen.version.clone()))
            }
            // Whether it is still its own has to be read.
            Some(seen) if seen.own || !self.sent.is_empty() => Some(Request::Read),
            _ => {
                self.stopping = Stopping::Over;
                None
            }
        }
    }

    /// The lease has what was sent. It is held from when the request was sent, which is the earliest that it can have arrived.
    fn handle_written(&mut self, now: Moment, sent_at: Moment, record: Record, version: String) {
        self.sent.clear();
        self.tell(&record.holder);
        let own = !record.holder.is_empty();
        let fence = Fence { version: version.clone(), transitions: record.transitions };
        self.seen = Some(Seen { record, version, since: now, own });
        self.plan(Plan::Renew, now + self.config.retry);
        "no answer".clone_into(&mut self.trouble);
        if self.stopping == Stopping::Release {
            self.stopping = if own { Stopping::Release } else { Stopping::Over };
        }
        let until = sent_at + self.config.renew;
        if self.stopping != Stopping::No || now >= until {
            return;
        }
        if let Some(leads) = &mut self.leads {
            leads.until = until;
        } else {
            self.leads = Some(Leads { fence: fence.clone(), until });
            self.events.push_back(Event::Leads(fence));
        }
    }

    fn handle_read(&mut self, now: Moment, record: Record, version: String) {
        let known = self.seen.as_ref().filter(|seen| seen.record == record);
        let since = known.map_or(now, |seen| seen.since);
        // Under whatever name: what it did not write is not its own.
        let own = self.sent.contains(&record) || known.is_some_and(|seen| seen.own);
        let own = own && !record.holder.is_empty();
        let free = record.holder.is_empty() || now >= since + record.valid_for();
        self.sent.clear();
        self.tell(&record.holder);
        let holder = record.holder.clone();
        self.seen = Some(Seen { record, version, since, own });
        if own {
            // How old it is, is not known: before it counts it is renewed.
            return self.plan(Plan::Renew, now);
        }
        self.lose(Lost::Taken(holder));
        if free {
            self.plan(Plan::Claim, now);
        } else {
            let when = self.later(now);
            self.plan(Plan::Read, when);
        }
    }

    /// There is no lease. Somebody who was seen to hold one may not know that yet, and is given the time.
    fn handle_missing(&mut self, now: Moment, wrote: bool) {
        self.sent.clear();
        self.lose(Lost::Deadline("the lease was deleted".to_owned()));
        self.seen.take_if(|seen| seen.own);
        let held = self
            .seen
            .as_ref()
            .is_some_and(|seen| !seen.record.holder.is_empty() && now < seen.since + seen.record.valid_for());
        if wrote {
            self.plan(Plan::Read, now);
        } else if held {
            let when = self.later(now);
            self.plan(Plan::Read, when);
        } else {
            self.seen = None;
            self.plan(Plan::Create, now);
        }
    }

    fn plan(&mut self, plan: Plan, when: Moment) {
        (self.plan, self.next_try) = (plan, when);
    }

    fn lose(&mut self, why: Lost) {
        if self.leads.take().is_some() {
            self.events.push_back(Event::Stops(why));
        }
    }

    fn tell(&mut self, holder: &str) {
        if self.told.as_deref() != Some(holder) {
            self.told = Some(holder.to_owned());
            self.events.push_back(Event::Leader(holder.to_owned()));
        }
    }

    /// When a candidate tries again: after `retry`, and up to 1.2 times that more.
    fn later(&mut self, now: Moment) -> Moment {
        let retry = u64::try_from(self.config.retry.as_nanos()).unwrap_or(u64::MAX);
        now + self.config.retry + Duration::from_nanos(self.random.below(retry.saturating_mul(6) / 5))
    }
}
