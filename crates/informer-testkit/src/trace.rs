//! The timeline of a run: one entry for everything that happened, in order.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_apiserver::ManualClock;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceEntry {
    /// Time since the start of the simulation.
    pub time: Duration,
    /// The source: `program`, `scenario`, `fault`, `check`, or the name of an actor. The instances of a program
    /// are numbered: `program 1` is the first.
    pub actor: String,
    /// The event, for example a request.
    pub text: String,
    /// The kind of the line.
    pub kind: TraceKind,
}

/// The kind of a line of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TraceKind {
    /// The program has sent a request.
    Request,
    /// The program has received a response.
    Response,
    /// The program has received frames of a watch.
    Watch,
    /// The server has applied a write of an actor or of the scenario.
    Write,
    /// A fault.
    Fault,
    /// A check failed.
    Violation,
    /// Anything else, such as the start of the program.
    Note,
}

impl fmt::Display for TraceEntry {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = format!("{}.{:03}", self.time.as_secs(), self.time.subsec_millis());
        let mark = match self.kind {
            TraceKind::Request => "->",
            TraceKind::Response | TraceKind::Watch => "<-",
            TraceKind::Fault => "!!",
            TraceKind::Violation => "XX",
            TraceKind::Write | TraceKind::Note => "  ",
        };
        write!(out, "{time:>9}s  {:<14} {mark} {}", self.actor, self.text)
    }
}

/// The trace of one run. Clones share their lines.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    clock: ManualClock,
    entries: Arc<Mutex<Vec<TraceEntry>>>,
}

impl Trace {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Trace { clock, entries: Arc::default() }
    }

    pub(crate) fn push(&self, kind: TraceKind, actor: impl Into<String>, text: impl Into<String>) {
        let time = self.clock.elapsed();
        self.lock().push(TraceEntry { time, actor: actor.into(), text: text.into(), kind });
    }

    pub(crate) fn take(&self) -> Vec<TraceEntry> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<TraceEntry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
