//! What Kubernetes objects mean on a server: how they are read and written, defaulted, validated, patched, owned and shown.
//!
//! This crate is an implementation detail of the `informer` crates: anything may change in any version, and nothing else may count on it.
//!
//! Pure functions: objects, patches and the time in; objects, texts or a refusal ([`Status`]) out. The measure is a kube-apiserver 1.36, to the
//! word. Nothing here knows storage, history, users, requests, HTTP or a clock.
//!
//! A module uses modules of lower layers only: `text`, `status` and `schema`; then `builtin`, `definition`, `managed` and `patch`; then
//! `protobuf` and `tables`; then `body`.

pub mod body;
pub mod builtin;
pub mod definition;
pub mod field_management;
pub mod patch;
pub mod protobuf;
pub mod schema;
pub mod status;
pub mod tables;
pub mod text;

pub use status::{Status, StatusCause, StatusDetails};
