//! What was learnt about this server: which requests it can serve, in which forms its answers are read, how often it sends bookmarks.
//!
//! Facts only; the states of the machine decide what follows from them.

use super::failure::Failure;
use std::time::Duration;

/// Streams in a row without an end of the initial events after which watch-lists are not used any more: one may be chance.
pub(super) const MOST_UNFINISHED: u32 = 2;
/// Bodies in a row that are no protobuf after which only JSON is requested: one may be chance.
pub(super) const MAX_MALFORMED_BODIES: u32 = 2;

/// What was learnt about this server.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    /// Whether a watch-list can be had.
    pub(super) capability: Capability,
    /// A list at "any version" came in pages: there is no watch cache in front of the storage, so lists are paged from now on.
    pub(super) pages_cached_lists: bool,
    /// The longest time between two bookmarks so far.
    pub(super) bookmark_gap: Option<Duration>,
    pub(super) encoding_policy: EncodingPolicy,
    /// Whether sets are expected sooner as lists than as streams.
    pub(super) prefers_lists: bool,
}

impl Learnt {
    /// Notes the time between two bookmarks.
    pub(super) fn note_bookmark(&mut self, gap: Duration) {
        self.bookmark_gap = self.bookmark_gap.max(Some(gap));
    }

    /// Panics if it contradicts itself.
    pub(super) fn check(&self) {
        let Self { capability, encoding_policy: forms, .. } = self;
        assert!(capability.disabled || capability.unfinished < MOST_UNFINISHED, "unfinished watch-lists end");
        assert!(forms.json_only || forms.malformed < MAX_MALFORMED_BODIES, "broken bodies end");
    }
}

/// What is known about this server's watch-lists.
#[derive(Debug, Default)]
pub(super) struct Capability {
    /// They are not used any more.
    pub(super) disabled: bool,
    /// It was refused in this round, for this reason; if the list then works, it is the watch-list that cannot be had.
    pub(super) refused_this_relist: Option<Failure>,
    /// Streams in a row that did not come to the end of the initial events, though nothing was wrong with the request.
    pub(super) unfinished: u32,
}

/// What became of the last bodies in protobuf.
#[derive(Debug, Default)]
pub(super) struct EncodingPolicy {
    /// How many in a row did not read.
    pub(super) malformed: u32,
    pub(super) json_only: bool,
}

impl EncodingPolicy {
    /// Whether nothing but JSON is to be asked for.
    pub(super) fn json_only(&self) -> bool {
        self.json_only
    }
}

/// What became of the last probes.
#[derive(Debug, Default)]
pub(super) struct Probes {
    /// The server had not come as far. Once may be a server that lags behind another; twice is one that was restored.
    pub(super) behind: bool,
    /// How many failed in a row.
    pub(super) failed: u32,
}
