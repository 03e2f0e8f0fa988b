//! The readers' JSON half: [`ListReader`] and [`WatchReader`], and what reads and cuts a single object.
//!
//! Bytes arrive in chunks that are cut anywhere; nothing here holds more than one object. This module must not know protobuf, nor where the
//! bytes come from.

mod block;
mod list;
pub(super) mod members;
mod object;
pub(super) mod prune;
mod single;
mod skip;
mod spans;
mod status;
mod watch;

pub use list::ListReader;
pub(crate) use single::{ReadObjectError, metadata_only, read_object};
pub use watch::WatchReader;
