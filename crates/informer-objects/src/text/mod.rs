//! JSON and YAML as the real server reads and writes them: Go's words for what is wrong, Go's numbers, Go's YAML. And the
//! forms of short texts that every room needs: names, times, durations.
//!
//! Pure: text in, values out, and back. It knows no objects, no schemas and no HTTP. Nothing here recurses deeper than
//! `MAX_DEPTH`.

pub mod formats;
mod go;
mod json;
mod number;
mod quantity;
mod scalar;
pub mod times;
pub mod versions;
mod yaml_read;
mod yaml_write;

#[cfg(test)]
mod tests;

pub use go::quoted;
pub(crate) use go::{as_untyped, compact, depth_of, kind_of, shown};
pub(crate) use json::{Duplicates, order, read};
pub(crate) use quantity::Quantity;
pub use yaml_read::{YamlRead, read_yaml};
pub use yaml_write::to_yaml;

/// How deep a text may nest. Go allows 10,000; what is stored here is read again by readers that stop at 128.
pub(crate) const MAX_DEPTH: usize = 120;
