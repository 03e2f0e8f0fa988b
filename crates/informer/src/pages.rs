//! Pages of the book as documentation tests, so that every Rust program in them compiles.
//!
//! Compiled only with `cfg(doctest)`, because the book is outside the crate and not part of a published one.
//! The page about tests is here too, because it tests a controller of this crate.

#[doc = include_str!("../../../docs/book/src/how-to/custom-resources.md")]
mod custom_resources {}

#[doc = include_str!("../../../docs/book/src/how-to/from-client-go.md")]
mod from_client_go {}

#[doc = include_str!("../../../docs/book/src/how-to/from-kube-rs.md")]
mod from_kube_rs {}

#[doc = include_str!("../../../docs/book/src/how-to/memory.md")]
mod memory {}

#[doc = include_str!("../../../docs/book/src/how-to/namespaces.md")]
mod namespaces {}

#[doc = include_str!("../../../docs/book/src/how-to/probes.md")]
mod probes {}

#[doc = include_str!("../../../docs/book/src/how-to/reads.md")]
mod reads {}

#[doc = include_str!("../../../docs/book/src/how-to/sources.md")]
mod sources {}

#[doc = include_str!("../../../docs/book/src/how-to/testing.md")]
mod testing {}

#[doc = include_str!("../README.md")]
mod readme {}

#[cfg(feature = "persistence")]
#[doc = include_str!("../../../docs/book/src/how-to/warm-start.md")]
mod warm_start {}
