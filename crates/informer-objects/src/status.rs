//! `Status` responses: errors, and the success that answers a completed deletion.
//!
//! The texts are those of kube-apiserver 1.36, word for word, because clients match on some of them.

use serde::Serialize;

/// An error response in the form of a Kubernetes `Status`.
///
/// ```
/// # extern crate informer_objects as informer_apiserver;
/// use informer_apiserver::Status;
///
/// let status = Status::not_found("", "pods", "web-0");
/// assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
/// assert_eq!(status.to_string(), r#"pods "web-0" not found"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Status {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason; empty for some internal errors, as in kube-apiserver.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The object and the causes.
    pub details: Option<Box<StatusDetails>>,
    /// A token with which a client may continue an expired list at a newer version.
    pub continue_token: Option<String>,
}

/// The object and the causes a [`Status`] refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct StatusDetails {
    /// The object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The plural name or, in some responses, the kind.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The object's uid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The invalid fields.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// The number of seconds after which a client may retry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
}

/// One cause of an error, usually an invalid field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StatusCause {
    /// The machine-readable reason.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The path of the field.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

impl Status {
    /// Creates an error with code, reason and message only.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> Self {
        Status {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    /// Returns 404: the object does not exist.
    pub fn not_found(group: &str, plural: &str, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", qualified(group, plural));
        Status::new(404, "NotFound", message).about(group, plural, name)
    }

    /// Returns 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Status::new(400, "BadRequest", message)
    }

    /// Returns the status as JSON, for a body or an ERROR frame.
    pub fn to_json(&self) -> Vec<u8> {
        let wire = Wire {
            kind: "Status",
            api_version: "v1",
            metadata: WireMeta { continue_token: self.continue_token.as_deref() },
            status: "Failure",
            message: &self.message,
            reason: &self.reason,
            details: self.details.as_deref(),
            code: Some(self.code),
        };
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Returns 409: the object exists already; `terminating` if it is being deleted.
    pub fn already_exists(group: &str, plural: &str, name: &str, terminating: bool) -> Self {
        let being_deleted = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{being_deleted}{} \"{name}\" already exists", qualified(group, plural));
        Status::new(409, "AlreadyExists", message).about(group, plural, name)
    }

    /// Returns 409: the object differs from what the request requires.
    pub fn conflict(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", qualified(group, plural));
        Status::new(409, "Conflict", message).about(group, plural, name)
    }

    /// Returns 403.
    pub fn forbidden(group: &str, plural: &str, name: &str, why: &str) -> Self {
        let named = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!("{}{named} is forbidden: {why}", qualified(group, plural));
        Status::new(403, "Forbidden", message).about(group, plural, name)
    }

    /// Returns 422 with one or several causes; `kind` is a kind, not a plural name.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{} \"{name}\" is invalid: {list}", qualified(group, kind));
        let mut status = Status::new(422, "Invalid", message).about(group, kind, name);
        if let Some(details) = &mut status.details {
            details.causes = causes;
        }
        status
    }

    /// Returns 410 for a list, or a page of one, at a version that is no longer available.
    pub fn list_expired() -> Self {
        Status::new(410, "Expired", "The resourceVersion for the provided list is too old.")
    }

    /// Returns 410 for a continue token. `new_token` continues after the same key at the newest version.
    pub fn token_expired(new_token: String) -> Self {
        let message = "The provided continue parameter is too old to display a consistent list result. You \
                       can start a new list without the continue parameter, or use the continue token in \
                       this response to retrieve the remainder of the results. Continuing with the provided \
                       token results in an inconsistent list - objects that were created, modified, or \
                       deleted between the time the first chunk was returned and now may show up in the list.";
        Status { continue_token: Some(new_token), ..Status::new(410, "Expired", message) }
    }

    /// Returns 410 for a watch from a version before `oldest`.
    pub fn watch_expired(from: u64, oldest: u64) -> Self {
        Status::new(410, "Expired", format!("too old resource version: {from} ({oldest})"))
    }

    /// Returns 410 for a watch of a resource that the server does not cache.
    pub fn uncached_watch_expired() -> Self {
        Status::new(410, "Expired", "The resourceVersion for the provided watch is too old.")
    }

    /// Returns 504: the server has not reached this version yet.
    pub fn version_too_large(wanted: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let cause = StatusCause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            field: String::new(),
        };
        let details =
            StatusDetails { causes: vec![cause], retry_after_seconds: Some(1), ..StatusDetails::default() };
        Status { details: Some(Box::new(details)), ..Status::new(504, "Timeout", message) }
    }

    /// Returns 404 for a resource or a subresource that does not exist, in a group that is served.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Status { details: Some(Box::default()), ..Status::new(404, "NotFound", message) }
    }

    /// Returns 405.
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Status { details: Some(Box::default()), ..Status::new(405, "MethodNotAllowed", message) }
    }

    /// Returns 500 without a reason, as kube-apiserver does for errors that have no status of their own.
    pub fn internal(message: impl Into<String>) -> Self {
        Status::new(500, "", message)
    }

    /// Returns the number of seconds after which a client may retry.
    pub fn retry_after(&self) -> Option<u32> {
        self.details.as_ref().and_then(|details| details.retry_after_seconds)
    }

    /// Sets the details to the group, kind and name of the object that the error refers to.
    #[must_use]
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> Self {
        self.details = Some(Box::new(StatusDetails {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            ..StatusDetails::default()
        }));
        self
    }
}

impl StatusCause {
    /// Creates a cause for a field.
    pub fn new(reason: &str, field: &str, message: impl Into<String>) -> Self {
        StatusCause { reason: reason.to_owned(), message: message.into(), field: field.to_owned() }
    }
}

/// Returns the response to a deletion that removed the object: a success without a code.
pub fn deleted(group: &str, plural: &str, name: &str, uid: &str) -> Vec<u8> {
    let details = StatusDetails {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: plural.to_owned(),
        uid: uid.to_owned(),
        ..StatusDetails::default()
    };
    let wire = Wire {
        kind: "Status",
        api_version: "v1",
        metadata: WireMeta { continue_token: None },
        status: "Success",
        message: "",
        reason: "",
        details: Some(&details),
        code: None,
    };
    serde_json::to_vec(&wire).unwrap_or_default()
}

/// Returns `deployments.apps`, or just `pods` in the core group.
pub(crate) fn qualified(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Wire<'a> {
    kind: &'a str,
    api_version: &'a str,
    metadata: WireMeta<'a>,
    status: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a StatusDetails>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Serialize)]
struct WireMeta<'a> {
    #[serde(rename = "continue", skip_serializing_if = "Option::is_none")]
    continue_token: Option<&'a str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_equal_those_of_kube_apiserver() {
        let missing = Status::not_found("apps", "deployments", "missing");
        assert_eq!(
            String::from_utf8(missing.to_json()).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"missing\" not found","reason":"NotFound","details":{"name":"missing","group":"apps","kind":"deployments"},"code":404}"#
        );
        assert_eq!(
            String::from_utf8(deleted("", "configmaps", "a", "u")).unwrap(),
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":"u"}}"#
        );
        assert!(String::from_utf8(Status::no_such_resource().to_json()).unwrap().contains(r#""details":{}"#));
    }

    #[test]
    fn several_causes_are_written_in_brackets() {
        let causes = vec![StatusCause::new("A", "x", "one"), StatusCause::new("B", "y", "two")];
        let status = Status::invalid("meta.k8s.io", "ListOptions", "", causes);
        assert_eq!(status.message, r#"ListOptions.meta.k8s.io "" is invalid: [x: one, y: two]"#);
    }
}
