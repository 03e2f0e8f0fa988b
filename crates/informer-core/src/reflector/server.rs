//! Facts observed about this server: which requests it supports, whether its protobuf bodies can be read, how
//! often it sends bookmarks.
//!
//! Facts only; the phases of the reflector decide how to react to them.

use super::failure::Failure;
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

/// Facts observed about this server.
#[derive(Debug, Default)]
pub(super) struct ServerFacts {
    pub(super) watch_list: WatchListSupport,
    /// A list at "any version" was paged, so the server has no watch cache in front of its storage.
    ///
    /// From then on all lists are paged.
    pub(super) pages_cached_lists: bool,
    /// The longest time between two bookmarks so far.
    pub(super) bookmark_gap: Option<Duration>,
    pub(super) encoding_policy: EncodingPolicy,
    /// Whether full lists are expected to arrive faster as lists than as watch-lists.
    pub(super) prefers_lists: bool,
}

impl ServerFacts {
    /// Records the time between two bookmarks.
    pub(super) fn record_bookmark_gap(&mut self, gap: Duration) {
        self.bookmark_gap = self.bookmark_gap.max(Some(gap));
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
    /// No further watch-list is requested.
    pub(super) disabled: bool,
    /// The failure with which the server rejected the watch-list of the current relist.
    ///
    /// If the list that replaces it succeeds, watch-lists are not supported.
    pub(super) rejected_this_relist: Option<Failure>,
    /// Number of consecutive watch-lists that did not reach the end of the initial events although the
    /// request was valid.
    pub(super) unfinished: u32,
}

/// The encodings to request, and the failures that decide it.
#[derive(Debug, Default)]
pub(super) struct EncodingPolicy {
    /// Number of consecutive malformed protobuf bodies.
    pub(super) malformed: u32,
    pub(super) json_only: bool,
}

impl EncodingPolicy {
    /// Whether requests accept JSON only.
    pub(super) fn json_only(&self) -> bool {
        self.json_only
    }
}

/// Results of the last probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The server had not reached the position.
    ///
    /// Once, the server may lag behind another one; twice in a row, it was restored from a backup.
    pub(super) behind: bool,
    /// Number of consecutive probes that failed for another reason.
    pub(super) failed: u32,
}
