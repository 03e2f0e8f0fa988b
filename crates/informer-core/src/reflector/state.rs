//! What a reflector says about itself: its state, its counters, and reports of what went wrong.

use super::failure::Failure;
use crate::key::Key;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::Unreadable;
use std::fmt;
use std::time::Duration;

/// Where a reflector stands (C7). Always one of these.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// Nobody has started it.
    NotStarted,
    /// Asking for the initial set; nothing has arrived yet.
    Connecting,
    /// The initial set is arriving.
    Listing {
        /// Objects so far.
        done: u64,
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

impl State {
    /// The state in words, with its times as seen from `now`.
    pub fn seen_from(&self, now: Moment) -> impl fmt::Display + '_ {
        SeenFrom { state: self, now }
    }
}

struct SeenFrom<'a> {
    state: &'a State,
    now: Moment,
}

impl fmt::Display for SeenFrom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            State::Stale { since } => write!(f, "stale for {:.0?}", self.now - *since),
            State::BackingOff { until, because } => {
                write!(f, "backing off for another {:.1?}: {because}", *until - self.now)
            }
            state => write!(f, "{state}"),
        }
    }
}

/// Without a clock to see them from, times are left out; see [`State::seen_from`].
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted => f.write_str("not started (call start)"),
            Self::Connecting => f.write_str("connecting"),
            Self::Listing { done, total: Some(total) } => write!(f, "listing {done}/{total}"),
            Self::Listing { done, total: None } => write!(f, "listing {done}"),
            Self::Live => f.write_str("live"),
            Self::Stale { .. } => f.write_str("stale"),
            Self::Forbidden { because } => write!(f, "forbidden: {because}"),
            Self::NotServed { because } => write!(f, "not served: {because}"),
            Self::BackingOff { because, .. } => write!(f, "backing off: {because}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// How often things happened. Numbers only ever grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Requests for a list or a page of one.
    pub lists: u64,
    /// Requests for a watch.
    pub watches: u64,
    /// Requests for a watch-list.
    pub watch_lists: u64,
    /// Complete sets that were handed on, the first included.
    pub replaces: u64,
    /// Frames that were read.
    pub frames: u64,
    /// Bookmarks among them.
    pub bookmarks: u64,
    /// Objects that could not be read.
    pub unreadable: u64,
    /// Objects that the transform failed on.
    pub transform_errors: u64,
    /// Bytes or ends that came from a request that had been given up.
    pub late: u64,
    /// Positions that the server had forgotten (410).
    pub expired: u64,
    /// Consistent lists that lay behind what was seen before.
    pub rewinds: u64,
    /// Streams that were given up because nothing was heard.
    pub silent: u64,
    /// Requests that failed and streams that broke.
    pub failures: u64,
}

/// What a request was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A list.
    List,
    /// A watch.
    Watch,
    /// A watch-list.
    WatchList,
}

impl fmt::Display for Asked {
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
    Failed {
        /// What was asked.
        asked: Asked,
        /// What happened.
        failure: Failure,
        /// The wait until the next request.
        retry_in: Duration,
    },
    /// An object was skipped.
    Unreadable(Unreadable),
    /// The transform failed on an object; what was cached instead is set by [`OnTransformError`](crate::OnTransformError).
    TransformFailed {
        /// Which object.
        key: Key,
        /// What the transform said, or what is wrong with its result.
        because: Box<str>,
    },
    /// This server's watch-lists are not used any more.
    WatchListAbandoned {
        /// Why.
        because: Box<str>,
    },
    /// A consistent list lies behind what was seen before: the server was restored from a backup.
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
            Self::Rewound { from, to } => {
                write!(f, "the server went back from version {from} to {to}; was it restored from a backup?")
            }
        }
    }
}
