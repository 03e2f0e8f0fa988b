//! The integration tests of the crate, in one program. All of them run in virtual time.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod common;

mod garbage;
mod jobs;
mod pods;
mod random;
mod settings;
mod workloads;
