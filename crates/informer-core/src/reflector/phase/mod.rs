//! The phases of the reflector, with the data of each phase.
//!
//! Data only. The transitions are methods of the reflector, in one file per phase. Nothing here sends
//! requests or reports diagnostics.

mod listing;
mod response;
mod stream;
mod watchlist;

pub(in crate::reflector) use listing::{CHECK_TIMEOUT, ListKind, Listing};
pub(in crate::reflector) use response::ResponseState;
pub(in crate::reflector) use stream::{Stream, Watching};
pub(in crate::reflector) use watchlist::{EntryByKey, WatchListing};

use super::failure::Failure;
use crate::time::Moment;

/// The next step after a backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reflector) enum Resume {
    /// Request the full list again.
    Relist,
    /// Resume the watch from the position.
    Watch,
}

/// The phase of a reflector.
#[derive(Debug)]
pub(in crate::reflector) enum Phase {
    Idle,
    WatchListing(WatchListing),
    Listing(Listing),
    Watching(Watching),
    BackingOff { until: Moment, resume: Resume, failure: Failure },
    Stopped,
}

impl Phase {
    /// Panics if the phase needs a position and there is none.
    pub(in crate::reflector) fn check(&self, has_position: bool) {
        let needs_position =
            matches!(self, Self::Watching(_) | Self::BackingOff { resume: Resume::Watch, .. });
        assert!(has_position || !needs_position, "a watch needs a position");
    }
}
