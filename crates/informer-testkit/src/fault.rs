//! The faults of a simulation, and how a seed chooses them.
//!
//! A [`Fault`] is plain data: what happens, when, and for how long. A list of faults together with a seed determines
//! a run, so a failure is reduced by leaving out faults.

use std::fmt;
use std::time::Duration;

use crate::random::Random;
use crate::request::Operation;

macro_rules! fault_kinds {
    ($($(#[doc = $doc:literal])+ $variant:ident => $name:literal, $trigger:ident;)+) => {
        /// The kinds of faults that a simulation injects.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum FaultKind {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl FaultKind {
            /// All kinds.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$variant,)+];

            /// Returns the name of the kind in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(FaultKind::$variant => $name,)+
                }
            }

            fn trigger(self) -> Trigger {
                match self {
                    $(FaultKind::$variant => Trigger::$trigger,)+
                }
            }
        }
    };
}

/// When faults of a kind happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trigger {
    /// At a request of the program.
    Request,
    /// At a write of the program.
    Write,
    /// At any time.
    Time,
}

fault_kinds! {
    /// The program is killed when it sends a request, which is lost.
    RestartBeforeRequest => "restart before a request", Request;
    /// The program is killed after the server has applied a write and before the response arrives.
    RestartAfterApply => "restart after a write was applied", Write;
    /// The program is killed after it has received the response to a write, before it sends anything else.
    RestartAfterResponse => "restart after a response", Write;
    /// The program is killed at any time.
    Restart => "restart", Time;
    /// The program is killed, and its successor is connected to an API server whose cache lags behind for a while: lists
    /// and watches show old state, consistent lists are slow, and a version that the cache has not reached is an
    /// error. See [`lagging_cache`](informer_apiserver::faults::lagging_cache).
    LaggingCache => "restart with a lagging cache", Time;
    /// The frames of all watches are delayed for a while, and arrive later in order.
    DelayedWatch => "delayed watches", Time;
    /// The frames of all watches are delayed for a while. Then the watches break, and their versions have expired:
    /// the program lists again and never sees the states in between.
    SkippedEvents => "skipped events", Time;
    /// A write is applied, but its response is lost.
    LostResponse => "lost response", Write;
    /// Just before a write of the program is applied, another client changes the object (an annotation).
    ConflictingWrite => "conflicting write", Write;
    /// All open watches break. The next request of each kind that continues at a version, a watch or a page of a list,
    /// gets the error 410 (Gone): a list as its response, a watch in a frame.
    Expired => "410 Gone", Time;
    /// A request gets the response 429 (Too Many Requests).
    TooManyRequests => "429 Too Many Requests", Request;
    /// A request gets the response 500 (Internal Server Error) and is not applied.
    InternalError => "500 Internal Server Error", Request;
    /// A request gets the response 503 (Service Unavailable) and is not applied.
    Unavailable => "503 Service Unavailable", Request;
    /// A request is not applied and gets no response; the connection breaks after half a minute.
    Timeout => "timeout", Request;
    /// The response to a request is slow.
    SlowResponse => "slow response", Request;
    /// All open watches break.
    BrokenWatch => "broken watches", Time;
    /// The API server is unreachable for minutes.
    Outage => "outage", Time;
    /// The versions of a CRD are not served for a while. Its objects stay in storage.
    UnservedDefinition => "unserved CRD", Time;
    /// A second instance of the program runs at the same time for a while; then the first one is killed.
    SecondInstance => "second instance", Time;
    /// The program is suspended for longer than a lease lasts, and a second instance is started. The first one then
    /// continues, not knowing that time has passed, and is killed later.
    StaleLeader => "stale leader", Time;
    /// The wall clock of the program jumps forward or back by up to an hour.
    ClockJump => "clock jump", Time;
}

impl FaultKind {
    /// Returns whether the fault happens at a request like this one.
    pub(crate) fn applies_to(self, operation: &Operation) -> bool {
        let is_named_write = operation.is_write() && !operation.name.is_empty();
        match self {
            FaultKind::ConflictingWrite => is_named_write && matches!(operation.verb, "update" | "patch"),
            _ => match self.trigger() {
                Trigger::Request => !operation.plural.is_empty(),
                Trigger::Write => operation.is_write(),
                Trigger::Time => false,
            },
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// A fault of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The time or the request at which it happens.
    pub at: FaultTime,
    /// How long it lasts, if it lasts: how long the program is down, watches are delayed, the server unreachable.
    pub duration: Duration,
    /// A random number that decides details: which CRD is not served, how much a cache lags, and whether a clock jumps
    /// forward (even) or back (odd).
    pub choice: u64,
}

impl Fault {
    pub(crate) fn is_forward(&self) -> bool {
        self.choice.is_multiple_of(2)
    }
}

/// When a fault happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultTime {
    /// At the first request from this number on that the fault can apply to. Requests are counted from zero, over
    /// all instances of the program.
    Request(u64),
    /// At the first write from this number on. Writes of leases and events are not counted.
    Write(u64),
    /// At this time since the start.
    Elapsed(Duration),
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.kind)?;
        match self.at {
            FaultTime::Request(number) => write!(out, ", from request {number} on")?,
            FaultTime::Write(number) => write!(out, ", from write {number} on")?,
            FaultTime::Elapsed(time) => write!(out, ", at {:.3}s", time.as_secs_f64())?,
        }
        let seconds = self.duration.as_secs_f64();
        match self.kind {
            FaultKind::ClockJump => {
                write!(out, ", {} by {seconds:.3}s", if self.is_forward() { "forward" } else { "back" })
            }
            _ if self.duration.is_zero() => Ok(()),
            _ => write!(out, ", for {seconds:.3}s"),
        }
    }
}

/// How much happens in a run without faults; faults are placed in this range.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extent {
    pub(crate) requests: u64,
    pub(crate) writes: u64,
    /// Time of the last write of the program or the scenario.
    pub(crate) active: Duration,
}

/// Chooses the faults of a seed: one to four of the given kinds.
pub(crate) fn choose(seed: u64, kinds: &[FaultKind], extent: Extent) -> Vec<Fault> {
    let mut random = Random::new(seed, "faults");
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut count = 1;
    while count < 4 && random.percent(45) {
        count += 1;
    }
    (0..count).map(|_| choose_one(&mut random, kinds, extent)).collect()
}

fn choose_one(random: &mut Random, kinds: &[FaultKind], extent: Extent) -> Fault {
    let index = random.below(kinds.len() as u64);
    let kind =
        usize::try_from(index).ok().and_then(|index| kinds.get(index)).copied().unwrap_or(FaultKind::Restart);
    let at = match kind.trigger() {
        // Writes are few and matter most.
        Trigger::Request if random.percent(50) => FaultTime::Request(random.below(extent.requests + 2)),
        Trigger::Request | Trigger::Write => FaultTime::Write(random.below(extent.writes + 1)),
        Trigger::Time => {
            let active = u64::try_from(extent.active.as_millis()).unwrap_or(0);
            FaultTime::Elapsed(Duration::from_millis(random.below(active + 2_000)))
        }
    };
    let milliseconds = match kind {
        FaultKind::Outage => random.between(5_000, 180_000),
        FaultKind::StaleLeader => random.between(20_000, 60_000),
        FaultKind::SecondInstance | FaultKind::UnservedDefinition => random.between(1_000, 40_000),
        FaultKind::LaggingCache | FaultKind::DelayedWatch | FaultKind::SkippedEvents => {
            random.between(500, 20_000)
        }
        FaultKind::SlowResponse => random.between(500, 15_000),
        // How long requests may get the error.
        FaultKind::Expired => 10_000,
        FaultKind::ClockJump => random.between(1_000, 3_600_000),
        FaultKind::Timeout => 30_000,
        FaultKind::TooManyRequests => 1_000 * random.between(1, 5),
        // How long the program is down.
        FaultKind::Restart
        | FaultKind::RestartBeforeRequest
        | FaultKind::RestartAfterApply
        | FaultKind::RestartAfterResponse => random.between(10, 5_000),
        FaultKind::LostResponse
        | FaultKind::ConflictingWrite
        | FaultKind::InternalError
        | FaultKind::Unavailable
        | FaultKind::BrokenWatch => 0,
    };
    Fault { kind, at, duration: Duration::from_millis(milliseconds), choice: random.next() }
}
