//! The JSON of reviews, with fields in the order of kube-apiserver. Unknown fields are dropped.

use std::collections::BTreeMap;

use informer_objects::status::Status;
use informer_objects::text::times;
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Review, ReviewRequest};
use crate::access::policy::or_empty;

/// A review as received.
#[derive(Debug, Default, Deserialize)]
#[serde(default, bound = "S: Default + DeserializeOwned")]
pub(super) struct ReceivedReview<S> {
    pub(super) metadata: Option<Map<String, Value>>,
    pub(super) spec: S,
}

/// The spec of an access review. A self review uses only the first two fields.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AccessSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) resource_attributes: Option<ResourceAttributes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) non_resource_attributes: Option<PathAttributes>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) user: String,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) extra: Option<BTreeMap<String, Vec<String>>>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ResourceAttributes {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) verb: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) version: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) resource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) subresource: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field_selector: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label_selector: Option<Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PathAttributes {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) path: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) verb: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RulesSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct TokenSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) token: String,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(super) audiences: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct UserInfo {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) username: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) groups: Vec<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// The metadata of a review in a response, which has neither name nor uid.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    creation_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    managed_fields: Vec<ManagedFieldsEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFieldsEntry {
    manager: String,
    operation: &'static str,
    api_version: &'static str,
    time: String,
    fields_type: &'static str,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

impl Metadata {
    pub(super) fn created(now: Timestamp) -> Self {
        Metadata { creation_timestamp: Some(times::written(now)), ..Metadata::default() }
    }

    pub(super) fn in_namespace(self, namespace: String) -> Self {
        Metadata { namespace, ..self }
    }

    /// Returns metadata with `managedFields`, in which the client owns all fields of the spec.
    pub(super) fn managed(review: Review, request: &ReviewRequest<'_>, spec: &impl Serialize) -> Self {
        let manager = request.agent.split('/').next().unwrap_or_default();
        let mut fields = fields(&serde_json::to_value(spec).unwrap_or_default());
        if let Some(fields) = fields.as_object_mut() {
            fields.remove(".");
        }
        let entry = ManagedFieldsEntry {
            manager: if manager.is_empty() { "unknown" } else { manager }.to_owned(),
            operation: "Update",
            api_version: review.api_version(),
            time: times::written(request.now),
            fields_type: "FieldsV1",
            fields: serde_json::json!({"f:spec": fields}),
        };
        Metadata { managed_fields: vec![entry], ..Metadata::default() }
    }
}

/// Parses a review.
pub(super) fn read<S: Default + DeserializeOwned>(
    review: Review,
    object: Value,
) -> Result<ReceivedReview<S>, Status> {
    let kind = review.kind();
    serde_json::from_value(object).map_err(|error| {
        Status::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {kind}: json: {error}"))
    })
}

/// Encodes a review as a response.
pub(super) fn encode(
    review: Review,
    metadata: Metadata,
    spec: Option<impl Serialize>,
    status: impl Serialize,
) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct EncodedReview<S: Serialize, T: Serialize> {
        kind: &'static str,
        api_version: &'static str,
        metadata: Metadata,
        #[serde(skip_serializing_if = "Option::is_none")]
        spec: Option<S>,
        status: T,
    }
    let (kind, api_version) = (review.kind(), review.api_version());
    serde_json::to_vec(&EncodedReview { kind, api_version, metadata, spec, status }).unwrap_or_default()
}

/// Returns the fields of an object in the format of `managedFields`. The recursion is as deep as the received
/// review, whose depth the parser of bodies limits.
fn fields(value: &Value) -> Value {
    let Value::Object(object) = value else { return Value::Object(Map::new()) };
    // The key `.` stands for the object itself.
    let itself = std::iter::once((".".to_owned(), Value::Object(Map::new())));
    Value::Object(
        itself.chain(object.iter().map(|(key, value)| (format!("f:{key}"), fields(value)))).collect(),
    )
}
