//! What the machine gives to its driver: actions in order, and how often things happened.
//!
//! Invariant: every request has a stream of its own, and is counted. This file must not know why anything is done.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::Failure;
use super::request::{ListRequest, StreamId, WatchRequest};
use super::state::ReflectorCounters;
use crate::delta::Delta;
use std::collections::VecDeque;
use std::time::Duration;

/// What the driver is to do.
#[derive(Debug)]
pub enum Action {
    /// Send this list request; what comes back belongs to the stream with this id.
    List(StreamId, ListRequest),
    /// Send this watch request.
    Watch(StreamId, WatchRequest),
    /// Give up this request.
    Cancel(StreamId),
    /// Append this to the queue.
    Push(Delta),
    /// Tell people.
    Report(ReflectorDiagnostic),
}

/// Actions that wait for the driver.
#[derive(Debug, Default)]
pub(super) struct Out {
    actions: VecDeque<Action>,
    /// The number of the last stream.
    next_stream: u64,
    pub(super) counters: ReflectorCounters,
}

impl Out {
    /// The next action.
    pub(super) fn pop(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Appends a delta to the queue.
    pub(super) fn push(&mut self, delta: Delta) {
        self.actions.push_back(Action::Push(delta));
    }

    pub(super) fn report(&mut self, diagnostic: ReflectorDiagnostic) {
        self.actions.push_back(Action::Report(diagnostic));
    }

    /// Reports and counts a failure.
    pub(super) fn report_failure(&mut self, request: RequestKind, failure: Failure, retry_in: Duration) {
        self.counters.failures += 1;
        self.report(ReflectorDiagnostic::RequestFailed { request, failure, retry_in });
    }

    /// Sends a list request; returns its stream.
    pub(super) fn list(&mut self, request: ListRequest) -> StreamId {
        self.counters.lists += 1;
        let id = self.new_stream();
        self.actions.push_back(Action::List(id, request));
        id
    }

    /// Sends a watch request; returns its stream.
    pub(super) fn watch(&mut self, request: WatchRequest) -> StreamId {
        let id = self.new_stream();
        self.actions.push_back(Action::Watch(id, request));
        id
    }

    pub(super) fn cancel(&mut self, id: StreamId) {
        self.actions.push_back(Action::Cancel(id));
    }

    fn new_stream(&mut self) -> StreamId {
        self.next_stream += 1;
        StreamId(self.next_stream)
    }

    /// Panics if it contradicts itself.
    pub(super) fn check(&self) {
        let ReflectorCounters { lists, watch_lists, watches, .. } = self.counters;
        assert_eq!(self.next_stream, lists + watch_lists + watches, "every request is counted");
    }
}
