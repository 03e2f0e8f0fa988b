//! Performs the requests of the state machines of a group.
//!
//! Invariants: updates and deletions apply only to the object that was read, in the version that was read; reads have no
//! resource version, so that they return the newest state. This file makes no decisions.

use super::{assignment, lease};
use crate::access::RequiredAccess;
use crate::source::classify;
use informer_core::shard::{
    Assignment, CoordinatorRequest, CoordinatorResponse, MemberRecord, MemberRequest, MemberResponse,
    StoredAssignment,
};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, PostParams, Preconditions};
use kube::core::GroupVersionKind;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The suffix of the Lease for the election of the coordinator. No member has this identity.
pub(super) const COORDINATOR: &str = "coordinator";

/// The namespace and the name of a group, from which the names of its objects are derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupName {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl GroupName {
    pub(super) fn coordinator_lease(&self) -> String {
        self.lease(COORDINATOR)
    }

    pub(super) fn assignment(&self) -> String {
        format!("{}-assignment", self.name)
    }

    fn lease(&self, identity: &str) -> String {
        format!("{}-{identity}", self.name)
    }

    /// Returns the identity of the member to which a Lease of the group belongs.
    pub(super) fn identity_of<'a>(&self, lease: &'a str) -> Option<&'a str> {
        let identity = lease.strip_prefix(&*self.name)?.strip_prefix('-')?;
        (!identity.is_empty() && identity != COORDINATOR).then_some(identity)
    }

    pub(super) fn add_required_access(&self, access: &mut RequiredAccess) {
        let verbs = ["get", "create", "update", "delete", "list", "watch"];
        access.add_verbs(Some(&self.namespace), "coordination.k8s.io", "leases", None, &verbs);
        // A rule with a name cannot allow to create.
        access.add_verbs(Some(&self.namespace), "", "configmaps", None, &["create"]);
        let verbs = ["get", "update", "list", "watch"];
        access.add_verbs(Some(&self.namespace), "", "configmaps", Some(&self.assignment()), &verbs);
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A client for the objects of one group.
pub(super) struct GroupClient {
    client: kube::Client,
    group: GroupName,
    identity: Arc<str>,
    /// The random number of this process.
    instance: u64,
    /// For Leases that cannot be read.
    lease_duration_seconds: u32,
    leases: Api<DynamicObject>,
    maps: Api<DynamicObject>,
    lease_resource: ApiResource,
    map_resource: ApiResource,
    /// The Lease of this member and the assignment, as last read or written.
    own_lease: Mutex<Option<Arc<DynamicObject>>>,
    assignment: Mutex<Option<Arc<DynamicObject>>>,
    lease_writes: AtomicU64,
}

impl GroupClient {
    pub(super) fn new(
        client: kube::Client,
        group: GroupName,
        identity: Arc<str>,
        instance: u64,
        lease_duration_seconds: u32,
    ) -> Self {
        let lease = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
        let lease_resource = ApiResource::from_gvk_with_plural(&lease, "leases");
        let map_resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "ConfigMap"), "configmaps");
        let api = |resource| Api::namespaced_with(client.clone(), &group.namespace, resource);
        let (leases, maps) = (api(&lease_resource), api(&map_resource));
        Self {
            client,
            group,
            identity,
            instance,
            lease_duration_seconds,
            leases,
            maps,
            lease_resource,
            map_resource,
            own_lease: Mutex::default(),
            assignment: Mutex::default(),
            lease_writes: AtomicU64::new(0),
        }
    }

    pub(super) fn kube_client(&self) -> kube::Client {
        self.client.clone()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.group.namespace
    }

    pub(super) fn assignment_name(&self) -> String {
        self.group.assignment()
    }

    pub(super) fn label_selector(&self) -> String {
        format!("{}={}", lease::GROUP_LABEL, self.group.name)
    }

    /// Returns the number of requests that created, updated or deleted the Lease of this member.
    pub(super) fn lease_writes(&self) -> u64 {
        self.lease_writes.load(Ordering::Relaxed)
    }

    /// Records an assignment that a watch has delivered, so that an update keeps its foreign fields.
    pub(super) fn remember_assignment(&self, object: Arc<DynamicObject>) {
        remember(&self.assignment, object);
    }

    /// Returns the records of Leases; objects that are not Leases of members are left out.
    pub(super) fn records<'a>(
        &self,
        leases: impl IntoIterator<Item = &'a DynamicObject>,
    ) -> Vec<(MemberRecord, &'a DynamicObject)> {
        let record = |lease: &'a DynamicObject| {
            let identity = self.group.identity_of(lease.metadata.name.as_deref()?)?;
            let record = lease::decode(lease, &self.group.name, identity);
            let unreadable = |_| lease::unreadable(lease, identity, self.lease_duration_seconds);
            Some((record.unwrap_or_else(unreadable), lease))
        };
        leases.into_iter().filter_map(record).collect()
    }

    /// Performs a request of the member.
    pub(super) async fn execute(&self, request: MemberRequest) -> MemberResponse {
        let name = self.group.lease(&self.identity);
        match request {
            MemberRequest::ReadAssignment => match self.read_assignment().await {
                Ok(assignment) => MemberResponse::Assignment(assignment),
                Err(error) => failed(&error),
            },
            MemberRequest::ReadLease => self.handle_lease(self.leases.get(&name).await),
            MemberRequest::CreateLease(record) => {
                self.count_write();
                let lease = self.encode_lease(None, &record);
                match self.leases.create(&PostParams::default(), &lease).await {
                    // The namespace is missing, not the Lease.
                    Err(error) if is_status(&error, 404) => failed(&error),
                    result => written(&record, self.handle_lease(result)),
                }
            }
            MemberRequest::UpdateLease(record, version) => {
                let Some(base) = recall(&self.own_lease, &version) else { return MemberResponse::Conflict };
                self.count_write();
                let lease = self.encode_lease(Some(&base), &record);
                match self.leases.replace(&name, &PostParams::default(), &lease).await {
                    // The Lease was deleted, and a server that ignores the uid has created another one. It is read
                    // and deleted or used after the claims are given up: others may have claimed the ranges meanwhile.
                    Ok(other) if other.metadata.uid != base.metadata.uid => MemberResponse::Missing,
                    result => written(&record, self.handle_lease(result)),
                }
            }
            MemberRequest::DeleteLease(version) => {
                let uid = recall(&self.own_lease, &version).and_then(|lease| lease.metadata.uid.clone());
                self.count_write();
                match self.delete_lease(&name, version, uid).await {
                    Ok(()) => MemberResponse::Missing,
                    Err(error) if is_status(&error, 409) => MemberResponse::Conflict,
                    Err(error) => failed(&error),
                }
            }
            MemberRequest::ListLeases => match self.list_leases().await {
                Ok(leases) => {
                    let records = self.records(&leases).into_iter().map(|(record, _)| record);
                    MemberResponse::Leases(records.collect())
                }
                Err(error) => failed(&error),
            },
        }
    }

    /// Performs a request of the coordinator. `uid` is that of the Lease to delete, if it is known. Also returns the
    /// Leases, if they were listed.
    pub(super) async fn coordinate(
        &self,
        request: CoordinatorRequest,
        uid: Option<String>,
    ) -> (CoordinatorResponse, Vec<DynamicObject>) {
        let mut listed = Vec::new();
        let result = match request {
            CoordinatorRequest::ReadAssignment => {
                self.read_assignment().await.map(CoordinatorResponse::Assignment)
            }
            CoordinatorRequest::CreateAssignment(next) => {
                let map = self.encode_assignment(None, &next);
                let created = self.maps.create(&PostParams::default(), &map).await;
                created.map(|map| self.handle_written_assignment(&next, map))
            }
            CoordinatorRequest::UpdateAssignment(next, version) => {
                let map = self.encode_assignment(Some(version), &next);
                let name = self.group.assignment();
                match self.maps.replace(&name, &PostParams::default(), &map).await {
                    Err(error) if is_status(&error, 404) => Ok(CoordinatorResponse::Conflict),
                    updated => updated.map(|map| self.handle_written_assignment(&next, map)),
                }
            }
            CoordinatorRequest::DeleteLease(identity, version) => {
                let deleted = self.delete_lease(&self.group.lease(&identity), version, uid).await;
                deleted.map(|()| CoordinatorResponse::Deleted)
            }
            CoordinatorRequest::ListLeases => self.list_leases().await.map(|leases| {
                listed = leases;
                let records = self.records(&listed).into_iter();
                let version =
                    |lease: &DynamicObject| lease.metadata.resource_version.clone().unwrap_or_default();
                CoordinatorResponse::Leases(records.map(|(record, lease)| (record, version(lease))).collect())
            }),
        };
        let response = match result {
            Ok(response) => response,
            Err(error) if is_status(&error, 409) => CoordinatorResponse::Conflict,
            Err(error) => {
                let error = classify(&error);
                tracing::warn!(group = %self.group, %error, "the coordinator's request failed");
                CoordinatorResponse::Failed
            }
        };
        (response, listed)
    }

    pub(super) async fn list_leases(&self) -> Result<Vec<DynamicObject>, kube::Error> {
        Ok(self.leases.list(&ListParams::default().labels(&self.label_selector())).await?.items)
    }

    /// Returns the holder of the Lease of the election.
    pub(super) async fn read_coordinator(&self) -> Result<Option<String>, kube::Error> {
        let lease = self.leases.get(&self.group.coordinator_lease()).await?;
        let holder = lease.data.get("spec").and_then(|spec| spec.get("holderIdentity"));
        Ok(holder.and_then(|holder| holder.as_str()).filter(|holder| !holder.is_empty()).map(str::to_owned))
    }

    pub(super) async fn read_assignment(&self) -> Result<Option<StoredAssignment>, kube::Error> {
        let map = self.maps.get_opt(&self.group.assignment()).await?;
        Ok(map.map(|map| self.handle_assignment(map)))
    }

    fn handle_assignment(&self, map: DynamicObject) -> StoredAssignment {
        let stored = assignment::decode(&map);
        remember(&self.assignment, Arc::new(map));
        stored
    }

    /// Returns the response to a write of the assignment. One that was stored with other contents counts as failed;
    /// otherwise, the coordinator would write again soon, without a message.
    fn handle_written_assignment(&self, written: &Assignment, map: DynamicObject) -> CoordinatorResponse {
        let stored = self.handle_assignment(map);
        if stored.assignment.as_ref() == Some(written) {
            return CoordinatorResponse::Assignment(Some(stored));
        }
        tracing::warn!(
            group = %self.group,
            "write the assignment: the server has stored other contents (does a webhook change config maps?)"
        );
        CoordinatorResponse::Failed
    }

    fn handle_lease(&self, result: Result<DynamicObject, kube::Error>) -> MemberResponse {
        match result {
            Ok(lease) => {
                let record = lease::decode_own(&lease, &self.group.name, &self.identity, self.instance);
                let version = lease.metadata.resource_version.clone().unwrap_or_default();
                let record = record.unwrap_or_else(|error| {
                    tracing::warn!(group = %self.group, identity = %self.identity, error, "the lease cannot be read");
                    lease::unreadable(&lease, &self.identity, self.lease_duration_seconds)
                });
                remember(&self.own_lease, Arc::new(lease));
                MemberResponse::Lease(record, version)
            }
            Err(error) if is_status(&error, 404) => MemberResponse::Missing,
            Err(error) if is_status(&error, 409) => MemberResponse::Conflict,
            Err(error) => failed(&error),
        }
    }

    /// Deletes a Lease in this version; succeeds if it does not exist.
    async fn delete_lease(
        &self,
        name: &str,
        version: String,
        uid: Option<String>,
    ) -> Result<(), kube::Error> {
        let preconditions = Preconditions { resource_version: Some(version), uid };
        let parameters = DeleteParams::default().preconditions(preconditions);
        match self.leases.delete(name, &parameters).await {
            Err(error) if !is_status(&error, 404) => Err(error),
            _ => Ok(()),
        }
    }

    fn encode_lease(&self, base: Option<&DynamicObject>, record: &MemberRecord) -> DynamicObject {
        let new = || DynamicObject::new(&self.group.lease(&self.identity), &self.lease_resource);
        let mut lease = base.cloned().unwrap_or_else(new);
        lease.metadata.namespace = Some(self.namespace().to_owned());
        lease::encode(&mut lease, &self.group.name, record);
        lease
    }

    fn encode_assignment(&self, version: Option<String>, assignment: &Assignment) -> DynamicObject {
        let base = version.as_deref().and_then(|version| recall(&self.assignment, version));
        let new = || DynamicObject::new(&self.group.assignment(), &self.map_resource);
        let mut map = base.map_or_else(new, |base| DynamicObject::clone(&base));
        map.metadata.namespace = Some(self.namespace().to_owned());
        map.metadata.resource_version = version;
        assignment::encode(&mut map, &self.group.name, assignment);
        map
    }

    fn count_write(&self) {
        self.lease_writes.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for GroupClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group.fmt(f)
    }
}

fn remember(last: &Mutex<Option<Arc<DynamicObject>>>, object: Arc<DynamicObject>) {
    *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(object);
}

/// Returns the object that was remembered if it has this version.
fn recall(last: &Mutex<Option<Arc<DynamicObject>>>, version: &str) -> Option<Arc<DynamicObject>> {
    let last = last.lock().unwrap_or_else(PoisonError::into_inner);
    last.as_ref().filter(|object| object.metadata.resource_version.as_deref() == Some(version)).cloned()
}

/// Returns the response for a failed request. The text is bounded, unlike that of the error, which may contain a whole body.
fn failed(error: &kube::Error) -> MemberResponse {
    MemberResponse::Failed(classify(error).to_string())
}

/// Returns the response to a write. One that was stored with other contents counts as failed; otherwise, the member would
/// write again at once.
fn written(record: &MemberRecord, response: MemberResponse) -> MemberResponse {
    let is_same = |stored: &MemberRecord| {
        stored.instance == record.instance && stored.number == record.number && stored.claims == record.claims
    };
    match response {
        MemberResponse::Lease(stored, _) if !is_same(&stored) => MemberResponse::Failed(
            "write the lease: the server has stored other contents (does a webhook change leases?)"
                .to_owned(),
        ),
        response => response,
    }
}

pub(super) fn is_status(error: &kube::Error, code: u16) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code)
}
