//! Errors of a body, or of one object in it.
//!
//! Errors contain a location and never quote the contents of an object. This file does not know how either
//! encoding is parsed.

use super::head::HeadError;
use crate::key::Key;
use crate::version::ResourceVersion;
use std::fmt;

/// A location in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLocation {
    /// Index of the list's item or the watch's frame, from zero.
    pub index: u64,
    /// Offset in the body, in bytes.
    pub byte: u64,
}

impl fmt::Display for BodyLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} at byte {}", self.index, self.byte)
    }
}

/// What an error of a body is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyElement {
    /// The list itself, outside of its items.
    List,
    Item,
    Frame,
}

impl BodyElement {
    /// Describes the element at a location. The index counts items or frames.
    fn at(self, location: &BodyLocation) -> String {
        match self {
            Self::List => format!("list at byte {}", location.byte),
            Self::Item => format!("item {location}"),
            Self::Frame => format!("frame {location}"),
        }
    }
}

/// An object that could not be read and was skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object {} ({location}) is unreadable: {error}", key.as_ref().map_or("?".to_owned(), ToString::to_string))]
pub struct UnreadableObject {
    /// The key, if it could be read.
    pub key: Option<Key>,
    /// The resource version, if it could be read.
    pub version: Option<ResourceVersion>,
    /// The start of the object's item or frame.
    pub location: BodyLocation,
    /// The reason.
    pub error: ObjectError,
}

/// The reason why an object could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// The head is incomplete or malformed.
    #[error("{0}")]
    Head(#[from] HeadError),
    /// The object exceeds the limit.
    #[error("larger than {limit} bytes")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The object is of another kind than the cache.
    #[error("unexpected kind: {found}")]
    OtherKind {
        /// The type that the object declares.
        found: Box<str>,
    },
    /// The value is neither a JSON object nor a protobuf message.
    #[error("not an object")]
    NotAnObject,
    /// The bytes are not valid protobuf.
    #[error("malformed protobuf: {0}")]
    MalformedProtobuf(#[from] ProtobufError),
    /// The object was unreadable when the cache was saved, for this reason.
    #[error("{0}")]
    Saved(Box<str>),
    /// The object was in a watch frame of unknown type.
    #[error("unknown frame type")]
    UnknownFrame,
}

/// An error that ends the parsing of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {kind}", element.at(location))]
pub struct WireError {
    /// What is malformed.
    pub(super) element: BodyElement,
    /// The location of the error.
    pub location: BodyLocation,
    /// The reason.
    pub kind: BodyErrorKind,
}

/// The reason why a body could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyErrorKind {
    /// A byte that JSON does not allow at its position.
    #[error("not JSON: {0}")]
    Syntax(#[from] JsonSyntaxError),
    /// Bytes that are not valid protobuf.
    #[error("not protobuf: {0}")]
    Protobuf(#[from] ProtobufError),
    /// The body ended inside a value.
    #[error("the body ends too early")]
    Truncated,
    /// The body is not a list. In protobuf, also a list of another kind.
    #[error("not a list but a {found}")]
    NotAList {
        /// The kind of the body.
        found: Box<str>,
    },
    /// The body is a list of another kind, or contains an item of another kind.
    #[error("unexpected kind: {found}")]
    OtherKind {
        /// The kind of the list or item.
        found: Box<str>,
    },
    /// The list's own metadata is missing or malformed.
    #[error("invalid list metadata: {reason}")]
    ListMeta {
        /// The reason.
        reason: &'static str,
    },
}

/// A byte that JSON does not allow at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {}", printable(*found))]
pub struct JsonSyntaxError {
    expected: &'static str,
    found: u8,
}

fn printable(byte: u8) -> String {
    if byte.is_ascii_graphic() { format!("`{}`", char::from(byte)) } else { format!("byte {byte:#04x}") }
}

impl JsonSyntaxError {
    pub(crate) fn new(expected: &'static str, found: u8) -> Self {
        Self { expected, found }
    }
}

/// Bytes that are not valid protobuf, or protobuf that Kubernetes does not use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// An envelope does not start with the magic number `k8s\0`.
    #[error("no Kubernetes magic number at the start")]
    Magic,
    /// A varint of more than ten bytes, which no number of 64 bits needs.
    #[error("a varint has more than 64 bits")]
    Varint,
    /// A field number that is zero or too large.
    #[error("a field number is out of range")]
    Number,
    /// An unknown wire type, or the end of a group that did not start.
    #[error("a field has the unknown wire type {0}")]
    WireType(u8),
    /// A group, a deprecated wire type that Kubernetes does not use.
    #[error("a field is a group")]
    Group,
    /// A length that exceeds the enclosing message.
    #[error("a length exceeds the enclosing message")]
    Length,
    /// The bytes end inside a field.
    #[error("ends inside a field")]
    Short,
    /// A field that may occur once occurs again.
    #[error("a singular field occurs twice")]
    Twice,
    /// The envelope declares a content encoding or content type, which no server does.
    #[error("the envelope declares a content encoding or content type")]
    Encoded,
    /// A watch frame that exceeds the limit of an object by more than 64 MiB.
    #[error("a frame of {0} bytes exceeds the limit")]
    Frame(u32),
}
