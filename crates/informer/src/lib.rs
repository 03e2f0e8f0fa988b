//! Kubernetes informers for Rust.

mod client;
pub mod source;

pub use client::client;
pub use informer_core::reflector::{Consistency, ListRequest, WatchRequest, WatchStart};
