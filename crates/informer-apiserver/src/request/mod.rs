//! Paths and queries of requests, read once for those who authorize and those who answer.
//!
//! What is authorized is what is answered, because both read requests with this module. It knows which kinds are served, and neither
//! users nor answers.

mod path;
mod query;

pub(crate) use path::{Document, Missing, Probe, Route, Target, decode};
pub(crate) use query::{ListOptions, Query, is_true};
