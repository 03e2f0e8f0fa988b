//! The state machine of one member.
//!
//! A member claims a range by writing it into its own Lease. Then it lists the Leases of all members, and acts only if
//! no other one claims a part of the range. Of two members that claim the same hashes, at least one sees the claim of
//! the other, because both write before they list. So no two members act for the same hash, whatever the assignment
//! contains.
//!
//! Invariants: at most one request is in flight. Each record contains all claims. A member acts only within
//! `renew_deadline` after it sent the last successful renewal of its Lease and the last successful read of the
//! assignment; its Lease is not deleted before `lease_duration` after the renewal.

use super::protocol::{MemberEvent, MemberRequest, MemberResponse, RangeLossReason, RangeToken};
use super::range::{HashRange, HashRanges};
use super::record::{Assignment, MemberRecord, StoredAssignment};
use crate::election::ElectionConfig;
use crate::error::ConfigError;
use crate::random::Random;
use crate::time::Moment;
use jiff::Timestamp;
use std::collections::{BTreeMap, VecDeque};

/// The state machine of one member of a group.
#[derive(Debug)]
pub struct Member {
    config: ElectionConfig,
    random: Random,
    /// The record that was written last.
    record: MemberRecord,
    lease: LeaseState,
    claims: BTreeMap<HashRange, Claim>,
    /// The last assignment that was read, and when the request was sent.
    assignment: Option<StoredAssignment>,
    assignment_read_at: Option<Moment>,
    /// When the last successful renewal was sent.
    renewed_at: Option<Moment>,
    next_renewal: Moment,
    next_read: Moment,
    next_list: Moment,
    in_flight: Option<InFlight>,
    last_error: String,
    stopping: Stopping,
    events: VecDeque<MemberEvent>,
}

/// What is known of the Lease of this member.
#[derive(Debug, Clone, PartialEq, Eq)]
enum LeaseState {
    /// A request had an unknown effect, or another process has changed the Lease.
    Unknown,
    Missing,
    /// The Lease contains the record with this number.
    Stored {
        version: String,
        number: u64,
    },
}

/// A claim of this member.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    epoch: u64,
    /// The number of the first record that contains the claim; `None` if none was written yet.
    first_record: Option<u64>,
    phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Not confirmed yet.
    Claimed,
    /// The member acts.
    Held,
    /// The member acts until its work has ended.
    Releasing,
}

#[derive(Debug)]
struct InFlight {
    sent_at: Moment,
    /// The Lease when the request was sent.
    lease: LeaseState,
    request: RequestKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    ReadAssignment,
    ReadLease,
    Write,
    Delete,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopping {
    No,
    /// The work ends, and then the Lease is deleted.
    Requested,
    Finished,
}

impl Member {
    /// Creates a member. No other process may use the identity at the same time; one that has used it before may have
    /// left its Lease, which is awaited to expire.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid or the identity is empty.
    pub fn new(
        identity: &str,
        revision: &str,
        config: ElectionConfig,
        seed: u64,
    ) -> Result<Self, ConfigError> {
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
            claims: BTreeMap::new(),
            assignment: None,
            assignment_read_at: None,
            renewed_at: None,
            next_renewal: Moment::default(),
            next_read: Moment::default(),
            next_list: Moment::default(),
            in_flight: None,
            last_error: "no response".to_owned(),
            stopping: Stopping::No,
            events: VecDeque::new(),
        })
    }

    /// Returns the ranges for which the member may act at this moment.
    pub fn acting(&self, now: Moment) -> impl Iterator<Item = HashRange> {
        let acts = self.acts_until().is_some_and(|until| now < until);
        let is_acting = move |claim: &Claim| acts && claim.phase != Phase::Claimed;
        self.claims.iter().filter(move |(_, claim)| is_acting(claim)).map(|(range, _)| *range)
    }

    /// Returns the moment until which the member may act if it receives no further response.
    pub fn acts_until(&self) -> Option<Moment> {
        Some(self.renewed_at?.min(self.assignment_read_at?) + self.config.renew_deadline)
    }

    /// Returns the assignment that was read last.
    pub fn assignment(&self) -> Option<&StoredAssignment> {
        self.assignment.as_ref()
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

    /// Leaves the group: all ranges are released, and then the Lease is deleted.
    pub fn stop(&mut self) {
        if self.stopping == Stopping::No {
            self.stopping = Stopping::Requested;
            self.release(|_| true);
            if self.lease == LeaseState::Missing && self.in_flight.is_none() {
                self.stopping = Stopping::Finished;
            }
        }
    }

    /// Records that the work for a range has ended after [`MemberEvent::ReleaseRequested`].
    pub fn record_released(&mut self, range: HashRange) {
        if self.claims.get(&range).is_some_and(|claim| claim.phase == Phase::Releasing) {
            self.claims.remove(&range);
        }
    }

    /// Returns the next event, in order of occurrence.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// Returns the next request if one is due. `wall` is written into the Lease and never compared.
    pub fn poll_request(&mut self, now: Moment, wall: Timestamp) -> Option<MemberRequest> {
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
        let until =
            self.acts_until().filter(|_| self.claims.values().any(|claim| claim.phase != Phase::Claimed));
        let request = self.next_request().filter(|_| self.in_flight.is_none());
        until.into_iter().chain(request.map(|(at, _)| at)).min()
    }

    /// Returns the moment until which a response to the request in flight is useful.
    pub fn request_deadline(&self) -> Option<Moment> {
        // Early enough for another attempt.
        Some(self.in_flight.as_ref()?.sent_at + self.config.renew_deadline / 2)
    }

    /// Ends the work for all ranges if the Lease was not renewed, or the assignment not read in time.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.acts_until().is_none_or(|until| now >= until) {
            let reason = RangeLossReason::NotRenewed(self.last_error.clone());
            self.lose(|claim| claim.phase != Phase::Claimed, &reason);
        }
    }

    /// Handles the response to the request in flight.
    pub fn handle_response(&mut self, now: Moment, response: MemberResponse) {
        let Some(in_flight) = self.in_flight.take() else { return };
        if let MemberResponse::Failed(error) = &response {
            self.last_error.clone_from(error);
        }
        match (in_flight.request, response) {
            (RequestKind::ReadAssignment, MemberResponse::Assignment(assignment)) => {
                self.assignment_read_at = Some(in_flight.sent_at);
                self.next_read = now + self.config.retry_period;
                self.apply_assignment(assignment);
            }
            (RequestKind::ReadAssignment, _) => self.next_read = self.retry_at(now),
            (RequestKind::List, MemberResponse::Leases(leases)) => {
                self.confirm_claims(now, &in_flight.lease, &leases);
            }
            (RequestKind::List, _) => self.next_list = self.retry_at(now),
            (RequestKind::ReadLease, MemberResponse::Lease(record, version)) => {
                self.handle_read(now, &record, version);
            }
            (RequestKind::Write, MemberResponse::Lease(record, version)) => {
                self.lease = LeaseState::Stored { version, number: record.number };
                self.renewed_at = Some(in_flight.sent_at);
                self.next_renewal = now + self.config.retry_period;
                // A claim can be confirmed immediately.
                self.next_list = now;
            }
            (RequestKind::Delete, MemberResponse::Missing) => self.stopping = Stopping::Finished,
            (_, MemberResponse::Missing) => self.handle_missing(now),
            (_, MemberResponse::Conflict) => {
                self.lease = LeaseState::Unknown;
                self.next_renewal = now;
            }
            // The request may have taken effect, so the Lease is read first.
            (_, _) => {
                self.lease = LeaseState::Unknown;
                self.next_renewal = self.retry_at(now);
                // The Lease expires if it cannot be deleted.
                if in_flight.request == RequestKind::Delete {
                    self.stopping = Stopping::Finished;
                }
            }
        }
        self.handle_timeout(now);
    }

    /// Returns the next request and when it is due.
    fn next_request(&self) -> Option<(Moment, RequestKind)> {
        let is_stopping = match self.stopping {
            Stopping::No => false,
            Stopping::Requested => true,
            Stopping::Finished => return None,
        };
        let LeaseState::Stored { number, .. } = &self.lease else {
            let kind =
                if self.lease == LeaseState::Unknown { RequestKind::ReadLease } else { RequestKind::Write };
            return Some((self.next_renewal, kind));
        };
        if is_stopping && self.claims.is_empty() {
            return Some((Moment::default(), RequestKind::Delete));
        }
        // Claims are added and removed as soon as possible.
        let claims: HashRanges = self.claims.keys().copied().collect();
        let is_changed = claims != self.record.claims;
        let write = (if is_changed { Moment::default() } else { self.next_renewal }, RequestKind::Write);
        let is_stored = |claim: &Claim| claim.first_record.is_some_and(|first| first <= *number);
        let unconfirmed = |claim: &Claim| claim.phase == Phase::Claimed && is_stored(claim);
        let list = self.claims.values().any(unconfirmed).then_some((self.next_list, RequestKind::List));
        let read = Some((self.next_read, RequestKind::ReadAssignment));
        // The first of those that are due at the same moment.
        [Some(write), list, read].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Returns the request that creates or renews the Lease.
    fn write(&mut self, wall: Timestamp) -> MemberRequest {
        self.record.number += 1;
        self.record.renewed = Some(wall);
        self.record.claims = self.claims.keys().copied().collect();
        let number = self.record.number;
        for claim in self.claims.values_mut() {
            claim.first_record.get_or_insert(number);
        }
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
            LeaseState::Unknown | LeaseState::Missing => MemberRequest::ReadLease,
        }
    }

    fn handle_read(&mut self, now: Moment, record: &MemberRecord, version: String) {
        self.next_renewal = now;
        let stored = LeaseState::Stored { version, number: record.number };
        if record.instance != self.record.instance {
            // The Lease of another process with the same name. If it has ended, the coordinator deletes its Lease.
            self.lose(|_| true, &RangeLossReason::LeaseChanged);
            self.next_renewal = self.retry_at(now);
            if self.stopping == Stopping::Requested {
                self.stopping = Stopping::Finished;
            }
            return;
        }
        // Claims that the stored record should contain and does not contain are lost: another process has edited it,
        // or deleted it before a late request created it again.
        let is_later = |claim: &Claim| claim.first_record.is_none_or(|first| first > record.number);
        let is_kept = |range: &HashRange, claim: &Claim| {
            record.claims.covers(range) || (claim.phase == Phase::Claimed && is_later(claim))
        };
        let lost: Vec<HashRange> = self
            .claims
            .iter()
            .filter(|(range, claim)| !is_kept(range, claim))
            .map(|(range, _)| *range)
            .collect();
        self.lose_ranges(&lost, &RangeLossReason::LeaseChanged);
        self.lease = stored;
    }

    /// Handles that the Lease was deleted. The next one starts without claims: others may have claimed them since.
    fn handle_missing(&mut self, now: Moment) {
        self.lose(|_| true, &RangeLossReason::LeaseChanged);
        (self.lease, self.renewed_at, self.next_renewal) = (LeaseState::Missing, None, now);
        if self.stopping == Stopping::Requested {
            self.stopping = Stopping::Finished;
        }
    }

    /// Compares the claims with the assignment.
    fn apply_assignment(&mut self, stored: Option<StoredAssignment>) {
        self.assignment = stored;
        let Some(StoredAssignment { assignment: Some(assignment), version }) = &self.assignment else {
            // It is missing or unreadable: nothing changes until the coordinator has written it again.
            return;
        };
        self.record.assignment_version.clone_from(version);
        if self.stopping != Stopping::No {
            return;
        }
        let wanted = wanted(assignment, &self.record.identity);
        self.release(|range| !wanted.contains_key(range));
        let present: HashRanges = self.claims.keys().copied().collect();
        for (range, epoch) in wanted {
            // A range of another size is claimed when the overlapping ones are released.
            if !present.overlaps(&range) {
                let claim = Claim { epoch, first_record: None, phase: Phase::Claimed };
                self.claims.insert(range, claim);
            }
        }
    }

    /// Begins to release ranges.
    fn release(&mut self, is_released: impl Fn(&HashRange) -> bool) {
        let Self { claims, events, .. } = self;
        claims.retain(|range, claim| {
            if !is_released(range) {
                return true;
            }
            if claim.phase == Phase::Held {
                claim.phase = Phase::Releasing;
                events.push_back(MemberEvent::ReleaseRequested(*range));
            }
            claim.phase == Phase::Releasing
        });
    }

    /// Acts for the ranges that were claimed when the Leases were listed, and that no other member claims.
    fn confirm_claims(&mut self, now: Moment, lease: &LeaseState, leases: &[MemberRecord]) {
        self.next_list = self.retry_at(now);
        let is_own = |record: &&MemberRecord| {
            record.identity == self.record.identity && record.instance == self.record.instance
        };
        let LeaseState::Stored { version, number } = lease else { return };
        if !leases.iter().any(|record| is_own(&record)) {
            // It was deleted.
            self.lease = LeaseState::Unknown;
            return;
        }
        if self.acts_until().is_none_or(|until| now >= until) {
            return;
        }
        let others: Vec<&MemberRecord> = leases.iter().filter(|record| !is_own(record)).collect();
        for (range, claim) in &mut self.claims {
            let is_stored = claim.first_record.is_some_and(|first| first <= *number);
            let is_claimed = || others.iter().any(|record| record.claims.overlaps(range));
            if claim.phase == Phase::Claimed && is_stored && !is_claimed() {
                claim.phase = Phase::Held;
                let token = RangeToken { version: version.clone(), epoch: claim.epoch };
                self.events.push_back(MemberEvent::Gained(*range, token));
            }
        }
    }

    /// Removes claims; those for which the member acts are reported.
    fn lose(&mut self, is_lost: impl Fn(&Claim) -> bool, reason: &RangeLossReason) {
        let lost = self.claims.iter().filter(|(_, claim)| is_lost(claim)).map(|(range, _)| *range);
        self.lose_ranges(&lost.collect::<Vec<_>>(), reason);
    }

    fn lose_ranges(&mut self, ranges: &[HashRange], reason: &RangeLossReason) {
        for range in ranges {
            let claim = self.claims.remove(range);
            if claim.is_some_and(|claim| claim.phase != Phase::Claimed) {
                self.events.push_back(MemberEvent::Lost(*range, reason.clone()));
            }
        }
    }

    /// Returns the moment of the next attempt after a failure: one to two retry periods from now.
    fn retry_at(&mut self, now: Moment) -> Moment {
        now + self.random.jittered(self.config.retry_period)
    }
}

/// Returns the ranges that a member should have, each with its epoch.
fn wanted(assignment: &Assignment, identity: &str) -> BTreeMap<HashRange, u64> {
    let own = assignment
        .iter()
        .filter(|(_, assigned)| assigned.owner.as_deref() == Some(identity) && !assigned.is_releasing);
    own.map(|(range, assigned)| (range, assigned.epoch)).collect()
}
