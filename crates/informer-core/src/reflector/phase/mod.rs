//! The states of the machine: what is known while it is in each of them.
//!
//! Data only. The steps from state to state are methods of the reflector, in a file for each state. Nothing here sends requests or reports.

mod listing;
mod response;
mod stream;
mod watchlist;

pub(in crate::reflector) use listing::Listing;
pub(in crate::reflector) use response::ResponseState;
pub(in crate::reflector) use stream::{MIN_SILENCE_TIMEOUT, Stream, Watching};
pub(in crate::reflector) use watchlist::{ByKey, WatchListing};

use super::failure::Failure;
use crate::time::Moment;

/// What happens when a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reflector) enum Resume {
    /// The set is asked for anew.
    Relist,
    /// The watch goes on where it was.
    Watch,
}

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
    /// Panics if the cache is not far enough for it.
    pub(in crate::reflector) fn check(&self, synced: bool) {
        let needs_position =
            matches!(self, Self::Watching(_) | Self::BackingOff { resume: Resume::Watch, .. });
        assert!(synced || !needs_position, "a watch needs a position");
    }
}
