//! Simulated groups under faults: clocks that run fast or slow, requests and responses that are late or lost, members
//! that crash, pause and restart with the same name, alone or all at once, requests of one kind that fail for some
//! time, two coordinators, members with other numbers of ranges or another key, and assignments that are edited or
//! deleted.
//!
//! No two members act for the same hash, or with different keys; the tokens of a hash increase, and soon after the faults
//! have ended, the ranges are divided as in the assignment. Then a member that joins or leaves moves no more ranges than
//! necessary. A run depends only on its seed.

mod network;
mod process;
mod server;

use super::*;
use crate::random::Random;
use network::Network;
use process::{Broken, LateRequest, Process};
use server::{Server, member_name};
use std::collections::BTreeSet;

const STEP_MILLIS: u64 = 100;
const FAULTY_MILLIS: u64 = 120_000;
/// Time in which each range has a member after the last fault. Requests of the faulty phase arrive up to 20 s late.
/// Then one of the candidates becomes coordinator (a lease duration and an attempt, by slow clocks), Leases of
/// members that have ended expire (another lease duration), and their ranges are claimed.
const COVERED_MILLIS: u64 = 75_000;
/// Time in which each member has the ranges that the assignment contains for it: some have moved once more.
const SETTLED_MILLIS: u64 = 120_000;
const SEEDS: u64 = 5_000;
/// One of this number of seeds has a large group.
const SEEDS_PER_LARGE_GROUP: u64 = 100;
/// One of this number of seeds has members with two keys.
const SEEDS_PER_TWO_KEYS: u64 = 4;
/// One of this number of seeds counts the moves after a member has joined or left.
const SEEDS_PER_COUNT_OF_MOVES: u64 = 10;

/// In one of this number of seeds, the members are compared after each step.
const SEEDS_PER_CHECK_OF_EACH_STEP: u64 = 20;

const KEYS: [&str; 2] = ["namespace", "uid"];

struct World {
    seed: u64,
    network: Network,
    now: u64,
    server: Server,
    late: Vec<(u64, LateRequest)>,
    processes: Vec<Process>,
    /// The number of ranges. Some coordinators use half of it.
    count: u32,
    /// The revision of processes that start; `None` for a random one.
    revision: Option<&'static str>,
    /// Whether a process that has left is replaced by one with another name.
    replaces: bool,
    /// The highest token of each range.
    tokens: Vec<u64>,
    gained: u64,
    /// Whether the members are compared after each step, and not only when one gains a range.
    checks_each_step: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let is_large = seed % SEEDS_PER_LARGE_GROUP == SEEDS_PER_LARGE_GROUP - 1;
        let members = if is_large { 30 + random.below(71) } else { 2 + random.below(7) };
        let count = if is_large { 128 } else { 16 };
        let mut world = World {
            seed,
            network: Network { random, is_faulty: true },
            now: 0,
            server: Server::default(),
            late: Vec::new(),
            processes: Vec::new(),
            count,
            revision: None,
            replaces: true,
            tokens: vec![0; count as usize],
            gained: 0,
            checks_each_step: seed.is_multiple_of(SEEDS_PER_CHECK_OF_EACH_STEP),
        };
        for name in 0..usize::try_from(members).unwrap() {
            world.start(name);
        }
        world
    }

    fn start(&mut self, name: usize) {
        let process = self.new_process(name);
        self.processes.push(process);
    }

    fn new_process(&mut self, name: usize) -> Process {
        let random = if self.network.random.below(2) == 0 { "0" } else { "1" };
        let has_two_keys = self.seed % SEEDS_PER_TWO_KEYS == 1;
        let key = if has_two_keys && self.network.random.below(3) == 0 { KEYS[1] } else { KEYS[0] };
        let settings = (self.revision.unwrap_or(random), key);
        Process::new(&mut self.network, name, self.now, self.count, settings)
    }

    fn step(&mut self) {
        self.now += STEP_MILLIS;
        if self.network.is_faulty {
            self.inject_fault();
        }
        let now = self.now;
        for (_, request) in self.late.extract_if(.., |(at, _)| *at <= now) {
            match request {
                LateRequest::Member(name, request) => drop(self.server.serve_member(name, request)),
                LateRequest::Election(request) => drop(self.server.serve_election(request)),
                LateRequest::Coordinator(request) => drop(self.server.serve_coordinator(&request)),
            }
        }
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            process.deliver(now, &mut self.network, &mut self.server);
            if process.is_due(now) {
                let gained = process.run(now, &mut self.network, &mut self.late);
                for (range, token) in &gained {
                    self.gained += 1;
                    self.check_token(*range, token);
                }
                if !gained.is_empty() {
                    self.check_holders();
                }
            }
            if self.checks_each_step {
                self.check_holders();
            }
            if self.replaces && self.processes[index].member.is_over() && self.network.random.below(20) == 0 {
                self.restart(index, 1_000);
            }
        }
    }

    fn inject_fault(&mut self) {
        let random = &mut self.network.random;
        let index = usize::try_from(random.below(self.processes.len() as u64)).unwrap();
        let until = self.now + random.below(60_000);
        match random.below(2_000) {
            // The process crashes, and another one starts, with the same name or another one.
            0 | 1 => {
                let increment = if random.below(3) == 0 { 0 } else { 1_000 };
                self.restart(index, increment);
            }
            2 => self.processes[index].stop(self.now),
            3 | 4 => self.processes[index].paused_until = until,
            5 => self.server.assignment = None,
            6 => {
                let version = self.server.next_version();
                if let Some((assignment, stored)) = &mut self.server.assignment {
                    *stored = version;
                    edit(assignment, random, self.count);
                }
            }
            7 => {
                let increment = if random.below(2) == 0 { 0 } else { 1_000 };
                for index in 0..self.processes.len() {
                    self.restart(index, increment);
                }
            }
            8 => self.processes[index].usurps_until = until,
            9..=11 => {
                let kinds = [
                    Broken::AssignmentReads,
                    Broken::Lists,
                    Broken::Writes,
                    Broken::Deletions,
                    Broken::Watch,
                    Broken::All,
                ];
                let kind = kinds[usize::try_from(random.below(kinds.len() as u64)).unwrap()];
                self.processes[index].broken = Some((until, kind));
            }
            _ => {}
        }
    }

    fn restart(&mut self, index: usize, increment: usize) {
        let new = self.new_process(self.processes[index].name + increment);
        std::mem::replace(&mut self.processes[index], new).crash(&mut self.late);
    }

    fn end_faults(&mut self) {
        self.network.is_faulty = false;
        for process in &mut self.processes {
            (process.paused_until, process.usurps_until, process.broken) = (0, 0, None);
        }
    }

    /// Runs until a condition holds, and returns how long that took.
    fn run_until(&mut self, limit: u64, text: &str, condition: impl Fn(&Self) -> bool) -> u64 {
        let since = self.now;
        while !condition(self) {
            assert!(self.now < since + limit, "seed {}: not {text} after {limit} ms", self.seed);
            self.step();
        }
        self.now - since
    }

    fn is_covered(&self) -> bool {
        let acting: HashRanges = self.acting().into_iter().map(|(range, _)| range).collect();
        acting.covers(&HashRange::ALL)
    }

    /// Returns whether all processes with the key of the assignment are members and act as in the assignment, and nothing
    /// is moving. If all have one revision, their numbers of ranges differ by at most one.
    fn is_settled(&self) -> bool {
        let Some((Some(assignment), _)) = &self.server.assignment else { return false };
        let has_key = |process: &&Process| process.member.record().key == assignment.key();
        let members = || self.processes.iter().filter(has_key);
        let mut names: Vec<String> = members().map(|process| member_name(process.name)).collect();
        names.sort_unstable();
        let acting = self.acting();
        let is_acting = |(range, assigned): (HashRange, &RangeAssignment)| {
            let position = acting.binary_search_by_key(&range, |(range, _)| *range);
            let process = position.ok().map(|position| &self.processes[acting[position].1]);
            let name = process.map(|process| member_name(process.name));
            name.is_some() && name == assigned.owner && !assigned.is_releasing
        };
        if assignment.members() != names || !assignment.iter().all(is_acting) {
            return false;
        }
        let held: Vec<usize> = members().map(|process| process.working(self.now).count()).collect();
        let is_balanced = held.iter().max().zip(held.iter().min()).is_some_and(|(max, min)| max - min <= 1);
        let is_considered = self.processes.iter().all(|process| {
            process.member.is_considered() == has_key(&process)
                && process.member.other_key().is_none() == has_key(&process)
        });
        is_considered && (assignment.revisions().len() > 1 || is_balanced)
    }

    /// Returns the number of ranges for which each process acts.
    fn held(&self) -> Vec<usize> {
        self.processes.iter().map(|process| process.working(self.now).count()).collect()
    }

    /// The tokens of a range increase.
    fn check_token(&mut self, range: HashRange, token: &RangeToken) {
        let version: u64 = token.version.parse().unwrap();
        for (last, part) in self.tokens.iter_mut().zip(RangeCount::new(self.count).unwrap().ranges()) {
            if part.overlaps(&range) {
                assert!(version > *last, "seed {}: token {version} after {last}", self.seed);
                *last = version;
            }
        }
    }

    fn acting(&self) -> Vec<(HashRange, usize)> {
        let acting = self
            .processes
            .iter()
            .enumerate()
            .flat_map(|(index, process)| process.working(self.now).map(move |range| (range, index)));
        let mut acting: Vec<(HashRange, usize)> = acting.collect();
        acting.sort_unstable();
        acting
    }

    fn check_holders(&self) {
        let acting = self.acting();
        let keys: BTreeSet<&str> =
            acting.iter().map(|(_, index)| &*self.processes[*index].member.record().key).collect();
        assert!(keys.len() <= 1, "seed {}: members with the keys {keys:?} act at {} ms", self.seed, self.now);
        for pair in acting.windows(2) {
            let [(first, a), (second, b)] = pair else { unreachable!() };
            let seed = self.seed;
            assert!(!first.overlaps(second), "seed {seed}: {a} and {b} act for {first} at {} ms", self.now);
        }
    }

    /// Replaces the processes of one revision, and then lets one member join and another one leave.
    fn check_moves(&mut self) {
        self.revision = Some("0");
        for process in &mut self.processes {
            if process.member.record().revision != "0" {
                process.stop(self.now);
            }
        }
        self.run_until(SETTLED_MILLIS, "settled after an update", |world| {
            let assignment = world.server.assignment.as_ref().and_then(|(assignment, _)| assignment.as_ref());
            world.is_settled()
                && world.processes.iter().all(|process| process.member.record().revision == "0")
                // The ranges are balanced when the coordinator has observed that.
                && assignment.is_some_and(|assignment| assignment.revisions() == ["0"])
        });
        let ranges = self.acting().len();
        let before = self.server.moves;
        self.start(999);
        self.run_until(SETTLED_MILLIS, "settled after a member joined", Self::is_settled);
        let (seed, moves) = (self.seed, self.server.moves - before);
        let members = self.processes.len();
        assert!(moves <= ranges.div_ceil(members), "seed {seed}: {moves} moves to member {members}");

        let (before, held) = (self.server.moves, self.held()[0]);
        self.replaces = false;
        self.processes[0].stop(self.now);
        self.run_until(SETTLED_MILLIS, "left", |world| world.processes[0].member.is_over());
        self.processes.remove(0).crash(&mut self.late);
        self.run_until(SETTLED_MILLIS, "settled after a member left", Self::is_settled);
        assert_eq!(self.server.moves - before, held, "seed {seed}: moves after a member with {held} left");
    }
}

fn edit(assignment: &mut Option<Assignment>, random: &mut Random, count: u32) {
    let Some(known) = assignment else { return };
    match random.below(4) {
        0 => *assignment = None,
        3 => known.key = KEYS[usize::try_from(random.below(2)).unwrap()].to_owned(),
        1 => {
            let owner = member_name(usize::try_from(random.below(4)).unwrap());
            let index = usize::try_from(random.below(known.ranges.len() as u64)).unwrap();
            known.ranges[index] = RangeAssignment::new(Some(owner), random.below(3), random.below(2) == 0);
        }
        _ => {
            // Another number of ranges.
            let half = known.ranges.len() == count as usize;
            let count = RangeCount::new(if half { count / 2 } else { count }).unwrap();
            let mut other = Assignment::without_owners(count).with_key(&known.key);
            for range in &mut other.ranges {
                range.owner = Some(member_name(usize::try_from(random.below(4)).unwrap()));
            }
            *known = other;
        }
    }
}

/// `INFORMER_SHARD_SEEDS` is the number of seeds, 5,000 by default.
#[test]
fn c15_at_most_one_member_acts_for_a_hash() {
    let mut gained = 0;
    let (mut longest_covered, mut longest_settled) = (0, 0);
    let seeds = std::env::var("INFORMER_SHARD_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let seeds = seeds.unwrap_or(SEEDS);
    for seed in 0..seeds {
        let mut world = World::new(seed);
        let is_large = world.processes.len() >= 30;
        while world.now < if is_large { FAULTY_MILLIS / 2 } else { FAULTY_MILLIS } {
            world.step();
        }
        gained += world.gained;
        world.end_faults();
        let covered = world.run_until(COVERED_MILLIS, "covered", World::is_covered);
        let settled = covered + world.run_until(SETTLED_MILLIS, "settled", World::is_settled);
        world.check_holders();
        longest_covered = longest_covered.max(covered);
        longest_settled = longest_settled.max(settled);
        // None of these has members with two keys.
        if seed % SEEDS_PER_COUNT_OF_MOVES == 0 || is_large {
            world.check_moves();
        }
    }
    println!("{seeds} seeds: covered within {longest_covered} ms, settled within {longest_settled} ms");
    assert!(gained > seeds * 20, "expected more ranges to be gained than {gained}");
}
