//! Simulated elections under faults: clocks that run fast or slow, requests and responses that are late or
//! lost, candidates that stop, crash and restart with the same identity, and candidates that all have one
//! identity. At most one candidate acts at a time, unless the lease is deleted.
//!
//! A run depends only on its seed.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::random::Random;
use crate::time::Moment;

const CANDIDATES: usize = 3;

/// Simulated time per step, in milliseconds.
const STEP_MILLIS: u64 = 50;
/// Duration of the phase with faults.
const FAULTY_MILLIS: u64 = 120_000;
/// Duration of the phase without faults, after which a leader must exist.
const HEALTHY_MILLIS: u64 = 90_000;

/// A candidate with its own clock.
struct Candidate {
    machine: Election,
    /// The reading of its clock when it started, and the rate of the clock in thousandths.
    offset: u64,
    rate: u64,
    /// A request on its way to the server, or a response on its way back, and when it arrives.
    in_transit: Option<(u64, Message)>,
    /// The simulated time at which it started.
    started_at: u64,
}

enum Message {
    Request(LeaseRequest),
    Response(LeaseResponse),
}

/// A request that arrives after its sender has given up.
struct LateRequest {
    at: u64,
    request: LeaseRequest,
}

struct World {
    seed: u64,
    random: Random,
    now: u64,
    /// The lease and its version.
    lease: Option<(LeaseRecord, u64)>,
    /// The last assigned version.
    last_version: u64,
    late: Vec<LateRequest>,
    candidates: Vec<Candidate>,
    /// The versions in the fencing tokens of all terms, in order of election.
    terms: Vec<u64>,
    /// Whether faults include the deletion of the lease.
    deletes: bool,
    /// Number of distinct identities.
    identities: usize,
}

impl Candidate {
    fn new(random: &mut Random, identity: usize, now: u64) -> Self {
        let config = ElectionConfig::default();
        Candidate {
            machine: Election::new(format!("candidate-{identity}"), config, random.next_u64()).unwrap(),
            offset: random.below(1_000_000_000),
            // By default, a lease lasts one and a half times as long as the renew deadline. The rates may
            // therefore differ by a tenth in either direction, far more than those of real clocks.
            rate: 900 + random.below(201),
            in_transit: None,
            started_at: now,
        }
    }

    /// Returns the reading of its clock.
    fn clock(&self, now: u64) -> Moment {
        Moment::at(Duration::from_millis(self.offset + (now - self.started_at) * self.rate / 1_000))
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // In one of three runs, all candidates have the same identity.
        let identities = if random.below(3) == 0 { 1 } else { CANDIDATES };
        let candidates =
            (0..CANDIDATES).map(|index| Candidate::new(&mut random, index % identities, 0)).collect();
        let deletes = random.below(4) == 0;
        World {
            seed,
            random,
            now: 0,
            lease: None,
            last_version: 0,
            late: Vec::new(),
            candidates,
            terms: Vec::new(),
            deletes,
            identities,
        }
    }

    /// Executes a request like the server: conditional writes, each with a new version.
    fn serve(&mut self, request: LeaseRequest) -> LeaseResponse {
        match (request, &self.lease) {
            (LeaseRequest::Read | LeaseRequest::Update(..), None) => LeaseResponse::Missing,
            (LeaseRequest::Read, Some((record, version))) => {
                LeaseResponse::Lease(record.clone(), version.to_string())
            }
            (LeaseRequest::Create(_), Some(_)) => LeaseResponse::Conflict,
            (LeaseRequest::Update(_, version), Some((_, current))) if version != current.to_string() => {
                LeaseResponse::Conflict
            }
            (LeaseRequest::Create(record) | LeaseRequest::Update(record, _), _) => {
                self.last_version += 1;
                self.lease = Some((record.clone(), self.last_version));
                LeaseResponse::Lease(record, self.last_version.to_string())
            }
        }
    }

    fn step(&mut self, faulty: bool) {
        self.now += STEP_MILLIS;
        let now = self.now;
        if faulty {
            self.inject_fault();
        }
        let (due, late) =
            std::mem::take(&mut self.late).into_iter().partition(|late: &LateRequest| late.at <= now);
        self.late = late;
        let due: Vec<LateRequest> = due;
        for late in due {
            self.serve(late.request);
        }
        for index in 0..self.candidates.len() {
            self.run(index, faulty);
        }
        self.check();
    }

    /// Sometimes restarts or stops a candidate, or deletes the lease.
    fn inject_fault(&mut self) {
        let index = usize::try_from(self.random.below(CANDIDATES as u64)).unwrap();
        match self.random.below(2_000) {
            // The candidate crashes and a new process starts with the same identity.
            0 => {
                let mut random = Random::new(self.random.next_u64());
                self.candidates[index] = Candidate::new(&mut random, index % self.identities, self.now);
            }
            1 => {
                self.candidates[index].machine.stop();
                self.candidates[index].machine.record_work_ended();
            }
            2 if self.deletes => self.lease = None,
            _ => {}
        }
    }

    fn run(&mut self, index: usize, faulty: bool) {
        let now = self.now;
        let candidate = &mut self.candidates[index];
        let clock = candidate.clock(now);
        candidate.machine.handle_timeout(clock);
        match candidate.in_transit.take() {
            Some((at, Message::Request(request))) if at <= now => {
                let response = self.serve(request);
                let is_lost = faulty && self.random.below(8) == 0;
                let response = if is_lost { LeaseResponse::Failed("lost".to_owned()) } else { response };
                let arrives = now + self.delay(faulty);
                self.candidates[index].in_transit = Some((arrives, Message::Response(response)));
            }
            Some((at, Message::Response(response))) if at <= now => {
                candidate.machine.handle_response(clock, response);
            }
            Some(in_transit) => {
                // A candidate does not wait longer than a response is useful; the request may still arrive.
                if candidate.machine.request_deadline().is_some_and(|deadline| clock >= deadline) {
                    candidate.machine.handle_response(clock, LeaseResponse::Failed("too late".to_owned()));
                    if let (at, Message::Request(request)) = in_transit {
                        self.late.push(LateRequest { at, request });
                    }
                } else {
                    candidate.in_transit = Some(in_transit);
                }
            }
            None => {}
        }
        let candidate = &mut self.candidates[index];
        if candidate.in_transit.is_none()
            && let Some(request) = candidate.machine.poll_request(clock, wall(clock))
        {
            let arrives = now + self.delay(faulty);
            if faulty && self.random.below(10) == 0 {
                let failed = Message::Response(LeaseResponse::Failed("refused".to_owned()));
                self.candidates[index].in_transit = Some((arrives, failed));
            } else {
                self.candidates[index].in_transit = Some((arrives, Message::Request(request)));
            }
        }
        let candidate = &mut self.candidates[index];
        while let Some(event) = candidate.machine.poll_event() {
            if let Event::Elected(token) = event {
                self.terms.push(token.version.parse().unwrap());
            }
        }
        if candidate.machine.is_over() && self.random.below(100) == 0 {
            let mut random = Random::new(self.random.next_u64());
            self.candidates[index] = Candidate::new(&mut random, index % self.identities, now);
        }
    }

    fn delay(&mut self, faulty: bool) -> u64 {
        match self.random.below(if faulty { 20 } else { 1_000_000 }) {
            0 => self.random.below(20_000),
            1 | 2 => self.random.below(3_000),
            _ => self.random.below(100),
        }
    }

    fn check(&self) {
        let leaders: Vec<usize> = (0..CANDIDATES)
            .filter(|index| {
                self.candidates[*index].machine.is_leader(self.candidates[*index].clock(self.now))
            })
            .collect();
        // If the lease is deleted, two candidates may lead at the same time, but their terms still have
        // different tokens.
        assert!(
            leaders.len() <= 1 || self.deletes,
            "seed {}: {leaders:?} lead at {} ms",
            self.seed,
            self.now
        );
        // Compares each term with the next one.
        assert!(
            self.terms.is_sorted_by(|a, b| a != b),
            "seed {}: two terms have the same token: {:?}",
            self.seed,
            self.terms
        );
    }
}

/// Returns the wall time by a candidate's clock. All clocks differ.
fn wall(clock: Moment) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(clock.since_origin().as_millis()).unwrap()).unwrap()
}

#[test]
fn at_most_one_candidate_leads_at_a_time() {
    let mut terms = 0;
    for seed in 0..5_000 {
        let mut world = World::new(seed);
        while world.now < FAULTY_MILLIS {
            world.step(/* faulty */ true);
        }
        terms += world.terms.len();
        while world.now < FAULTY_MILLIS + HEALTHY_MILLIS {
            world.step(/* faulty */ false);
        }
        let leader = |candidate: &Candidate| candidate.machine.is_leader(candidate.clock(world.now));
        assert!(
            world.candidates.iter().any(leader),
            "seed {seed}: no candidate leads after the faults have ended"
        );
    }
    assert!(terms > 10_000, "expected more terms than {terms}");
}
