//! The output of the readers: the frames of a watch and the items of a list.
//!
//! Both encodings produce the same values. This file does not know how either encoding is parsed.

use super::error::UnreadableObject;
use super::scanned::ScannedObject;
use super::status::Status;
use crate::version::ResourceVersion;

/// Maximum size of a frame's `type`; longer ones are truncated.
pub(super) const MAX_TYPE_BYTES: usize = 64;

/// Maximum size of a list's metadata; a list with more is rejected.
pub(super) const MAX_METADATA_BYTES: usize = 64 * 1024;

/// The annotation of the bookmark that ends the initial events of a watch-list.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One message of a watch stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An object was created, entered the selection, or existed when the watch started.
    Added(ScannedObject),
    /// An object was changed.
    Modified(ScannedObject),
    /// An object was deleted, or left the selection; this is its last state.
    Deleted(ScannedObject),
    /// A bookmark: all changes up to this version were sent.
    Bookmark {
        /// The version, or `None` if it is missing or unreadable.
        version: Option<ResourceVersion>,
        /// Whether the initial events of a watch-list end here.
        initial_events_end: bool,
    },
    /// An error with which the server ends the stream.
    Error(Status),
    /// A frame whose object was skipped.
    Unreadable(FrameKind, UnreadableObject),
}

/// The type of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameKind {
    /// `ADDED`
    Added,
    /// `MODIFIED`
    Modified,
    /// `DELETED`
    Deleted,
    /// `BOOKMARK`
    Bookmark,
    /// `ERROR`
    Error,
    /// An unknown type; empty if the frame has none.
    Unknown(Box<str>),
}

impl FrameKind {
    /// Returns the frame type with this name.
    pub(super) fn from_name(name: &[u8]) -> Self {
        match name {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            other => Self::unknown(other),
        }
    }

    /// Returns an unknown frame type with this name, without quotes: a truncated JSON string has an opening
    /// one.
    pub(super) fn unknown(name: &[u8]) -> Self {
        Self::Unknown(String::from_utf8_lossy(name).replace('"', "").into())
    }
}

/// An element of a list's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem {
    /// The list's own metadata, which occurs once, at any position.
    Meta(ListMeta),
    /// An item.
    Object(ScannedObject),
    /// An unreadable item, which was skipped.
    Unreadable(UnreadableObject),
}

/// The metadata of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListMeta {
    /// The resource version of the list.
    pub version: ResourceVersion,
    /// The token for requesting the next page; `None` on the last page.
    pub continue_token: Option<Box<str>>,
    /// Number of items on the following pages, if the server sent it.
    pub remaining: Option<u64>,
}
