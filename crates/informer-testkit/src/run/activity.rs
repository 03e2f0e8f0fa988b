//! The current activity of a run, which the watchdog reads from another thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::trace::{Trace, TraceEntry};

/// The current activity of a run.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// 0: the server, the scenario or a check; 1: the actors; from 2 on: an instance of the program.
    actor: AtomicU64,
    milliseconds: AtomicU64,
    trace: OnceLock<Trace>,
}

impl Activity {
    /// Sets the trace of the run.
    pub(super) fn set_trace(&self, trace: &Trace) {
        self.trace.get_or_init(|| trace.clone());
    }

    /// Returns the timeline up to now, if the run has begun.
    pub(crate) fn timeline(&self) -> Vec<TraceEntry> {
        self.trace.get().map(Trace::take).unwrap_or_default()
    }

    pub(super) fn set(&self, actor: u64, now: Duration) {
        self.actor.store(actor, Ordering::Relaxed);
        self.milliseconds.store(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl std::fmt::Display for Activity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let time = Duration::from_millis(self.milliseconds.load(Ordering::Relaxed));
        match self.actor.load(Ordering::Relaxed) {
            0 => write!(out, "The scenario, a check or the server was running")?,
            1 => write!(out, "An actor was running")?,
            number => write!(out, "Program {} was running: it blocks its thread or never waits", number - 1)?,
        }
        write!(out, " (at {time:?} of virtual time)")
    }
}
