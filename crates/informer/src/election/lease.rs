//! Reads and writes a Lease through a `kube::Client`.
//!
//! Invariant: everything that the election does not use (labels, owners, other fields of the spec) is written
//! back as it was read.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use informer_core::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

use crate::access::RequiredAccess;
use crate::source::classify;

/// A client for one Lease.
pub(super) struct LeaseClient {
    api: Api<DynamicObject>,
    resource: ApiResource,
    namespace: String,
    name: String,
    /// The Lease as last read or written.
    last_seen: Mutex<Option<DynamicObject>>,
}

impl LeaseClient {
    pub(super) fn new(client: kube::Client, namespace: &str, name: &str) -> Self {
        let kind = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
        let resource = ApiResource::from_gvk_with_plural(&kind, "leases");
        let api = Api::namespaced_with(client, namespace, &resource);
        LeaseClient {
            api,
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            last_seen: Mutex::default(),
        }
    }

    pub(super) fn add_required_access(&self, access: &mut RequiredAccess) {
        let (namespace, group) = (Some(&*self.namespace), "coordination.k8s.io");
        // A rule with a name cannot allow to create.
        access.add_verbs(namespace, group, "leases", None, &["create"]);
        access.add_verbs(namespace, group, "leases", Some(&self.name), &["get", "update"]);
    }

    pub(super) async fn execute(&self, request: LeaseRequest) -> LeaseResponse {
        let is_create = matches!(request, LeaseRequest::Create(_));
        let result = match request {
            LeaseRequest::Read => self.api.get(&self.name).await,
            LeaseRequest::Create(record) => {
                self.api.create(&PostParams::default(), &self.object(None, &record)).await
            }
            LeaseRequest::Update(record, version) => {
                let object = self.object(Some(version), &record);
                self.api.replace(&self.name, &PostParams::default(), &object).await
            }
        };
        match result {
            Ok(lease) => {
                let version = lease.metadata.resource_version.clone().unwrap_or_default();
                let record = parse_record(&lease.data);
                *self.last_seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
                match record {
                    Ok(record) => LeaseResponse::Lease(record, version),
                    Err(message) => LeaseResponse::Failed(message),
                }
            }
            // A create with the response 404 lacks the namespace, not the Lease.
            Err(kube::Error::Api(status)) if status.code == 404 && !is_create => LeaseResponse::Missing,
            Err(kube::Error::Api(status)) if status.code == 409 => LeaseResponse::Conflict,
            Err(error) => LeaseResponse::Failed(classify(&error).to_string()),
        }
    }

    /// Returns the Lease to write: the fields of `record`, and all other fields of the last seen Lease if its
    /// resource version is `version`.
    fn object(&self, version: Option<String>, record: &LeaseRecord) -> DynamicObject {
        let last_seen = self.last_seen.lock().unwrap_or_else(PoisonError::into_inner);
        let base = last_seen
            .as_ref()
            .filter(|lease| lease.metadata.resource_version == version && version.is_some());
        let mut object = base.cloned().unwrap_or_else(|| DynamicObject::new(&self.name, &self.resource));
        object.metadata.resource_version = version;
        object.metadata.namespace = Some(self.namespace.clone());
        set_record(&mut object.data, record);
        object
    }
}

impl fmt::Display for LeaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Returns the wall-clock time in microseconds, the precision of a Lease.
pub(super) fn wall_clock() -> Timestamp {
    let now = crate::clock::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// Parses the spec of a Lease. Missing fields are empty or 0; invalid numbers and timestamps are an error.
fn parse_record(data: &Value) -> Result<LeaseRecord, String> {
    let empty = json!({});
    let spec = data.get("spec").unwrap_or(&empty);
    let number = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => {
            let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
            number.ok_or_else(|| format!("invalid lease: {field} is not a 32-bit integer"))
        }
    };
    let time = |field: &str| match spec.get(field).and_then(Value::as_str) {
        None => Ok(None),
        Some(text) => {
            text.parse().map(Some).map_err(|_| format!("invalid lease: {field} is not a timestamp"))
        }
    };
    Ok(LeaseRecord {
        holder: spec.get("holderIdentity").and_then(Value::as_str).unwrap_or_default().to_owned(),
        lease_duration_seconds: number("leaseDurationSeconds")?,
        acquired: time("acquireTime")?,
        renewed: time("renewTime")?,
        transitions: number("leaseTransitions")?,
    })
}

/// Sets the fields of `record` in the spec of a Lease; other fields stay unchanged.
fn set_record(data: &mut Value, record: &LeaseRecord) {
    if !data.is_object() {
        *data = Value::Object(Map::new());
    }
    let time = |time: Option<Timestamp>| {
        time.map_or(Value::Null, |time| json!(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()))
    };
    let mut spec = data.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    spec.insert("holderIdentity".to_owned(), json!(record.holder));
    spec.insert("leaseDurationSeconds".to_owned(), json!(record.lease_duration_seconds));
    spec.insert("acquireTime".to_owned(), time(record.acquired));
    spec.insert("renewTime".to_owned(), time(record.renewed));
    spec.insert("leaseTransitions".to_owned(), json!(record.transitions));
    data["spec"] = Value::Object(spec);
}
