//! The server-side semantics of Kubernetes objects: decoding, encoding, defaulting, validation, patches,
//! field management and tables.
//!
//! This crate is an implementation detail of the `informer` crates: anything may change in any version, and
//! other crates must not rely on it.
//!
//! Pure functions: the input is objects, patches and the time, the output is objects, texts and errors
//! ([`Status`], or the causes and texts from which the caller builds one). The reference is kube-apiserver
//! 1.36, including the exact texts. Nothing here keeps objects or history, knows users, or reads a clock. Of
//! HTTP, only bodies with their content types, status codes and `Warning` headers occur.
//!
//! A module uses modules of lower layers only: `text`, `status` and `schema`; then `builtin`, `definition`,
//! `field_management` and `patch`; then `protobuf` and `tables`; then `body`.

#![cfg_attr(not(feature = "cel"), allow(dead_code, reason = "some functions are used by CEL rules only"))]

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
