//! Most integration tests of the crate, in one program: linking a program takes longer than compiling a file.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]
#![allow(clippy::duplicate_mod, reason = "two of them encode protobuf")]

mod compressed;
mod decoded;
mod field_filters;
mod projections;
mod protobuf;
mod recordings;
mod views;
mod wire_splits;
