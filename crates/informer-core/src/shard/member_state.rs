//! The parts of the state of a member: its Lease, the request in flight, and whether it leaves.
//!
//! Plain data: the rules are in `member.rs`.

use crate::election::ElectionConfig;
use crate::random::Random;
use crate::time::Moment;
use std::time::Duration;

/// What is known of the Lease of this member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LeaseState {
    /// A request had an unknown effect, or another process has changed the Lease.
    Unknown,
    Missing,
    /// The Lease contains the record with this number.
    Stored {
        version: String,
        number: u64,
    },
}

/// A Lease of another process with the same name.
#[derive(Debug)]
pub(super) struct ForeignLease {
    pub(super) version: String,
    /// When it is deleted if it has not changed until then.
    pub(super) expires_at: Moment,
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) sent_at: Moment,
    /// The Lease when the request was sent.
    pub(super) lease: LeaseState,
    pub(super) request: RequestKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestKind {
    ReadAssignment,
    ReadLease,
    Write,
    Delete,
    List,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopping {
    No,
    /// Since this moment, the work ends; then the Lease is deleted.
    Requested(Moment),
    Finished,
}

/// Returns the time after which a request has failed. A renewal, a failure of the next one, and an attempt to repeat
/// it fit into `renew_deadline`.
pub(super) fn request_timeout(config: &ElectionConfig) -> Duration {
    config.renew_deadline / 3
}

/// Returns the time between two renewals, and between two reads of the assignment: half of `renew_deadline`, or up to a
/// twentieth less, so that members that have started together do not send together forever.
pub(super) fn renewal_period(config: &ElectionConfig, random: &mut Random) -> Duration {
    let period = config.renew_deadline / 2;
    let max_jitter_millis = u64::try_from(period.as_millis() / 20).unwrap_or(u64::MAX);
    period.saturating_sub(Duration::from_millis(random.below(max_jitter_millis)))
}

/// Returns the time between the report of a member that it leaves and the deletion of its Lease: 0.1 s by default.
pub(super) fn leave_delay(config: &ElectionConfig) -> Duration {
    config.retry_period / 20
}
