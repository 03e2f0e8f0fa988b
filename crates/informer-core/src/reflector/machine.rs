//! The reflector as its driver sees it, and what all its states share.

use super::cached::Cached;
use super::config::{Config, WatchListPolicy};
use super::contact::Contact;
use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{ErrorResponse, Failure, FailureClass, ResponseHead};
use super::health::Health;
use super::out::{Action, Out};
use super::phase::{Phase, Resume, Stream};
use super::position::Position;
use super::request::{ListRequest, StreamId, WatchRequest};
use super::server::Learnt;
use super::state::{InformerState, ReflectorCounters, RelistReason};
use crate::delta::Delta;
use crate::store::StoreReader;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::Frame;
use std::time::Duration;

/// Keeps a queue fed with what a server has.
#[derive(Debug)]
pub struct Reflector {
    pub(super) config: Config,
    pub(super) phase: Phase,
    pub(super) position: Position,
    pub(super) server: Learnt,
    pub(super) health: Health,
    pub(super) contact: Contact,
    pub(super) out: Out,
    /// Where the frames of a chunk are collected; empty but for its room.
    pub(super) frames: Vec<Frame>,
    pub(super) cache: Cached,
}

impl Reflector {
    /// A reflector that has not started. `known` is the cache it feeds, if there is one; entries that a relist finds unchanged are
    /// taken from there, so that a relist does not hold everything twice.
    pub fn new(config: Config, seed: u64, known: Option<StoreReader>) -> Self {
        Self {
            health: Health::new(config.backoff, seed),
            config,
            phase: Phase::Idle,
            position: Position::default(),
            server: Learnt::default(),
            contact: Contact::default(),
            out: Out::default(),
            frames: Vec::new(),
            cache: Cached::new(known),
        }
    }

    /// Begins; later calls do nothing.
    pub fn start(&mut self, now: Moment) {
        if matches!(self.phase, Phase::Idle) {
            self.contact.note_start(now);
            self.begin_relist(now, RelistReason::Initial);
        }
    }

    /// Ends; what arrives afterwards is ignored.
    pub fn stop(&mut self) {
        self.cancel_stream();
        self.phase = Phase::Stopped;
    }

    /// The headers of a response are in.
    pub fn handle_response(&mut self, now: Moment, id: StreamId, head: ResponseHead) {
        if !self.is_current(id) {
            return;
        }
        self.contact.note_heard(now);
        match &mut self.phase {
            Phase::Listing(listing) => listing.open(now, head, &self.config),
            Phase::WatchListing(listing) => listing.open(now, head, &self.config),
            Phase::Watching(watching) => watching.stream.open(now, head, &self.config),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
        self.record_up_to_date(now);
    }

    /// A part of a body is in.
    pub fn handle_bytes(&mut self, now: Moment, id: StreamId, chunk: &[u8]) {
        if !self.is_current(id) {
            return;
        }
        self.contact.note_heard(now);
        self.record_up_to_date(now);
        match &mut self.phase {
            Phase::Listing(_) => self.list_bytes(now, chunk),
            Phase::WatchListing(_) | Phase::Watching(_) => self.stream_bytes(now, id, chunk),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
        self.record_up_to_date(now);
    }

    /// A body ended as it should.
    pub fn handle_end(&mut self, now: Moment, id: StreamId) {
        if self.is_current(id) {
            match &self.phase {
                Phase::Listing(_) => self.list_end(now),
                Phase::WatchListing(_) => self.watch_list_end(now),
                Phase::Watching(_) => self.watch_end(now),
                Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
            }
        }
    }

    /// A request could not be sent, or its answer broke off.
    pub fn handle_error(&mut self, now: Moment, id: StreamId, failure: Failure) {
        if self.is_current(id) {
            // Headers that said no count more than how their body broke off (C7: any 404 is NotServed).
            let failure = self.refused().map_or(failure, ErrorResponse::failure);
            self.stream_failed(now, failure);
        }
    }

    /// Time has passed; to be called at [`Reflector::next_deadline`], harmless at any other time.
    pub fn handle_timeout(&mut self, now: Moment) {
        if self.next_deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        if let Some(failure) = self.refused().map(ErrorResponse::failure) {
            self.cancel_stream();
            return self.stream_failed(now, failure);
        }
        if self.is_awaited() {
            self.cancel_stream();
            let text = format!("no response headers within {:?}", self.config.response_header_timeout);
            return self.stream_failed(now, Failure::timeout(text));
        }
        match &self.phase {
            Phase::BackingOff { resume: Resume::Watch, .. } => self.resume_watch(now),
            Phase::BackingOff { resume: Resume::Relist, failure, .. } => {
                let cause = RelistReason::after(failure.class());
                self.begin_relist(now, cause);
            }
            Phase::WatchListing(_) => self.watch_list_stalled(now),
            Phase::Listing(_) => {
                self.cancel_stream();
                self.stream_failed(now, Failure::timeout("no data received before the timeout"));
            }
            Phase::Watching(_) if self.contact.audit_at().is_some_and(|at| at <= now) => {
                self.begin_audit(now);
            }
            Phase::Watching(_) => self.watch_silent(now),
            Phase::Idle | Phase::Stopped => {}
        }
    }

    /// The next thing to do, if any. To be polled until `None` after every call.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.out.pop()
    }

    /// When to call [`Reflector::handle_timeout`].
    pub fn next_deadline(&self) -> Option<Moment> {
        if let Some(response) = self.refused() {
            return Some(response.deadline());
        }
        if self.is_awaited() {
            return Some(self.contact.sent() + self.config.response_header_timeout);
        }
        match &self.phase {
            Phase::BackingOff { until, .. } => Some(*until),
            Phase::WatchListing(listing) => listing.deadline(&self.config),
            Phase::Listing(listing) => listing.deadline(&self.config, self.contact.last_contact()),
            Phase::Watching(watching) => {
                let silence = watching.deadline(self.server.bookmark_gap, self.contact.last_contact());
                silence.into_iter().chain(self.contact.audit_at()).min()
            }
            Phase::Idle | Phase::Stopped => None,
        }
    }

    /// Where it stands (C7).
    pub fn state(&self) -> InformerState {
        let stale = || InformerState::Stale { since: self.contact.last_current() };
        match &self.phase {
            Phase::Stopped => InformerState::Stopped,
            Phase::Idle => InformerState::NotStarted,
            Phase::BackingOff { failure, until, .. } => match failure.class() {
                FailureClass::Forbidden => InformerState::Forbidden { failure: failure.clone() },
                FailureClass::NotServed => InformerState::NotServed { failure: failure.clone() },
                _ => InformerState::BackingOff { until: *until, failure: failure.clone() },
            },
            Phase::Watching(watching) if watching.is_live() => InformerState::Live,
            _ if self.cache.is_synced() => stale(),
            Phase::WatchListing(listing) => listing.state(),
            Phase::Listing(listing) => listing.state(),
            Phase::Watching(_) => InformerState::Connecting,
        }
    }

    /// Says whether the next sets are expected sooner as lists than as streams; for [`WatchListPolicy::Auto`].
    pub fn prefer_lists(&mut self, prefer: bool) {
        self.server.prefers_lists = prefer;
    }

    /// Whether what comes now belongs to a complete set, and not to a watch.
    pub fn is_receiving_list(&self) -> bool {
        matches!(self.phase, Phase::Listing(_) | Phase::WatchListing(_))
    }

    /// How often things happened.
    pub fn counters(&self) -> &ReflectorCounters {
        &self.out.counters
    }

    /// When the server was last heard.
    pub fn last_contact(&self) -> Option<Moment> {
        self.contact.heard()
    }

    /// When the cache was last known to be current; `None` until it was complete.
    pub fn last_up_to_date(&self) -> Option<Moment> {
        self.cache.is_synced().then_some(self.contact.last_current())
    }

    /// The version of the newest state that was handed on.
    pub fn position(&self) -> Option<&ResourceVersion> {
        self.position.version()
    }

    /// Panics if the machine contradicts itself; for tests and simulations.
    pub fn check_invariants(&self) {
        self.position.check();
        self.server.check();
        self.health.check();
        self.contact.check();
        self.out.check();
        self.cache.check(&self.position);
        self.phase.check(self.cache.is_synced());
    }

    // What the states share.

    /// Asks for the whole set.
    pub(super) fn begin_relist(&mut self, now: Moment, cause: RelistReason) {
        self.out.counters.relists.count(cause);
        self.server.capability.refused_this_relist = None;
        let stream = match self.config.watch_list {
            WatchListPolicy::Auto => !self.server.prefers_lists,
            WatchListPolicy::Always => true,
            WatchListPolicy::Never => false,
        };
        if stream && !self.server.capability.disabled {
            self.begin_watch_list(now);
        } else {
            self.begin_list(now);
        }
    }

    /// Whatever request is open has failed.
    pub(super) fn stream_failed(&mut self, now: Moment, failure: Failure) {
        match &self.phase {
            Phase::Listing(_) => self.list_failed(now, failure),
            Phase::WatchListing(_) => self.watch_list_failed(now, failure),
            Phase::Watching(_) => self.watch_failed(now, failure),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => {}
        }
    }

    /// Waits as long as the failure asks for, then goes on.
    pub(super) fn enter_backoff(&mut self, now: Moment, asked: RequestKind, next: Resume, failure: Failure) {
        const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);
        let delay = match failure.class() {
            FailureClass::Forbidden | FailureClass::NotServed => {
                self.health.stretch(self.config.unavailable_retry_delay)
            }
            // Never sooner than our own back-off, however small the server's number.
            _ => self.health.next_delay().max(failure.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER)),
        };
        self.report_failure(asked, failure.clone(), delay);
        self.phase = Phase::BackingOff { until: now + delay, resume: next, failure };
    }

    pub(super) fn report_failure(&mut self, asked: RequestKind, failure: Failure, retry_in: Duration) {
        self.out.report_failure(asked, failure, retry_in);
    }

    pub(super) fn report(&mut self, report: ReflectorDiagnostic) {
        self.out.report(report);
    }

    pub(super) fn push(&mut self, delta: Delta) {
        self.out.push(delta);
    }

    pub(super) fn send_list(&mut self, now: Moment, request: ListRequest) -> StreamId {
        self.contact.note_sent(now);
        let json_only = self.server.encoding_policy.json_only();
        self.out.list(ListRequest { json_only, ..request })
    }

    pub(super) fn send_watch(&mut self, now: Moment, start: super::WatchStart) -> Stream {
        let seconds = self.health.stretch(self.config.watch_timeout).as_secs();
        let timeout = Duration::from_secs(seconds);
        self.contact.note_sent(now);
        let json_only = self.server.encoding_policy.json_only();
        let id = self.out.watch(WatchRequest { json_only, ..WatchRequest::new(start, timeout) });
        Stream::new(id, now, timeout)
    }

    /// Gives up the open request, if there is one.
    pub(super) fn cancel_stream(&mut self) {
        if let Some(id) = self.current() {
            self.out.cancel(id);
        }
    }

    fn current(&self) -> Option<StreamId> {
        match &self.phase {
            Phase::Listing(listing) => Some(listing.id),
            Phase::WatchListing(listing) => Some(listing.stream.id),
            Phase::Watching(watching) => Some(watching.stream.id),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => None,
        }
    }

    /// Whether the open request has no response headers yet.
    fn is_awaited(&self) -> bool {
        match &self.phase {
            Phase::Listing(listing) => listing.is_awaited(),
            Phase::WatchListing(listing) => listing.stream.is_awaited(),
            Phase::Watching(watching) => watching.stream.is_awaited(),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => false,
        }
    }

    /// A live watch was heard.
    fn record_up_to_date(&mut self, now: Moment) {
        if matches!(&self.phase, Phase::Watching(watching) if watching.stream.is_open()) {
            self.contact.note_current(now);
        }
    }

    /// The answer to the open request, if its headers said no.
    fn refused(&self) -> Option<&ErrorResponse> {
        match &self.phase {
            Phase::Listing(listing) => listing.refused(),
            Phase::WatchListing(listing) => listing.stream.refused(),
            Phase::Watching(watching) => watching.stream.refused(),
            Phase::Idle | Phase::BackingOff { .. } | Phase::Stopped => None,
        }
    }

    /// Whether something belongs to the open request; counts it otherwise.
    pub(super) fn is_current(&mut self, id: StreamId) -> bool {
        let current = self.current() == Some(id);
        if !current {
            self.out.counters.stray_responses += 1;
        }
        current
    }

    /// A complete set was handed on: what stands in the way of the next is forgotten.
    pub(super) fn record_full_list(&mut self, now: Moment, version: ResourceVersion, consistent: bool) {
        if let Some(from) = self.position.ahead_of(&version) {
            debug_assert!(consistent, "only a consistent list may go back");
            let rewound = ReflectorDiagnostic::ServerRewound { from: from.clone(), to: version.clone() };
            self.out.counters.rewinds += 1;
            self.report(rewound);
        }
        self.out.counters.full_lists += 1;
        let audit = self.next_audit(now);
        self.contact.note_next_audit(audit);
        self.contact.note_set(now);
        self.position.replace(version);
        self.cache.note_set();
    }
}
