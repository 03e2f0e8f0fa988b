//! The three reviews that ask whether a user may perform a request.

use informer_objects::status::{Status, StatusCause};
use serde::Serialize;
use serde_json::{Value, json};

use super::wire::{AccessSpec, Metadata, PathAttributes, ReceivedReview, ResourceAttributes, encode, read};
use super::{AUTHORIZATION, Review, ReviewRequest};
use crate::access::Attributes;
use crate::access::rules::Decision;
use crate::user::User;

pub(super) fn respond(review: Review, request: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
    #[derive(Serialize)]
    struct AccessStatus {
        allowed: bool,
        #[serde(skip_serializing_if = "String::is_empty")]
        reason: String,
    }
    let mut given = read::<AccessSpec>(review, object)?;
    let is_self_review = review == Review::SelfSubjectAccess;
    if is_self_review {
        // A self review is about the caller: fields about another user are dropped.
        let AccessSpec { resource_attributes, non_resource_attributes, .. } = given.spec;
        given.spec = AccessSpec { resource_attributes, non_resource_attributes, ..AccessSpec::default() };
    }
    let namespace = set_namespace(review, request, &mut given)?;
    validate(review, &given, &namespace)?;
    let spec = &given.spec;
    let subject = User {
        name: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone().unwrap_or_default(),
    };
    let user = if is_self_review { &request.caller.user } else { &subject };
    let (allowed, reason) = match request.caller.rights.decide(user, &attributes(spec)) {
        Decision::Allowed(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let metadata = Metadata::managed(review, request, spec).in_namespace(namespace);
    Ok(encode(review, metadata, Some(given.spec), AccessStatus { allowed, reason }))
}

/// Sets the namespace of a namespaced review to that of the path and returns it; empty for other reviews. A
/// different namespace in the metadata is an error.
fn set_namespace(
    review: Review,
    request: &ReviewRequest<'_>,
    given: &mut ReceivedReview<AccessSpec>,
) -> Result<String, Status> {
    if !review.is_namespaced() {
        return Ok(String::new());
    }
    let metadata = given.metadata.get_or_insert_default();
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        "" => {
            metadata.insert("namespace".to_owned(), Value::from(request.namespace));
        }
        given_namespace if given_namespace == request.namespace => {}
        _ => {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
    }
    Ok(request.namespace.to_owned())
}

fn validate(review: Review, given: &ReceivedReview<AccessSpec>, namespace: &str) -> Result<(), Status> {
    let spec = &given.spec;
    let mut causes = Vec::new();
    let mut invalid = |field: &str, value: &Value, message: &str| {
        let message = format!("Invalid value: {value}: {message}");
        causes.push(StatusCause::new("FieldValueInvalid", field, message));
    };
    let (resource, path) = (&spec.resource_attributes, &spec.non_resource_attributes);
    if let (Some(_), Some(path)) = (resource, path) {
        let message = "cannot be specified in combination with resourceAttributes";
        invalid("spec.nonResourceAttributes", &in_go(path), message);
    }
    if resource.is_none() && path.is_none() {
        let message = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        invalid("spec.resourceAttributes", &Value::Null, message);
    }
    if review != Review::SelfSubjectAccess && spec.user.is_empty() && spec.groups.is_empty() {
        invalid("spec.user", &json!(""), "at least one of user or group must be specified");
    }
    let mut metadata = given.metadata.clone().unwrap_or_default();
    metadata.retain(|key, value| key != "managedFields" && !value.is_null());
    let unexpected = |key: &String| !(review.is_namespaced() && key == "namespace");
    if metadata.keys().any(unexpected) {
        let except = if review.is_namespaced() { " except for namespace" } else { "" };
        invalid("metadata", &Value::Object(metadata), &format!("must be empty{except}"));
    }
    if review.is_namespaced() {
        if let Some(resource) = resource.as_ref().filter(|resource| resource.namespace != namespace) {
            let value = json!(resource.namespace);
            invalid("spec.resourceAttributes.namespace", &value, "must match metadata.namespace");
        }
        if let Some(path) = path {
            invalid("spec.nonResourceAttributes", &in_go(path), "disallowed on this kind of request");
        }
    }
    // The internal type in kube-apiserver has no kind, so the error names none.
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(AUTHORIZATION, "", "", causes)) }
}

/// Formats attributes with the field names of Go, as kube-apiserver does in errors.
fn in_go(path: &PathAttributes) -> Value {
    json!({"Path": path.path, "Verb": path.verb})
}

fn attributes(spec: &AccessSpec) -> Attributes {
    match (&spec.resource_attributes, &spec.non_resource_attributes) {
        (
            Some(ResourceAttributes { namespace, verb, group, version, resource, subresource, name, .. }),
            _,
        ) => Attributes {
            verb: verb.clone(),
            group: group.clone(),
            version: version.clone(),
            resource: resource.clone(),
            subresource: subresource.clone(),
            namespace: namespace.clone(),
            name: name.clone(),
            path: None,
        },
        (None, Some(path)) => Attributes::at_path(&path.verb, &path.path),
        (None, None) => Attributes::default(),
    }
}
