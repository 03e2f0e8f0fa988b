//! From the server's bytes to objects, while the bytes arrive.
//!
//! [`ListReader`] and [`WatchReader`] are fed chunks cut anywhere and hand out one object at a time: its [`Head`] and its
//! bytes without `metadata.managedFields` and what a [`Projection`] leaves out, found in one pass. A body is never held whole. An object that cannot be read is
//! handed out as [`Unreadable`] and reading goes on; only a body that is no JSON, or ends too early, ends in a
//! [`WireError`]. [`ProtobufListReader`] and [`ProtobufWatchReader`] do the same for protobuf. Nothing here knows what a kind looks like inside
//! (what protobuf needs of that is a table), nor where the bytes come from.

mod head;
mod json;
mod labels;
mod path;
mod projection;
mod protobuf;
mod status;

pub use head::{Head, HeadError, Uid};
pub use json::{Frame, FrameKind, ListItem, ListMeta, ListReader, Scanned, Unexpected, WatchReader};
pub(crate) use json::{NoObject, metadata_only, read_object};
pub use labels::{Labels, LabelsIter, Owner, OwnerReference, Owners, OwnersIter};
pub use path::{FieldPath, FieldPathError};
pub use projection::{Projection, ProjectionError};
pub use protobuf::{Broken, ProtobufListReader, ProtobufWatchReader, message_of};
pub(crate) use protobuf::{MessageError, decode, metadata_message};
pub use status::Status;

use crate::key::Key;
use crate::version::ResourceVersion;
use informer_schema::MessageId;
use std::fmt;

/// How objects are written, on the wire and in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encoding {
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
    pub or: Option<Box<TypeMeta>>,
}

impl TypeMeta {
    /// The type `kind` of `api_version`.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { api_version: api_version.into(), kind: kind.into(), or: None }
    }

    /// This type for the cache; what says it is of the other one is taken too.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { or: Some(Box::new(other)), ..self }
    }
}

/// What a reader refuses to hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The largest object, in bytes without `managedFields` and what a [`Projection`] drops at the top or in `metadata`.
    /// A larger one is skipped and reported.
    pub object_bytes: usize,
}

impl Limits {
    /// Objects of up to `object_bytes`, and never more than 1 GiB.
    pub fn new(object_bytes: usize) -> Self {
        Self { object_bytes: object_bytes.min(1 << 30) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(8 << 20)
    }
}

/// Where in a body something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which item of the list, or which frame of the watch, from zero.
    pub index: u64,
    /// At which byte of the body.
    pub byte: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} at byte {}", self.index, self.byte)
    }
}

/// An object that was skipped: what is known of it, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object {} ({place}) is unreadable: {problem}", key.as_ref().map_or("?".to_owned(), ToString::to_string))]
pub struct Unreadable {
    /// Its key, if that much could be read.
    pub key: Option<Key>,
    /// Its version, if that much could be read.
    pub version: Option<ResourceVersion>,
    /// Where it began.
    pub place: Place,
    /// What is wrong with it.
    pub problem: ObjectProblem,
}

/// What is wrong with one object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectProblem {
    /// Its head does not read.
    #[error("{0}")]
    Head(#[from] HeadError),
    /// It is larger than the limit.
    #[error("it is larger than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// It belongs to another kind than the cache.
    #[error("it is of another kind: {found}")]
    OtherKind {
        /// The type it says it has.
        found: Box<str>,
    },
    /// It is no JSON object, and no message.
    #[error("it is no object")]
    NotAnObject,
    /// Its bytes are no protobuf.
    #[error("it is broken: {0}")]
    Broken(#[from] Broken),
    /// It came in a watch frame of a type nobody knows.
    #[error("its frame is of no known type")]
    UnknownFrame,
}

/// What ends the reading of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {place}: {problem}")]
pub struct WireError {
    /// `item` or `frame`.
    what: &'static str,
    /// Where.
    pub place: Place,
    /// What is wrong.
    pub problem: BodyProblem,
}

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyProblem {
    /// A byte that JSON does not allow there.
    #[error("not JSON: {0}")]
    Syntax(#[from] Unexpected),
    /// Bytes that are no protobuf.
    #[error("not protobuf: {0}")]
    Protobuf(#[from] Broken),
    /// The body ended inside a value.
    #[error("the body ends too early")]
    Truncated,
    /// The body is something else than a list.
    #[error("not a list but a {found}")]
    NotAList {
        /// Its kind.
        found: Box<str>,
    },
    /// The list's own metadata cannot be used.
    #[error("the list's metadata does not read: {reason}")]
    ListMeta {
        /// Why not.
        reason: &'static str,
    },
}

/// The longest `kind` or `apiVersion` that is believed: a group and a version are at most 317 bytes.
const LONGEST_KIND: usize = 512;

/// Appends what of `part` fits below `limit`: always the same beginning, however the value was cut.
fn keep_beginning(buffer: &mut Vec<u8>, part: &[u8], limit: usize) {
    let room = limit.saturating_sub(buffer.len());
    buffer.extend_from_slice(&part[..part.len().min(room)]);
}

#[cfg(test)]
mod tests;
