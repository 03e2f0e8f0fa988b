//! The guides as documentation tests, so that every Rust program in them compiles.
//!
//! Compiled only with `cfg(doctest)`, because the guides are outside the crate and not part of a published
//! one. The guide of the embedded server is here too, because it tests a controller of this crate.

#[doc = include_str!("../../../docs/from-client-go.md")]
mod from_client_go {}

#[doc = include_str!("../../../docs/from-kube-rs.md")]
mod from_kube_rs {}

#[doc = include_str!("../../../docs/probes.md")]
mod probes {}

#[doc = include_str!("../../../docs/apiserver.md")]
mod apiserver {}

#[doc = include_str!("../README.md")]
mod readme {}
