//! The server of the simulation: conditional writes, each with a new version.
//!
//! A version identifies one incarnation of a Lease, as its uid does: an update of a Lease that was deleted is a
//! conflict, even if it was created again.

use super::super::*;
use crate::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Server {
    pub(super) leases: BTreeMap<String, (MemberRecord, u64)>,
    /// Increases with each change of the Leases.
    pub(super) lease_changes: u64,
    pub(super) assignment: Option<(Option<Assignment>, u64)>,
    /// Increases each time that a coordinator gives a range another owner.
    pub(super) moves: usize,
    election: Option<(LeaseRecord, u64)>,
    last_version: u64,
}

pub(super) fn member_name(name: usize) -> String {
    format!("member-{name}")
}

impl Server {
    pub(super) fn next_version(&mut self) -> u64 {
        self.last_version += 1;
        self.last_version
    }

    pub(super) fn serve_member(&mut self, name: usize, request: MemberRequest) -> MemberResponse {
        let name = member_name(name);
        let stored = self.leases.get(&name).map(|(_, version)| version.to_string());
        let (record, version) = match request {
            MemberRequest::ReadAssignment => return MemberResponse::Assignment(self.stored_assignment()),
            MemberRequest::ListLeases => {
                return MemberResponse::Leases(
                    self.leases.values().map(|(record, _)| record.clone()).collect(),
                );
            }
            MemberRequest::ReadLease => {
                let lease = self.leases.get(&name);
                return lease.map_or(MemberResponse::Missing, |(record, version)| {
                    MemberResponse::Lease(record.clone(), version.to_string())
                });
            }
            MemberRequest::DeleteLease(version) => {
                if stored.is_some_and(|stored| stored != version) {
                    return MemberResponse::Conflict;
                }
                self.delete_lease(&name);
                return MemberResponse::Missing;
            }
            MemberRequest::CreateLease(record) => (record, None),
            MemberRequest::UpdateLease(record, version) => (record, Some(version)),
        };
        if stored != version {
            return MemberResponse::Conflict;
        }
        let version = self.next_version();
        self.leases.insert(name, (record.clone(), version));
        self.lease_changes += 1;
        MemberResponse::Lease(record, version.to_string())
    }

    fn delete_lease(&mut self, name: &str) {
        self.leases.remove(name);
        self.lease_changes += 1;
    }

    pub(super) fn serve_election(&mut self, request: LeaseRequest) -> LeaseResponse {
        match (request, &self.election) {
            (LeaseRequest::Read | LeaseRequest::Update(..), None) => LeaseResponse::Missing,
            (LeaseRequest::Read, Some((record, version))) => {
                LeaseResponse::Lease(record.clone(), version.to_string())
            }
            (LeaseRequest::Create(_), Some(_)) => LeaseResponse::Conflict,
            (LeaseRequest::Update(_, version), Some((_, current))) if version != current.to_string() => {
                LeaseResponse::Conflict
            }
            (LeaseRequest::Create(record) | LeaseRequest::Update(record, _), _) => {
                let version = self.next_version();
                self.election = Some((record.clone(), version));
                LeaseResponse::Lease(record, version.to_string())
            }
        }
    }

    pub(super) fn serve_coordinator(&mut self, request: &CoordinatorRequest) -> CoordinatorResponse {
        let stored = self.assignment.as_ref().map(|(_, version)| version.to_string());
        let (assignment, version) = match request {
            CoordinatorRequest::ReadAssignment => {
                return CoordinatorResponse::Assignment(self.stored_assignment());
            }
            CoordinatorRequest::DeleteLease(name, version) => {
                if self.leases.get(name).is_some_and(|(_, stored)| stored.to_string() != *version) {
                    return CoordinatorResponse::Conflict;
                }
                self.delete_lease(name);
                return CoordinatorResponse::Deleted;
            }
            CoordinatorRequest::ListLeases => {
                let leases = self.leases.values();
                return CoordinatorResponse::Leases(
                    leases.map(|(record, version)| (record.clone(), version.to_string())).collect(),
                );
            }
            CoordinatorRequest::CreateAssignment(assignment) => (assignment, None),
            CoordinatorRequest::UpdateAssignment(assignment, version) => (assignment, Some(version.clone())),
        };
        if stored != version {
            return CoordinatorResponse::Conflict;
        }
        let version = self.next_version();
        if let Some((Some(previous), _)) = &self.assignment {
            let pairs = previous.ranges.iter().zip(&assignment.ranges);
            self.moves += pairs.filter(|(before, after)| before.owner != after.owner).count();
        }
        self.assignment = Some((Some(assignment.clone()), version));
        CoordinatorResponse::Assignment(self.stored_assignment())
    }

    pub(super) fn stored_assignment(&self) -> Option<StoredAssignment> {
        let stored = self.assignment.as_ref();
        stored.map(|(assignment, version)| StoredAssignment {
            assignment: assignment.clone(),
            version: version.to_string(),
        })
    }

    pub(super) fn assignment_version(&self) -> u64 {
        self.assignment.as_ref().map_or(0, |(_, version)| *version)
    }
}
