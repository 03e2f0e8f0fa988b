//! What the members of a group store: a Lease each, and one assignment.

use super::range::{HashRange, HashRanges, RangeCount};
use jiff::Timestamp;
use std::time::Duration;

/// Upper bound on the lease duration of a member.
pub const MAX_LEASE_DURATION: Duration = Duration::from_secs(3_600);
/// Upper bound on the time for which a Lease without changes counts, in lease durations of the observer. Otherwise, the
/// ranges of a member that has ended could stay without a member for as long as another client has written into its
/// Lease. The members of a group may have different settings while a program is rolled out, so the bound is not one.
pub const MAX_LEASE_DURATIONS: u32 = 4;

/// The contents of a member's Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberRecord {
    /// The name of the member, which no other process uses at the same time.
    pub identity: String,
    /// A random number that identifies the process: another process may have had the same name before.
    pub instance: u64,
    /// The revision of the program, for example the hash of its pod template. Compared for equality only.
    pub revision: String,
    /// By what the member divides the objects. Compared for equality only: hashes of members with different keys are
    /// not comparable.
    pub key: String,
    /// Increases with each record that the process writes.
    pub number: u64,
    /// Time after which a Lease without changes counts as expired, in seconds. A shorter one than that of the observer does
    /// not count, nor one that is more than [`MAX_LEASE_DURATIONS`] times as long.
    pub lease_duration_seconds: u32,
    /// When the record was written, by the clock of the member. For display: it is never compared.
    pub renewed: Option<Timestamp>,
    /// The hashes for which no other member may act.
    pub claims: HashRanges,
    /// Whether the member leaves the group: it gets no further ranges, and releases those that it claims.
    pub is_leaving: bool,
    /// The version of the assignment that the member has read last; empty if it has read none.
    pub assignment_version: String,
}

impl MemberRecord {
    /// Creates a record without claims.
    pub fn new(identity: &str, instance: u64, revision: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            instance,
            revision: revision.to_owned(),
            key: String::new(),
            number: 0,
            lease_duration_seconds: 0,
            renewed: None,
            claims: HashRanges::default(),
            is_leaving: false,
            assignment_version: String::new(),
        }
    }

    /// Returns whether the member may act for hashes of a range of a member with this key. If the keys are different,
    /// any claim contains objects of the range.
    pub(super) fn conflicts_with(&self, key: &str, range: &HashRange) -> bool {
        if self.key == key { self.claims.overlaps(range) } else { !self.claims.is_empty() }
    }

    /// Returns for how long a Lease without changes counts. `min` is the lease duration of the observer: a member acts
    /// until its own deadline, so a Lease that was edited to a shorter duration must not expire before that.
    pub(super) fn valid_for(&self, min: Duration) -> Duration {
        let max = min.saturating_mul(MAX_LEASE_DURATIONS);
        Duration::from_secs(self.lease_duration_seconds.into()).clamp(min, max)
    }
}

/// Returns the key of a record with claims whose key is another one. A Lease that cannot be read has no key.
pub(super) fn other_key(key: &str, records: &[&MemberRecord]) -> Option<String> {
    let is_other = |record: &&&MemberRecord| record.key != key && !record.claims.is_empty();
    let mut keys = records.iter().filter(is_other).map(|record| &record.key);
    keys.find(|key| !key.is_empty()).cloned()
}

/// Which member is to act for which range of hashes.
///
/// It contains what should be; which member acts is decided by the claims in the Leases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    count: RangeCount,
    /// By what the members divide the objects.
    pub(super) key: String,
    /// One for each range.
    pub(super) ranges: Vec<RangeAssignment>,
    /// The revisions of the members, the newest one last.
    pub(super) revisions: Vec<String>,
    /// The identities of the members among which the ranges are divided, in ascending order.
    pub(super) members: Vec<String>,
}

/// The assignment of one range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeAssignment {
    /// The identity of the member that is to act; `None` if there is none.
    pub owner: Option<String>,
    /// Increases each time that the range gets another owner.
    pub epoch: u64,
    /// Whether the owner is to stop, so that the range can get another owner.
    pub is_releasing: bool,
}

impl RangeAssignment {
    /// Creates the assignment of a range.
    pub fn new(owner: Option<String>, epoch: u64, is_releasing: bool) -> Self {
        Self { owner, epoch, is_releasing }
    }
}

impl Assignment {
    /// Creates an assignment; `None` if the number of ranges is not a valid [`RangeCount`].
    ///
    /// For `revisions` and `members` see the functions with these names. The order of `members` is not important.
    pub fn new(
        ranges: Vec<RangeAssignment>,
        revisions: Vec<String>,
        mut members: Vec<String>,
    ) -> Option<Self> {
        let count = u32::try_from(ranges.len()).ok().and_then(RangeCount::new)?;
        members.sort_unstable();
        members.dedup();
        Some(Self { count, key: String::new(), ranges, revisions, members })
    }

    /// Creates an assignment without owners.
    pub fn without_owners(count: RangeCount) -> Self {
        let ranges = vec![RangeAssignment::default(); count.get()];
        Self { count, key: String::new(), ranges, revisions: Vec::new(), members: Vec::new() }
    }

    /// Returns whether a range is being released.
    pub(super) fn has_moves(&self) -> bool {
        self.ranges.iter().any(|assigned| assigned.is_releasing)
    }

    /// Sets the [`key`](MemberRecord::key) of the members among which the ranges are divided. Empty by default.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// Returns the [`key`](MemberRecord::key) of the members among which the ranges are divided.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the number of ranges.
    pub fn count(&self) -> RangeCount {
        self.count
    }

    /// Returns the ranges in ascending order, each with its assignment.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (HashRange, &RangeAssignment)> {
        self.count.ranges().zip(&self.ranges)
    }

    /// Returns whether this assignment and another one contain the same for a member: its ranges, and whether it is one of
    /// the members.
    pub fn is_same_for(&self, identity: &str, other: &Self) -> bool {
        let is_own =
            |(_, assigned): &(HashRange, &RangeAssignment)| assigned.owner.as_deref() == Some(identity);
        let is_member = |assignment: &Self| assignment.members.iter().any(|member| member == identity);
        self.key == other.key
            && is_member(self) == is_member(other)
            && self.iter().filter(is_own).eq(other.iter().filter(is_own))
    }

    /// Returns whether the member is to act for hashes of a range.
    pub(super) fn gives(&self, identity: &str, range: &HashRange) -> bool {
        self.iter().any(|(other, assigned)| {
            assigned.owner.as_deref() == Some(identity) && !assigned.is_releasing && other.overlaps(range)
        })
    }

    /// Returns the revisions of the members. The last one is the newest: the one with which a member joined last.
    pub fn revisions(&self) -> &[String] {
        &self.revisions
    }

    /// Returns the identities of the members among which the ranges are divided, in ascending order. Members that leave
    /// are not among them.
    pub fn members(&self) -> &[String] {
        &self.members
    }
}

/// An assignment as the server has stored it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAssignment {
    /// The assignment; `None` if it cannot be read, because it was edited.
    pub assignment: Option<Assignment>,
    /// Its version.
    pub version: String,
}
