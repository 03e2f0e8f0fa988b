//! What can be wrong with a body, or with one object in it.
//!
//! Errors say where; they do not quote what an object contains. This file must not know how either form is read.

use super::head::HeadError;
use crate::key::Key;
use crate::version::ResourceVersion;
use std::fmt;

/// Where in a body something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLocation {
    /// Which item of the list, or which frame of the watch, from zero.
    pub index: u64,
    /// At which byte of the body.
    pub byte: u64,
}

impl fmt::Display for BodyLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} at byte {}", self.index, self.byte)
    }
}

/// An object that was skipped: what is known of it, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object {} ({location}) is unreadable: {error}", key.as_ref().map_or("?".to_owned(), ToString::to_string))]
pub struct UnreadableObject {
    /// Its key, if that much could be read.
    pub key: Option<Key>,
    /// Its version, if that much could be read.
    pub version: Option<ResourceVersion>,
    /// Where it began.
    pub location: BodyLocation,
    /// What is wrong with it.
    pub error: ObjectError,
}

/// What is wrong with one object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
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
    MalformedProtobuf(#[from] ProtobufError),
    /// It came in a watch frame of a type nobody knows.
    #[error("its frame is of no known type")]
    UnknownFrame,
}

/// What ends the reading of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {location}: {kind}")]
pub struct WireError {
    /// `item` or `frame`.
    pub(super) what: &'static str,
    /// Where.
    pub location: BodyLocation,
    /// What is wrong.
    pub kind: BodyErrorKind,
}

/// What is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyErrorKind {
    /// A byte that JSON does not allow there.
    #[error("not JSON: {0}")]
    Syntax(#[from] JsonSyntaxError),
    /// Bytes that are no protobuf.
    #[error("not protobuf: {0}")]
    Protobuf(#[from] ProtobufError),
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

/// A byte that cannot stand where it stands.
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

/// Bytes that are no protobuf, or not what Kubernetes makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The bytes of a body or of an object begin with something else.
    #[error("it does not begin as Kubernetes begins protobuf")]
    Magic,
    /// A number that does not end.
    #[error("a number is longer than 64 bits")]
    Varint,
    /// A field whose number cannot be.
    #[error("a field has a number that cannot be")]
    Number,
    /// A layout that nobody knows.
    #[error("a field is laid out in a way that nobody knows: {0}")]
    Layout(u8),
    /// A group, which nobody writes any more.
    #[error("a field is a group")]
    Group,
    /// A length that is larger than what is around it.
    #[error("a length goes beyond what is around it")]
    Length,
    /// The bytes end inside a field.
    #[error("it ends inside a field")]
    Short,
    /// A field that may come once came again.
    #[error("a part that comes once comes twice")]
    Twice,
    /// The object is compressed, or of another form than its envelope.
    #[error("it is encoded once more")]
    Encoded,
    /// A frame that is longer than any object.
    #[error("a frame says that it has {0} bytes")]
    Frame(u32),
}
