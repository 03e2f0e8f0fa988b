//! Paths and queries of requests.
//!
//! Authorization and handlers both use this module, so a request is handled exactly as it was authorized.
//! The module knows the registry of resources, but neither users nor responses.

mod path;
mod query;

pub(crate) use path::{Document, Missing, Probe, Route, Target, decode};
pub(crate) use query::{ListOptions, Query, is_true};
