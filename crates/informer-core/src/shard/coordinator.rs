//! The state machine of the coordinator, which writes the assignment and removes members that have ended.
//!
//! The assignment is not what keeps two members from acting for one range; their claims are. So two coordinators, or
//! one that has been paused, can at worst move ranges needlessly. A Lease is deleted only in the version that has not
//! changed for its duration; one that another client has deleted counts as a claim for that time. If a deletion is
//! rejected, the observed Leases may be outdated, and are listed. All changes within a write period are one version of the
//! assignment, because each version causes reads of the members that it concerns; only the version that ends all moves
//! under way does not wait, since ranges have no member until it is written. This file does not know why members leave, nor
//! how requests are sent.

use super::member_state::request_timeout;
use super::plan::plan;
use super::range::{HashRange, RangeCount};
use super::record::{Assignment, MemberRecord, RangeAssignment, StoredAssignment};
use crate::election::ElectionConfig;
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
    /// Read the Leases of all members. The response must not be older than the request.
    ListLeases,
}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorResponse {
    /// The assignment that was read or written; `None` if it does not exist.
    Assignment(Option<StoredAssignment>),
    /// The Lease does not exist any more.
    Deleted,
    /// All Leases, each with its version.
    Leases(Vec<(MemberRecord, String)>),
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
    config: ElectionConfig,
    leases: BTreeMap<String, ObservedLease>,
    /// When a Lease was first observed.
    first_observed: Option<Moment>,
    /// Leases that disappeared although they had not expired: the members may act until they notice it.
    vanished: Vec<ObservedLease>,
    /// The versions in which Leases were deleted, by identity, while they are still observed.
    deleted: BTreeMap<String, String>,
    /// The next list of the Leases, if one is needed.
    next_list: Moment,
    assignment: KnownAssignment,
    /// When the request in flight was sent.
    sent_at: Option<Moment>,
    /// The next request for the assignment after a failed one, a conflict, or a write that ended all moves.
    next_attempt: Moment,
    /// The next write of the assignment that does not end all moves.
    next_write: Moment,
    /// Whether the last request was for the Leases: then the assignment is next.
    is_assignment_next: bool,
}

#[derive(Debug)]
struct ObservedLease {
    record: MemberRecord,
    version: String,
    /// When it counts as expired if this version does not change.
    expires_at: Moment,
    /// Whether a request to delete this version was rejected: the Lease has another one.
    is_outdated: bool,
    failed_deletions: u32,
    /// The next attempt to delete it, after a failed one.
    next_deletion: Moment,
}

impl ObservedLease {
    fn new(now: Moment, record: MemberRecord, version: String, config: &ElectionConfig) -> Self {
        let expires_at = now + record.valid_for(config.lease_duration);
        let next_deletion = Moment::default();
        Self { record, version, expires_at, is_outdated: false, failed_deletions: 0, next_deletion }
    }

    /// Returns the moment at which the Lease is to be deleted.
    fn deleted_at(&self) -> Option<Moment> {
        (!self.is_outdated).then(|| self.expires_at.max(self.next_deletion))
    }

    /// Returns whether the member may act for what it claims although its Lease has disappeared. One that leaves deletes
    /// its Lease itself.
    fn may_act_without_lease(&self, now: Moment) -> bool {
        !self.record.is_leaving && !self.record.claims.is_empty() && now < self.expires_at
    }

    /// Returns whether a record was written later by the process that has written this one.
    fn is_followed_by(&self, record: &MemberRecord) -> bool {
        self.record.instance == record.instance && self.record.number <= record.number
    }

    /// Records that it could not be deleted. The delays of further attempts double up to the duration of the Lease.
    fn record_failed_deletion(&mut self, now: Moment, config: &ElectionConfig) {
        let delay = config.retry_period.saturating_mul(1 << self.failed_deletions.min(8));
        self.failed_deletions += 1;
        let max_delay = self.record.valid_for(config.lease_duration);
        self.next_deletion = now + delay.min(max_delay).max(config.retry_period);
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
    pub fn new(count: RangeCount, config: ElectionConfig) -> Self {
        Self {
            count,
            config,
            leases: BTreeMap::new(),
            first_observed: None,
            vanished: Vec::new(),
            deleted: BTreeMap::new(),
            next_list: Moment::default(),
            assignment: KnownAssignment::Unknown,
            sent_at: None,
            next_attempt: Moment::default(),
            next_write: Moment::default(),
            is_assignment_next: false,
        }
    }

    /// Records all Leases of the group, each with its version.
    pub fn observe_leases(&mut self, now: Moment, leases: impl IntoIterator<Item = (MemberRecord, String)>) {
        let mut previous = std::mem::take(&mut self.leases);
        let deleted = std::mem::take(&mut self.deleted);
        for (record, version) in leases {
            let name = record.identity.clone();
            if deleted.get(&name) == Some(&version) {
                self.deleted.insert(name, version);
                continue;
            }
            let known = previous.remove(&name);
            self.vanished.retain(|lease| lease.record.identity != name || !lease.is_followed_by(&record));
            let lease = match known {
                Some(known) if known.version == version => known,
                known => {
                    self.vanished.extend(known.filter(|known| !known.is_followed_by(&record)));
                    ObservedLease::new(now, record, version, &self.config)
                }
            };
            self.leases.insert(name, lease);
        }
        self.vanished.extend(previous.into_values());
        self.forget_vanished(now);
        if !self.leases.is_empty() {
            self.first_observed.get_or_insert(now);
        }
    }

    fn forget_vanished(&mut self, now: Moment) {
        self.vanished.retain(|lease| lease.may_act_without_lease(now));
    }

    /// Records the assignment as another part of the process has read it; it may be older than the known one.
    pub fn observe_assignment(&mut self, assignment: Option<StoredAssignment>) {
        self.assignment = assignment.map_or(KnownAssignment::Missing, KnownAssignment::Stored);
    }

    /// Returns the next request if one is due.
    pub fn poll_request(&mut self, now: Moment) -> Option<CoordinatorRequest> {
        if self.sent_at.is_some() {
            return None;
        }
        self.forget_vanished(now);
        let leases = self.lease_request().filter(|(at, _)| now >= *at).map(|(_, request)| request);
        let assignment =
            || self.assignment_request().filter(|(at, _)| now >= *at).map(|(_, request)| request);
        // They alternate if both are due, so that neither prevents the other.
        let request =
            if self.is_assignment_next { assignment().or(leases) } else { leases.or_else(assignment) }?;
        let is_list = request == CoordinatorRequest::ListLeases;
        self.is_assignment_next = is_list || matches!(request, CoordinatorRequest::DeleteLease(..));
        if is_list {
            self.next_list = now + self.config.retry_period;
        }
        self.sent_at = Some(now);
        Some(request)
    }

    /// Returns the moment until which a response to the request in flight is useful. Then it has failed.
    pub fn request_deadline(&self) -> Option<Moment> {
        Some(self.sent_at? + request_timeout(&self.config))
    }

    /// Handles the response to `request`.
    pub fn handle_response(
        &mut self,
        now: Moment,
        request: &CoordinatorRequest,
        response: CoordinatorResponse,
    ) {
        self.sent_at = None;
        match request {
            CoordinatorRequest::DeleteLease(identity, version) => {
                return self.handle_deletion(now, identity, version, &response);
            }
            CoordinatorRequest::ListLeases => return self.handle_list(now, response),
            _ => {}
        }
        match response {
            CoordinatorResponse::Assignment(assignment) => {
                if let CoordinatorRequest::CreateAssignment(written)
                | CoordinatorRequest::UpdateAssignment(written, _) = request
                {
                    self.next_write = now + write_period(&self.config);
                    // Another client may begin moves again at once.
                    if !written.has_moves() {
                        self.next_attempt = self.next_write;
                    }
                }
                self.observe_assignment(assignment);
            }
            CoordinatorResponse::Conflict | CoordinatorResponse::Deleted | CoordinatorResponse::Leases(_) => {
                self.assignment = KnownAssignment::Unknown;
                self.next_attempt = now + write_period(&self.config);
            }
            CoordinatorResponse::Failed => {
                self.assignment = KnownAssignment::Unknown;
                self.next_attempt = now + self.config.retry_period;
            }
        }
    }

    fn handle_deletion(
        &mut self,
        now: Moment,
        identity: &str,
        version: &str,
        response: &CoordinatorResponse,
    ) {
        let Some(lease) = self.leases.get_mut(identity).filter(|lease| lease.version == version) else {
            return;
        };
        match response {
            CoordinatorResponse::Deleted => {
                self.leases.remove(identity);
                self.deleted.insert(identity.to_owned(), version.to_owned());
            }
            CoordinatorResponse::Conflict => {
                lease.is_outdated = true;
                // Usually, the other version is observed at once.
                self.next_list = self.next_list.max(now + write_period(&self.config));
            }
            _ => lease.record_failed_deletion(now, &self.config),
        }
    }

    fn handle_list(&mut self, now: Moment, response: CoordinatorResponse) {
        let CoordinatorResponse::Leases(leases) = response else { return };
        self.observe_leases(now, leases);
        // The others have the version in which they could not be deleted.
        for lease in self.leases.values_mut().filter(|lease| lease.is_outdated) {
            lease.is_outdated = false;
            lease.record_failed_deletion(now, &self.config);
        }
    }

    /// Returns the next moment at which [`poll_request`](Self::poll_request) must be called, unless something is
    /// observed before.
    pub fn next_deadline(&self) -> Option<Moment> {
        if self.sent_at.is_some() {
            return None;
        }
        let assignment = self.assignment_request().map(|(at, _)| at);
        let vanished = self.vanished.iter().map(|lease| lease.expires_at);
        assignment.into_iter().chain(self.lease_request().map(|(at, _)| at)).chain(vanished).min()
    }

    /// Returns the next request for the Leases, and when it is due: it deletes the next one that expires, or lists all of
    /// them if a rejected deletion has shown that a newer version was not observed.
    fn lease_request(&self) -> Option<(Moment, CoordinatorRequest)> {
        let due = self.leases.values().filter_map(|lease| Some((lease.deleted_at()?, lease)));
        let deletion = due.min_by_key(|(at, _)| *at).map(|(at, lease)| {
            let (identity, version) = (lease.record.identity.clone(), lease.version.clone());
            (at, CoordinatorRequest::DeleteLease(identity, version))
        });
        let is_list_needed = self.leases.values().any(|lease| lease.is_outdated);
        let list = is_list_needed.then_some((self.next_list, CoordinatorRequest::ListLeases));
        deletion.into_iter().chain(list).min_by_key(|(at, _)| *at)
    }

    /// Returns the request that reads or writes the assignment, and when it is due; `None` if nothing changes.
    fn assignment_request(&self) -> Option<(Moment, CoordinatorRequest)> {
        match &self.assignment {
            KnownAssignment::Unknown => Some((self.next_attempt, CoordinatorRequest::ReadAssignment)),
            KnownAssignment::Missing => {
                let request = CoordinatorRequest::CreateAssignment(self.next_assignment(None)?);
                Some((self.next_attempt.max(self.next_write).max(self.creation_at()?), request))
            }
            KnownAssignment::Stored(StoredAssignment { assignment, version }) => {
                let next = self.next_assignment(assignment.as_ref())?;
                let ends_moves = assignment.as_ref().is_some_and(Assignment::has_moves) && !next.has_moves();
                let at = if ends_moves { self.next_attempt } else { self.next_attempt.max(self.next_write) };
                Some((at, CoordinatorRequest::UpdateAssignment(next, version.clone())))
            }
        }
    }

    /// Returns when a missing assignment is created. The members of a new group start together: the first one would get
    /// all ranges, list everything, and release most of it. One that was deleted is restored at once.
    fn creation_at(&self) -> Option<Moment> {
        let is_new = self.leases.values().all(|lease| lease.record.claims.is_empty());
        let first_observed = self.first_observed?;
        Some(if is_new { first_observed + self.config.retry_period } else { first_observed })
    }

    /// Returns the assignment that follows; `None` if nothing changes.
    fn next_assignment(&self, current: Option<&Assignment>) -> Option<Assignment> {
        if self.leases.is_empty() {
            return None;
        }
        let known = current.cloned().unwrap_or_else(|| self.claimed_assignment());
        let mut next = known.clone();
        self.key(Some(&known.key)).unwrap_or(&known.key).clone_into(&mut next.key);
        next.revisions = self.revisions(&known, &next.key);
        // The ranges of members that leave are divided among the others.
        let members = self.members(&next.key);
        next.members = members.iter().map(|name| (*name).to_owned()).collect();
        let newest = next.revisions.last();
        let is_newest = |name: &&str| Some(&self.leases[*name].record.revision) == newest;
        let receivers: BTreeSet<&str> = members.iter().copied().filter(is_newest).collect();
        let targets = plan(&known.ranges, &members, &receivers);
        for ((range, assigned), target) in next.count().ranges().zip(&mut next.ranges).zip(targets) {
            self.move_range(&next.key, &range, assigned, target);
        }
        (current != Some(&next)).then_some(next)
    }

    /// Makes the next step of a move: the owner releases its claim first.
    fn move_range(&self, key: &str, range: &HashRange, assigned: &mut RangeAssignment, target: Option<&str>) {
        let owner = assigned.owner.as_deref();
        let vanished = || self.vanished.iter().map(|lease| &lease.record);
        let may_act = |record: &MemberRecord| record.conflicts_with(key, range);
        // An earlier process with the name of the owner.
        let is_vanished = vanished().any(|record| Some(&*record.identity) == owner && may_act(record));
        if owner == target && !is_vanished {
            assigned.is_releasing = false;
            return;
        }
        let is_claimed =
            |name: &str| self.leases.get(name).is_some_and(|lease| lease.record.claims.overlaps(range));
        if owner.is_some_and(is_claimed) || vanished().any(may_act) {
            assigned.is_releasing = owner.is_some();
            return;
        }
        *assigned = RangeAssignment::new(target.map(str::to_owned), assigned.epoch.saturating_add(1), false);
    }

    /// Returns an assignment that changes nothing: each range belongs to the member that claims it.
    fn claimed_assignment(&self) -> Assignment {
        let key = self.key(None).unwrap_or_default();
        let mut assignment = Assignment::without_owners(self.count).with_key(key);
        let is_owner =
            |record: &MemberRecord, range: &HashRange| record.key == key && record.claims.covers(range);
        for (range, assigned) in self.count.ranges().zip(&mut assignment.ranges) {
            let owner = self.leases.values().find(|lease| is_owner(&lease.record, &range));
            assigned.owner = owner.map(|lease| lease.record.identity.clone());
        }
        assignment
    }

    /// Returns the key of the members among which the ranges are divided: the known one while a member has it. It is
    /// replaced by the key of a member with claims, or of any other one.
    fn key<'a>(&'a self, known: Option<&'a str>) -> Option<&'a str> {
        let records = || self.leases.values().map(|lease| &lease.record).filter(|record| !record.is_leaving);
        let vanished = || self.vanished.iter().map(|lease| &lease.record);
        let kept = known.filter(|key| records().chain(vanished()).any(|record| record.key == *key));
        kept.or_else(|| Some(&*records().min_by_key(|record| record.claims.is_empty())?.key))
    }

    /// Returns the identities of the members among which the ranges are divided: those with this key.
    fn members(&self, key: &str) -> BTreeSet<&str> {
        let is_member = |record: &MemberRecord| !record.is_leaving && record.key == key;
        let members = self.leases.iter().filter(|(_, lease)| is_member(&lease.record));
        members.map(|(name, _)| name.as_str()).collect()
    }

    /// Returns the revisions of the members, the newest one last.
    ///
    /// A revision becomes the newest when a member joins with it, so that an update that is rolled back ends with the
    /// earlier revision. Known revisions with which members joined at the same time keep their order, and new ones
    /// follow.
    fn revisions(&self, known: &Assignment, key: &str) -> Vec<String> {
        let mut present: BTreeMap<&String, bool> = BTreeMap::new();
        for name in self.members(key) {
            let has_joined = known.members.binary_search_by(|member| member.as_str().cmp(name)).is_err();
            *present.entry(&self.leases[name].record.revision).or_default() |= has_joined;
        }
        let mut revisions: Vec<(&String, bool)> = present.into_iter().collect();
        let position = |revision: &String| {
            known.revisions.iter().position(|other| other == revision).unwrap_or(usize::MAX)
        };
        revisions.sort_by_key(|(revision, has_joined)| (*has_joined, position(revision)));
        revisions.into_iter().map(|(revision, _)| revision.clone()).collect()
    }
}

/// Returns the time between two writes of the assignment, except for one that ends moves.
fn write_period(config: &ElectionConfig) -> Duration {
    config.retry_period / 5
}
