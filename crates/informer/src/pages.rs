//! The pages for newcomers, as documentation tests: every Rust program on them compiles.
//!
//! Only there (`cfg(doctest)`): the pages lie outside the crate, and a published crate does not have them.

#[doc = include_str!("../../../docs/from-client-go.md")]
mod from_client_go {}

#[doc = include_str!("../../../docs/from-kube-rs.md")]
mod from_kube_rs {}
