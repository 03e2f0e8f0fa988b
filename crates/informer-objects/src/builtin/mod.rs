//! Processing of objects of built-in kinds between parsing a body and storing the object, as in
//! kube-apiserver.
//!
//! In the order of a request: [`read`] decodes the JSON value by its type, [`default`] sets defaults,
//! [`prepare_create`], [`prepare_update`] or [`prepare_status`] sets the fields that the server controls,
//! and [`validate`] returns the errors. All are pure functions of objects and the time: storage, versions,
//! users and HTTP belong to the caller.

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
