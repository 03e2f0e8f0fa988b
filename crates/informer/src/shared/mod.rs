//! The engine room of an informer: one watch and one cache, many readers and handlers.
//!
//! Behind every handle is an [`Engine`], in which work one reflector per namespace, one [`pump`], and one task per handler. The reflectors'
//! drivers fill the queue, the pump empties it into the cache and tells the listeners. Nothing here knows a Rust type of objects.

mod command;
#[cfg_attr(not(feature = "compression"), path = "compression_disabled.rs")]
mod compression;
mod engine;
mod listener;
mod options;
mod outbox;
mod polled_listener;
mod pump;
mod registration;
mod resync;
mod wait;

pub(crate) use engine::{DetachTarget, DetachedListener, Engine};
pub(crate) use listener::{ListenerOptions, Mode};
pub use options::InformerOptions;
pub(crate) use options::SelectionKey;
pub(crate) use polled_listener::PolledListener;
pub use registration::Registration;
pub(crate) use wait::{SyncWaiter, is_synced, is_unavailable};
