//! The state machine of the coordinator, which writes the assignment and removes members that have ended.
//!
//! The assignment is not what keeps two members from acting for one range; their claims are. So two coordinators, or
//! one that has been paused, can at worst move ranges needlessly. A Lease is deleted only in the version that has not
//! changed for its duration.

use super::plan::plan;
use super::range::{HashRange, RangeCount};
use super::record::{Assignment, MemberRecord, RangeAssignment, StoredAssignment};
use crate::time::Moment;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A request to the server.
///
/// At most one is in flight; each is completed by [`Coordinator::handle_response`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorRequest {
    /// Read the assignment.
    ReadAssignment,
    /// Create the assignment.
    CreateAssignment(Assignment),
    /// Replace the assignment if it still has this version.
    UpdateAssignment(Assignment, String),
    /// Delete the Lease of the member with this identity if it still has this version.
    DeleteLease(String, String),
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorResponse {
    /// The assignment that was read or written; `None` if it does not exist.
    Assignment(Option<StoredAssignment>),
    /// The Lease does not exist any more.
    Deleted,
    /// The object has another version.
    Conflict,
    /// The request failed; whether it took effect is unknown.
    Failed,
}

/// The state machine of the coordinator of a group.
#[derive(Debug)]
pub struct Coordinator {
    /// For a new assignment.
    count: RangeCount,
    retry_period: Duration,
    leases: BTreeMap<String, ObservedLease>,
    assignment: KnownAssignment,
    is_in_flight: bool,
    next_attempt: Moment,
}

#[derive(Debug)]
struct ObservedLease {
    record: MemberRecord,
    version: String,
    /// When this version was first observed.
    since: Moment,
    /// Whether a request to delete this version was rejected, or succeeded.
    is_outdated: bool,
}

impl ObservedLease {
    fn expires_at(&self) -> Option<Moment> {
        (!self.is_outdated).then(|| self.since + self.record.valid_for())
    }
}

#[derive(Debug)]
enum KnownAssignment {
    Unknown,
    Missing,
    Stored(StoredAssignment),
}

impl Coordinator {
    /// Creates a coordinator. `count` is used only if there is no assignment yet: members with other settings do not
    /// change it.
    pub fn new(count: RangeCount, retry_period: Duration) -> Self {
        Self {
            count,
            retry_period,
            leases: BTreeMap::new(),
            assignment: KnownAssignment::Unknown,
            is_in_flight: false,
            next_attempt: Moment::default(),
        }
    }

    /// Records all Leases of the group, each with its version.
    pub fn observe_leases(&mut self, now: Moment, leases: impl IntoIterator<Item = (MemberRecord, String)>) {
        let mut previous = std::mem::take(&mut self.leases);
        for (record, version) in leases {
            let known = previous.remove(&record.identity).filter(|known| known.version == version);
            let new = |record, version| ObservedLease { record, version, since: now, is_outdated: false };
            let name = record.identity.clone();
            self.leases.insert(name, known.unwrap_or_else(|| new(record, version)));
        }
    }

    /// Records the assignment as another part of the process has read it; it may be older than the known one.
    pub fn observe_assignment(&mut self, assignment: Option<StoredAssignment>) {
        self.assignment = assignment.map_or(KnownAssignment::Missing, KnownAssignment::Stored);
    }

    /// Returns the next request if one is due.
    pub fn poll_request(&mut self, now: Moment) -> Option<CoordinatorRequest> {
        if self.is_in_flight || now < self.next_attempt {
            return None;
        }
        let request = self.next_request(now)?;
        self.is_in_flight = true;
        Some(request)
    }

    /// Handles the response to `request`.
    pub fn handle_response(
        &mut self,
        now: Moment,
        request: &CoordinatorRequest,
        response: CoordinatorResponse,
    ) {
        self.is_in_flight = false;
        if let CoordinatorRequest::DeleteLease(identity, version) = request {
            if response == CoordinatorResponse::Failed {
                self.next_attempt = now + self.retry_period;
            } else if let Some(lease) = self.leases.get_mut(identity)
                && lease.version == *version
            {
                lease.is_outdated = true;
            }
            return;
        }
        match response {
            CoordinatorResponse::Assignment(assignment) => self.observe_assignment(assignment),
            CoordinatorResponse::Conflict | CoordinatorResponse::Deleted => {
                self.assignment = KnownAssignment::Unknown;
            }
            CoordinatorResponse::Failed => {
                self.assignment = KnownAssignment::Unknown;
                self.next_attempt = now + self.retry_period;
            }
        }
    }

    /// Returns the next moment at which [`poll_request`](Self::poll_request) must be called, unless something is
    /// observed before.
    pub fn next_deadline(&self, now: Moment) -> Option<Moment> {
        if self.is_in_flight {
            return None;
        }
        if self.next_request(now).is_some() {
            return Some(self.next_attempt);
        }
        self.leases.values().filter_map(ObservedLease::expires_at).min()
    }

    fn next_request(&self, now: Moment) -> Option<CoordinatorRequest> {
        let is_expired = |lease: &&ObservedLease| lease.expires_at().is_some_and(|at| now >= at);
        if let Some(lease) = self.leases.values().find(is_expired) {
            let (identity, version) = (lease.record.identity.clone(), lease.version.clone());
            return Some(CoordinatorRequest::DeleteLease(identity, version));
        }
        match &self.assignment {
            KnownAssignment::Unknown => Some(CoordinatorRequest::ReadAssignment),
            KnownAssignment::Missing => self.next_assignment(None).map(CoordinatorRequest::CreateAssignment),
            KnownAssignment::Stored(StoredAssignment { assignment, version }) => {
                let next = self.next_assignment(assignment.as_ref())?;
                Some(CoordinatorRequest::UpdateAssignment(next, version.clone()))
            }
        }
    }

    /// Returns the assignment that follows; `None` if nothing changes.
    fn next_assignment(&self, current: Option<&Assignment>) -> Option<Assignment> {
        if self.leases.is_empty() {
            return None;
        }
        let known = current.cloned().unwrap_or_else(|| self.claimed_assignment());
        let mut next = known.clone();
        next.revisions = self.revisions(known.revisions());
        let members: BTreeSet<&str> = self.leases.keys().map(String::as_str).collect();
        let newest = next.revisions.last();
        let is_newest = |name: &&str| Some(&self.leases[*name].record.revision) == newest;
        let receivers: BTreeSet<&str> = members.iter().copied().filter(is_newest).collect();
        let targets = plan(&known.ranges, &members, &receivers);
        for ((range, assigned), target) in next.count().ranges().zip(&mut next.ranges).zip(targets) {
            self.move_range(&range, assigned, target);
        }
        (current != Some(&next)).then_some(next)
    }

    /// Makes the next step of a move: the owner releases its claim first.
    fn move_range(&self, range: &HashRange, assigned: &mut RangeAssignment, target: Option<&str>) {
        let owner = assigned.owner.as_deref();
        if owner == target {
            assigned.is_releasing = false;
            return;
        }
        let is_claimed =
            |name: &str| self.leases.get(name).is_some_and(|lease| lease.record.claims.overlaps(range));
        if owner.is_some_and(is_claimed) {
            assigned.is_releasing = true;
            return;
        }
        *assigned = RangeAssignment::new(target.map(str::to_owned), assigned.epoch.saturating_add(1), false);
    }

    /// Returns an assignment that changes nothing: each range belongs to the member that claims it.
    fn claimed_assignment(&self) -> Assignment {
        let mut assignment = Assignment::without_owners(self.count);
        for (range, assigned) in self.count.ranges().zip(&mut assignment.ranges) {
            let owner = self.leases.values().find(|lease| lease.record.claims.covers(&range));
            assigned.owner = owner.map(|lease| lease.record.identity.clone());
        }
        assignment
    }

    /// Returns the revisions of the members, in the order in which they appeared.
    fn revisions(&self, known: &[String]) -> Vec<String> {
        let present: BTreeSet<&String> = self.leases.values().map(|lease| &lease.record.revision).collect();
        let new = present.iter().copied().filter(|revision| !known.contains(revision));
        known.iter().filter(|revision| present.contains(revision)).chain(new).cloned().collect()
    }
}
