//! Processing of custom objects by the schema of their definition.
//!
//! In order: metadata is decoded ([`meta`]), unknown fields are removed ([`prune`]), defaults are set
//! ([`default`]), and values ([`values`]), embedded resources ([`meta`]) and lists ([`lists`]) are validated.
//! Nothing here knows storage or requests.

mod formats;
mod lists;
mod meta;
pub(super) mod numbers;
mod outcome;
pub(super) mod pair;
mod prune;
mod values;

pub(super) use lists::check as check_lists;
pub(crate) use meta::check_embedded;
pub use meta::{decode, decode_embedded};
pub(crate) use prune::convert;
pub use prune::{default, prune};
pub(crate) use values::check as check_values;
