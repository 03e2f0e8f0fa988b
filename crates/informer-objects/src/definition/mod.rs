//! Custom resource definitions: their validation, and the decoding, defaulting, validation and display of
//! their objects.
//!
//! A *definition* is a `CustomResourceDefinition`, a *custom object* is an object of the kind it defines. A
//! *cause* ([`StatusCause`](crate::StatusCause)) describes one invalid field.
//!
//! Pure: the input is a definition and objects, the output is causes and changed objects. The reference is
//! apiextensions of Kubernetes 1.36, including the exact texts. The caller knows which definitions exist,
//! what is stored and what is served.

mod check;
mod columns;
mod field;
mod jsonpath;
mod names;
mod object;
mod paths;
#[cfg_attr(not(feature = "cel"), path = "rules_disabled.rs")]
mod rules;
mod scale;
mod source_schema;
mod validate;
mod version;

#[cfg(test)]
mod tests;

pub use check::{check, check_update};
pub(crate) use columns::cells;
#[cfg(test)]
pub(crate) use columns::columns;
pub use names::{
    Taken, accept_names, complete, establish, is_true, new_status, note_storage_version, set_condition,
};
pub use object::numbers::normalize;
pub use object::{decode, decode_embedded, default, prune};
pub use scale::{scale, scale_to_change, write_scale};
pub use validate::{Subject, validate};
pub use version::{Storage, Version};
