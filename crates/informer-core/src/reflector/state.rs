//! The state of a reflector and its counters.

use super::failure::{Failure, FailureClass};
use crate::time::Moment;
use jiff::Timestamp;
use std::fmt;

/// The state of an informer (C7).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerState {
    /// The informer was not started.
    NotStarted,
    /// The initial list was requested; no response headers have arrived yet.
    Connecting,
    /// The initial list is arriving.
    Listing {
        /// Number of objects received so far.
        received: u64,
        /// Number of objects in total, if the server reports it.
        total: Option<u64>,
    },
    /// The cache follows the server.
    Live,
    /// The cache is complete but may be out of date, because no watch is open: one is being started, or a
    /// list is being received. This is no failure in itself: it is also the state while a watch is renewed.
    Stale {
        /// When the cache was last known to be up to date.
        since: Moment,
    },
    /// The server does not allow the request. It is retried slowly.
    Forbidden {
        /// The response of the server.
        failure: Failure,
    },
    /// The server does not serve the resource. The request is retried slowly.
    NotServed {
        /// The response of the server.
        failure: Failure,
    },
    /// A request failed, and the next one is delayed.
    BackingOff {
        /// When the next request is sent.
        until: Moment,
        /// The failure of the last request.
        failure: Failure,
    },
    /// The informer has stopped.
    Stopped,
    /// The cache was loaded from a file, and the server has not confirmed it yet.
    Restored {
        /// When it was saved.
        as_of: Timestamp,
    },
}

impl InformerState {
    /// Displays the state with its times relative to `now`.
    pub fn display_at(&self, now: Moment) -> impl fmt::Display + '_ {
        DisplayAt { state: self, now }
    }
}

struct DisplayAt<'a> {
    state: &'a InformerState,
    now: Moment,
}

impl fmt::Display for DisplayAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            InformerState::Stale { since } => write!(f, "stale for {:.0?}", self.now - *since),
            InformerState::BackingOff { until, failure } => {
                write!(f, "backing off for another {:.1?}: {failure}", *until - self.now)
            }
            state => write!(f, "{state}"),
        }
    }
}

/// Times are left out; [`InformerState::display_at`] includes them.
impl fmt::Display for InformerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started (call start)"),
            Self::Connecting => f.write_str("connecting"),
            Self::Listing { received, total: Some(total) } => write!(f, "listing {received}/{total}"),
            Self::Listing { received, total: None } => write!(f, "listing {received}"),
            Self::Restored { as_of } => write!(f, "restored, as of {as_of:.0}"),
            Self::Live => f.write_str("live"),
            Self::Stale { .. } => f.write_str("stale"),
            Self::Forbidden { failure } => write!(f, "forbidden: {failure}"),
            Self::NotServed { failure } => write!(f, "not served: {failure}"),
            Self::BackingOff { failure, .. } => write!(f, "backing off: {failure}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// The reason for a relist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelistReason {
    /// The initial list.
    Initial,
    /// The server no longer has the reflector's position (410), or has not reached it.
    Expired,
    /// The resource was forbidden or not served, and may be available again.
    Unavailable,
    /// A list failed, watches failed repeatedly, or only a full list can reveal which object was deleted.
    Failed,
    /// No frame was received for so long that the position is suspect: the server may have been restored from
    /// a backup.
    Suspect,
    /// The cache is compared with a full list at the audit period.
    Audit,
}

impl RelistReason {
    /// Returns the reason for a relist that follows a failure.
    pub(super) fn after(class: FailureClass) -> Self {
        match class {
            FailureClass::Expired | FailureClass::VersionTooLarge => Self::Expired,
            FailureClass::Forbidden | FailureClass::NotServed => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

/// Number of relists by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RelistCounters {
    /// Initial lists.
    pub initial: u64,
    /// Relists because the server no longer had the reflector's position, or had not reached it.
    pub expired: u64,
    /// Relists after the resource was forbidden or not served.
    pub unavailable: u64,
    /// Relists after failed watches or lists.
    pub failed: u64,
    /// Relists because the position was suspect.
    pub suspect: u64,
    /// Relists to compare cache and server.
    pub audit: u64,
}

impl RelistCounters {
    /// Returns the counters with the names of their reasons, as used for metric labels.
    pub fn by_reason(&self) -> [(&'static str, u64); 6] {
        let Self { initial, expired, unavailable, failed, suspect, audit } = *self;
        [
            ("initial", initial),
            ("expired", expired),
            ("unavailable", unavailable),
            ("failed", failed),
            ("suspect", suspect),
            ("audit", audit),
        ]
    }

    pub(super) fn count(&mut self, reason: RelistReason) {
        *match reason {
            RelistReason::Initial => &mut self.initial,
            RelistReason::Expired => &mut self.expired,
            RelistReason::Unavailable => &mut self.unavailable,
            RelistReason::Failed => &mut self.failed,
            RelistReason::Suspect => &mut self.suspect,
            RelistReason::Audit => &mut self.audit,
        } += 1;
    }
}

/// Counters of a reflector. They only increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReflectorCounters {
    /// Requests for a list, a page of a list, or a probe.
    pub lists: u64,
    /// Requests for a watch.
    pub watches: u64,
    /// Requests for a watch-list.
    pub watch_lists: u64,
    /// Relists by reason, the initial list included.
    pub relists: RelistCounters,
    /// Complete lists and watch-lists passed to the store, the initial list included.
    pub full_lists: u64,
    /// Saved states that the server confirmed, so that no initial list was requested.
    pub warm_starts: u64,
    /// Frames read.
    pub frames: u64,
    /// Bookmarks of watches. Those before and at the end of the initial events of a watch-list do not count.
    pub bookmarks: u64,
    /// Objects that could not be read.
    pub unreadable: u64,
    /// Objects that were dropped because they are in other hash ranges: the server ignores the selector, or ranges have
    /// just moved.
    pub foreign: u64,
    /// Objects on which the transform failed.
    pub transform_errors: u64,
    /// Responses, chunks, ends and errors of requests that were no longer open.
    pub stray_responses: u64,
    /// Requested versions and continue tokens that the server no longer had (410), and versions of watches
    /// that it had not reached. Probes and audits do not count.
    pub expired: u64,
    /// Lists of the server's most recent state that were older than the cache.
    pub rewinds: u64,
    /// Silent watches whose server did not respond to a probe in time.
    pub silence_timeouts: u64,
    /// Requests that failed and streams that broke.
    pub failures: u64,
}

/// Sums the counters of several reflectors.
impl std::ops::AddAssign for ReflectorCounters {
    fn add_assign(&mut self, other: Self) {
        self.lists += other.lists;
        self.watches += other.watches;
        self.watch_lists += other.watch_lists;
        self.relists += other.relists;
        self.full_lists += other.full_lists;
        self.warm_starts += other.warm_starts;
        self.frames += other.frames;
        self.bookmarks += other.bookmarks;
        self.unreadable += other.unreadable;
        self.foreign += other.foreign;
        self.transform_errors += other.transform_errors;
        self.stray_responses += other.stray_responses;
        self.expired += other.expired;
        self.rewinds += other.rewinds;
        self.silence_timeouts += other.silence_timeouts;
        self.failures += other.failures;
    }
}

impl std::ops::AddAssign for RelistCounters {
    fn add_assign(&mut self, other: Self) {
        self.initial += other.initial;
        self.expired += other.expired;
        self.unavailable += other.unavailable;
        self.failed += other.failed;
        self.suspect += other.suspect;
        self.audit += other.audit;
    }
}
