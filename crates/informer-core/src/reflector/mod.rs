//! The list and watch machine.
mod request;
pub use request::{Consistency, ListRequest, StreamId, WatchRequest, WatchStart};
