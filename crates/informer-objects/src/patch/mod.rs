//! Patches: JSON patch, merge patch and strategic merge patch. Server-side apply is in `field_management`.
//!
//! Pure functions from an object and a patch to another object, or to the error status of kube-apiserver.
//! Whether the result is valid is not checked here: it is decoded, defaulted and validated afterwards like
//! the body of an update.

mod directive;
mod error;
mod json;
mod merge;
mod strategic;

#[cfg(test)]
mod tests;

pub use json::json;
pub use merge::merge;
pub use strategic::strategic;

use crate::status::{Status, StatusCause};
use crate::text::{self, Duplicates};
use error::{unsupported, unsupported_for_custom};

/// The type of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    /// A list of operations (RFC 6902).
    Json,
    /// An object that is merged into another (RFC 7386).
    Merge,
    /// A merge patch that uses the merge rules of built-in types.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// Returns the type of a patch for a content type, ignoring its parameters.
    pub fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim_end() {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => Some(PatchKind::Apply),
            _ => None,
        }
    }

    /// Returns the type of a patch for a content type if it is supported; custom objects do not support
    /// strategic merge.
    pub fn accepted(content_type: &str, custom: bool) -> Result<Self, Status> {
        match PatchKind::of(content_type) {
            Some(PatchKind::Strategic) | None if custom => Err(unsupported_for_custom()),
            Some(kind) => Ok(kind),
            None => Err(unsupported()),
        }
    }
}

/// Returns the strict decoding errors of a patch itself, not of the patched object, in Go's order: duplicate
/// fields, and unknown fields of operations.
///
/// Empty for a patch that cannot be decoded, because such a patch is rejected anyway, and for an apply.
pub fn problems(kind: PatchKind, patch: &[u8]) -> Vec<String> {
    match kind {
        PatchKind::Json => json::strict_decoding_errors(patch),
        PatchKind::Merge | PatchKind::Strategic => text::read(patch, Duplicates::Replace)
            .map(|read| read.duplicates)
            .unwrap_or_default()
            .iter()
            .map(|path| format!("duplicate field {}", text::quoted(path)))
            .collect(),
        PatchKind::Apply => Vec::new(),
    }
}

/// Returns the error 422 for a patched object that cannot be decoded. `why` is the error of the decoder.
///
/// The message contains the patched object, or the patch itself if it is a strategic merge patch.
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
