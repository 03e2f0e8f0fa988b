//! What a reflector says about itself: its state, its counters, and reports of what went wrong.

use super::failure::{Failure, Trouble};
use crate::key::Key;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::UnreadableObject;
use std::fmt;
use std::time::Duration;

/// Where a reflector stands (C7). Always one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerState {
    /// Nobody has started it.
    NotStarted,
    /// Asking for the initial set; nothing has arrived yet.
    Connecting,
    /// The initial set is arriving.
    Listing {
        /// Objects so far.
        received: u64,
        /// Objects in all, where the server says so.
        total: Option<u64>,
    },
    /// Following changes as they happen.
    Live,
    /// The cache is complete but may be behind: the connection is being made anew.
    Stale {
        /// When it was last known to be current.
        since: Moment,
    },
    /// The server does not allow it. Asked again slowly.
    Forbidden {
        /// What the server said.
        because: Box<str>,
    },
    /// The server does not have this kind. Asked again slowly.
    NotServed {
        /// What the server said.
        because: Box<str>,
    },
    /// Waiting after a failure.
    BackingOff {
        /// Until when.
        until: Moment,
        /// What failed.
        because: Box<str>,
    },
    /// Over.
    Stopped,
}

impl InformerState {
    /// The state in words, with its times as seen from `now`.
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
            InformerState::BackingOff { until, because } => {
                write!(f, "backing off for another {:.1?}: {because}", *until - self.now)
            }
            state => write!(f, "{state}"),
        }
    }
}

/// Without a clock to see them from, times are left out; see [`InformerState::display_at`].
impl fmt::Display for InformerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started (call start)"),
            Self::Connecting => f.write_str("connecting"),
            Self::Listing { received: done, total: Some(total) } => write!(f, "listing {done}/{total}"),
            Self::Listing { received: done, total: None } => write!(f, "listing {done}"),
            Self::Live => f.write_str("live"),
            Self::Stale { .. } => f.write_str("stale"),
            Self::Forbidden { because } => write!(f, "forbidden: {because}"),
            Self::NotServed { because } => write!(f, "not served: {because}"),
            Self::BackingOff { because, .. } => write!(f, "backing off: {because}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Why the whole set is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RelistReason {
    /// It is the first time.
    Initial,
    /// The server has forgotten our position (410), or has not come as far.
    Expired,
    /// The kind was forbidden or not served, and may be there again.
    Unavailable,
    /// Watches broke again and again, or something was told that only the whole set can explain.
    Failed,
    /// Nothing was heard for so long that the position itself is in doubt.
    Suspect,
    /// The cache is compared with a fresh list, as configured.
    Audit,
}

impl RelistReason {
    /// The cause of a relist that follows a failure.
    pub(super) fn after(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Expired | Trouble::VersionTooLarge => Self::Expired,
            Trouble::Forbidden | Trouble::NotServed => Self::Unavailable,
            _ => Self::Failed,
        }
    }
}

/// How often the whole set was asked for, by cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RelistCounters {
    /// The first time.
    pub initial: u64,
    /// The server had forgotten our position, or had not come as far.
    pub expired: u64,
    /// The kind had been forbidden or not served.
    pub unavailable: u64,
    /// Watches or lists had failed.
    pub failed: u64,
    /// The position was in doubt.
    pub suspect: u64,
    /// To compare.
    pub audit: u64,
}

impl RelistCounters {
    /// The numbers with the names of their causes.
    pub fn by_cause(&self) -> [(&'static str, u64); 6] {
        let Self { initial: first, expired: forgotten, unavailable: absent, failed, suspect: doubt, audit } =
            *self;
        [
            ("first", first),
            ("forgotten", forgotten),
            ("absent", absent),
            ("failed", failed),
            ("doubt", doubt),
            ("audit", audit),
        ]
    }

    pub(super) fn count(&mut self, cause: RelistReason) {
        *match cause {
            RelistReason::Initial => &mut self.initial,
            RelistReason::Expired => &mut self.expired,
            RelistReason::Unavailable => &mut self.unavailable,
            RelistReason::Failed => &mut self.failed,
            RelistReason::Suspect => &mut self.suspect,
            RelistReason::Audit => &mut self.audit,
        } += 1;
    }
}

/// How often things happened. Numbers only ever grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReflectorCounters {
    /// Requests for a list or a page of one.
    pub lists: u64,
    /// Requests for a watch.
    pub watches: u64,
    /// Requests for a watch-list.
    pub watch_lists: u64,
    /// Rounds in which the whole set was asked for, by cause.
    pub relists: RelistCounters,
    /// Complete sets that were handed on, the first included.
    pub full_lists: u64,
    /// Frames that were read.
    pub frames: u64,
    /// Bookmarks among them.
    pub bookmarks: u64,
    /// Objects that could not be read.
    pub unreadable: u64,
    /// Objects that the transform failed on.
    pub transform_errors: u64,
    /// Bytes or ends that came from a request that had been given up.
    pub stray_responses: u64,
    /// Positions that the server had forgotten (410).
    pub expired: u64,
    /// Consistent lists that lay behind what was seen before.
    pub rewinds: u64,
    /// Streams that were given up because nothing was heard.
    pub silence_timeouts: u64,
    /// Requests that failed and streams that broke.
    pub failures: u64,
}

/// Of several reflectors together.
impl std::ops::AddAssign for ReflectorCounters {
    fn add_assign(&mut self, other: Self) {
        let Self { lists, watches, watch_lists, relists, full_lists: replaces, frames, bookmarks, .. } =
            other;
        let Self {
            unreadable,
            stray_responses: late,
            expired,
            rewinds,
            silence_timeouts: silent,
            failures,
            transform_errors,
            ..
        } = other;
        self.lists += lists;
        self.watches += watches;
        self.watch_lists += watch_lists;
        self.relists += relists;
        self.full_lists += replaces;
        self.frames += frames;
        self.bookmarks += bookmarks;
        self.unreadable += unreadable;
        self.stray_responses += late;
        self.expired += expired;
        self.rewinds += rewinds;
        self.silence_timeouts += silent;
        self.failures += failures;
        self.transform_errors += transform_errors;
    }
}

impl std::ops::AddAssign for RelistCounters {
    fn add_assign(&mut self, other: Self) {
        let Self { initial: first, expired: forgotten, unavailable: absent, failed, suspect: doubt, audit } =
            other;
        self.initial += first;
        self.expired += forgotten;
        self.unavailable += absent;
        self.failed += failed;
        self.suspect += doubt;
        self.audit += audit;
    }
}

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestKind {
    /// A list.
    List,
    /// A watch.
    Watch,
    /// A watch-list.
    WatchList,
}

impl fmt::Display for RequestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Watch => "watch",
            Self::WatchList => "watch-list",
        })
    }
}

/// Something worth telling people. Nothing fails silently (C9).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Report {
    /// A request failed, or a stream broke.
    #[non_exhaustive]
    Failed {
        /// What was asked.
        asked: RequestKind,
        /// What happened.
        failure: Failure,
        /// The wait until the next request.
        retry_in: Duration,
    },
    /// An object was skipped.
    Unreadable(UnreadableObject),
    /// The transform failed on an object; what was cached instead is set by [`TransformFallback`](crate::TransformFallback).
    TransformFailed {
        /// Which object.
        key: Key,
        /// What the transform said, or what is wrong with its result.
        because: Box<str>,
    },
    /// This server's watch-lists are not used any more.
    #[non_exhaustive]
    WatchListAbandoned {
        /// Why.
        because: Box<str>,
    },
    /// Answers are asked for in JSON alone from now on.
    #[non_exhaustive]
    ProtobufAbandoned {
        /// What was wrong with the last one in protobuf.
        because: Box<str>,
    },
    /// A consistent list lies behind what was seen before: the server was restored from a backup.
    #[non_exhaustive]
    Rewound {
        /// How far we were.
        from: ResourceVersion,
        /// Where the server is.
        to: ResourceVersion,
    },
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed { asked, failure, retry_in } => {
                write!(f, "{asked}: {failure}; again in {retry_in:?}")
            }
            Self::Unreadable(unreadable) => write!(f, "{unreadable}"),
            Self::TransformFailed { key, because } => write!(f, "object {key} is not transformed: {because}"),
            Self::WatchListAbandoned { because } => write!(f, "watch-list is not used any more: {because}"),
            Self::ProtobufAbandoned { because } => {
                write!(f, "protobuf is not asked for any more, it comes broken (through a proxy?): {because}")
            }
            Self::Rewound { from, to } => {
                write!(f, "the server went back from version {from} to {to}; was it restored from a backup?")
            }
        }
    }
}
