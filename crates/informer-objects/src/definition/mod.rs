//! Custom resource definitions: whether they may be stored, what they make of their objects, and what is shown of them.
//!
//! Pure: a definition and objects in, causes and changed objects out. The measure is apiextensions of Kubernetes 1.36, to the word.
//! Which definitions there are, what is stored and what is served is the model's business.

mod check;
mod columns;
mod field;
mod jsonpath;
mod names;
mod object;
mod paths;
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
pub use scale::{scale, scale_to_change, with_scale};
pub use validate::{Subject, validate};
pub use version::{Storage, Version};
