//! 403: who may not do what, in the server's words.

use informer_objects::status::{Status, StatusDetails};
use informer_objects::text::quoted;

use super::Attributes;
use super::rules::{Decision, Rights};
use crate::user::User;

/// Lets a user do something, or says why not.
pub(crate) fn authorize(rights: &Rights, user: &User, wanted: &Attributes) -> Result<(), Status> {
    match rights.decide(user, wanted) {
        Decision::Allowed(_) => Ok(()),
        Decision::NoOpinion(reason) => Err(forbidden(user, wanted, &reason)),
    }
}

/// The refusal, with what the rules had to say besides.
pub(crate) fn forbidden(user: &User, wanted: &Attributes, reason: &str) -> Status {
    // The server writes nothing that a browser could take for HTML.
    let mut why = sentence(user, wanted).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    if wanted.resource.is_empty() {
        let mut status = Status::new(403, "Forbidden", format!("forbidden: {why}"));
        status.details = Some(Box::new(StatusDetails::default()));
        return status;
    }
    Status::forbidden(&wanted.group, &wanted.resource, &wanted.name, &why)
}

fn sentence(user: &User, wanted: &Attributes) -> String {
    let (user, verb) = (quoted(&user.name), &wanted.verb);
    if let Some(path) = &wanted.path {
        return format!("User {user} cannot {verb} path {}", quoted(path));
    }
    let scope = if wanted.namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {}", quoted(&wanted.namespace))
    };
    let (resource, group) = (quoted(&wanted.combined_resource()), quoted(&wanted.group));
    format!("User {user} cannot {verb} resource {resource} in API group {group} {scope}")
}
