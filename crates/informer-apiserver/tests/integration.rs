//! Most integration tests of the crate, in one program: linking a program takes longer than compiling a file.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod common;

mod access;
mod crd_updates;
mod discovery;
mod documents;
mod faulty;
mod lagging_cache;
mod listen;
mod malformed_requests;
mod service;
mod watches;
