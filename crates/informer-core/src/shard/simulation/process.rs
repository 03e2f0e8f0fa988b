//! One process of the simulation: a member, a candidate and a coordinator with their connections.
//!
//! Its machines are called only when they have asked for it, when a response arrives, or when something is observed, so
//! that a deadline that they do not report is found.

use super::super::*;
use super::network::{Lane, Network};
use super::server::{Server, member_name};
use crate::election::{Election, ElectionConfig, LeaseRequest, LeaseResponse};
use crate::time::Moment;
use jiff::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

pub(super) struct Process {
    pub(super) name: usize,
    pub(super) member: Member,
    member_lane: Lane<MemberRequest, MemberResponse>,
    election: Election,
    election_lane: Lane<LeaseRequest, LeaseResponse>,
    /// That of the current term, or of the last one.
    coordinator: Coordinator,
    /// The number of ranges that its coordinators use for a new assignment.
    count: RangeCount,
    has_term: bool,
    coordinator_lane: Lane<CoordinatorRequest, CoordinatorResponse>,
    /// The Leases as the watch of the coordinator will have delivered them, and when.
    watched: Option<(u64, Vec<(MemberRecord, String)>)>,
    seen_lease_changes: Option<u64>,
    /// Whether changes of the assignment are watched, and when the last one is noticed.
    has_watch: bool,
    seen_assignment: u64,
    noticed: Option<(u64, Option<StoredAssignment>)>,
    /// Ranges for which work runs, according to the events of the member.
    working: BTreeSet<HashRange>,
    /// Ranges whose work ends at a moment.
    releasing: Vec<(u64, HashRange)>,
    pub(super) paused_until: u64,
    /// Until then, the process is coordinator without being elected.
    pub(super) usurps_until: u64,
    /// Requests that fail for some time.
    pub(super) broken: Option<(u64, Broken)>,
    wakes_at: u64,
    offset: u64,
    rate: u64,
    started_at: u64,
}

/// Requests that fail, for example because of missing permissions.
#[derive(Clone, Copy)]
pub(super) enum Broken {
    AssignmentReads,
    Lists,
    Writes,
    Deletions,
    /// The coordinator observes no changes of the Leases.
    Watch,
    All,
}

impl Broken {
    fn affects(self, request: &MemberRequest) -> bool {
        match self {
            Self::AssignmentReads => matches!(request, MemberRequest::ReadAssignment),
            Self::Lists => matches!(request, MemberRequest::ListLeases),
            Self::Writes => {
                matches!(request, MemberRequest::CreateLease(_) | MemberRequest::UpdateLease(..))
            }
            Self::Deletions => matches!(request, MemberRequest::DeleteLease(_)),
            Self::Watch => false,
            Self::All => true,
        }
    }
}

/// A request that arrives after its sender has given up.
pub(super) enum LateRequest {
    Member(usize, MemberRequest),
    Election(LeaseRequest),
    Coordinator(CoordinatorRequest),
}

impl Process {
    pub(super) fn new(
        network: &mut Network,
        name: usize,
        now: u64,
        count: u32,
        (revision, key): (&str, &str),
    ) -> Self {
        let random = &mut network.random;
        let config = ElectionConfig::default();
        let count = RangeCount::new(if random.below(4) == 0 { count / 2 } else { count }).unwrap();
        Self {
            name,
            member: Member::new(&member_name(name), revision, config, random.next_u64())
                .unwrap()
                .with_key(key),
            member_lane: Lane::IDLE,
            election: Election::new(member_name(name), config, random.next_u64()).unwrap(),
            election_lane: Lane::IDLE,
            coordinator: Coordinator::new(count, config),
            count,
            has_term: false,
            coordinator_lane: Lane::IDLE,
            watched: None,
            seen_lease_changes: None,
            has_watch: random.below(2) == 0,
            seen_assignment: 0,
            noticed: None,
            working: BTreeSet::new(),
            releasing: Vec::new(),
            paused_until: 0,
            usurps_until: 0,
            broken: None,
            wakes_at: 0,
            offset: random.below(1_000_000_000),
            rate: 900 + random.below(201),
            started_at: now,
        }
    }

    pub(super) fn clock(&self, now: u64) -> Moment {
        Moment::at(Duration::from_millis(self.offset + (now - self.started_at) * self.rate / 1_000))
    }

    /// Returns when the clock of the process reaches a moment.
    fn reaches(&self, moment: Moment) -> u64 {
        let millis = u64::try_from(moment.since_origin().as_micros().div_ceil(1_000)).unwrap();
        self.started_at + (millis.saturating_sub(self.offset) * 1_000).div_ceil(self.rate)
    }

    /// Returns the ranges for which work runs: until the member reports a loss, or until its deadline.
    pub(super) fn working(&self, now: u64) -> impl Iterator<Item = HashRange> {
        let is_working = self.member.acts_until().is_some_and(|until| self.clock(now) < until);
        self.working.iter().copied().filter(move |_| is_working)
    }

    pub(super) fn stop(&mut self, now: u64) {
        let clock = self.clock(now);
        self.member.stop(clock);
        self.wakes_at = 0;
    }

    /// Lets the server handle the requests that have arrived, and observes changes on the server.
    pub(super) fn deliver(&mut self, now: u64, network: &mut Network, server: &mut Server) {
        let broken = self.broken.filter(|(until, _)| now < *until).map(|(_, broken)| broken);
        self.member_lane.deliver(now, network, |request| {
            let fails = broken.is_some_and(|broken| broken.affects(&request));
            (!fails).then(|| server.serve_member(self.name, request))
        });
        self.election_lane.deliver(now, network, |request| Some(server.serve_election(request)));
        self.coordinator_lane.deliver(now, network, |request| {
            let is_deletion = matches!(request, CoordinatorRequest::DeleteLease(..));
            let fails = match broken {
                Some(Broken::Deletions) => is_deletion,
                Some(Broken::All) => true,
                _ => false,
            };
            (!fails).then(|| server.serve_coordinator(&request))
        });
        if self.has_watch && self.seen_assignment != server.assignment_version() {
            self.seen_assignment = server.assignment_version();
            self.noticed = Some((now + network.delay(), server.stored_assignment()));
        }
        if self.watched.is_none()
            && self.seen_lease_changes != Some(server.lease_changes)
            && self.is_coordinator(now)
            && !matches!(broken, Some(Broken::Watch))
        {
            self.seen_lease_changes = Some(server.lease_changes);
            let leases = server.leases.values();
            let leases = leases.map(|(record, version)| (record.clone(), version.to_string())).collect();
            self.watched = Some((now + network.delay(), leases));
        }
        let lanes = [
            self.member_lane.responds_at(),
            self.election_lane.responds_at(),
            self.coordinator_lane.responds_at(),
        ];
        let watched = self.watched.as_ref().map(|(at, _)| *at);
        let noticed = self.noticed.as_ref().map(|(at, _)| *at);
        let wakes = lanes.into_iter().chain([watched, noticed]).flatten();
        self.wakes_at = wakes.min().unwrap_or(u64::MAX).min(self.wakes_at);
    }

    pub(super) fn is_due(&self, now: u64) -> bool {
        self.paused_until <= now && self.wakes_at <= now
    }

    fn is_coordinator(&self, now: u64) -> bool {
        now < self.usurps_until || self.election.is_leader(self.clock(now))
    }

    /// Lets the machines handle what has happened. Returns the ranges that the member has gained.
    pub(super) fn run(
        &mut self,
        now: u64,
        network: &mut Network,
        late: &mut Vec<(u64, LateRequest)>,
    ) -> Vec<(HashRange, RangeToken)> {
        let gained = self.run_member(now, network, late);
        self.run_election(now, network, late);
        self.begin_term(now, late);
        self.run_coordinator(now, network, late);
        let member = [self.member.next_deadline(), self.member.request_deadline()];
        let election =
            [self.election.next_deadline(), self.election.request_deadline(), self.election.leads_until()];
        let is_coordinator = self.is_coordinator(now);
        let coordinator = self.coordinator.next_deadline().filter(|_| is_coordinator);
        let deadlines = member.into_iter().chain(election);
        let deadlines = deadlines.chain([coordinator, self.coordinator.request_deadline()]).flatten();
        let wakes =
            deadlines.map(|moment| self.reaches(moment)).chain(self.releasing.iter().map(|(at, _)| *at));
        self.wakes_at = wakes.min().unwrap_or(u64::MAX);
        gained
    }

    fn run_member(
        &mut self,
        now: u64,
        network: &mut Network,
        late: &mut Vec<(u64, LateRequest)>,
    ) -> Vec<(HashRange, RangeToken)> {
        let clock = self.clock(now);
        self.member.handle_timeout(clock);
        if let Some((_, observed)) = self.noticed.take_if(|(at, _)| *at <= now) {
            self.member.observe_assignment(observed.as_ref());
        }
        let is_late = self.member.request_deadline().is_some_and(|deadline| clock >= deadline);
        if is_late && let Some((request, arrives_at)) = self.member_lane.give_up() {
            late.extend(arrives_at.map(|at| (at, LateRequest::Member(self.name, request))));
            self.member.handle_response(clock, MemberResponse::Failed("too late".to_owned()));
        } else if let Some((request, response)) = self.member_lane.receive(now) {
            let response = response.unwrap_or_else(|| MemberResponse::Failed("failed".to_owned()));
            self.member.handle_response(clock, response);
            if request == MemberRequest::ReadAssignment {
                self.coordinator.observe_assignment(self.member.assignment().cloned());
            }
        }
        let mut gained = self.handle_events(now, network);
        let ended: Vec<(u64, HashRange)> = self.releasing.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, range) in ended {
            self.working.remove(&range);
            self.member.record_released(range);
        }
        if self.member_lane.is_idle()
            && let Some(request) = self.member.poll_request(clock, wall(clock))
        {
            self.member_lane.send(now, network, request);
        }
        gained.extend(self.handle_events(now, network));
        gained
    }

    fn handle_events(&mut self, now: u64, network: &mut Network) -> Vec<(HashRange, RangeToken)> {
        let mut gained = Vec::new();
        while let Some(event) = self.member.poll_event() {
            match event {
                MemberEvent::Gained(range, token) => {
                    assert!(self.working.insert(range), "{range} gained twice");
                    gained.push((range, token));
                }
                MemberEvent::ReleaseRequested(range) => {
                    self.releasing.push((now + network.random.below(5_000), range));
                }
                MemberEvent::Lost(range, _) => {
                    assert!(self.working.remove(&range), "{range} lost twice");
                    self.releasing.retain(|(_, releasing)| *releasing != range);
                }
            }
        }
        gained
    }

    fn run_election(&mut self, now: u64, network: &mut Network, late: &mut Vec<(u64, LateRequest)>) {
        let clock = self.clock(now);
        self.election.handle_timeout(clock);
        let is_late = self.election.request_deadline().is_some_and(|deadline| clock >= deadline);
        if is_late && let Some((request, arrives_at)) = self.election_lane.give_up() {
            late.extend(arrives_at.map(|at| (at, LateRequest::Election(request))));
            self.election.handle_response(clock, LeaseResponse::Failed("too late".to_owned()));
        } else if let Some((_, response)) = self.election_lane.receive(now) {
            let response = response.unwrap_or_else(|| LeaseResponse::Failed("failed".to_owned()));
            self.election.handle_response(clock, response);
        }
        while self.election.poll_event().is_some() {}
        if self.election_lane.is_idle()
            && let Some(request) = self.election.poll_request(clock, wall(clock))
        {
            self.election_lane.send(now, network, request);
        }
    }

    /// Each term has a coordinator of its own, which knows nothing of the one before.
    fn begin_term(&mut self, now: u64, late: &mut Vec<(u64, LateRequest)>) {
        let is_coordinator = self.is_coordinator(now);
        let had_term = std::mem::replace(&mut self.has_term, is_coordinator);
        if self.has_term && !had_term {
            let in_flight = self.coordinator_lane.give_up();
            late.extend(in_flight.and_then(|(request, at)| Some((at?, LateRequest::Coordinator(request)))));
            self.coordinator = Coordinator::new(self.count, ElectionConfig::default());
            (self.watched, self.seen_lease_changes) = (None, None);
        }
    }

    fn run_coordinator(&mut self, now: u64, network: &mut Network, late: &mut Vec<(u64, LateRequest)>) {
        let clock = self.clock(now);
        if let Some((_, leases)) = self.watched.take_if(|(at, _)| *at <= now) {
            self.coordinator.observe_leases(clock, leases);
        }
        let is_late = self.coordinator.request_deadline().is_some_and(|deadline| clock >= deadline);
        if is_late && let Some((request, arrives_at)) = self.coordinator_lane.give_up() {
            self.coordinator.handle_response(clock, &request, CoordinatorResponse::Failed);
            late.extend(arrives_at.map(|at| (at, LateRequest::Coordinator(request))));
        } else if let Some((request, response)) = self.coordinator_lane.receive(now) {
            let response = response.unwrap_or(CoordinatorResponse::Failed);
            self.coordinator.handle_response(clock, &request, response);
        }
        if self.is_coordinator(now)
            && self.coordinator_lane.is_idle()
            && let Some(request) = self.coordinator.poll_request(clock)
        {
            self.coordinator_lane.send(now, network, request);
        }
    }

    /// Ends the process. The requests that are on their way still arrive.
    pub(super) fn crash(mut self, late: &mut Vec<(u64, LateRequest)>) {
        if let Some((request, Some(at))) = self.member_lane.give_up() {
            late.push((at, LateRequest::Member(self.name, request)));
        }
        if let Some((request, Some(at))) = self.election_lane.give_up() {
            late.push((at, LateRequest::Election(request)));
        }
        if let Some((request, Some(at))) = self.coordinator_lane.give_up() {
            late.push((at, LateRequest::Coordinator(request)));
        }
    }
}

fn wall(clock: Moment) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(clock.since_origin().as_millis()).unwrap()).unwrap()
}
