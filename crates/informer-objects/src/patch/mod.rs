//! Patches: what a PATCH makes of an object. JSON patch, merge patch and strategic merge patch; apply has a room of its own.
//!
//! Pure functions from an object and a patch to another object, or to the status with which the real server refuses. Whether the
//! result is a good object is not asked here: it is decoded, defaulted and validated afterwards like the body of an update.

mod directive;
mod json;
mod merge;
mod refusal;
mod strategic;

#[cfg(test)]
mod tests;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

use crate::status::{Status, StatusCause};
use crate::text::{self, Duplicates};
use refusal::{unsupported, unsupported_for_custom};

/// The kinds of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// A list of operations (RFC 6902).
    Json,
    /// An object that is laid over another (RFC 7386).
    Merge,
    /// A merge patch that knows the types of built-in kinds.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// The kind that a content type means; its parameters do not count.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim_end() {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => Some(PatchKind::Apply),
            _ => None,
        }
    }

    /// The kind that a content type means where it can be applied; custom objects know no strategic merge.
    pub fn accepted(content_type: &str, custom: bool) -> Result<Self, Status> {
        match PatchKind::of(content_type) {
            Some(PatchKind::Strategic) | None if custom => Err(unsupported_for_custom()),
            Some(kind) => Ok(kind),
            None => Err(unsupported()),
        }
    }
}

/// What Go's strict reader says about a patch itself, in its order: fields that came twice, and those that no operation has.
///
/// Nothing for a patch that cannot be read, since that is refused anyway.
pub fn problems(kind: PatchKind, patch: &[u8]) -> Vec<String> {
    match kind {
        PatchKind::Json => json::problems(patch),
        PatchKind::Merge | PatchKind::Strategic => text::read(patch, Duplicates::Replace)
            .map(|read| read.duplicates)
            .unwrap_or_default()
            .iter()
            .map(|path| format!("duplicate field {}", text::quoted(path)))
            .collect(),
        PatchKind::Apply => Vec::new(),
    }
}

/// 422: the patched object cannot be decoded. `why` is what the decoder says, or a strict decoding error.
///
/// The text shows the patched object for JSON and merge patches, and the patch for strategic ones.
pub fn undecodable(kind: PatchKind, patch: &[u8], patched: &str, why: &str) -> Status {
    let shown = match kind {
        PatchKind::Strategic => {
            text::read(patch, Duplicates::Replace).map(|read| text::shown(&read.value)).unwrap_or_default()
        }
        PatchKind::Json | PatchKind::Merge | PatchKind::Apply => patched.to_owned(),
    };
    let message = format!("Invalid value: {}: {why}", text::quoted(&shown));
    Status::invalid("", "", "", vec![StatusCause::new("FieldValueInvalid", "patch", message)])
}
