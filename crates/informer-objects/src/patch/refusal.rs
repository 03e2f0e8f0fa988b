//! Why a patch is refused before or while it is applied, and the reading of patches that have to be objects.
//!
//! Refusals have the status and the text of a kube-apiserver. How a patch is applied is not known here.

use serde_json::{Map, Value};

use crate::status::Status;
use crate::text::{self, Duplicates};

/// Reads a patch that has to be an object.
pub(super) fn read_object(patch: &[u8]) -> Result<Map<String, Value>, Refused> {
    match text::read(patch, Duplicates::Replace) {
        Err(what) => Err(Refused::Unreadable(what)),
        Ok(read) => match read.value {
            Value::Object(fields) => Ok(fields),
            Value::Null => Err(Refused::Null),
            other => {
                let kind = text::kind_of(&other);
                let what = "into Go value of type map[string]interface {}";
                Err(Refused::Unreadable(format!("json: cannot unmarshal {kind} {what}")))
            }
        },
    }
}

/// Why a patch is no object.
pub(super) enum Refused {
    Unreadable(String),
    Null,
}

/// 422 with no more than that: whatever it was, the server only says so in its log.
pub(super) fn rejected() -> Status {
    let message = "the server rejected our request due to an error in our request";
    Status { details: Some(Box::default()), ..Status::new(422, "Invalid", message) }
}

pub(super) fn unsupported() -> Status {
    let message = "415: Unsupported Media Type";
    Status { details: Some(Box::default()), ..Status::new(415, "UnsupportedMediaType", message) }
}

pub(super) fn unsupported_for_custom() -> Status {
    let message = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    Status::new(415, "UnsupportedMediaType", message)
}
