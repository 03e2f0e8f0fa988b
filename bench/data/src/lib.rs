//! Shared code of the benchmarks: generated pods, and a minimal HTTP/1.1 server side.
//!
//! Used by the benchmarks of the crates and by the harness, so it has no dependencies and knows nothing about
//! the measured code.

pub mod http;
pub mod pods;
