//! What a kube-apiserver does to an object of a built-in kind between reading the body and storing it.
//!
//! In the order of a request: `decode` reads it into its type, [`default`] fills in what was left out, [`prepare_create`] and
//! [`prepare_update`] set what is not the client's to say, and [`validate`] says what is wrong. All pure functions of objects: storage,
//! versions, other objects, users and HTTP are the caller's.

mod decode;
mod defaults;
mod strategy;
pub mod validate;
mod value;

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(crate) use decode::decode;
pub use decode::read;
pub use defaults::{default, type_of};
pub use strategy::{
    Wanted, prepare_create, prepare_status, prepare_update, refuse_priority, refuse_runtime_class,
    set_priority, set_requester, set_runtime_class,
};
