//! The interface of the reflector to its driver, and the code that all phases share.

use super::cached::Cached;
use super::config::{Config, WatchListPolicy};
use super::contact::Contact;
use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{ErrorResponse, Failure, FailureClass, ResponseHead};
use super::health::Health;
use super::out::{Action, Out};
use super::phase::{CHECK_TIMEOUT, ListKind, Phase, Resume, Stream};
use super::position::Position;
use super::ranges::Ranges;
use super::request::{ListRequest, StreamId, WatchRequest, WatchStart};
use super::saved::CONFIRMATION_WATCH_TIMEOUT;
use super::server::ServerFacts;
use super::state::{InformerState, ReflectorCounters, RelistReason};
use crate::delta::Delta;
use crate::store::StoreReader;
use crate::time::Moment;
use crate::version::ResourceVersion;
use std::collections::VecDeque;
use std::time::Duration;

/// Maximum `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The state machine that lists and watches one scope of a resource and emits deltas.
#[derive(Debug)]
pub struct Reflector {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) position: Position,
    pub(super) server: ServerFacts,
    pub(super) health: Health,
    pub(super) contact: Contact,
    pub(super) out: Out,
    pub(super) cache: Cached,
    pub(super) ranges: Ranges,
}

impl Reflector {
    /// Creates a reflector that has not started.
    ///
    /// `seed` determines the jitter. `store` is the cache that the reflector feeds, if there is one. A relist
    /// reuses the entries of unchanged objects from there, so that no object is in memory twice.
    pub fn new(config: Config, seed: u64, store: Option<StoreReader>) -> Self {
        Self {
            health: Health::new(config.backoff, seed),
            config,
            phase: Phase::Idle,
            position: Position::default(),
            server: ServerFacts::default(),
            contact: Contact::default(),
            out: Out::default(),
            cache: Cached::new(store),
            ranges: Ranges::default(),
        }
    }

    /// Uses stream ids from this one on, so that they differ from those of another reflector of the same driver.
    pub(super) fn with_stream_ids_from(mut self, first: u64) -> Self {
        self.out.start_streams_at(first);
        self
    }

    /// Starts the reflector. Later calls have no effect.
    pub fn start(&mut self, now: Moment) {
        if !matches!(self.phase, Phase::Idle) {
            return;
        }
        if self.cache.needs_goal() {
            self.begin_confirmation(now);
        } else {
            self.begin_relist(now, RelistReason::Initial);
        }
    }

    /// Stops the reflector. Later input is ignored.
    pub fn stop(&mut self) {
        self.cancel_stream();
        self.phase = Phase::Stopped;
    }

    /// Handles the headers of a response.
    pub fn handle_response(&mut self, now: Moment, id: StreamId, head: ResponseHead) {
        if !self.accepts(id) {
            return;
        }
        self.contact.record_contact(now);
        match &mut self.phase {
            Phase::Listing(listing) => listing.receive_head(now, head, &self.config),
            Phase::WatchListing(listing) => listing.receive_head(now, head, &self.config),
            Phase::Watching(watching) => watching.stream.receive_head(now, head, &self.config),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
    }

    /// Handles a part of a body.
    pub fn handle_bytes(&mut self, now: Moment, id: StreamId, chunk: &[u8]) {
        if !self.accepts(id) {
            return;
        }
        match &mut self.phase {
            Phase::Listing(_) => self.list_bytes(now, chunk),
            Phase::WatchListing(_) | Phase::Watching(_) => self.stream_bytes(now, id, chunk),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
    }

    /// Handles the regular end of a body.
    pub fn handle_end(&mut self, now: Moment, id: StreamId) {
        if self.accepts(id) {
            match &self.phase {
                Phase::Listing(_) => self.list_end(now),
                Phase::WatchListing(_) => self.watch_list_end(now),
                Phase::Watching(_) => self.watch_end(now),
                Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
            }
        }
    }

    /// Handles a request that could not be sent, or whose response was interrupted.
    pub fn handle_error(&mut self, now: Moment, id: StreamId, failure: Failure) {
        if self.accepts(id) {
            // The status of an error response takes precedence over the interruption of its body
            // (C7: any 404 is NotServed).
            let failure = self.error_response().map_or(failure, ErrorResponse::failure);
            self.stream_failed(now, failure);
        }
    }

    /// Handles the passing of time. Must be called at [`Reflector::next_deadline`]; earlier calls have no
    /// effect.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        // The body of an error response did not arrive in time; its headers are sufficient.
        if let Some(failure) = self.error_response().map(ErrorResponse::failure) {
            self.cancel_stream();
            return self.stream_failed(now, failure);
        }
        if self.is_check() {
            return self.check_timed_out(now);
        }
        if self.is_pending() {
            self.cancel_stream();
            let text = format!("no response headers within {:?}", self.config.response_header_timeout);
            return self.stream_failed(now, Failure::timeout(text));
        }
        match &self.phase {
            Phase::BackingOff { resume: Resume::Watch, .. } => self.resume_watch(now),
            Phase::BackingOff { resume: Resume::Relist, failure, .. } => {
                let reason = RelistReason::after(failure.class());
                self.begin_relist(now, reason);
            }
            Phase::WatchListing(_) => self.check_watch_list_progress(now),
            Phase::Listing(listing) => {
                let failure = listing.stalled(self.config.list_progress_timeout);
                self.cancel_stream();
                self.stream_failed(now, failure);
            }
            Phase::Watching(_) if self.contact.audit_at().is_some_and(|at| at <= now) => {
                self.begin_audit(now);
            }
            Phase::Watching(_) => self.watch_silent(now),
            Phase::Idle | Phase::Stopped => {}
        }
    }

    /// Returns the deltas for the delta FIFO, in order. The driver drains them after every call of `start` or
    /// a `handle_…` method, before it polls actions.
    pub fn deltas(&mut self) -> &mut VecDeque<Delta> {
        self.out.deltas()
    }

    /// Removes and returns the next action. Must be polled until `None` after every call of `start` or a
    /// `handle_…` method.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.pop_action()
    }

    /// Returns the moment at which [`Reflector::handle_timeout`] must be called; `None` before the start and
    /// after the stop.
    pub fn next_deadline(&self) -> Option<Moment> {
        if let Some(response) = self.error_response() {
            return Some(response.deadline());
        }
        if self.is_check() {
            return Some(self.contact.request_sent() + CHECK_TIMEOUT);
        }
        if self.is_pending() {
            return Some(self.contact.request_sent() + self.config.response_header_timeout);
        }
        match &self.phase {
            Phase::BackingOff { until, .. } => Some(*until),
            Phase::WatchListing(listing) => listing.deadline(&self.config),
            Phase::Listing(listing) => listing.deadline(&self.config),
            Phase::Watching(watching) => {
                let silence = watching.deadline(self.server.check_delay(), self.contact.last_contact());
                silence.into_iter().chain(self.contact.audit_at()).min()
            }
            Phase::Idle | Phase::Stopped => None,
        }
    }

    /// Returns the state (C7).
    pub fn state(&self) -> InformerState {
        match &self.phase {
            Phase::Stopped => InformerState::Stopped,
            Phase::Idle => InformerState::NotStarted,
            Phase::BackingOff { failure, until, .. } => match failure.class() {
                FailureClass::Forbidden => InformerState::Forbidden { failure: failure.clone() },
                FailureClass::NotServed => InformerState::NotServed { failure: failure.clone() },
                _ => InformerState::BackingOff { until: *until, failure: failure.clone() },
            },
            Phase::WatchListing(listing) if !self.cache.is_synced() => listing.state(),
            Phase::Listing(listing) if !self.cache.is_synced() && listing.kind == ListKind::Full => {
                listing.state()
            }
            Phase::WatchListing(_) | Phase::Listing(_) | Phase::Watching(_) => {
                match self.cache.unconfirmed_since() {
                    Some(as_of) => InformerState::Restored { as_of },
                    None if self.is_live() => InformerState::Live,
                    None => InformerState::Stale { since: self.contact.last_up_to_date() },
                }
            }
        }
    }

    /// Sets whether the complete set of objects is expected to arrive faster in lists than in a watch-list.
    ///
    /// Only [`WatchListPolicy::Auto`] considers this.
    pub fn prefer_lists(&mut self, prefer: bool) {
        self.server.lists_are_faster = prefer;
    }

    /// Returns whether the open request is a list or watch-list, not a watch.
    pub fn is_receiving_list(&self) -> bool {
        matches!(self.phase, Phase::Listing(_) | Phase::WatchListing(_))
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ReflectorCounters {
        &self.out.counters
    }

    /// Returns when response headers, a part of a list or a frame were last received.
    pub fn last_contact(&self) -> Option<Moment> {
        self.contact.last_contact()
    }

    /// Returns when the cache was last known to be up to date; `None` until it has synced.
    pub fn last_up_to_date(&self) -> Option<Moment> {
        self.cache.is_synced().then_some(self.contact.last_up_to_date())
    }

    /// Returns the position: the version from which a watch resumes.
    pub fn position(&self) -> Option<&ResourceVersion> {
        self.position.version()
    }

    /// Panics if an invariant is violated. For tests and simulations.
    pub fn check_invariants(&self) {
        self.position.check();
        self.server.check();
        self.health.check();
        self.out.check();
        self.cache.check(&self.position);
        self.check_ranges();
        self.phase.check(self.position.version().is_some());
    }

    // Shared by the phases.

    /// Requests the full list.
    pub(super) fn begin_relist(&mut self, now: Moment, reason: RelistReason) {
        self.out.counters.relists.count(reason);
        self.raise_to_floors();
        self.server.watch_list.rejected_this_relist = None;
        let use_watch_list = match self.config.watch_list {
            WatchListPolicy::Auto => !self.server.lists_are_faster,
            WatchListPolicy::Always => true,
            WatchListPolicy::Never => false,
        };
        if use_watch_list && !self.server.watch_list.disabled {
            self.begin_watch_list(now);
        } else {
            self.begin_list(now);
        }
    }

    /// Handles a failure of the open request.
    pub(super) fn stream_failed(&mut self, now: Moment, failure: Failure) {
        match &self.phase {
            Phase::Listing(_) => self.list_failed(now, failure),
            Phase::WatchListing(_) => self.watch_list_failed(now, failure),
            Phase::Watching(_) => self.watch_failed(now, failure),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
    }

    /// Reports the failure of `request` and delays the step `resume`.
    ///
    /// If the resource is forbidden or not served, the delay is `unavailable_retry_delay` with jitter. After
    /// any other failure it is the longer of the backoff and `Retry-After` (at most [`MAX_RETRY_AFTER`]).
    pub(super) fn enter_backoff(
        &mut self,
        now: Moment,
        request: RequestKind,
        resume: Resume,
        failure: Failure,
    ) {
        let delay = match failure.class() {
            FailureClass::Forbidden | FailureClass::NotServed => {
                self.health.jittered(self.config.unavailable_retry_delay)
            }
            // A small Retry-After does not shorten the backoff.
            _ => {
                let delay = self.health.next_delay(resume);
                delay.max(failure.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER))
            }
        };
        self.back_off_for(now, delay, request, resume, failure);
    }

    /// Reports a failure and delays the next step.
    pub(super) fn back_off_for(
        &mut self,
        now: Moment,
        delay: Duration,
        request: RequestKind,
        resume: Resume,
        failure: Failure,
    ) {
        self.report_failure(request, failure.clone(), delay);
        self.phase = Phase::BackingOff { until: now + delay, resume, failure };
    }

    pub(super) fn report_failure(&mut self, request: RequestKind, failure: Failure, retry_in: Duration) {
        self.out.report_failure(request, failure, retry_in);
    }

    pub(super) fn report(&mut self, diagnostic: ReflectorDiagnostic) {
        self.out.report(diagnostic);
    }

    /// Passes a delta to the store, or to the saved state until the server has confirmed it.
    pub(super) fn push(&mut self, delta: Delta) {
        if let Some(delta) = self.cache.apply_to_saved(delta) {
            self.out.push_delta(delta);
        }
    }

    pub(super) fn send_list(&mut self, now: Moment, request: ListRequest) -> StreamId {
        self.contact.record_request(now);
        let json_only = self.server.encoding_policy.json_only;
        let shard_selector = self.config.shard_selector();
        self.out.list(ListRequest { json_only, shard_selector, ..request })
    }

    pub(super) fn send_watch(&mut self, now: Moment, start: WatchStart) -> Stream {
        // `timeoutSeconds` is a whole number.
        let seconds = self.health.jittered(self.config.watch_timeout).as_secs();
        let timeout = match (&start, self.cache.unconfirmed_since()) {
            (WatchStart::After(_), Some(_)) => CONFIRMATION_WATCH_TIMEOUT,
            _ => Duration::from_secs(seconds),
        };
        self.contact.record_request(now);
        let json_only = self.server.encoding_policy.json_only;
        let shard_selector = self.config.shard_selector();
        self.ranges.is_stream_outdated = false;
        let id =
            self.out.watch(WatchRequest { json_only, shard_selector, ..WatchRequest::new(start, timeout) });
        Stream::new(id, now, timeout)
    }

    /// Cancels the open request, if there is one.
    pub(super) fn cancel_stream(&mut self) {
        if let Some(id) = self.current_stream() {
            self.out.cancel(id);
        }
    }

    pub(super) fn current_stream(&self) -> Option<StreamId> {
        match &self.phase {
            Phase::Listing(listing) => Some(listing.id),
            Phase::WatchListing(listing) => Some(listing.stream.id),
            Phase::Watching(watching) => Some(watching.stream.id),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => None,
        }
    }

    /// Returns whether the open request has no response headers yet.
    fn is_pending(&self) -> bool {
        match &self.phase {
            Phase::Listing(listing) => listing.is_pending(),
            Phase::WatchListing(listing) => listing.stream.is_pending(),
            Phase::Watching(watching) => watching.stream.is_pending(),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => false,
        }
    }

    /// Returns whether the open request is a probe that replaces a silent watch.
    pub(super) fn is_check(&self) -> bool {
        matches!(&self.phase, Phase::Listing(listing) if listing.kind == ListKind::Check)
    }

    /// Returns whether the watch counts as live, or a probe that replaces it.
    fn is_live(&self) -> bool {
        self.is_check() || matches!(&self.phase, Phase::Watching(watching) if watching.is_live())
    }

    /// Returns the response to the open request, if it is an error response.
    fn error_response(&self) -> Option<&ErrorResponse> {
        match &self.phase {
            Phase::Listing(listing) => listing.error_response(),
            Phase::WatchListing(listing) => listing.stream.error_response(),
            Phase::Watching(watching) => watching.stream.error_response(),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => None,
        }
    }

    /// Returns whether `id` is the open request; otherwise counts a stray response.
    fn accepts(&mut self, id: StreamId) -> bool {
        let is_current = self.current_stream() == Some(id);
        if !is_current {
            self.out.counters.stray_responses += 1;
        }
        is_current
    }

    /// Records a full list that is passed to the store, and schedules the next audit. `consistent` if the
    /// list is of the server's most recent state.
    pub(super) fn record_full_list(&mut self, now: Moment, version: ResourceVersion, consistent: bool) {
        if let Some(from) = self.position.ahead_of(&version) {
            debug_assert!(consistent, "only a consistent list may be a rewind");
            let rewound = ReflectorDiagnostic::ServerRewound { from: from.clone(), to: version.clone() };
            self.out.counters.rewinds += 1;
            self.report(rewound);
        }
        self.out.counters.full_lists += 1;
        let next_audit = self.next_audit(now);
        self.contact.schedule_audit(next_audit);
        self.contact.record_up_to_date(now);
        self.position.replace(version);
        self.ranges.floors.clear();
        self.ranges.gain_log = None;
        self.cache.record_full_list();
    }
}
