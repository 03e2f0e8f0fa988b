//! The state machine of one member.
//!
//! A member claims a range by writing it into its own Lease. Then it lists the Leases of all members, and acts only if
//! no other one claims a part of the range. Of two members that claim the same hashes, at least one sees the claim of
//! the other, because both write before they list. So no two members act for the same hash, whatever the assignment
//! contains.
//!
//! Hashes of members with different keys are not comparable: a claim of one counts as a claim of all hashes for the
//! others. The assignment contains the key of the members that are to act; the others claim nothing.
//!
//! Invariants: at most one request is in flight. Each record contains all claims. A member acts only within
//! `renew_deadline` after it sent the last successful renewal of its Lease and the last successful read of the
//! assignment; its Lease is not deleted before `lease_duration` after the renewal. A member that has left has no
//! claims.

use super::claims::Claims;
use super::member_state::{ForeignLease, InFlight, LeaseState, RequestKind, Stopping};
use super::member_state::{leave_delay, renewal_period, request_timeout};
use super::protocol::{ClaimState, MemberEvent, MemberRequest, MemberResponse, RangeLossReason};
use super::range::HashRange;
use super::record::{Assignment, MAX_LEASE_DURATION, MemberRecord, StoredAssignment, other_key};
use crate::election::ElectionConfig;
use crate::error::ConfigError;
use crate::random::Random;
use crate::time::Moment;
use jiff::Timestamp;

/// The state machine of one member of a group.
///
/// While nothing changes, it renews its Lease and reads the assignment every `renew_deadline / 2`, or up to 5% earlier.
/// Failed requests are repeated one to two `retry_period`s after they were sent.
#[derive(Debug)]
pub struct Member {
    config: ElectionConfig,
    random: Random,
    /// The record that was written last.
    record: MemberRecord,
    lease: LeaseState,
    claims: Claims,
    /// The last assignment that was read, and when the request was sent.
    assignment: Option<StoredAssignment>,
    assignment_read_at: Option<Moment>,
    /// When the last successful renewal was sent.
    renewed_at: Option<Moment>,
    /// When the first request was sent.
    started_at: Option<Moment>,
    /// Since when the Lease contains claims that are not confirmed, or when the last successful list since then was
    /// sent.
    unlisted_since: Option<Moment>,
    /// Whether the member cannot act because its reads fail. Then it does not renew its Lease, so that its ranges are
    /// assigned to others.
    is_cut_off: bool,
    next_renewal: Moment,
    next_read: Moment,
    next_list: Moment,
    in_flight: Option<InFlight>,
    /// The key of a member with claims that was listed last, if it is another one.
    listed_key: Option<String>,
    /// The Lease with the name of this member that another process has written.
    foreign: Option<ForeignLease>,
    /// Whether the last request that was to change the Lease was rejected. Then a further rejection counts as a failure.
    is_rejected: bool,
    last_error: String,
    stopping: Stopping,
}

impl Member {
    /// Creates a member. No other process may use the identity at the same time; one that has used it before may have
    /// left its Lease, which is awaited to expire.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid, the renew deadline not below [`MAX_LEASE_DURATION`], or the identity empty.
    pub fn new(
        identity: &str,
        revision: &str,
        mut config: ElectionConfig,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.lease_duration = config.lease_duration.min(MAX_LEASE_DURATION);
        config.check()?;
        if identity.is_empty() {
            return Err(ConfigError::NoIdentity);
        }
        let mut random = Random::new(seed);
        let mut record = MemberRecord::new(identity, random.next_u64(), revision);
        record.lease_duration_seconds = u32::try_from(config.lease_duration.as_secs()).unwrap_or(u32::MAX);
        Ok(Self {
            config,
            random,
            record,
            lease: LeaseState::Missing,
            claims: Claims::default(),
            assignment: None,
            assignment_read_at: None,
            renewed_at: None,
            started_at: None,
            unlisted_since: None,
            is_cut_off: false,
            next_renewal: Moment::default(),
            next_read: Moment::default(),
            next_list: Moment::default(),
            in_flight: None,
            listed_key: None,
            foreign: None,
            is_rejected: false,
            last_error: "no response".to_owned(),
            stopping: Stopping::No,
        })
    }

    /// Sets by what the member divides the objects: the [`key`](MemberRecord::key) of its records. Empty by default.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.record.key);
        self
    }

    /// Returns the key of other members because of which this one does not act; `None` if no other key is known.
    pub fn other_key(&self) -> Option<&str> {
        let stored = self.assignment.as_ref().and_then(|stored| stored.assignment.as_ref());
        let assigned = stored.map(Assignment::key).filter(|key| *key != self.record.key);
        let listed = || self.listed_key.as_deref().filter(|_| self.has_unconfirmed_claims());
        assigned.or_else(listed)
    }

    /// Returns the ranges for which the member may act at this moment.
    pub fn acting(&self, now: Moment) -> impl Iterator<Item = HashRange> {
        let is_acting = self.acts_until().is_some_and(|until| now < until);
        self.claims.acting().filter(move |_| is_acting)
    }

    /// Returns the moment until which the member may act if it receives no further response.
    pub fn acts_until(&self) -> Option<Moment> {
        Some(self.renewed_at?.min(self.assignment_read_at?) + self.config.renew_deadline)
    }

    /// Returns the ranges that the member claims, each with its epoch and the state of the claim.
    pub fn claims(&self) -> impl Iterator<Item = (HashRange, u64, ClaimState)> {
        self.claims.iter()
    }

    /// Returns the record that was written last. The server may not have stored it.
    pub fn record(&self) -> &MemberRecord {
        &self.record
    }

    /// Returns the assignment that was read last.
    pub fn assignment(&self) -> Option<&StoredAssignment> {
        self.assignment.as_ref()
    }

    /// Returns whether the ranges are divided among members of which this is one: its Lease is stored, and the
    /// assignment that was read last contains its identity.
    ///
    /// The assignment may contain it because of an earlier process with the same name.
    pub fn is_considered(&self) -> bool {
        let assignment = self.assignment.as_ref().and_then(|stored| stored.assignment.as_ref());
        let is_member = assignment.is_some_and(|assignment| {
            assignment.key == self.record.key && assignment.members().contains(&self.record.identity)
        });
        is_member && matches!(self.lease, LeaseState::Stored { .. })
    }

    /// Returns the identity of the member.
    pub fn identity(&self) -> &str {
        &self.record.identity
    }

    /// Returns whether the member has left the group and no request is left to send.
    pub fn is_over(&self) -> bool {
        self.stopping == Stopping::Finished
    }

    /// Reads the assignment as soon as possible, because it has changed.
    pub fn read_assignment(&mut self) {
        self.next_read = Moment::default();
    }

    /// Records an assignment that a watch has shown, which may be older than the known one. It is read as soon as possible
    /// if it contains something else for this member, and otherwise at the next regular read: so a version does not
    /// cause a read of every member.
    pub fn observe_assignment(&mut self, observed: Option<&StoredAssignment>) {
        let known = self.assignment.as_ref().and_then(|stored| stored.assignment.as_ref());
        let observed = observed.and_then(|stored| stored.assignment.as_ref());
        let is_same = known
            .zip(observed)
            .is_some_and(|(known, observed)| known.is_same_for(&self.record.identity, observed));
        if !is_same {
            self.read_assignment();
        }
    }

    /// Leaves the group: all ranges are released, and then the Lease is deleted.
    ///
    /// The member has left when the Lease is deleted, or when it could neither be deleted nor renewed for
    /// `lease_duration`.
    pub fn stop(&mut self, now: Moment) {
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Requested(now);
            self.claims.release(|_| true);
            self.finish_without_lease();
        }
    }

    /// Records that the work for a range has ended after [`MemberEvent::ReleaseRequested`].
    pub fn record_released(&mut self, range: HashRange) {
        self.claims.record_released(&range);
        let assignment = self.assignment.as_ref().and_then(|stored| stored.assignment.as_ref());
        if assignment.is_some_and(|assignment| assignment.gives(&self.record.identity, &range)) {
            // The range came back while its work ended.
            self.read_assignment();
        }
    }

    /// Returns the next event, in order of occurrence.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.claims.poll_event()
    }

    /// Returns the next request if one is due. `wall` is written into the Lease and never compared.
    pub fn poll_request(&mut self, now: Moment, wall: Timestamp) -> Option<MemberRequest> {
        self.started_at.get_or_insert(now);
        self.handle_timeout(now);
        if self.in_flight.is_some() {
            return None;
        }
        let kind = self.next_request().filter(|(at, _)| now >= *at)?.1;
        let request = match kind {
            RequestKind::ReadAssignment => MemberRequest::ReadAssignment,
            RequestKind::ReadLease => MemberRequest::ReadLease,
            RequestKind::List => MemberRequest::ListLeases,
            RequestKind::Write => self.write(wall),
            RequestKind::Delete => self.delete(),
        };
        self.in_flight = Some(InFlight { sent_at: now, lease: self.lease.clone(), request: kind });
        Some(request)
    }

    /// Returns the next moment at which [`poll_request`](Self::poll_request) or
    /// [`handle_timeout`](Self::handle_timeout) must be called.
    pub fn next_deadline(&self) -> Option<Moment> {
        let until = self.acts_until().filter(|_| self.claims.acting().next().is_some());
        let request = self.next_request().filter(|_| self.in_flight.is_none());
        until.into_iter().chain(self.stops_at()).chain(request.map(|(at, _)| at)).min()
    }

    /// Returns the moment until which a response to the request in flight is useful.
    pub fn request_deadline(&self) -> Option<Moment> {
        Some(self.in_flight.as_ref()?.sent_at + request_timeout(&self.config))
    }

    /// Handles that time has passed.
    ///
    /// Ends the work for all ranges if the Lease was not renewed, or the assignment not read in time. Ends a stop that
    /// has taken too long.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.acts_until().is_none_or(|until| now >= until) {
            self.claims.lose_acting(&RangeLossReason::NotRenewed(self.last_error.clone()));
        }
        if self.stops_at().is_some_and(|at| now >= at) {
            self.finish();
        }
        let is_over = |since: Moment| now >= since + self.config.lease_duration;
        let read_at = self.assignment_read_at.or(self.started_at);
        self.is_cut_off = read_at.is_some_and(is_over) || self.unlisted_since.is_some_and(is_over);
        if !self.is_cut_off && !self.claims.has_unconfirmed(self.record.number) {
            self.unlisted_since = None;
        }
    }

    /// Handles the response to the request in flight.
    pub fn handle_response(&mut self, now: Moment, response: MemberResponse) {
        let Some(in_flight) = self.in_flight.take() else { return };
        let sent_at = in_flight.sent_at;
        if let MemberResponse::Failed(error) = &response {
            self.last_error.clone_from(error);
        }
        match (in_flight.request, response) {
            (RequestKind::ReadAssignment, MemberResponse::Assignment(assignment)) => {
                self.assignment_read_at = Some(sent_at);
                self.next_read = sent_at + renewal_period(&self.config, &mut self.random);
                self.apply_assignment(assignment);
            }
            (RequestKind::ReadAssignment, _) => self.next_read = self.retry_at(sent_at),
            (RequestKind::List, MemberResponse::Leases(leases)) => {
                self.next_list = self.retry_at(sent_at);
                self.confirm_claims(now, &in_flight.lease, &leases);
                self.unlisted_since = self.has_unconfirmed_claims().then_some(sent_at);
            }
            (RequestKind::List, _) => self.next_list = self.retry_at(sent_at),
            (RequestKind::ReadLease, MemberResponse::Lease(record, version)) => {
                self.handle_read(now, sent_at, &record, version);
            }
            (RequestKind::Write, MemberResponse::Lease(record, version)) => {
                self.lease = LeaseState::Stored { version, number: record.number };
                self.is_rejected = false;
                self.renewed_at = Some(sent_at);
                self.next_renewal = sent_at + renewal_period(&self.config, &mut self.random);
                if self.has_unconfirmed_claims() {
                    // They can be confirmed immediately.
                    self.next_list = now;
                    self.unlisted_since.get_or_insert(sent_at);
                }
            }
            (_, MemberResponse::Missing) => self.handle_missing(now),
            (_, MemberResponse::Conflict) => {
                self.foreign = None;
                self.lease = LeaseState::Unknown;
                let was_rejected = std::mem::replace(&mut self.is_rejected, true);
                self.next_renewal = if was_rejected { self.retry_at(sent_at) } else { now };
            }
            // The request may have taken effect, so the Lease is read first.
            (_, _) => {
                self.lease = LeaseState::Unknown;
                self.next_renewal = self.retry_at(sent_at);
            }
        }
        self.finish_without_lease();
        self.handle_timeout(now);
    }

    /// Returns the next request and when it is due.
    fn next_request(&self) -> Option<(Moment, RequestKind)> {
        let is_leaving = match self.stopping {
            Stopping::No => false,
            Stopping::Requested(_) => true,
            Stopping::Finished => return None,
        };
        let is_stored = matches!(self.lease, LeaseState::Stored { .. });
        if is_leaving
            && self.claims.is_empty()
            && let LeaseState::Stored { number, .. } = self.lease
        {
            return Some(self.next_leave_request(number));
        }
        // Claims are added and removed as soon as possible.
        let is_changed = self.claims.ranges() != self.record.claims
            || self.claims.has_unwritten()
            || is_leaving && !self.record.is_leaving;
        let is_expired = |foreign: &ForeignLease| foreign.expires_at <= self.next_renewal;
        let lease = match self.lease {
            LeaseState::Unknown if self.foreign.as_ref().is_some_and(is_expired) => {
                (self.next_renewal, RequestKind::Delete)
            }
            LeaseState::Unknown => (self.next_renewal, RequestKind::ReadLease),
            LeaseState::Stored { .. } if is_changed => (Moment::default(), RequestKind::Write),
            LeaseState::Stored { .. } | LeaseState::Missing => (self.next_renewal, RequestKind::Write),
        };
        let is_list_needed =
            self.has_unconfirmed_claims() || self.is_cut_off && self.unlisted_since.is_some();
        let list = is_list_needed.then_some((self.next_list, RequestKind::List));
        let read = Some((self.next_read, RequestKind::ReadAssignment));
        // Without a Lease, the member cannot act, and needs nothing else.
        let (lease, reads) = match (self.is_cut_off && !is_leaving, is_stored) {
            (true, _) => (None, [list, read]),
            (false, true) => (Some(lease), [list, read]),
            (false, false) => (Some(lease), [None, None]),
        };
        // The first of those that are due at the same moment.
        lease.into_iter().chain(reads.into_iter().flatten()).min_by_key(|(at, _)| *at)
    }

    /// Returns the request that ends a stop when the Lease contains the record with this number, and when it is due.
    ///
    /// The coordinator has to observe that the member leaves before the Lease is gone: otherwise it waits, as for a Lease
    /// that another client has deleted. Frames of a watch that follow each other closely may be observed together.
    fn next_leave_request(&self, number: u64) -> (Moment, RequestKind) {
        if number != self.record.number || !(self.record.is_leaving || self.record.claims.is_empty()) {
            return (Moment::default(), RequestKind::Write);
        }
        let reported_at = self.renewed_at.filter(|_| self.record.is_leaving);
        (reported_at.map_or(Moment::default(), |at| at + leave_delay(&self.config)), RequestKind::Delete)
    }

    /// Returns the request that creates or renews the Lease.
    fn write(&mut self, wall: Timestamp) -> MemberRequest {
        self.record.number += 1;
        self.record.renewed = Some(wall);
        self.record.claims = self.claims.ranges();
        self.record.is_leaving = self.stopping != Stopping::No;
        self.claims.record_write(self.record.number);
        match &self.lease {
            LeaseState::Stored { version, .. } => {
                MemberRequest::UpdateLease(self.record.clone(), version.clone())
            }
            LeaseState::Unknown | LeaseState::Missing => MemberRequest::CreateLease(self.record.clone()),
        }
    }

    fn delete(&self) -> MemberRequest {
        match &self.lease {
            LeaseState::Stored { version, .. } => MemberRequest::DeleteLease(version.clone()),
            LeaseState::Unknown | LeaseState::Missing => {
                let foreign = self.foreign.as_ref().map(|foreign| foreign.version.clone());
                foreign.map_or(MemberRequest::ReadLease, MemberRequest::DeleteLease)
            }
        }
    }

    fn handle_read(&mut self, now: Moment, sent_at: Moment, record: &MemberRecord, version: String) {
        if record.instance != self.record.instance {
            // The Lease of another process with the same name. If it has ended, the coordinator deletes its Lease, or
            // this member: the coordinator does not see a Lease without the label of the group.
            if self.foreign.as_ref().is_none_or(|foreign| foreign.version != version) {
                self.foreign = Some(ForeignLease {
                    version,
                    expires_at: now + record.valid_for(self.config.lease_duration),
                });
            }
            self.claims.lose_all(&RangeLossReason::LeaseChanged);
            self.is_rejected = false;
            self.next_renewal = self.retry_at(sent_at);
            if self.stopping != Stopping::No {
                self.finish();
            }
            return;
        }
        self.foreign = None;
        self.claims.lose_missing(record);
        self.lease = LeaseState::Stored { version, number: record.number };
        self.next_renewal = now;
    }

    /// Handles that the Lease was deleted. The next one starts without claims: others may have claimed them since.
    fn handle_missing(&mut self, now: Moment) {
        self.claims.lose_all(&RangeLossReason::LeaseChanged);
        self.foreign = None;
        (self.lease, self.renewed_at, self.next_renewal) = (LeaseState::Missing, None, now);
    }

    /// Compares the claims with the assignment.
    fn apply_assignment(&mut self, stored: Option<StoredAssignment>) {
        self.assignment = stored;
        let Some(StoredAssignment { assignment: Some(assignment), version }) = &self.assignment else {
            // It is missing or unreadable: nothing changes until the coordinator has written it again.
            return;
        };
        self.record.assignment_version.clone_from(version);
        if self.stopping == Stopping::No {
            if assignment.key == self.record.key {
                self.claims.apply(assignment, &self.record.identity);
            } else {
                self.claims.release(|_| true);
            }
        }
    }

    /// Acts for the ranges that were claimed when the Leases were listed, and that no other member claims.
    fn confirm_claims(&mut self, now: Moment, lease: &LeaseState, leases: &[MemberRecord]) {
        let is_own = |record: &&MemberRecord| {
            record.identity == self.record.identity && record.instance == self.record.instance
        };
        let LeaseState::Stored { version, number } = lease else { return };
        if !leases.iter().any(|record| is_own(&record)) {
            // It was deleted.
            self.lease = LeaseState::Unknown;
            return;
        }
        let others: Vec<&MemberRecord> = leases.iter().filter(|record| !is_own(record)).collect();
        self.listed_key = other_key(&self.record.key, &others);
        if self.acts_until().is_some_and(|until| now < until) {
            self.claims.confirm(*number, version, &self.record.key, &others);
        }
    }

    /// Returns whether the Lease contains claims that are not confirmed.
    fn has_unconfirmed_claims(&self) -> bool {
        match &self.lease {
            LeaseState::Stored { number, .. } => self.claims.has_unconfirmed(*number),
            LeaseState::Unknown | LeaseState::Missing => false,
        }
    }

    /// Returns the moment at which the member gives up to delete its Lease, after it was asked to stop.
    fn stops_at(&self) -> Option<Moment> {
        let Stopping::Requested(since) = self.stopping else { return None };
        let since = self.renewed_at.map_or(since, |renewed_at| renewed_at.max(since));
        Some(since + self.config.lease_duration)
    }

    /// Ends a stop if there is no Lease to delete.
    fn finish_without_lease(&mut self) {
        let is_stopping = matches!(self.stopping, Stopping::Requested(_));
        if is_stopping && self.lease == LeaseState::Missing && self.in_flight.is_none() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.claims.lose_all(&RangeLossReason::NotRenewed(self.last_error.clone()));
        self.stopping = Stopping::Finished;
    }

    /// Returns the moment of the next attempt after a request that failed: one to two retry periods after it was sent,
    /// so that it fits into `renew_deadline`.
    fn retry_at(&mut self, sent_at: Moment) -> Moment {
        sent_at + self.random.jittered(self.config.retry_period)
    }
}
