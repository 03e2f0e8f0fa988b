//! The JSON readers: [`ListReader`] and [`WatchReader`], and functions that parse and prune a single object.
//!
//! Bytes arrive in chunks that are split anywhere; at most one object is buffered. This module does not
//! know protobuf, nor where the bytes come from.

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
