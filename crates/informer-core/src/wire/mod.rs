//! Parsers of response bodies, which produce objects while the bytes arrive.
//!
//! [`ListReader`] and [`WatchReader`] are fed chunks that are split anywhere. They produce one object at a
//! time, in one pass: its [`Head`] (the metadata known without decoding), and its bytes without
//! `metadata.managedFields` and without the fields that a [`FieldFilter`] leaves out. A body is never
//! buffered as a whole. [`ProtobufListReader`] and [`ProtobufWatchReader`] do the same for protobuf.
//!
//! An object that cannot be read, for example because its head is malformed or because it is too large, is
//! produced as an [`UnreadableObject`], and parsing continues. A [`WireError`] ends the parsing of a body:
//! its syntax is invalid where the reader parses it, it ends too early, it is not a list, or its list
//! metadata is invalid.
//!
//! Apart from `metadata`, this module does not know the fields of any kind (for protobuf they come from the
//! table of `informer-schema`), nor where the bytes come from.
//!
//! Submodules, from the bottom: `head`, `labels`, `scanned`, `frame`, `path`, `paths`, `status` and `error`
//! are shared by both encodings; `field_filter`, `json` and `protobuf` use them; `reader`, which selects a
//! reader, and `values`, which looks up a path, use both encodings.

mod error;
mod field_filter;
mod frame;
mod head;
#[cfg(feature = "persistence")]
mod head_record;
mod json;
mod labels;
mod path;
mod paths;
mod protobuf;
mod reader;
mod scanned;
mod status;
mod values;

pub use error::{
    BodyErrorKind, BodyLocation, JsonSyntaxError, ObjectError, ProtobufError, UnreadableObject, WireError,
};
pub use field_filter::FieldFilter;
pub(crate) use field_filter::ManagedFields;
pub use frame::{Frame, FrameKind, ListItem, ListMeta};
pub use head::{Head, HeadError, Uid};
#[cfg(all(feature = "compression", feature = "persistence"))]
pub(crate) use head_record::take_u32;
pub use json::{ListReader, WatchReader};
pub(crate) use json::{ReadObjectError, metadata_only, read_object};
pub use labels::{Labels, LabelsIter, Owner, OwnerReference, Owners, OwnersIter};
pub use path::FieldPath;
pub(crate) use protobuf::{MessageError, decode, metadata_message};
pub use protobuf::{ProtobufListReader, ProtobufWatchReader, message_of};
pub use reader::BodyEncoding;
pub(crate) use reader::{ListBody, WatchBody};
pub use scanned::ScannedObject;
pub use status::Status;

use informer_schema::MessageId;

/// The encoding of one object's bytes. Unlike [`BodyEncoding`], it names the message type of protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum EntryEncoding {
    /// JSON, which every kind supports.
    #[default]
    Json,
    /// Protobuf: a message of this type, without the envelope that names its kind.
    Protobuf(MessageId),
}

/// Group, version and kind of the objects in one cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TypeMeta {
    /// Group and version: `v1`, or `group/version`.
    pub api_version: String,
    /// The kind, for example `Pod`.
    pub kind: String,
    /// Another type that objects may declare.
    ///
    /// Used for metadata-only requests, where the type itself is `PartialObjectMetadata`: a server that does
    /// not support these requests sends complete objects of the other type.
    pub also_accepted: Option<Box<TypeMeta>>,
}

impl TypeMeta {
    /// Creates the type `kind` of `api_version`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), also_accepted: None }
    }

    /// Also accepts objects that declare the type `other`. In the cache, they have the type `self`.
    #[must_use]
    pub fn also_accept(self, other: Self) -> Self {
        Self { also_accepted: Some(Box::new(other)), ..self }
    }
}

/// The limits of a reader.
///
/// Defaults to objects of 8 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Maximum size of an object in bytes, without `managedFields` and the top-level and `metadata` members
    /// that a [`FieldFilter`] drops.
    ///
    /// A larger object is skipped and reported as unreadable.
    pub max_object_bytes: usize,
}

impl Limits {
    /// Creates a limit of `max_object_bytes`, or of 1 GiB if that is less.
    pub fn new(max_object_bytes: usize) -> Self {
        Self { max_object_bytes: max_object_bytes.min(1 << 30) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(8 << 20)
    }
}

/// Maximum size of a `kind` or `apiVersion`; longer ones are truncated. A valid group and version have at
/// most 317 bytes.
const MAX_KIND_BYTES: usize = 512;

/// Appends the bytes of `part` that fit below `limit`. The result does not depend on how a value was split
/// into parts.
fn append_up_to(buffer: &mut Vec<u8>, part: &[u8], limit: usize) {
    let available = limit.saturating_sub(buffer.len());
    buffer.extend_from_slice(&part[..part.len().min(available)]);
}

#[cfg(test)]
mod tests;
