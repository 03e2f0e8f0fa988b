//! What the benchmarks have in common: pods from a seed, and as much of HTTP/1.1 as their servers need.
//!
//! Used by the benchmarks of the crates and by the harness, so it has no dependencies and knows nothing of what is measured.

pub mod http;
pub mod pods;
