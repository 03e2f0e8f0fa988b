//! Elections in bad weather: clocks that run fast or slow, requests and answers that are late or lost, candidates that stop, die and come
//! back under the same name, candidates that were all given one name. Nobody acts while somebody else does.
//!
//! A run depends on its seed alone.

use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::random::Random;
use crate::time::Moment;

const CANDIDATES: usize = 3;

/// In milliseconds of true time.
const STEP: u64 = 50;
const STORM: u64 = 120_000;
const CALM: u64 = 90_000;

/// A candidate with its own clock.
struct Candidate {
    machine: Election,
    /// What its clock shows at the true time nought, and how fast it goes, in thousandths.
    offset: u64,
    rate: u64,
    /// A request on its way to the server, or its answer on its way back.
    travelling: Option<(u64, Travelling)>,
    /// When it will be silent for good, and what it does as a leader goes on until its term is over.
    born: u64,
}

enum Travelling {
    To(LeaseRequest),
    Back(LeaseResponse),
}

/// Requests that arrive after their senders have given up.
struct Late {
    at: u64,
    request: LeaseRequest,
}

struct World {
    seed: u64,
    random: Random,
    now: u64,
    lease: Option<(LeaseRecord, u64)>,
    versions: u64,
    late: Vec<Late>,
    candidates: Vec<Candidate>,
    terms: Vec<u64>,
    deletes: bool,
    /// How many different names the candidates have.
    names: usize,
}

impl Candidate {
    fn new(random: &mut Random, name: usize, now: u64) -> Self {
        let config = ElectionConfig::default();
        Candidate {
            machine: Election::new(format!("candidate-{name}"), config, random.next_u64()).unwrap(),
            offset: random.below(1_000_000_000),
            // The margin of the default is one half; a tenth either way is far more than clocks differ.
            rate: 900 + random.below(201),
            travelling: None,
            born: now,
        }
    }

    /// What its clock shows.
    fn clock(&self, now: u64) -> Moment {
        Moment::at(Duration::from_millis(self.offset + (now - self.born) * self.rate / 1_000))
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        // In one world of three somebody gave all of them the same identity.
        let names = if random.below(3) == 0 { 1 } else { CANDIDATES };
        let candidates = (0..CANDIDATES).map(|place| Candidate::new(&mut random, place % names, 0)).collect();
        let deletes = random.below(4) == 0;
        World {
            seed,
            random,
            now: 0,
            lease: None,
            versions: 0,
            late: Vec::new(),
            candidates,
            terms: Vec::new(),
            deletes,
            names,
        }
    }

    /// The server: conditional writes, one version each.
    fn serve(&mut self, request: LeaseRequest) -> LeaseResponse {
        match (request, &self.lease) {
            (LeaseRequest::Read | LeaseRequest::Update(..), None) => LeaseResponse::Missing,
            (LeaseRequest::Read, Some((record, version))) => {
                LeaseResponse::Lease(record.clone(), version.to_string())
            }
            (LeaseRequest::Create(_), Some(_)) => LeaseResponse::Conflict,
            (LeaseRequest::Update(_, version), Some((_, known))) if version != known.to_string() => {
                LeaseResponse::Conflict
            }
            (LeaseRequest::Create(record) | LeaseRequest::Update(record, _), _) => {
                self.versions += 1;
                self.lease = Some((record.clone(), self.versions));
                LeaseResponse::Lease(record, self.versions.to_string())
            }
        }
    }

    fn step(&mut self, stormy: bool) {
        self.now += STEP;
        let now = self.now;
        if stormy {
            self.weather();
        }
        let (due, late) = std::mem::take(&mut self.late).into_iter().partition(|late: &Late| late.at <= now);
        self.late = late;
        let due: Vec<Late> = due;
        for late in due {
            self.serve(late.request);
        }
        for place in 0..self.candidates.len() {
            self.run(place, stormy);
        }
        self.check();
    }

    /// What befalls candidates and the lease.
    fn weather(&mut self) {
        let place = usize::try_from(self.random.below(CANDIDATES as u64)).unwrap();
        match self.random.below(2_000) {
            // It dies, and another process comes up under the same name.
            0 => {
                let mut random = Random::new(self.random.next_u64());
                self.candidates[place] = Candidate::new(&mut random, place % self.names, self.now);
            }
            1 => {
                self.candidates[place].machine.stop();
                self.candidates[place].machine.stopped();
            }
            2 if self.deletes => self.lease = None,
            _ => {}
        }
    }

    fn run(&mut self, place: usize, stormy: bool) {
        let now = self.now;
        let candidate = &mut self.candidates[place];
        let clock = candidate.clock(now);
        candidate.machine.handle_timeout(clock);
        match candidate.travelling.take() {
            Some((at, Travelling::To(request))) if at <= now => {
                let answer = self.serve(request);
                let lost = stormy && self.random.below(8) == 0;
                let answer = if lost { LeaseResponse::Failed("lost".to_owned()) } else { answer };
                let back = now + self.delay(stormy);
                self.candidates[place].travelling = Some((back, Travelling::Back(answer)));
            }
            Some((at, Travelling::Back(answer))) if at <= now => {
                candidate.machine.handle_response(clock, answer);
            }
            Some(travelling) => {
                // Nobody waits longer than an answer is of use; the request may arrive all the same.
                if candidate.machine.request_deadline().is_some_and(|deadline| clock >= deadline) {
                    candidate.machine.handle_response(clock, LeaseResponse::Failed("too late".to_owned()));
                    if let (at, Travelling::To(request)) = travelling {
                        self.late.push(Late { at, request });
                    }
                } else {
                    candidate.travelling = Some(travelling);
                }
            }
            None => {}
        }
        let candidate = &mut self.candidates[place];
        if candidate.travelling.is_none()
            && let Some(request) = candidate.machine.poll_request(clock, wall(clock))
        {
            let arrives = now + self.delay(stormy);
            if stormy && self.random.below(10) == 0 {
                let failed = Travelling::Back(LeaseResponse::Failed("refused".to_owned()));
                self.candidates[place].travelling = Some((arrives, failed));
            } else {
                self.candidates[place].travelling = Some((arrives, Travelling::To(request)));
            }
        }
        let candidate = &mut self.candidates[place];
        while let Some(event) = candidate.machine.poll_event() {
            if let Event::Elected(fence) = event {
                self.terms.push(fence.version.parse().unwrap());
            }
        }
        if candidate.machine.is_over() && self.random.below(100) == 0 {
            let mut random = Random::new(self.random.next_u64());
            self.candidates[place] = Candidate::new(&mut random, place % self.names, now);
        }
    }

    fn delay(&mut self, stormy: bool) -> u64 {
        match self.random.below(if stormy { 20 } else { 1_000_000 }) {
            0 => self.random.below(20_000),
            1 | 2 => self.random.below(3_000),
            _ => self.random.below(100),
        }
    }

    fn check(&self) {
        let leaders: Vec<usize> = (0..CANDIDATES)
            .filter(|place| {
                self.candidates[*place].machine.is_leader(self.candidates[*place].clock(self.now))
            })
            .collect();
        // A lease that somebody deletes is not there to keep two apart; their terms still are.
        assert!(
            leaders.len() <= 1 || self.deletes,
            "seed {}: {leaders:?} lead at {} ms",
            self.seed,
            self.now
        );
        assert!(self.terms.is_sorted_by(|a, b| a != b), "seed {}: a term twice: {:?}", self.seed, self.terms);
    }
}

/// The time of day by a candidate's clock: no two show the same.
fn wall(clock: Moment) -> Timestamp {
    Timestamp::from_millisecond(i64::try_from(clock.since_origin().as_millis()).unwrap()).unwrap()
}

#[test]
fn nobody_acts_while_somebody_else_does() {
    let mut terms = 0;
    for seed in 0..5_000 {
        let mut world = World::new(seed);
        while world.now < STORM {
            world.step(true);
        }
        terms += world.terms.len();
        while world.now < STORM + CALM {
            world.step(false);
        }
        let leader = |candidate: &Candidate| candidate.machine.is_leader(candidate.clock(world.now));
        assert!(world.candidates.iter().any(leader), "seed {seed}: nobody leads when the storm is over");
    }
    assert!(terms > 10_000, "there was something to see: {terms} terms");
}
