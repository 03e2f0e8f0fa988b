//! The server of the simulation: conditional writes, each with a new version.

use super::super::*;
use crate::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Server {
    pub(super) leases: BTreeMap<String, (MemberRecord, u64)>,
    pub(super) assignment: Option<(Option<Assignment>, u64)>,
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
                self.leases.remove(&name);
                return MemberResponse::Missing;
            }
            MemberRequest::CreateLease(record) => (record, None),
            MemberRequest::UpdateLease(record, version) => (record, Some(version)),
        };
        match (stored, version) {
            (None, Some(_)) => return MemberResponse::Missing,
            (stored, version) if stored != version => return MemberResponse::Conflict,
            _ => {}
        }
        let version = self.next_version();
        self.leases.insert(name, (record.clone(), version));
        MemberResponse::Lease(record, version.to_string())
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
                self.leases.remove(name);
                return CoordinatorResponse::Deleted;
            }
            CoordinatorRequest::CreateAssignment(assignment) => (assignment, None),
            CoordinatorRequest::UpdateAssignment(assignment, version) => (assignment, Some(version.clone())),
        };
        if stored != version {
            return CoordinatorResponse::Conflict;
        }
        let version = self.next_version();
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
}
