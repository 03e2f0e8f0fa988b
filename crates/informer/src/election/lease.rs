//! Leases on the wire: reading and writing one through a `kube::Client`.
//!
//! What is not about the election (labels, owners, other fields of the spec) stays as it was read.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use informer_core::election::{LeaseRecord, LeaseRequest, LeaseResponse};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Map, Value, json};

/// One Lease.
pub(super) struct LeaseClient {
    api: Api<DynamicObject>,
    resource: ApiResource,
    namespace: String,
    name: String,
    /// As it was last read or written.
    known: Mutex<Option<DynamicObject>>,
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
            known: Mutex::default(),
        }
    }

    pub(super) async fn execute(&self, request: LeaseRequest) -> LeaseResponse {
        let create = matches!(request, LeaseRequest::Create(_));
        let answered = match request {
            LeaseRequest::Read => self.api.get(&self.name).await,
            LeaseRequest::Create(record) => {
                self.api.create(&PostParams::default(), &self.object(None, &record)).await
            }
            LeaseRequest::Update(record, version) => {
                let object = self.object(Some(version), &record);
                self.api.replace(&self.name, &PostParams::default(), &object).await
            }
        };
        match answered {
            Ok(lease) => {
                let version = lease.metadata.resource_version.clone().unwrap_or_default();
                let record = read(&lease.data);
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
                match record {
                    Ok(record) => LeaseResponse::Lease(record, version),
                    Err(why) => LeaseResponse::Failed(why),
                }
            }
            Err(kube::Error::Api(status)) if status.code == 404 && !create => LeaseResponse::Missing,
            Err(kube::Error::Api(status)) if status.code == 409 => LeaseResponse::Conflict,
            Err(error) => LeaseResponse::Failed(error.to_string()),
        }
    }

    /// The lease with what a record says: otherwise as it was last seen, if it is to be replaced.
    fn object(&self, version: Option<String>, record: &LeaseRecord) -> DynamicObject {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known =
            known.as_ref().filter(|known| known.metadata.resource_version == version && version.is_some());
        let mut object = known.cloned().unwrap_or_else(|| DynamicObject::new(&self.name, &self.resource));
        object.metadata.resource_version = version;
        object.metadata.namespace = Some(self.namespace.clone());
        write(&mut object.data, record);
        object
    }
}

impl fmt::Display for LeaseClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The time of day, as exactly as a lease can tell it.
pub(super) fn wall_clock() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now)
}

/// What a lease says. What it does not say is empty; what cannot be read is an error.
fn read(data: &Value) -> Result<LeaseRecord, String> {
    let empty = json!({});
    let spec = data.get("spec").unwrap_or(&empty);
    let number = |field: &str| match spec.get(field) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => {
            let number = value.as_i64().and_then(|number| i32::try_from(number).ok());
            number.ok_or_else(|| format!("the lease's {field} is no number that fits: {value}"))
        }
    };
    let time = |field: &str| match spec.get(field).and_then(Value::as_str) {
        None => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| format!("the lease's {field} is no time: {text:?}")),
    };
    Ok(LeaseRecord {
        holder: spec.get("holderIdentity").and_then(Value::as_str).unwrap_or_default().to_owned(),
        lease_duration_seconds: number("leaseDurationSeconds")?,
        acquired: time("acquireTime")?,
        renewed: time("renewTime")?,
        transitions: number("leaseTransitions")?,
    })
}

fn write(data: &mut Value, record: &LeaseRecord) {
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
