//! Errors of patches before or while they are applied, and the decoding of patches that must be objects.
//!
//! Errors have the status and the text of kube-apiserver. Nothing here knows how a patch is applied.

use serde_json::{Map, Value};

use crate::status::Status;
use crate::text::{self, Duplicates};

/// Decodes a patch that must be an object.
pub(super) fn read_object(patch: &[u8]) -> Result<Map<String, Value>, PatchReadError> {
    match text::read(patch, Duplicates::Replace) {
        Err(what) => Err(PatchReadError::Unreadable(what)),
        Ok(read) => match read.value {
            Value::Object(fields) => Ok(fields),
            Value::Null => Err(PatchReadError::Null),
            other => {
                let kind = text::kind_of(&other);
                let what = "into Go value of type map[string]interface {}";
                Err(PatchReadError::Unreadable(format!("json: cannot unmarshal {kind} {what}")))
            }
        },
    }
}

/// The reason why a patch is not an object.
pub(super) enum PatchReadError {
    Unreadable(String),
    Null,
}

/// Returns 422 without a cause: kube-apiserver writes the cause to its log only.
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
