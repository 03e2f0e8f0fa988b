//! One object by itself, not out of a body: read again after somebody changed it, or cut down to its metadata.
//!
//! Nothing here says anything of an object's contents, also when it does not read: errors are logged.

use super::object::{ObjectReader, prefix};
use super::prune::prune;
use crate::wire::head::{Head, HeadError};
use crate::wire::path::PathStep;
use crate::wire::paths::Mode;
use crate::wire::problem::ObjectError;
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, Limits, TypeMeta};
use serde::de::IgnoredAny;

/// Why bytes that should be an object are none. Without a word of what they say.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadObjectError {
    #[error("no UTF-8 behind byte {0}")]
    Utf8(usize),
    #[error("no JSON at line {0}, column {1}")]
    Json(usize, usize),
    #[error("no JSON object")]
    Other,
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    #[error("of another kind")]
    OtherKind,
    #[error("{0}")]
    Head(HeadError),
}

impl From<ObjectError> for ReadObjectError {
    fn from(problem: ObjectError) -> Self {
        match problem {
            ObjectError::Head(error) => Self::Head(error),
            ObjectError::TooLarge { limit } => Self::TooLarge(limit),
            ObjectError::OtherKind { .. } => Self::OtherKind,
            ObjectError::NotAnObject | ObjectError::MalformedProtobuf(_) | ObjectError::UnknownFrame => {
                Self::Other
            }
        }
    }
}

/// Reads one object that is all there: its canonical form, and its head.
///
/// Unlike what a server sends, it is held to be JSON throughout.
pub(crate) fn read_object(
    types: &TypeMeta,
    limits: Limits,
    bytes: &[u8],
) -> Result<ScannedObject, ReadObjectError> {
    let text = std::str::from_utf8(bytes).map_err(|error| ReadObjectError::Utf8(error.valid_up_to()))?;
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| ReadObjectError::Json(error.line(), error.column()))?;
    let mut reader = ObjectReader::new(types, limits.max_object_bytes);
    match reader.feed(bytes, &mut 0) {
        Ok(true) => Ok(reader.take_object(types)?),
        Ok(false) | Err(_) => Err(ReadObjectError::Other),
    }
}

/// What is left of an object without everything but its metadata, and without its annotations, which may quote the rest.
pub(crate) fn metadata_only(types: &TypeMeta, head: &Head, bytes: &[u8]) -> ScannedObject {
    let annotations = [PathStep::Name("annotations".into())];
    let metadata = bytes.get(head.metadata.start as usize..head.metadata.end as usize).unwrap_or_default();
    let mut kept = prefix(types);
    kept.extend_from_slice(b",\"metadata\":");
    let start = kept.len();
    prune(Mode::Drop, &[&annotations], metadata, &mut kept);
    let range = Head::range(start..kept.len());
    kept.push(b'}');
    let head = Head { metadata: range, ..head.clone() };
    ScannedObject { head, bytes: kept.into(), encoding: EntryEncoding::Json }
}
