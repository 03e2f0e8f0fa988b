//! The requests of a member with their responses, and the events that it reports.

#[cfg(doc)]
use super::member::Member;
use super::range::HashRange;
use super::record::{MemberRecord, StoredAssignment};

/// A request to the server.
///
/// At most one is in flight; each is completed by [`Member::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberRequest {
    /// Read the assignment. The response must not be older than the request.
    ReadAssignment,
    /// Read the Lease of this member.
    ReadLease,
    /// Create the Lease of this member.
    CreateLease(MemberRecord),
    /// Replace the Lease of this member if it still exists and has this version. The object must contain the uid of the
    /// Lease: kube-apiserver creates a missing object on update if it has no uid, and responds with a conflict if it
    /// has one. The response to an update of a missing Lease is a conflict or "missing".
    UpdateLease(MemberRecord, String),
    /// Delete the Lease of this member if it still has this version.
    DeleteLease(String),
    /// Read the Leases of all members. The response must not be older than the request.
    ListLeases,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberResponse {
    /// The assignment; `None` if it does not exist.
    Assignment(Option<StoredAssignment>),
    /// The Lease that was read or written, and its version.
    Lease(MemberRecord, String),
    /// All Leases.
    Leases(Vec<MemberRecord>),
    /// The Lease does not exist, or was deleted by this request.
    Missing,
    /// The Lease exists already, or has another version.
    Conflict,
    /// The request failed; whether it took effect is unknown.
    Failed(String),
}

/// The state of a claim of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimState {
    /// Not confirmed yet: the member does not act.
    Claimed,
    /// The member acts while its Lease is renewed and the assignment is read.
    Held,
    /// The member acts until its work has ended.
    Releasing,
}

/// A change of the ranges for which a member acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberEvent {
    /// The member may act for the range.
    Gained(HashRange, RangeToken),
    /// The member is to stop acting for the range, and to call [`Member::record_released`] afterwards. Running work
    /// may end in order, but no later than [`Member::acts_until`].
    ReleaseRequested(HashRange),
    /// The member must not act for the range any more.
    Lost(HashRange, RangeLossReason),
}

/// The reason why a member lost a range that it did not release.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RangeLossReason {
    /// The Lease was not renewed, or the assignment not read in time; contains the last error.
    NotRenewed(String),
    /// Another process deleted or changed the Lease.
    LeaseChanged,
}

/// The token that identifies the time in which one member acts for a range.
///
/// Its `version`, as a number, is greater than those of all members that acted for the range before. Systems that
/// check the token can reject writes of earlier owners.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeToken {
    /// The version of the member's Lease when the claim was confirmed.
    pub version: String,
    /// The epoch of the range in the assignment. It starts again if the assignment is deleted.
    pub epoch: u64,
}

impl RangeToken {
    /// Creates the token of a claim that was confirmed in this version of the Lease.
    pub fn new(version: &str, epoch: u64) -> Self {
        Self { version: version.to_owned(), epoch }
    }
}
