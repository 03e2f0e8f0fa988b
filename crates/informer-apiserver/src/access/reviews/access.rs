//! May somebody do something: the three reviews that ask that.

use informer_objects::status::{Status, StatusCause};
use serde::Serialize;
use serde_json::{Value, json};

use super::wire::{AccessSpec, Given, Metadata, PathAttributes, ResourceAttributes, read, show};
use super::{AUTHORIZATION, Review, ReviewRequest};
use crate::access::Attributes;
use crate::access::rules::Decision;
use crate::user::User;

pub(super) fn answer(review: Review, asked: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
    #[derive(Serialize)]
    struct AccessStatus {
        allowed: bool,
        #[serde(skip_serializing_if = "String::is_empty")]
        reason: String,
    }
    let mut given = read::<AccessSpec>(review, object)?;
    let about_oneself = review == Review::SelfSubjectAccess;
    if about_oneself {
        let AccessSpec { resource_attributes, non_resource_attributes, .. } = given.spec;
        given.spec = AccessSpec { resource_attributes, non_resource_attributes, ..AccessSpec::default() };
    }
    let namespace = settle_namespace(review, asked, &mut given)?;
    validate(review, &given, &namespace)?;
    let spec = &given.spec;
    let somebody = User {
        name: spec.user.clone(),
        uid: spec.uid.clone(),
        groups: spec.groups.clone(),
        extra: spec.extra.clone().unwrap_or_default(),
    };
    let user = if about_oneself { &asked.caller.user } else { &somebody };
    let (allowed, reason) = match asked.caller.rights.decide(user, &wanted(spec)) {
        Decision::Allowed(reason) => (true, reason),
        Decision::NoOpinion(reason) => (false, reason),
    };
    let metadata = Metadata::managed(review, asked, spec).within(namespace);
    Ok(show(review, metadata, Some(given.spec), AccessStatus { allowed, reason }))
}

/// The namespace of the object itself: that of the path, unless the object says another.
fn settle_namespace(
    review: Review,
    asked: &ReviewRequest<'_>,
    given: &mut Given<AccessSpec>,
) -> Result<String, Status> {
    if !review.is_namespaced() {
        return Ok(String::new());
    }
    let metadata = given.metadata.get_or_insert_default();
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        "" => {
            metadata.insert("namespace".to_owned(), Value::from(asked.namespace));
        }
        said if said == asked.namespace => {}
        _ => {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            return Err(Status::bad_request(message));
        }
    }
    Ok(asked.namespace.to_owned())
}

fn validate(review: Review, given: &Given<AccessSpec>, namespace: &str) -> Result<(), Status> {
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
    let rest = metadata.keys().filter(|key| !(review.is_namespaced() && *key == "namespace")).count();
    if rest > 0 {
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
    // The server's own form of the object has no kind, so none is named.
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid(AUTHORIZATION, "", "", causes)) }
}

fn in_go(path: &PathAttributes) -> Value {
    json!({"Path": path.path, "Verb": path.verb})
}

fn wanted(spec: &AccessSpec) -> Attributes {
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
