//! The state machine of one candidate.
//!
//! Invariants: at most one request is in flight. While the candidate leads, its term ends `renew_deadline`
//! after it sent the request that last renewed the lease. The candidate treats a record as its own only if it
//! wrote the record, whatever identity the record contains.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;

use super::config::ElectionConfig;
use super::record::LeaseRecord;
use crate::error::ConfigError;
use crate::random::Random;
use crate::time::Moment;

/// A request to the server.
///
/// At most one is in flight; each is completed by [`Election::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseRequest {
    /// Read the lease.
    Read,
    /// Create the lease.
    Create(LeaseRecord),
    /// Replace the lease if it still has this version.
    Update(LeaseRecord, String),
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseResponse {
    /// The lease that was read or written, and its version.
    Lease(LeaseRecord, String),
    /// The lease does not exist.
    Missing,
    /// Another process was faster: the lease already exists or has another version.
    Conflict,
    /// The request failed; whether it took effect is unknown.
    Failed(String),
}

/// A change of leadership that a candidate observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The candidate has become leader.
    Elected(FencingToken),
    /// The candidate is no longer leader and must stop acting as one.
    LeadershipLost(LossReason),
    /// The lease has a new holder; contains its identity, empty if the lease was released.
    LeaderChanged(String),
}

/// The token that identifies a term of leadership.
///
/// Each term has its own token. Its `version`, as a number, is greater than those of all earlier terms. Systems
/// that check the token can reject writes of earlier leaders.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FencingToken {
    /// The version of the lease when it was acquired.
    pub version: String,
    /// Number of changes of the holder when the lease was acquired.
    pub transitions: i32,
}

/// The reason why leadership ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease was not renewed in time, or was deleted; contains the last error.
    NotRenewed(String),
    /// Another process wrote the lease; contains the identity of the holder, empty if the lease was released.
    HeldByOther(String),
    /// [`Election::stop`] was called.
    StopRequested,
}

/// The state machine of one candidate in an election.
#[derive(Debug)]
pub struct Election {
    identity: String,
    config: ElectionConfig,
    /// Upper bound on the time for which a lease counts without a change.
    max_lease_duration: Duration,
    random: Random,
    /// The lease as last read or written.
    observed: Option<ObservedLease>,
    /// Records sent since the contents of the lease were last known: one of them may have been stored.
    sent: Vec<LeaseRecord>,
    /// The next request, and when it is due.
    next_request: NextRequest,
    next_attempt: Moment,
    in_flight: Option<InFlightRequest>,
    term: Option<CurrentTerm>,
    /// The most recent error.
    last_error: String,
    /// The holder in the last [`Event::LeaderChanged`].
    announced_holder: Option<String>,
    stopping: Stopping,
    events: VecDeque<Event>,
}

/// The lease as a candidate observed it.
#[derive(Debug)]
struct ObservedLease {
    record: LeaseRecord,
    version: String,
    /// When this record was first observed.
    since: Moment,
    /// Whether this candidate wrote the record.
    own: bool,
}

/// The purpose of the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextRequest {
    Read,
    /// The lease does not exist.
    Create,
    /// The lease that was just read has no valid holder.
    Claim,
    /// The lease that was just read or written is this candidate's.
    Renew,
}

/// A request without a response yet.
#[derive(Debug)]
struct InFlightRequest {
    sent_at: Moment,
    /// Whether the request creates or updates the lease.
    writes: bool,
}

/// The term in which this candidate leads.
#[derive(Debug)]
struct CurrentTerm {
    token: FencingToken,
    /// The moment at which the candidate must have stopped acting unless it renews the lease.
    until: Moment,
}

/// The progress of stopping the candidacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// No further attempts; the leader's work is ending.
    Requested,
    /// The leader's work has ended; the lease can be released.
    Release,
    Finished,
}

impl Election {
    /// Creates a candidate.
    ///
    /// The identity must be unique. A lease with this identity that the candidate did not write still belongs
    /// to another process.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the identity is empty.
    pub fn new(identity: impl Into<String>, config: ElectionConfig, seed: u64) -> Result<Self, ConfigError> {
        let identity = identity.into();
        config.check()?;
        if identity.is_empty() {
            return Err(ConfigError::NoIdentity);
        }
        Ok(Election {
            identity,
            config,
            max_lease_duration: Duration::MAX,
            random: Random::new(seed),
            observed: None,
            sent: Vec::new(),
            next_request: NextRequest::Read,
            next_attempt: Moment::default(),
            in_flight: None,
            term: None,
            last_error: String::new(),
            announced_holder: None,
            stopping: Stopping::No,
            events: VecDeque::new(),
        })
    }

    /// Limits the time for which a lease counts without a change, whatever duration it contains. Unlimited by default, as in
    /// client-go: the holder may have a longer lease duration than this candidate.
    #[must_use]
    pub fn with_max_lease_duration(mut self, max: Duration) -> Self {
        self.max_lease_duration = max;
        self
    }

    /// Returns the moment at which a lease expires that was observed at `since`.
    fn expires_at(&self, record: &LeaseRecord, since: Moment) -> Moment {
        since + record.valid_for().min(self.max_lease_duration)
    }

    /// Returns whether the candidate may act as the leader at this moment.
    pub fn is_leader(&self, now: Moment) -> bool {
        self.term.as_ref().is_some_and(|term| now < term.until)
    }

    /// Returns the token of the current term, if the candidate leads.
    pub fn fencing_token(&self) -> Option<&FencingToken> {
        self.term.as_ref().map(|term| &term.token)
    }

    /// Returns the moment until which the candidate may act if it receives no further response.
    pub fn leads_until(&self) -> Option<Moment> {
        self.term.as_ref().map(|term| term.until)
    }

    /// Returns the last known holder of the lease; empty if there is none.
    pub fn holder(&self) -> &str {
        self.observed.as_ref().map_or("", |observed| observed.record.holder.as_str())
    }

    /// Returns whether the candidacy has ended and no request is left to send.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Finished
    }

    /// Returns the next request if one is due. `wall` is written into the lease and never compared.
    pub fn poll_request(&mut self, now: Moment, wall: Timestamp) -> Option<LeaseRequest> {
        self.handle_timeout(now);
        if self.in_flight.is_some() {
            return None;
        }
        let request = match self.stopping {
            Stopping::No if now >= self.next_attempt => self.attempt(wall),
            Stopping::Release => self.release(wall)?,
            _ => return None,
        };
        let record = match &request {
            LeaseRequest::Read => None,
            LeaseRequest::Create(record) | LeaseRequest::Update(record, _) => Some(record.clone()),
        };
        self.in_flight = Some(InFlightRequest { sent_at: now, writes: record.is_some() });
        self.sent.extend(record);
        Some(request)
    }

    /// Handles the response to the request in flight.
    pub fn handle_response(&mut self, now: Moment, response: LeaseResponse) {
        let Some(in_flight) = self.in_flight.take() else { return };
        match response {
            LeaseResponse::Lease(record, version) if in_flight.writes => {
                self.handle_written(now, in_flight.sent_at, record, version);
            }
            LeaseResponse::Lease(record, version) => self.handle_read(now, record, version),
            LeaseResponse::Missing => self.handle_missing(now, in_flight.writes),
            LeaseResponse::Conflict => {
                "another process wrote the lease".clone_into(&mut self.last_error);
                // A leader reads the lease immediately to find out whether another process holds it.
                let at = if self.term.is_some() { now } else { self.retry_at(now) };
                self.schedule(NextRequest::Read, at);
            }
            LeaseResponse::Failed(reason) => {
                self.last_error = reason;
                let at =
                    if self.term.is_some() { now + self.config.retry_period } else { self.retry_at(now) };
                // The request may have taken effect, so the lease must be read.
                self.schedule(NextRequest::Read, at);
                // A failed release is not retried: the lease expires.
                if self.stopping == Stopping::Release {
                    self.stopping = Stopping::Finished;
                }
            }
        }
        self.handle_timeout(now);
    }

    /// Ends leadership if the lease was not renewed in time.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.term.as_ref().is_some_and(|term| now >= term.until) {
            self.lose(LossReason::NotRenewed(self.last_error.clone()));
        }
    }

    /// Returns the next moment at which [`Election::poll_request`] or [`Election::handle_timeout`] must be
    /// called.
    pub fn next_deadline(&self) -> Option<Moment> {
        let until = self.term.as_ref().map(|term| term.until);
        let request_at = match self.stopping {
            _ if self.in_flight.is_some() => None,
            Stopping::No => Some(self.next_attempt),
            // Immediately.
            Stopping::Release => Some(Moment::default()),
            Stopping::Requested | Stopping::Finished => None,
        };
        until.into_iter().chain(request_at).min()
    }

    /// Returns the moment until which a response to the request in flight is useful; for a leader, at most
    /// the end of its term.
    pub fn request_deadline(&self) -> Option<Moment> {
        let deadline = self.in_flight.as_ref()?.sent_at + self.config.renew_deadline;
        Some(self.term.as_ref().map_or(deadline, |term| deadline.min(term.until)))
    }

    /// Returns the next event, in order of occurrence.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Ends the candidacy. When the leader's work has ended, [`Election::record_work_ended`] must be called
    /// to release the lease.
    pub fn stop(&mut self) {
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Requested;
            self.lose(LossReason::StopRequested);
        }
    }

    /// Records that the leader's work has ended after [`Election::stop`]. The lease is then released if it is
    /// still this candidate's.
    pub fn record_work_ended(&mut self) {
        if self.stopping == Stopping::Requested {
            let may_hold_lease =
                self.observed.as_ref().is_some_and(|observed| observed.own) || !self.sent.is_empty();
            self.stopping = if may_hold_lease { Stopping::Release } else { Stopping::Finished };
        }
    }

    /// Returns the request that reads, acquires or renews the lease.
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
            (NextRequest::Claim, Some(observed)) => LeaseRequest::Update(
                claim(wall, observed.record.transitions.saturating_add(1)),
                observed.version.clone(),
            ),
            (NextRequest::Renew, Some(observed)) => {
                let acquired = observed.record.acquired.unwrap_or(wall);
                LeaseRequest::Update(claim(acquired, observed.record.transitions), observed.version.clone())
            }
            _ => LeaseRequest::Read,
        }
    }

    /// Returns the request that releases the lease, or `None` if there is nothing to release.
    fn release(&mut self, wall: Timestamp) -> Option<LeaseRequest> {
        match &self.observed {
            Some(observed) if observed.own && self.next_request == NextRequest::Renew => {
                // Like client-go, with a duration of one second: zero is not a valid duration.
                let free = LeaseRecord {
                    holder: String::new(),
                    lease_duration_seconds: 1,
                    acquired: Some(wall),
                    renewed: Some(wall),
                    transitions: observed.record.transitions,
                };
                Some(LeaseRequest::Update(free, observed.version.clone()))
            }
            // Read first whether the lease is this candidate's: a write may have taken effect without a
            // response, also the write that creates the lease.
            observed if observed.as_ref().is_some_and(|lease| lease.own) || !self.sent.is_empty() => {
                Some(LeaseRequest::Read)
            }
            _ => {
                self.stopping = Stopping::Finished;
                None
            }
        }
    }

    /// Handles the response to a successful write. The term is counted from when the request was sent, the
    /// earliest moment at which the write can have taken effect.
    fn handle_written(&mut self, now: Moment, sent_at: Moment, record: LeaseRecord, version: String) {
        self.sent.clear();
        self.announce_holder(&record.holder);
        let own = !record.holder.is_empty();
        let token = FencingToken { version: version.clone(), transitions: record.transitions };
        self.observed = Some(ObservedLease { record, version, since: now, own });
        self.schedule(NextRequest::Renew, now + self.config.retry_period);
        // The error to report if the term ends without another response.
        "no response".clone_into(&mut self.last_error);
        if self.stopping == Stopping::Release {
            self.stopping = if own { Stopping::Release } else { Stopping::Finished };
        }
        let until = sent_at + self.config.renew_deadline;
        if self.stopping != Stopping::No || now >= until {
            return;
        }
        if let Some(term) = &mut self.term {
            term.until = until;
        } else {
            self.term = Some(CurrentTerm { token: token.clone(), until });
            self.events.push_back(Event::Elected(token));
        }
    }

    fn handle_read(&mut self, now: Moment, record: LeaseRecord, version: String) {
        let known = self.observed.as_ref().filter(|observed| observed.record == record);
        let since = known.map_or(now, |observed| observed.since);
        // The identity is not compared: a record belongs to this candidate only if it wrote the record.
        let own = self.sent.contains(&record) || known.is_some_and(|observed| observed.own);
        let own = own && !record.holder.is_empty();
        let free = record.holder.is_empty() || now >= self.expires_at(&record, since);
        self.sent.clear();
        self.announce_holder(&record.holder);
        let holder = record.holder.clone();
        self.observed = Some(ObservedLease { record, version, since, own });
        if own {
            // The age of the record is unknown, so the lease is renewed before the candidate leads.
            return self.schedule(NextRequest::Renew, now);
        }
        self.lose(LossReason::HeldByOther(holder));
        if free {
            self.schedule(NextRequest::Claim, now);
        } else {
            let at = self.retry_at(now);
            self.schedule(NextRequest::Read, at);
        }
    }

    /// Handles a missing lease. A holder that was observed before may not know that its lease was deleted, so
    /// the candidate waits until that lease would have expired.
    fn handle_missing(&mut self, now: Moment, was_write: bool) {
        self.sent.clear();
        self.lose(LossReason::NotRenewed("the lease was deleted".to_owned()));
        self.observed.take_if(|observed| observed.own);
        let may_be_held = self.observed.as_ref().is_some_and(|observed| {
            !observed.record.holder.is_empty() && now < self.expires_at(&observed.record, observed.since)
        });
        if was_write {
            // Another process may have created the lease again.
            self.schedule(NextRequest::Read, now);
        } else if may_be_held {
            let at = self.retry_at(now);
            self.schedule(NextRequest::Read, at);
        } else {
            self.observed = None;
            self.schedule(NextRequest::Create, now);
        }
    }

    fn schedule(&mut self, request: NextRequest, at: Moment) {
        (self.next_request, self.next_attempt) = (request, at);
    }

    fn lose(&mut self, reason: LossReason) {
        if self.term.take().is_some() {
            self.events.push_back(Event::LeadershipLost(reason));
        }
    }

    fn announce_holder(&mut self, holder: &str) {
        if self.announced_holder.as_deref() != Some(holder) {
            self.announced_holder = Some(holder.to_owned());
            self.events.push_back(Event::LeaderChanged(holder.to_owned()));
        }
    }

    /// Returns the moment of a candidate's next attempt: `retry_period` from now, plus a random delay of up
    /// to 1.2 times that.
    fn retry_at(&mut self, now: Moment) -> Moment {
        let retry = u64::try_from(self.config.retry_period.as_nanos()).unwrap_or(u64::MAX);
        now + self.config.retry_period + Duration::from_nanos(self.random.below(retry.saturating_mul(6) / 5))
    }
}
