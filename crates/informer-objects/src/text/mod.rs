//! JSON and YAML as kube-apiserver reads and writes them (Go's error texts, numbers and YAML), and the
//! formats of short texts that other modules need: names, times, durations.
//!
//! Pure functions between texts and values. Nothing here knows objects, schemas or HTTP. The readers do not
//! recurse deeper than `MAX_DEPTH`.

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
pub(crate) use go::{compact, convert_to_untyped, depth_of, kind_of, shown};
pub(crate) use json::{Duplicates, fields_in_order, read};
pub(crate) use quantity::Quantity;
pub use yaml_read::{YamlRead, read_yaml};
pub use yaml_write::to_yaml;

/// The maximum nesting depth of a text.
///
/// Go allows 10,000, but the server reads stored objects again with parsers that have a limit of 128.
pub(crate) const MAX_DEPTH: usize = 120;
