//! Scenario of sharding: several processes divide the pods of a control plane among themselves.
//!
//! A process without sharding runs beside them. It shows what one process receives and caches, and which events all
//! processes together must deliver.

use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{Figure, RunContext, less, megabytes, number, short};
use crate::failure::Failure;
use crate::program::Program;
use crate::proxy::Proxy;

/// Number of processes that share the pods.
const MEMBERS: usize = 4;

/// Number of hash ranges of a group.
const RANGES: usize = 256;

/// Delay before memory is measured.
const SETTLE_DELAY: Duration = Duration::from_secs(3);

/// Time limit of each step. The longest is the crash of the coordinator.
const TIMEOUT: Duration = Duration::from_secs(120);

/// How long requests are counted.
const REST: Duration = Duration::from_secs(60);

/// How often a state is requested until it is as expected.
const POLL_PERIOD: Duration = Duration::from_millis(20);

/// Measures what each process receives and stores, and how long ranges move. Checks that all processes together deliver the
/// events that one process without sharding delivers.
pub(super) fn control_plane(context: &RunContext<'_>, pods: usize) -> Result<Vec<Figure>, Failure> {
    let mut run = Run::new(context)?;
    run.single.program.request(&sync_command())?;
    // All processes start at the same time, and list what they have as soon as they have it.
    for number in 1..=MEMBERS {
        run.join(&format!("member-{number}"))?;
    }
    let seconds = run.sync()?;
    run.wait_until("each process has cached its share", |run| run.is_divided(true))?;
    run.check_events(pods)?;
    thread::sleep(SETTLE_DELAY);
    let sizes = run.sizes()?;
    let suffix = if run.is_selector_ignored(pods)? { ", selector ignored" } else { "" };
    let row_name =
        |what: &str| format!("sharded over {MEMBERS} processes{suffix}, {what}, {} pods", short(pods));
    let mut figures = vec![
        less(row_name("start and initial sync"), "s", seconds),
        less(row_name("bytes received by each"), "% of one process", sizes.bytes_percent),
        less(row_name("memory of each"), "MB", sizes.memory),
        less(row_name("memory of each, share"), "% of one process", sizes.memory_percent),
        less(
            row_name("memory of each without the program file, share"),
            "% of one process",
            sizes.anonymous_percent,
        ),
    ];
    let joined = run.add_member("member-new")?;
    run.check_events(pods)?;
    let left = run.remove_last_member()?;
    run.check_events(pods)?;
    run.members.truncate(MEMBERS);
    for (what, moved) in [("process joins", joined), ("process leaves", left)] {
        figures.push(less(row_name(&format!("{what}, range without holder")), "s", moved.without_holder));
        figures.push(less(row_name(&format!("{what}, range not cached")), "s", moved.not_cached));
    }
    run.change(pods)?;
    let seconds = run.pause(pods)?;
    figures.push(less(row_name("process stopped by SIGSTOP, range not cached"), "s", seconds));
    for (what, coordinator) in [("process killed", false), ("coordinator killed", true)] {
        let seconds = run.kill(coordinator, pods)?;
        figures.push(less(row_name(&format!("{what}, range not cached")), "s", seconds));
    }
    Ok(figures)
}

/// Measures how often processes that share nothing but a group write Leases while nothing happens.
pub(super) fn lease_writes(context: &RunContext<'_>, members: usize) -> Result<Vec<Figure>, Failure> {
    let mut run = Run::new(context)?;
    for number in 1..=members {
        run.join(&format!("member-{number}"))?;
    }
    run.wait_until("each process has its share of the ranges", |run| run.is_divided(false))?;
    thread::sleep(SETTLE_DELAY);
    let writes = run.lease_writes_per_second()?;
    // What the server itself writes.
    run.members.clear();
    let others = run.lease_writes_per_second()?;
    Ok(vec![less(format!("sharded over {members} processes, Lease writes at rest"), "/s", writes - others)])
}

struct Run<'a> {
    context: &'a RunContext<'a>,
    /// Name of the shard group.
    group: String,
    members: Vec<Process>,
    /// The process without sharding.
    single: Process,
}

/// A program that receives everything through a proxy of its own.
struct Process {
    program: Program,
    proxy: Proxy,
}

/// The largest values of the members. Percentages compare them with the process without sharding.
struct Sizes {
    bytes_percent: f64,
    /// In MB.
    memory: f64,
    memory_percent: f64,
    anonymous_percent: f64,
}

/// The longest times of the ranges that moved, in seconds.
#[derive(Default)]
struct Moved {
    without_holder: f64,
    not_cached: f64,
}

/// The state of a member. Each vector has an element for each range, in seconds since 1970.
struct State {
    is_settled: bool,
    is_coordinator: bool,
    /// Number of objects of other ranges that were received.
    foreign: f64,
    held: Vec<Option<f64>>,
    released: Vec<Option<f64>>,
    complete: Vec<Option<f64>>,
}

/// Number of events and the sum of the hashes of their objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    events: u64,
    digest: u64,
}

/// The events of some processes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Events {
    /// Added objects without those that were released again.
    added: Sum,
    updated: Sum,
    deleted: Sum,
}

impl<'a> Run<'a> {
    fn new(context: &'a RunContext<'a>) -> Result<Self, Failure> {
        let single = Process::start(context, "single")?;
        // Names of earlier runs are in use if the control plane is the same.
        let group = format!("bench-{:.0}", unix_time() * 1e3);
        Ok(Self { context, group, members: Vec::new(), single })
    }

    fn lease_writes_per_second(&mut self) -> Result<f64, Failure> {
        let command = json!({"do": "lease-writes"});
        let before = number(&self.single.program.request(&command)?, "writes")?;
        thread::sleep(REST);
        let after = number(&self.single.program.request(&command)?, "writes")?;
        Ok((after - before) / REST.as_secs_f64())
    }

    fn join(&mut self, identity: &str) -> Result<(), Failure> {
        let mut process = Process::start(self.context, identity)?;
        process.program.request(&json!({"do": "join", "group": self.group, "identity": identity}))?;
        self.members.push(process);
        Ok(())
    }

    /// Syncs all members at the same time; returns the longest duration.
    fn sync(&mut self) -> Result<f64, Failure> {
        for member in &mut self.members {
            member.program.send(&sync_command())?;
        }
        self.members.iter_mut().try_fold(0.0_f64, |longest, member| {
            Ok(longest.max(number(&member.program.response()?, "seconds")?))
        })
    }

    fn sizes(&mut self) -> Result<Sizes, Failure> {
        let (mut bytes, mut memory, mut anonymous) = (0.0_f64, 0.0_f64, 0.0_f64);
        for member in &mut self.members {
            bytes = bytes.max(member.proxy.received());
            memory = memory.max(member.memory("rss")?);
            anonymous = anonymous.max(member.memory("anonymous")?);
        }
        Ok(Sizes {
            bytes_percent: 100.0 * bytes / self.single.proxy.received(),
            memory,
            memory_percent: 100.0 * memory / self.single.memory("rss")?,
            anonymous_percent: 100.0 * anonymous / self.single.memory("anonymous")?,
        })
    }

    /// Returns whether the server sends all pods to each process.
    #[allow(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
    fn is_selector_ignored(&mut self, pods: usize) -> Result<bool, Failure> {
        let foreign: f64 = self.states()?.iter().map(|state| state.foreign).sum();
        Ok(foreign > pods as f64 / 2.0)
    }

    /// Adds a member while the others run.
    fn add_member(&mut self, identity: &str) -> Result<Moved, Failure> {
        self.join(identity)?;
        if let Some(member) = self.members.last_mut() {
            member.program.request(&sync_command())?;
        }
        self.wait_until("the process that joined has its share", |run| run.is_divided(true))?;
        let states = self.states()?;
        let (others, gaining) = states.split_at(states.len() - 1);
        moved(others, gaining, |range| gaining[0].held[range].is_some())
    }

    /// Lets the last member leave in order. Its process continues.
    fn remove_last_member(&mut self) -> Result<Moved, Failure> {
        let (last, held) = (self.members.len() - 1, self.states()?);
        self.members[last].program.request(&json!({"do": "leave"}))?;
        self.wait_until("the others have the ranges of the process that left", |run| {
            let states = run.states()?;
            Ok(is_complete(&states[..last], true))
        })?;
        let states = self.states()?;
        moved(&states[last..], &states[..last], |range| held[last].held[range].is_some())
    }

    /// Stops the process of a member until the others have cached its ranges, then continues it; returns how long the ranges
    /// were not cached.
    fn pause(&mut self, pods: usize) -> Result<f64, Failure> {
        let index = self.states()?.iter().position(|state| !state.is_coordinator);
        let index = index.ok_or_else(|| Failure::Failed("no process to stop".to_owned()))?;
        let paused = self.members.remove(index);
        let began = unix_time();
        paused.program.signal("STOP")?;
        let taken_over = self.wait_until("the others have the ranges of the stopped process", |run| {
            Ok(is_complete(&run.states()?, true))
        });
        let seconds = self.newest_completion()? - began;
        paused.program.signal("CONT")?;
        self.members.insert(index, paused);
        taken_over?;
        self.wait_until("the process that continues has its share", |run| run.is_divided(true))?;
        self.check_events(pods)?;
        Ok(seconds)
    }

    /// Returns when the last range was cached, in seconds since 1970.
    fn newest_completion(&mut self) -> Result<f64, Failure> {
        let states = self.states()?;
        Ok(states.iter().flat_map(|state| &state.complete).flatten().fold(0.0_f64, |last, at| last.max(*at)))
    }

    /// Kills the coordinator or another member; returns the time until the others have cached its ranges.
    fn kill(&mut self, coordinator: bool, pods: usize) -> Result<f64, Failure> {
        let is_selected = |state: &State| state.is_coordinator == coordinator;
        let index = self.states()?.iter().position(is_selected);
        let index = index.ok_or_else(|| Failure::Failed("no process to kill".to_owned()))?;
        let began = unix_time();
        // Dropping a program kills it.
        drop(self.members.remove(index));
        self.wait_until("the others have the ranges of the killed process", |run| {
            Ok(is_complete(&run.states()?, true))
        })?;
        let seconds = self.newest_completion()? - began;
        let objects = self.members.iter_mut().try_fold(0, |sum, member| {
            let response = member.program.request(&json!({"do": "count"}))?;
            Ok(sum + response["objects"].as_u64().unwrap_or_default())
        })?;
        if objects != pods as u64 {
            return Err(Failure::Failed(format!("{objects} of {pods} pods are cached after a crash")));
        }
        Ok(seconds)
    }

    /// Changes one pod in a hundred.
    fn change(&mut self, pods: usize) -> Result<(), Failure> {
        let command = json!({"do": "change", "pods": (pods / 100).max(1), "revision": self.group});
        self.single.program.request(&command)?;
        let changed = (pods / 100).max(1) as u64;
        self.wait_until("the change is delivered", |run| Ok(run.single.events()?.updated.events == changed))?;
        self.check_events(pods)
    }

    /// Waits until the members together have delivered what the process without sharding has delivered.
    fn check_events(&mut self, pods: usize) -> Result<(), Failure> {
        let expected = self.single.events()?;
        if expected.added.events != pods as u64 {
            return Err(Failure::Failed(format!("{} of {pods} pods were delivered", expected.added.events)));
        }
        let mut events = Events::default();
        let same = self.wait_until("the events are the same", |run| {
            events = Events::default();
            for member in &mut run.members {
                events += member.events()?;
            }
            Ok(events == expected)
        });
        same.map_err(|_| {
            Failure::Failed(format!("the processes together delivered {events:?} instead of {expected:?}"))
        })
    }

    /// Returns whether all members have equal shares of the ranges, and these are cached if `cached`.
    fn is_divided(&mut self, cached: bool) -> Result<bool, Failure> {
        let states = self.states()?;
        let equal = RANGES / states.len();
        let is_equal = |state: &State| {
            state.is_settled && (equal..=equal + 1).contains(&state.held.iter().flatten().count())
        };
        Ok(states.iter().all(is_equal) && is_complete(&states, cached))
    }

    fn states(&mut self) -> Result<Vec<State>, Failure> {
        self.members.iter_mut().map(Process::state).collect()
    }

    fn wait_until(
        &mut self,
        what: &str,
        mut condition: impl FnMut(&mut Self) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let began = Instant::now();
        while !condition(self)? {
            if began.elapsed() > TIMEOUT {
                return Err(Failure::Failed(format!("not within {} s: {what}", TIMEOUT.as_secs())));
            }
            thread::sleep(POLL_PERIOD);
        }
        Ok(())
    }
}

impl Process {
    fn start(context: &RunContext<'_>, name: &str) -> Result<Self, Failure> {
        let kubeconfig =
            context.control_plane.ok_or_else(|| Failure::Failed("no control plane is given".to_owned()))?;
        let proxy = Proxy::start(kubeconfig, context.folder, name)?;
        Ok(Self { program: Program::start(context.program, &proxy.kubeconfig)?, proxy })
    }

    /// Returns a part of the memory in MB.
    fn memory(&mut self, part: &str) -> Result<f64, Failure> {
        megabytes(&self.program.request(&json!({"do": "report"}))?, part)
    }

    fn state(&mut self) -> Result<State, Failure> {
        let response = self.program.request(&json!({"do": "shard"}))?;
        let times = |field: &str| {
            let times = response[field].as_array();
            // Empty until the process has received the first status.
            let mut times: Vec<_> = times.into_iter().flatten().map(Value::as_f64).collect();
            times.resize(RANGES, None);
            times
        };
        Ok(State {
            is_settled: response["settled"] == json!(true),
            is_coordinator: response["coordinator"] == json!(true),
            foreign: number(&response, "foreign")?,
            held: times("held"),
            released: times("released"),
            complete: times("complete"),
        })
    }

    fn events(&mut self) -> Result<Events, Failure> {
        let response = self.program.request(&json!({"do": "events"}))?;
        let sum = |kind: &str| match (response[kind][0].as_u64(), response[kind][1].as_u64()) {
            (Some(events), Some(digest)) => Ok(Sum { events, digest }),
            _ => Err(Failure::Failed(format!("no sum of `{kind}` in the response {response}"))),
        };
        let (added, released) = (sum("added")?, sum("released")?);
        let added = Sum {
            events: added.events.wrapping_sub(released.events),
            digest: added.digest.wrapping_sub(released.digest),
        };
        Ok(Events { added, updated: sum("updated")?, deleted: sum("deleted")? })
    }
}

impl std::ops::AddAssign for Events {
    fn add_assign(&mut self, other: Self) {
        for (sum, other) in [
            (&mut self.added, other.added),
            (&mut self.updated, other.updated),
            (&mut self.deleted, other.deleted),
        ] {
            sum.events = sum.events.wrapping_add(other.events);
            sum.digest = sum.digest.wrapping_add(other.digest);
        }
    }
}

fn sync_command() -> Value {
    json!({"do": "sync", "resource": "pods", "encoding": "protobuf", "tally": true})
}

/// Returns whether each range has one holder, which has cached it if `cached`.
fn is_complete(states: &[State], cached: bool) -> bool {
    (0..RANGES).all(|range| {
        let mut holders = states.iter().filter(|state| state.held[range].is_some());
        let holder = holders.next().is_some_and(|state| !cached || state.complete[range].is_some());
        holder && holders.next().is_none()
    })
}

/// Returns the times of the selected ranges, which have moved from one of the first members to one of the others.
fn moved(from: &[State], to: &[State], is_selected: impl Fn(usize) -> bool) -> Result<Moved, Failure> {
    let mut moved = Moved::default();
    for range in (0..RANGES).filter(|range| is_selected(*range)) {
        let released = from.iter().filter_map(|state| state.released[range]).fold(0.0, f64::max);
        let holder = to.iter().find_map(|state| Some((state.held[range]?, state.complete[range]?)));
        let Some((held, complete)) = holder.filter(|_| released > 0.0) else {
            return Err(Failure::Failed(format!("range {range} has not moved")));
        };
        moved.without_holder = moved.without_holder.max(held - released);
        moved.not_cached = moved.not_cached.max(complete - released);
    }
    Ok(moved)
}

fn unix_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
