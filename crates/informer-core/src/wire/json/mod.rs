//! The readers' JSON half: [`ListReader`] and [`WatchReader`], and what reads and cuts a single object.
//!
//! Bytes arrive in chunks that are cut anywhere; nothing here holds more than one object. This module must not know protobuf, nor where the
//! bytes come from.

mod block;
pub(super) mod cut;
pub(super) mod list;
pub(super) mod members;
pub(super) mod object;
mod single;
mod skim;
pub(super) mod watch;

pub use list::{ListItem, ListMeta, ListReader};
pub use members::Unexpected;
pub use object::Scanned;
pub(crate) use single::{NoObject, metadata_only, read_object};
pub use watch::{Frame, FrameKind, WatchReader};
