//! The driver of an election: sends requests for the Lease, waits for deadlines, publishes the status.
//!
//! It runs in a task of its own, so that renewals do not wait for the work of the leader.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use informer_core::election::{Election, Event, FencingToken, LeaseRequest, LeaseResponse};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::lease::{self, LeaseClient};
use crate::clock::{Clock, sleep_until};

/// The published status of an election.
#[derive(Debug, Clone, Default)]
pub(super) struct ElectionStatus {
    /// The term in which this process is the leader, and when it expires unless the lease is renewed.
    pub(super) term: Option<(FencingToken, Instant)>,
    pub(super) holder: String,
    /// Number of renewals for which the leader had to read the lease first.
    pub(super) slow_paths: u64,
}

/// The election state machine with its clock and the request in flight.
pub(super) struct Driver {
    machine: Election,
    clock: Clock,
    lease: Arc<LeaseClient>,
    status: watch::Sender<ElectionStatus>,
    in_flight: Option<Pin<Box<dyn Future<Output = LeaseResponse> + Send>>>,
    slow_paths: u64,
}

impl Driver {
    pub(super) fn new(
        machine: Election,
        lease: Arc<LeaseClient>,
        status: watch::Sender<ElectionStatus>,
    ) -> Self {
        Self { machine, clock: Clock::new(), lease, status, in_flight: None, slow_paths: 0 }
    }

    /// Takes part in the election and sends its events until the candidacy has ended: after `end` has become
    /// true and the lease, if this process held it, was released.
    pub(super) async fn run(mut self, events: mpsc::UnboundedSender<Event>, mut end: watch::Receiver<bool>) {
        loop {
            while let Some(event) = self.next_event() {
                // The receiver is dropped together with this task.
                let _ = events.send(event);
            }
            let is_ending = *end.borrow();
            if is_ending {
                self.machine.stop();
                self.machine.record_work_ended();
            }
            if self.machine.is_over() {
                return;
            }
            tokio::select! {
                biased;
                () = self.advance() => {}
                _ = end.changed(), if !is_ending => {}
            }
        }
    }

    /// Ends the term if it has expired, publishes the status, and returns the next event of the election.
    fn next_event(&mut self) -> Option<Event> {
        self.machine.handle_timeout(self.clock.now());
        let event = self.machine.poll_event();
        self.publish();
        event
    }

    /// Sends a request if one is due, then waits for its response or for the next deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the request in flight is kept.
    async fn advance(&mut self) {
        let now = self.clock.now();
        if self.in_flight.is_none()
            && let Some(request) = self.machine.poll_request(now, lease::wall_clock())
        {
            if matches!(request, LeaseRequest::Read) && self.machine.fencing_token().is_some() {
                self.slow_paths += 1;
            }
            let lease = Arc::clone(&self.lease);
            self.in_flight = Some(Box::pin(async move { lease.execute(request).await }));
        }
        if self.machine.is_over() {
            // There was nothing to release, which is known only now; no deadline follows.
            return;
        }
        let next_deadline = self.machine.next_deadline().map(|deadline| self.clock.instant(deadline));
        match &mut self.in_flight {
            Some(request) => {
                let request_deadline =
                    self.machine.request_deadline().map(|deadline| self.clock.instant(deadline));
                tokio::select! {
                    biased;
                    response = request.as_mut() => self.handle_response(response),
                    () = sleep_until(request_deadline) => self.handle_response(LeaseResponse::Failed("request timed out".to_owned())),
                    () = sleep_until(next_deadline) => {}
                }
            }
            None => sleep_until(next_deadline).await,
        }
    }

    fn handle_response(&mut self, response: LeaseResponse) {
        self.in_flight = None;
        if let LeaseResponse::Failed(error) = &response {
            tracing::warn!(lease = %self.lease, error, "reading or writing the lease failed");
        }
        self.machine.handle_response(self.clock.now(), response);
    }

    fn publish(&self) {
        let now = self.clock.now();
        let until = self.machine.leads_until().filter(|until| now < *until);
        let term = self.machine.fencing_token().cloned().zip(until.map(|until| self.clock.instant(until)));
        self.status.send_if_modified(|status| {
            // A renewal moves the end of a term, but is no change to observers.
            let same = |a: &Option<(FencingToken, Instant)>, b: &Option<(FencingToken, Instant)>| {
                a.as_ref().map(|(token, _)| token) == b.as_ref().map(|(token, _)| token)
            };
            let changed = !same(&status.term, &term) || status.holder != self.machine.holder();
            let (holder, slow_paths) = (self.machine.holder().to_owned(), self.slow_paths);
            *status = ElectionStatus { term, holder, slow_paths };
            changed
        });
    }
}
