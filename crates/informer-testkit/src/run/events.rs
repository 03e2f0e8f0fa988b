//! The events of a run, ordered by time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use super::connection::Received;

/// Something that happens at a given time.
#[derive(Debug)]
pub(crate) enum Event {
    /// Something of a connection; see `connection`.
    Connection(Received),
    /// The program is started.
    Start,
    /// The program is started with a server whose cache is at this version, by this fault.
    StartWithLag(usize, u64),
    /// An instance is killed, and the program is started again after this time, if any.
    Kill(u32, Option<Duration>),
    /// A fault begins or ends; see `injection`.
    FaultBegins(usize),
    FaultEnds(usize),
}

/// The events to come, in the order of their times, then in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<(Duration, u64)>>,
    events: BTreeMap<u64, Event>,
    last_number: u64,
}

impl EventQueue {
    pub(crate) fn push(&mut self, at: Duration, event: Event) {
        self.last_number += 1;
        self.heap.push(Reverse((at, self.last_number)));
        self.events.insert(self.last_number, event);
    }

    pub(super) fn next_time(&self) -> Option<Duration> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub(super) fn pop_due(&mut self, now: Duration) -> Option<Event> {
        self.next_time().filter(|at| *at <= now)?;
        let Reverse((_, number)) = self.heap.pop()?;
        self.events.remove(&number)
    }
}
