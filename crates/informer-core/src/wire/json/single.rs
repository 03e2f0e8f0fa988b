//! Functions for a single complete object that is not part of a body: parsing the result of a transform, and
//! reducing an object to its metadata.
//!
//! Errors are logged, so they never quote the contents of an object.

use super::object::{ObjectReader, prefix};
use super::prune::prune;
use crate::wire::error::ObjectError;
use crate::wire::field_filter::{FieldFilter, ManagedFields};
use crate::wire::head::{Head, HeadError};
use crate::wire::path::PathStep;
use crate::wire::paths::Mode;
use crate::wire::scanned::ScannedObject;
use crate::wire::{EntryEncoding, Limits, TypeMeta};
use serde::de::IgnoredAny;

/// The reason why bytes are not an object, without quoting them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReadObjectError {
    #[error("invalid UTF-8 at byte {0}")]
    Utf8(usize),
    #[error("invalid JSON at line {0}, column {1}")]
    Json(usize, usize),
    #[error("not a JSON object")]
    NotAnObject,
    #[error("larger than {0} bytes")]
    TooLarge(usize),
    #[error("unexpected kind")]
    OtherKind,
    #[error("{0}")]
    Head(HeadError),
}

impl From<ObjectError> for ReadObjectError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Head(error) => Self::Head(error),
            ObjectError::TooLarge { limit } => Self::TooLarge(limit),
            ObjectError::OtherKind { .. } => Self::OtherKind,
            // The others do not occur outside of a body.
            ObjectError::NotAnObject
            | ObjectError::MalformedProtobuf(_)
            | ObjectError::Saved(_)
            | ObjectError::UnknownFrame => Self::NotAnObject,
        }
    }
}

/// Parses one complete object: its canonical form, with or without its managed fields, and its head.
///
/// Unlike the readers of bodies, this function checks that the whole object is valid JSON.
pub(crate) fn read_object(
    type_meta: &TypeMeta,
    limits: Limits,
    managed_fields: ManagedFields,
    bytes: &[u8],
) -> Result<ScannedObject, ReadObjectError> {
    let text = std::str::from_utf8(bytes).map_err(|error| ReadObjectError::Utf8(error.valid_up_to()))?;
    serde_json::from_str::<IgnoredAny>(text)
        .map_err(|error| ReadObjectError::Json(error.line(), error.column()))?;
    let mut reader = ObjectReader::new(type_meta, limits.max_object_bytes);
    if managed_fields == ManagedFields::Keep {
        let everything = FieldFilter::drop::<&str>([]).map(FieldFilter::keep_managed_fields);
        reader.set_field_filter(everything.ok());
    }
    match reader.feed(bytes, &mut 0) {
        Ok(true) => Ok(reader.to_object(type_meta)?),
        Ok(false) | Err(_) => Err(ReadObjectError::NotAnObject),
    }
}

/// Returns an object reduced to its type and metadata. Annotations and managed fields are left out, because they
/// may quote the rest of the object, as `kubectl apply` does.
pub(crate) fn metadata_only(type_meta: &TypeMeta, head: &Head, bytes: &[u8]) -> ScannedObject {
    let [annotations, managed] = ["annotations", "managedFields"].map(|name| [PathStep::Name(name.into())]);
    let metadata = bytes.get(head.metadata.start as usize..head.metadata.end as usize).unwrap_or_default();
    let mut output = prefix(type_meta);
    output.extend_from_slice(b",\"metadata\":");
    let start = output.len();
    prune(Mode::Drop, &[&annotations, &managed], metadata, &mut output);
    let range = Head::compact_range(start..output.len());
    output.push(b'}');
    let head = Head { metadata: range, ..head.clone() };
    ScannedObject { head, bytes: output.into(), encoding: EntryEncoding::Json }
}
