//! What readers hand out: the frames of a watch, and the items of a list.
//!
//! Both forms give the same values. This file must not know how either form is read.

use super::problem::UnreadableObject;
use super::scanned::ScannedObject;
use super::status::Status;
use crate::version::ResourceVersion;

/// The longest `type` that is believed.
pub(super) const MAX_TYPE_BYTES: usize = 64;

/// The longest list metadata that is believed.
pub(super) const MAX_METADATA_BYTES: usize = 64 * 1024;

/// The annotation of the bookmark that closes the initial events of a watch-list.
pub(super) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One message of a watch stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// An object appeared.
    Added(ScannedObject),
    /// An object changed.
    Modified(ScannedObject),
    /// An object went away, or left the selector; this is its last state.
    Deleted(ScannedObject),
    /// The stream has come as far as this version.
    Bookmark {
        /// The version, if the bookmark had a readable one.
        version: Option<ResourceVersion>,
        /// Whether the initial events of a watch-list end here.
        initial_events_end: bool,
    },
    /// The server ends the stream.
    Error(Status),
    /// A frame whose object was skipped.
    Unreadable(FrameKind, UnreadableObject),
}

/// What a frame says it is.
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
    /// A type nobody knows, or none.
    Unknown(Box<str>),
}

impl FrameKind {
    /// The kind with this name.
    pub(super) fn named(name: &[u8]) -> Self {
        match name {
            b"ADDED" => Self::Added,
            b"MODIFIED" => Self::Modified,
            b"DELETED" => Self::Deleted,
            b"BOOKMARK" => Self::Bookmark,
            b"ERROR" => Self::Error,
            other => Self::unknown(other),
        }
    }

    /// A kind of frame that is not known, by its name.
    pub(super) fn unknown(name: &[u8]) -> Self {
        Self::Unknown(String::from_utf8_lossy(name).replace('"', "").into())
    }
}

/// What comes out of a list's body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListItem {
    /// The list's own metadata. Comes once, before, between or after the items.
    Meta(ListMeta),
    /// An item.
    Object(ScannedObject),
    /// An item that was skipped.
    Unreadable(UnreadableObject),
}

/// The metadata of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListMeta {
    /// The state of the server that the list shows.
    pub version: ResourceVersion,
    /// The token of the next page.
    pub continue_token: Option<Box<str>>,
    /// How many items the pages to come hold, where the server says so.
    pub remaining: Option<u64>,
}
