//! Simulated groups under faults: clocks that run fast or slow, requests and responses that are late or lost, members
//! that crash, pause and restart with the same name, members with other numbers of ranges, and assignments that are
//! edited or deleted. No two members act for the same hash, and soon after the faults have ended, some member acts for
//! each of them.
//!
//! A run depends only on its seed.

mod server;

use super::*;
use crate::election::{Election, ElectionConfig, LeaseRequest, LeaseResponse};
use crate::random::Random;
use crate::time::Moment;
use jiff::Timestamp;
use server::{Server, member_name};
use std::time::Duration;

const STEP_MILLIS: u64 = 100;
const FAULTY_MILLIS: u64 = 120_000;
/// Time in which each range has a member after the last fault. Requests of the faulty phase arrive up to 20 s late.
/// Then one of the candidates becomes coordinator (a lease duration and an attempt, by slow clocks), Leases of
/// members that have ended expire (another lease duration), and their ranges are claimed.
const BOUND_MILLIS: u64 = 75_000;
const SEEDS: u64 = 5_000;

/// A request on its way to the server, or a response on its way back, and when it arrives.
struct Lane<Q, R> {
    in_transit: Option<(u64, Message<Q, R>)>,
}

enum Message<Q, R> {
    Request(Q),
    Response(Q, R),
}

impl<Q, R> Lane<Q, R> {
    const IDLE: Self = Self { in_transit: None };

    fn arrives_at(&self) -> Option<u64> {
        self.in_transit.as_ref().map(|(at, _)| *at)
    }
}

struct Process {
    name: usize,
    member: Member,
    member_lane: Lane<MemberRequest, MemberResponse>,
    election: Election,
    election_lane: Lane<LeaseRequest, LeaseResponse>,
    coordinator: Coordinator,
    coordinator_lane: Lane<CoordinatorRequest, CoordinatorResponse>,
    /// The Leases as the watch of the coordinator will have delivered them, and when.
    watched: Option<(u64, Vec<(MemberRecord, String)>)>,
    /// Ranges whose work ends at a moment.
    releasing: Vec<(u64, HashRange)>,
    paused_until: u64,
    offset: u64,
    rate: u64,
    started_at: u64,
}

/// A request that arrives after its sender has given up.
enum LateRequest {
    Member(usize, MemberRequest),
    Election(LeaseRequest),
    Coordinator(CoordinatorRequest),
}

struct World {
    seed: u64,
    random: Random,
    now: u64,
    server: Server,
    late: Vec<(u64, LateRequest)>,
    processes: Vec<Process>,
    /// The highest token of each sixteenth of the hashes.
    tokens: [u64; 16],
    gained: u64,
}

impl Process {
    fn new(random: &mut Random, name: usize, now: u64) -> Self {
        let config = ElectionConfig::default();
        let count = RangeCount::new(if random.below(4) == 0 { 8 } else { 16 }).unwrap();
        let revision = random.below(2).to_string();
        Self {
            name,
            member: Member::new(&member_name(name), &revision, config, random.next_u64()).unwrap(),
            member_lane: Lane::IDLE,
            election: Election::new(member_name(name), config, random.next_u64()).unwrap(),
            election_lane: Lane::IDLE,
            coordinator: Coordinator::new(count, config.retry_period),
            coordinator_lane: Lane::IDLE,
            watched: None,
            releasing: Vec::new(),
            paused_until: 0,
            offset: random.below(1_000_000_000),
            rate: 900 + random.below(201),
            started_at: now,
        }
    }

    fn clock(&self, now: u64) -> Moment {
        Moment::at(Duration::from_millis(self.offset + (now - self.started_at) * self.rate / 1_000))
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let members = 2 + usize::try_from(random.below(3)).unwrap();
        let processes = (0..members).map(|name| Process::new(&mut random, name, 0)).collect();
        World {
            seed,
            random,
            now: 0,
            server: Server::default(),
            late: Vec::new(),
            processes,
            tokens: [0; 16],
            gained: 0,
        }
    }

    fn step(&mut self, faulty: bool) {
        self.now += STEP_MILLIS;
        if faulty {
            self.inject_fault();
        }
        let now = self.now;
        let late = std::mem::take(&mut self.late);
        let (due, late): (Vec<_>, Vec<_>) = late.into_iter().partition(|(at, _)| *at <= now);
        self.late = late;
        for (_, request) in due {
            match request {
                LateRequest::Member(name, request) => drop(self.server.serve_member(name, request)),
                LateRequest::Election(request) => drop(self.server.serve_election(request)),
                LateRequest::Coordinator(request) => drop(self.server.serve_coordinator(&request)),
            }
        }
        for index in 0..self.processes.len() {
            if self.processes[index].paused_until <= now {
                self.run_member(index, faulty);
                self.run_election(index, faulty);
                self.run_coordinator(index, faulty);
            }
        }
    }

    fn inject_fault(&mut self) {
        let index = usize::try_from(self.random.below(self.processes.len() as u64)).unwrap();
        match self.random.below(2_000) {
            // The process crashes, and another one starts, with the same name or another one.
            0 | 1 => {
                let name = self.processes[index].name + if self.random.below(3) == 0 { 0 } else { 10 };
                self.restart(index, name);
            }
            2 => self.processes[index].member.stop(),
            3 | 4 => self.processes[index].paused_until = self.now + self.random.below(40_000),
            5 => self.server.assignment = None,
            6 => {
                let version = self.server.next_version();
                if let Some((assignment, stored)) = &mut self.server.assignment {
                    *stored = version;
                    edit(assignment, &mut self.random);
                }
            }
            _ => {}
        }
    }

    /// Replaces a process by another one. The requests that are on their way still arrive.
    fn restart(&mut self, index: usize, name: usize) {
        let new = Process::new(&mut self.random, name, self.now);
        let old = std::mem::replace(&mut self.processes[index], new);
        if let Some((at, Message::Request(request))) = old.member_lane.in_transit {
            self.late.push((at, LateRequest::Member(old.name, request)));
        }
        if let Some((at, Message::Request(request))) = old.election_lane.in_transit {
            self.late.push((at, LateRequest::Election(request)));
        }
        if let Some((at, Message::Request(request))) = old.coordinator_lane.in_transit {
            self.late.push((at, LateRequest::Coordinator(request)));
        }
    }

    fn delay(&mut self, faulty: bool) -> u64 {
        match self.random.below(if faulty { 20 } else { 1_000_000 }) {
            0 => self.random.below(20_000),
            1 | 2 => self.random.below(3_000),
            _ => self.random.below(100),
        }
    }

    fn is_lost(&mut self, faulty: bool) -> bool {
        faulty && self.random.below(10) == 0
    }

    fn run_member(&mut self, index: usize, faulty: bool) {
        let now = self.now;
        let process = &mut self.processes[index];
        let clock = process.clock(now);
        process.member.handle_timeout(clock);
        let is_late = process.member.request_deadline().is_some_and(|deadline| clock >= deadline);
        if is_late || process.member_lane.arrives_at().is_some_and(|at| at <= now) {
            match process.member_lane.in_transit.take() {
                Some((at, Message::Request(request))) if is_late => {
                    self.late.push((at, LateRequest::Member(process.name, request)));
                    process.member.handle_response(clock, MemberResponse::Failed("too late".to_owned()));
                }
                Some((_, Message::Request(request))) => {
                    let response = self.server.serve_member(process.name, request.clone());
                    let is_lost = self.is_lost(faulty);
                    let response = if is_lost { MemberResponse::Failed("lost".to_owned()) } else { response };
                    let message = (now + self.delay(faulty), Message::Response(request, response));
                    self.processes[index].member_lane.in_transit = Some(message);
                }
                Some((_, Message::Response(_, response))) => {
                    let response = if is_late { MemberResponse::Failed("late".to_owned()) } else { response };
                    process.member.handle_response(clock, response);
                    process.coordinator.observe_assignment(process.member.assignment().cloned());
                }
                None => {}
            }
        }
        self.handle_member_events(index);
        let process = &mut self.processes[index];
        let (ended, running) =
            std::mem::take(&mut process.releasing).into_iter().partition(|(at, _)| *at <= now);
        process.releasing = running;
        let ended: Vec<(u64, HashRange)> = ended;
        for (_, range) in ended {
            process.member.record_released(range);
        }
        if process.member_lane.in_transit.is_none()
            && let Some(request) = process.member.poll_request(clock, wall(clock))
        {
            let message = (now + self.delay(faulty), Message::Request(request));
            self.processes[index].member_lane.in_transit = Some(message);
        }
        if self.processes[index].member.is_over() && self.random.below(100) == 0 {
            let name = self.processes[index].name + 10;
            self.restart(index, name);
        }
        self.handle_member_events(index);
    }

    fn handle_member_events(&mut self, index: usize) {
        while let Some(event) = self.processes[index].member.poll_event() {
            match event {
                MemberEvent::Gained(range, token) => {
                    self.gained += 1;
                    self.check_token(range, &token);
                    self.check_holders();
                }
                MemberEvent::ReleaseRequested(range) => {
                    let ends = self.now + self.random.below(5_000);
                    self.processes[index].releasing.push((ends, range));
                }
                MemberEvent::Lost(range, _) => {
                    self.processes[index].releasing.retain(|(_, releasing)| *releasing != range);
                }
            }
        }
    }

    fn run_election(&mut self, index: usize, faulty: bool) {
        let now = self.now;
        let process = &mut self.processes[index];
        let clock = process.clock(now);
        process.election.handle_timeout(clock);
        let is_late = process.election.request_deadline().is_some_and(|deadline| clock >= deadline);
        if is_late || process.election_lane.arrives_at().is_some_and(|at| at <= now) {
            match process.election_lane.in_transit.take() {
                Some((at, Message::Request(request))) if is_late => {
                    self.late.push((at, LateRequest::Election(request)));
                    process.election.handle_response(clock, LeaseResponse::Failed("too late".to_owned()));
                }
                Some((_, Message::Request(request))) => {
                    let response = self.server.serve_election(request.clone());
                    let is_lost = self.is_lost(faulty);
                    let response = if is_lost { LeaseResponse::Failed("lost".to_owned()) } else { response };
                    let message = (now + self.delay(faulty), Message::Response(request, response));
                    self.processes[index].election_lane.in_transit = Some(message);
                }
                Some((_, Message::Response(_, response))) => {
                    process.election.handle_response(clock, response);
                }
                None => {}
            }
        }
        let process = &mut self.processes[index];
        while process.election.poll_event().is_some() {}
        if process.election_lane.in_transit.is_none()
            && let Some(request) = process.election.poll_request(clock, wall(clock))
        {
            let message = (now + self.delay(faulty), Message::Request(request));
            self.processes[index].election_lane.in_transit = Some(message);
        }
    }

    fn run_coordinator(&mut self, index: usize, faulty: bool) {
        let now = self.now;
        let process = &mut self.processes[index];
        let clock = process.clock(now);
        if process.watched.as_ref().is_some_and(|(at, _)| *at <= now)
            && let Some((_, leases)) = process.watched.take()
        {
            process.coordinator.observe_leases(clock, leases);
        }
        if process.coordinator_lane.arrives_at().is_some_and(|at| at <= now) {
            match process.coordinator_lane.in_transit.take() {
                Some((_, Message::Request(request))) => {
                    let response = self.server.serve_coordinator(&request);
                    let is_lost = self.is_lost(faulty);
                    let response = if is_lost { CoordinatorResponse::Failed } else { response };
                    let message = (now + self.delay(faulty), Message::Response(request, response));
                    self.processes[index].coordinator_lane.in_transit = Some(message);
                }
                Some((_, Message::Response(request, response))) => {
                    process.coordinator.handle_response(clock, &request, response);
                }
                None => {}
            }
        }
        let process = &mut self.processes[index];
        if !process.election.is_leader(clock) {
            return;
        }
        if process.coordinator_lane.in_transit.is_none()
            && let Some(request) = process.coordinator.poll_request(clock)
        {
            let message = (now + self.delay(faulty), Message::Request(request));
            self.processes[index].coordinator_lane.in_transit = Some(message);
        }
        if self.processes[index].watched.is_none() {
            let leases = self.server.leases.values();
            let leases = leases.map(|(record, version)| (record.clone(), version.to_string())).collect();
            self.processes[index].watched = Some((now + self.delay(faulty), leases));
        }
    }

    /// The tokens of a range increase.
    fn check_token(&mut self, range: HashRange, token: &RangeToken) {
        let version: u64 = token.version.parse().unwrap();
        for (last, part) in self.tokens.iter_mut().zip(RangeCount::new(16).unwrap().ranges()) {
            if part.overlaps(&range) {
                assert!(version > *last, "seed {}: token {version} after {last}", self.seed);
                *last = version;
            }
        }
    }

    fn acting(&self) -> Vec<(HashRange, usize)> {
        let acting = self.processes.iter().enumerate().flat_map(|(index, process)| {
            process.member.acting(process.clock(self.now)).map(move |range| (range, index))
        });
        let mut acting: Vec<(HashRange, usize)> = acting.collect();
        acting.sort_unstable();
        acting
    }

    fn check_holders(&self) {
        let acting = self.acting();
        for pair in acting.windows(2) {
            let [(first, a), (second, b)] = pair else { unreachable!() };
            let seed = self.seed;
            assert!(!first.overlaps(second), "seed {seed}: {a} and {b} act for {first} at {} ms", self.now);
        }
    }
}

fn edit(assignment: &mut Option<Assignment>, random: &mut Random) {
    let Some(known) = assignment else { return };
    match random.below(3) {
        0 => *assignment = None,
        1 => {
            let owner = member_name(usize::try_from(random.below(4)).unwrap());
            let index = usize::try_from(random.below(known.ranges.len() as u64)).unwrap();
            known.ranges[index] = RangeAssignment::new(Some(owner), random.below(3), random.below(2) == 0);
        }
        _ => {
            // Another number of ranges.
            let count = RangeCount::new(if known.ranges.len() == 8 { 16 } else { 8 }).unwrap();
            let mut other = Assignment::without_owners(count);
            for range in &mut other.ranges {
                range.owner = Some(member_name(usize::try_from(random.below(4)).unwrap()));
            }
            *known = other;
        }
    }
}

fn wall(clock: Moment) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(clock.since_origin().as_millis()).unwrap()).unwrap()
}

#[test]
fn at_most_one_member_acts_for_a_hash() {
    let mut gained = 0;
    let seeds = std::env::var("INFORMER_SHARD_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(SEEDS);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        while world.now < FAULTY_MILLIS {
            world.step(/* faulty */ true);
        }
        for process in &mut world.processes {
            process.paused_until = 0;
        }
        gained += world.gained;
        while world.now < FAULTY_MILLIS + BOUND_MILLIS {
            world.step(/* faulty */ false);
        }
        world.check_holders();
        let acting: HashRanges = world.acting().into_iter().map(|(range, _)| range).collect();
        assert!(acting.covers(&HashRange::ALL), "seed {seed}: only {acting} have a member");
    }
    assert!(gained > seeds * 20, "expected more ranges to be gained than {gained}");
}
