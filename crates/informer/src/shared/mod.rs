//! The shared part of an informer: one watch and one cache for many readers and handlers.
//!
//! Behind every handle is an [`Engine`] with one reflector driver per scope (all namespaces, or one selected
//! namespace), one [`pump`], one task per handler, and one that frees the values of released projections. Some
//! retentions have one more: a task for compression, or for the eviction of decoded objects. A persisted cache has
//! one that saves it. The drivers fill the delta queue; the pump applies the deltas to the store and fills the
//! outboxes of the listeners, except those of durable handlers, which receive changes after they were saved. Nothing
//! here knows the Rust type of objects.

mod command;
#[cfg_attr(not(feature = "compression"), path = "compression_disabled.rs")]
mod compression;
mod drivers;
#[cfg_attr(not(feature = "persistence"), path = "durable_disabled.rs")]
mod durable;
mod engine;
mod eviction;
mod listener;
mod options;
mod outbox;
mod parts;
#[cfg_attr(not(feature = "persistence"), path = "persist_disabled.rs")]
mod persist;
mod polled_listener;
mod projections;
mod pump;
mod registration;
mod resync;
mod rewrite;
#[cfg(feature = "persistence")]
mod saver;
mod sync_stage;
mod wait;

pub(crate) use engine::{DetachTarget, DetachedListener, Engine};
#[cfg(feature = "persistence")]
pub(crate) use listener::ledger::ControllerKeys;
pub(crate) use listener::{DurableName, ListenerOptions, Mode};
pub use options::{InformerOptions, Selection};
pub(crate) use options::{SelectionKey, Shard};
pub(crate) use polled_listener::PolledListener;
pub use registration::Registration;
pub(crate) use wait::{SyncWaiter, is_synced, is_unavailable};
