//! From the server's bytes to objects, while the bytes arrive.
//!
//! [`ListReader`] and [`WatchReader`] are fed chunks cut anywhere and hand out one object at a time: its [`Head`] and its
//! bytes without `metadata.managedFields` and what a [`FieldFilter`] leaves out, found in one pass. A body is never held whole. An object that cannot be read is
//! handed out as [`UnreadableObject`] and reading goes on; only a body that is no JSON, or ends too early, ends in a
//! [`WireError`]. [`ProtobufListReader`] and [`ProtobufWatchReader`] do the same for protobuf. Nothing here knows what a kind looks like inside
//! (what protobuf needs of that is a table), nor where the bytes come from.
//!
//! Inside, from the bottom: what both forms share (`head`, `labels`, `scanned`, `frame`, `path`, `paths`, `status`, `problem`), `projection`, `json`,
//! `protobuf`, and on top of both `reader`, which picks a reader, and `values`, which looks up a path.

mod field_filter;
mod frame;
mod head;
mod json;
mod labels;
mod path;
mod paths;
mod problem;
mod protobuf;
mod reader;
mod scanned;
mod status;
mod values;

pub use field_filter::FieldFilter;
pub use frame::{Frame, FrameKind, ListItem, ListMeta};
pub use head::{Head, HeadError, Uid};
pub use json::{ListReader, WatchReader};
pub(crate) use json::{ReadObjectError, metadata_only, read_object};
pub use labels::{Labels, LabelsIter, Owner, OwnerReference, Owners, OwnersIter};
pub use path::FieldPath;
pub use problem::{
    BodyErrorKind, BodyLocation, JsonSyntaxError, ObjectError, ProtobufError, UnreadableObject, WireError,
};
pub(crate) use protobuf::{MessageError, decode, metadata_message};
pub use protobuf::{ProtobufListReader, ProtobufWatchReader, message_of};
pub(crate) use reader::{BodyEncoding, ListBody, WatchBody};
pub use scanned::ScannedObject;
pub use status::Status;

use informer_schema::MessageId;

/// How objects are written, on the wire and in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EntryEncoding {
    /// JSON, the form every kind has.
    #[default]
    Json,
    /// Protobuf: a message of this type, without the envelope that names its kind.
    Protobuf(MessageId),
}

/// Group, version and kind of the objects in one cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TypeMeta {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind, as in `Pod`.
    pub kind: String,
    /// Another type that objects may say they have: the server's own kind, where only metadata was asked for and a server did not
    /// know that form.
    pub also_accepted: Option<Box<TypeMeta>>,
}

impl TypeMeta {
    /// The type `kind` of `api_version`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), also_accepted: None }
    }

    /// This type for the cache; what says it is of the other one is taken too.
    #[must_use]
    pub fn also_accept(self, other: Self) -> Self {
        Self { also_accepted: Some(Box::new(other)), ..self }
    }
}

/// What a reader refuses to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest object, in bytes without `managedFields` and what a [`FieldFilter`] drops at the top or in `metadata`.
    /// A larger one is skipped and reported.
    pub max_object_bytes: usize,
}

impl Limits {
    /// Objects of up to `object_bytes`, and never more than 1 GiB.
    pub fn new(object_bytes: usize) -> Self {
        Self { max_object_bytes: object_bytes.min(1 << 30) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(8 << 20)
    }
}

/// The longest `kind` or `apiVersion` that is believed: a group and a version are at most 317 bytes.
const MAX_KIND_BYTES: usize = 512;

/// Appends what of `part` fits below `limit`: always the same beginning, however the value was cut.
fn keep_beginning(buffer: &mut Vec<u8>, part: &[u8], limit: usize) {
    let room = limit.saturating_sub(buffer.len());
    buffer.extend_from_slice(&part[..part.len().min(room)]);
}

#[cfg(test)]
mod tests;
