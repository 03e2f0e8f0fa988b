//! Output of the reflector to its driver: a queue of deltas, a queue of actions, and counters.
//!
//! Invariant: every request has its own stream and is counted. This file must not know the reason for an
//! action.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::Failure;
use super::request::{ListRequest, StreamId, WatchRequest};
use super::state::ReflectorCounters;
use crate::delta::Delta;
use std::collections::VecDeque;
use std::time::Duration;

/// An instruction of the reflector to its driver.
#[derive(Debug)]
pub enum Action {
    /// Send this list request. Its response belongs to the stream with this id.
    List(StreamId, ListRequest),
    /// Send this watch request. Its response belongs to the stream with this id.
    Watch(StreamId, WatchRequest),
    /// Cancel this request.
    Cancel(StreamId),
    /// Report this diagnostic to the log and the user's hook.
    Report(ReflectorDiagnostic),
}

/// Deltas and actions that the driver has not taken yet.
#[derive(Debug, Default)]
pub(super) struct Out {
    deltas: VecDeque<Delta>,
    actions: VecDeque<Action>,
    /// The id before that of the first stream.
    streams_after: u64,
    /// The id of the last stream.
    last_stream: u64,
    pub(super) counters: ReflectorCounters,
}

impl Out {
    /// Removes and returns the next action.
    pub(super) fn pop_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Returns the deltas, which the driver drains into the FIFO.
    pub(super) fn deltas(&mut self) -> &mut VecDeque<Delta> {
        &mut self.deltas
    }

    /// Emits a delta for the FIFO.
    pub(super) fn push_delta(&mut self, delta: Delta) {
        self.deltas.push_back(delta);
    }

    pub(super) fn report(&mut self, diagnostic: ReflectorDiagnostic) {
        self.actions.push_back(Action::Report(diagnostic));
    }

    /// Reports and counts a failure.
    pub(super) fn report_failure(&mut self, request: RequestKind, failure: Failure, retry_in: Duration) {
        self.counters.failures += 1;
        self.report(ReflectorDiagnostic::RequestFailed { request, failure, retry_in });
    }

    /// Emits a list request; returns the id of its stream.
    pub(super) fn list(&mut self, request: ListRequest) -> StreamId {
        self.counters.lists += 1;
        let id = self.new_stream();
        self.actions.push_back(Action::List(id, request));
        id
    }

    /// Emits a request for a watch or watch-list, which the caller counts; returns the id of its stream.
    pub(super) fn watch(&mut self, request: WatchRequest) -> StreamId {
        let id = self.new_stream();
        self.actions.push_back(Action::Watch(id, request));
        id
    }

    pub(super) fn cancel(&mut self, id: StreamId) {
        self.actions.push_back(Action::Cancel(id));
    }

    /// Sets the id after which streams are numbered. Must be called before the first request.
    pub(super) fn start_streams_at(&mut self, first: u64) {
        (self.streams_after, self.last_stream) = (first, first);
    }

    fn new_stream(&mut self) -> StreamId {
        self.last_stream += 1;
        StreamId(self.last_stream)
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        let ReflectorCounters { lists, watch_lists, watches, .. } = self.counters;
        let requests = self.last_stream - self.streams_after;
        assert_eq!(requests, lists + watch_lists + watches, "every request must be counted");
    }
}
