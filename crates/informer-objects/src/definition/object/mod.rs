//! Objects of custom kinds: what a definition's schema makes of them.
//!
//! In order: decode the metadata ([`meta`]), drop what is unknown ([`prune`]), fill in defaults ([`default`]), and say what is
//! wrong with its parts. Nothing here knows storage or requests.

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
