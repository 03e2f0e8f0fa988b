//! Facts about this server: which requests it supports, whether its pages end, whether its protobuf bodies
//! can be read, how often it sends bookmarks, whether lists arrive faster than watch-lists.
//!
//! Facts only; the phases of the reflector decide how to react to them.

use super::failure::Failure;
use crate::backoff::doubled;
use std::time::Duration;

/// Number of consecutive watch-lists without an end of the initial events after which watch-lists are
/// disabled.
///
/// A single one may be a coincidence.
pub(super) const MAX_UNFINISHED_WATCH_LISTS: u32 = 2;
/// Number of consecutive malformed protobuf bodies after which only JSON is requested.
///
/// A single one may be a coincidence.
pub(super) const MAX_MALFORMED_BODIES: u32 = 2;

/// The minimum silence after which a watch is checked: kube-apiserver's first bookmark comes after a minute.
const MIN_CHECK_DELAY: Duration = Duration::from_secs(75);
/// The time by which a bookmark may be late before the watch is checked.
const BOOKMARK_SLACK: Duration = Duration::from_secs(20);

/// Facts about this server, observed or set by the driver.
#[derive(Debug, Default)]
pub(super) struct ServerFacts {
    pub(super) watch_list: WatchListSupport,
    /// Whether the server paged a list at any version (`resourceVersion=0`), which a server with a watch
    /// cache would not do.
    ///
    /// From then on all lists are requested in pages.
    pub(super) pages_cached_lists: bool,
    /// The longest time between two bookmarks so far.
    pub(super) bookmark_gap: Option<Duration>,
    /// Number of checks of silent watches before the first bookmark.
    pub(super) checks: u32,
    /// Whether a paged list did not end, so that lists are requested without pages.
    pub(super) pages_do_not_end: bool,
    pub(super) encoding_policy: EncodingPolicy,
    /// Whether the complete set of objects is expected to arrive faster in lists than in a watch-list.
    pub(super) lists_are_faster: bool,
}

impl ServerFacts {
    /// Records the time between two bookmarks.
    pub(super) fn record_bookmark_gap(&mut self, gap: Duration) {
        self.bookmark_gap = self.bookmark_gap.max(Some(gap));
    }

    /// Records that a silent watch is checked.
    pub(super) fn record_check(&mut self) {
        if self.bookmark_gap.is_none() {
            self.checks = self.checks.saturating_add(1);
        }
    }

    /// Returns the silence after which a watch is checked: the longest time between bookmarks and some slack.
    ///
    /// Before the first bookmark, the delay doubles with each check, because some servers never send any.
    pub(super) fn check_delay(&self) -> Duration {
        match self.bookmark_gap {
            Some(gap) => (gap + BOOKMARK_SLACK).max(MIN_CHECK_DELAY),
            None => doubled(MIN_CHECK_DELAY, self.checks),
        }
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        let Self { watch_list, encoding_policy, .. } = self;
        assert!(
            watch_list.disabled || watch_list.unfinished < MAX_UNFINISHED_WATCH_LISTS,
            "watch-lists must be disabled after too many unfinished ones"
        );
        assert!(
            encoding_policy.json_only || encoding_policy.malformed < MAX_MALFORMED_BODIES,
            "protobuf must be disabled after too many malformed bodies"
        );
    }
}

/// Facts about the server's support for watch-lists.
#[derive(Debug, Default)]
pub(super) struct WatchListSupport {
    /// Whether watch-lists are no longer requested.
    pub(super) disabled: bool,
    /// The failure with which the server rejected the watch-list of the current relist.
    ///
    /// If the list that replaces it succeeds, watch-lists are not supported.
    pub(super) rejected_this_relist: Option<Failure>,
    /// Number of consecutive watch-lists that did not reach the end of the initial events although the
    /// request was valid.
    pub(super) unfinished: u32,
}

/// The encodings to request, and the malformed bodies that decide them.
#[derive(Debug, Default)]
pub(super) struct EncodingPolicy {
    /// Number of consecutive malformed protobuf bodies.
    pub(super) malformed: u32,
    /// Whether requests accept JSON only.
    pub(super) json_only: bool,
}

/// Results of the last probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// Whether a probe since the last success found a server that had not reached the reflector's position.
    ///
    /// After the first such probe, the server may only lag behind another server. After the second, it is
    /// considered restored from a backup.
    pub(super) behind: bool,
    /// Number of probes with a transient failure since the last success.
    pub(super) failed: u32,
}
