//! The 403 response, in the wording of kube-apiserver.

use informer_objects::status::{Status, StatusDetails};
use informer_objects::text::quoted;

use super::Attributes;
use super::rules::{Decision, Rights};
use crate::user::User;

/// Returns an error unless a user may perform a request with these attributes.
pub(crate) fn authorize(rights: &Rights, user: &User, attributes: &Attributes) -> Result<(), Status> {
    match rights.decide(user, attributes) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(forbidden(user, attributes, &reason)),
    }
}

/// Returns the 403 error. `reason` is appended if it is not empty.
pub(crate) fn forbidden(user: &User, attributes: &Attributes, reason: &str) -> Status {
    // kube-apiserver escapes HTML in this message.
    let mut why = sentence(user, attributes).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    if attributes.resource.is_empty() {
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {why}"));
        status.details = Some(Box::new(StatusDetails::default()));
        return status;
    }
    Status::forbidden(&attributes.group, &attributes.resource, &attributes.name, &why)
}

fn sentence(user: &User, attributes: &Attributes) -> String {
    let (user, verb) = (quoted(&user.name), &attributes.verb);
    if let Some(path) = &attributes.path {
        return format!("User {user} cannot {verb} path {}", quoted(path));
    }
    let scope = if attributes.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quoted(&attributes.namespace))
    };
    let (resource, group) = (quoted(&attributes.combined_resource()), quoted(&attributes.group));
    format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
}
