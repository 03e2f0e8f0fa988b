//! The engine room of an informer: one watch and one cache, many readers and handlers.
//!
//! Behind every handle is an [`Engine`], in which work one reflector per namespace, one [`pump`], and one task per handler. The reflectors'
//! drivers fill the queue, the pump empties it into the cache and tells the listeners. Nothing here knows a Rust type of objects.

mod command;
mod engine;
mod listener;
mod options;
mod outbox;
#[cfg_attr(not(feature = "compressed"), path = "packing_off.rs")]
mod packing;
mod pull;
mod pump;
mod registration;
mod resync;
mod wait;

pub(crate) use engine::{DetachedListener, Engine, Keeper};
pub(crate) use listener::{ListenerOptions, Mode};
pub use options::Options;
pub(crate) use options::Selection;
pub(crate) use pull::Pull;
pub use registration::Registration;
pub(crate) use wait::{Standing, is_synced, is_useless};
