//! The driver of a member: sends its requests, waits for deadlines, publishes its ranges.
//!
//! It makes no decisions: the state machine in `informer-core` claims and loses ranges, and `ranges.rs` decides when one
//! is released.

use super::assignment;
use super::client::GroupClient;
use super::ranges::{ActingRanges, Applied};
use super::state::{GroupState, PublishedRanges, Publisher};
use super::status::ShardStatus;
use super::watch::Objects;
use crate::clock::{self, Clock, sleep_until};
use informer_core::shard::{ClaimState, HashRanges, Member, MemberResponse, RangeAssignment};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// The state machine of a member with its clock and the request in flight.
pub(super) struct MemberDriver {
    machine: Member,
    clock: Clock,
    client: Arc<GroupClient>,
    publisher: Publisher,
    ranges: ActingRanges,
    release_timeout: Duration,
    assignment: watch::Receiver<Objects>,
    /// The version of the assignment in the watch that was passed to the state machine last.
    observed_version: Option<String>,
    in_flight: Option<Pin<Box<dyn Future<Output = MemberResponse> + Send>>>,
    last_error: Option<String>,
    /// The other key that was reported last.
    reported_key: Option<String>,
    /// When the ranges were published last.
    published_at: Instant,
}

/// The run of a membership has ended, although its task has not.
struct RunEnded;

impl MemberDriver {
    pub(super) fn new(
        machine: Member,
        client: Arc<GroupClient>,
        publisher: Publisher,
        release_timeout: Duration,
        assignment: watch::Receiver<Objects>,
    ) -> Self {
        Self {
            machine,
            clock: Clock::new(),
            client,
            publisher,
            ranges: ActingRanges::default(),
            release_timeout,
            assignment,
            observed_version: None,
            in_flight: None,
            last_error: None,
            reported_key: None,
            published_at: Instant::now(),
        }
    }

    /// Takes part in the group until the member has left: after `end` has become true, all ranges were released and the
    /// Lease was deleted.
    pub(super) async fn run(mut self, mut end: watch::Receiver<bool>) {
        let publisher = self.publisher.clone();
        // Has its own mark: a version that arrives during a request is read after it.
        let mut assignment = self.assignment.clone();
        let mut confirmations = publisher.state().handle.subscribe_confirmations();
        loop {
            let is_ending = *end.borrow();
            if is_ending {
                self.machine.stop(self.clock.now());
            }
            if self.update().is_err() || self.machine.is_over() {
                return;
            }
            tokio::select! {
                biased;
                () = self.advance() => {}
                Ok(()) = confirmations.changed() => {}
                Ok(()) = assignment.changed() => {}
                _ = end.changed(), if !is_ending => {}
            }
        }
    }

    /// Applies what has happened, and publishes it.
    fn update(&mut self) -> Result<(), RunEnded> {
        let now = Instant::now();
        self.machine.handle_timeout(self.clock.now());
        self.apply_events(now);
        self.publish(now)?;
        let handle = &self.publisher.state().handle;
        let released = self.ranges.take_released(|range, view| handle.has_ended(range, view), now);
        if released.is_empty() {
            return Ok(());
        }
        tracing::info!(group = %self.client, ranges = released.len(), "released ranges");
        let mut counters = self.publisher.state().lock_counters();
        for released in released {
            self.machine.record_released(released.range);
            counters.released += 1;
            counters.handovers.observe(released.handover);
            counters.last_handover = Some(released.handover);
        }
        drop(counters);
        self.publish(now)
    }

    fn apply_events(&mut self, now: Instant) {
        let (mut gained, mut lost) = (0, 0);
        let mut reason = None;
        let mut counters = self.publisher.state().lock_counters();
        while let Some(event) = self.machine.poll_event() {
            match self.ranges.apply(event, now) {
                Applied::Gained(claim) => {
                    gained += 1;
                    if let Some(claim) = claim {
                        counters.claims.observe(claim);
                        counters.last_claim = Some(claim);
                    }
                }
                Applied::ReleaseBegun => {}
                Applied::Lost(why) => {
                    lost += 1;
                    reason = Some(why);
                }
            }
        }
        (counters.gained, counters.lost) = (counters.gained + gained, counters.lost + lost);
        drop(counters);
        let claims = self.machine.claims().filter(|(_, _, state)| *state == ClaimState::Claimed);
        self.ranges.record_claimed(claims.map(|(range, _, _)| range), now);
        if gained > 0 {
            tracing::info!(group = %self.client, ranges = gained, "gained ranges");
        }
        if let Some(reason) = reason {
            tracing::warn!(group = %self.client, ranges = lost, ?reason, "lost ranges");
        }
    }

    /// Logs that other members divide the objects by another key, once for each key.
    fn report_other_key(&mut self) {
        let other = self.machine.other_key().map(str::to_owned);
        if other != self.reported_key {
            if let Some(error) = self.key_error() {
                tracing::error!(group = %self.client, identity = self.machine.identity(), error, "this member does not act");
            }
            self.reported_key = other;
        }
    }

    fn key_error(&self) -> Option<String> {
        /// Upper bound on the length of a key in the message. Known keys are shorter; an edited one may have any length.
        const MAX_KEY_CHARS: usize = 32;
        let (own, other) = (&self.machine.record().key, self.machine.other_key()?);
        let other: String = other.chars().take(MAX_KEY_CHARS).collect();
        Some(format!(
            "divide objects by {own}: other members of the group divide them by {other} (give the group another name \
             when the key changes, or end all members with the earlier key)"
        ))
    }

    /// Publishes view and status.
    fn publish(&mut self, now: Instant) -> Result<(), RunEnded> {
        self.report_other_key();
        self.published_at = now;
        let (held, releasing) = (self.ranges.held(), self.ranges.releasing(now, self.release_timeout));
        let is_settled = self.machine.is_considered() && self.has_all_assigned(&held);
        let view = PublishedRanges { held: Arc::new(held), releasing: Arc::new(releasing), is_settled };
        let acts_until = self.machine.acts_until().map(|until| self.clock.instant(until));
        let tokens = Arc::new(self.ranges.tokens());
        let published = self.publisher.publish(|state| {
            let number = state.publish(view.clone(), acts_until, tokens);
            self.publish_status(state, &view, acts_until);
            number
        });
        self.ranges.record_view(published.ok_or(RunEnded)?);
        Ok(())
    }

    fn publish_status(&self, state: &GroupState, view: &PublishedRanges, acts_until: Option<Instant>) {
        let mut counters = state.lock_counters();
        (counters.held, counters.releasing, counters.claimed) = self.ranges.counts();
        counters.lease_writes = counters.lease_writes.max(self.client.lease_writes());
        let assignment = self.machine.assignment();
        let next = ShardStatus {
            is_running: true,
            is_considered: self.machine.is_considered(),
            is_settled: view.is_settled,
            held: HashRanges::clone(&view.held),
            releasing: HashRanges::clone(&view.releasing),
            claimed: self.ranges.claimed(),
            acts_until,
            assignment_version: assignment.map(|stored| stored.version.clone()).unwrap_or_default(),
            highest_epoch: self.ranges.highest_epoch(),
            gained: counters.gained,
            released: counters.released,
            lost: counters.lost,
            last_handover: counters.last_handover,
            last_claim: counters.last_claim,
            last_error: self.last_error.clone().or_else(|| self.key_error()),
            ..ShardStatus::new(self.machine.identity())
        };
        drop(counters);
        state.status.send_if_modified(|status| {
            // The driver of the coordinator publishes this one.
            let next = ShardStatus { is_coordinator: status.is_coordinator, ..next };
            status.acts_until = next.acts_until;
            let is_changed = *status != next;
            *status = next;
            is_changed
        });
    }

    /// Returns whether the member holds every range that is assigned to it.
    fn has_all_assigned(&self, held: &HashRanges) -> bool {
        let assignment = self.machine.assignment().and_then(|stored| stored.assignment.as_ref());
        assignment.is_some_and(|assignment| {
            let identity = Some(self.machine.identity());
            let is_other =
                |assigned: &RangeAssignment| assigned.owner.as_deref() != identity || assigned.is_releasing;
            assignment.iter().all(|(range, assigned)| is_other(assigned) || held.covers(&range))
        })
    }

    /// Passes each other version that the watch shows to the state machine, which reads the assignment if that concerns
    /// this member.
    fn follow_watch(&mut self) {
        let objects = self.assignment.borrow().clone();
        let Some(objects) = objects else { return };
        let object = objects.values().next();
        let observed = object.map(|object| object.metadata.resource_version.clone().unwrap_or_default());
        let known = self.machine.assignment().map(|stored| &stored.version);
        if observed.as_ref() != known && observed != self.observed_version {
            self.observed_version = observed;
            self.machine.observe_assignment(object.map(|object| assignment::decode(object)).as_ref());
        }
    }

    /// Sends a request if one is due, then waits for its response or for the next deadline.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: the request in flight is kept.
    async fn advance(&mut self) {
        if self.in_flight.is_none() {
            // A read that was sent before the watch showed the version may return an older one.
            self.follow_watch();
            if let Some(request) = self.machine.poll_request(self.clock.now(), clock::now()) {
                let client = Arc::clone(&self.client);
                self.in_flight = Some(Box::pin(async move { client.execute(request).await }));
            }
        }
        let instant = |moment| self.clock.instant(moment);
        let deadlines = [
            self.machine.next_deadline().map(instant),
            self.ranges.next_deadline(self.published_at, self.release_timeout),
        ];
        let next_deadline = deadlines.into_iter().flatten().min();
        let request_deadline = self.machine.request_deadline().map(instant);
        let response = match &mut self.in_flight {
            Some(request) => tokio::select! {
                biased;
                response = request.as_mut() => response,
                () = sleep_until(request_deadline) => MemberResponse::Failed("request timed out".to_owned()),
                () = sleep_until(next_deadline) => return,
            },
            None => return sleep_until(next_deadline).await,
        };
        self.handle_response(response);
    }

    fn handle_response(&mut self, response: MemberResponse) {
        self.in_flight = None;
        self.last_error = match &response {
            MemberResponse::Failed(error) => {
                tracing::warn!(group = %self.client, identity = self.machine.identity(), error, "a request failed");
                Some(error.clone())
            }
            _ => None,
        };
        self.machine.handle_response(self.clock.now(), response);
    }
}
