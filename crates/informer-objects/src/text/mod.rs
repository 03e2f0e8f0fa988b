//! JSON and YAML as kube-apiserver reads and writes them (Go's error texts, numbers and YAML), and the
//! formats of short texts that other modules need: names, times, durations.
//!
//! Pure: text in, values out, and back. Nothing here knows objects, schemas or HTTP, or recurses deeper than
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

/// The maximum nesting depth of a text.
///
/// Go allows 10,000, but stored objects are read again by parsers with a limit of 128.
pub(crate) const MAX_DEPTH: usize = 120;
