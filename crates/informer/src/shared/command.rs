//! Commands that an informer's handles and its background tasks send to the pump, the only task that
//! writes the store.
//!
//! The pump executes them one at a time, between two batches. This file does not know how.

#[cfg(feature = "persistence")]
use super::durable::Cut;
use super::listener::Listener;
#[cfg(feature = "persistence")]
use informer_core::Entry;
use informer_core::{BuiltIndex, Rewrite};
use std::sync::Arc;
use tokio::sync::oneshot;

/// A command for the pump.
pub(super) enum Command {
    AddListener(Arc<Listener>),
    RemoveListener(Arc<Listener>),
    InstallIndex(Box<BuiltIndex>),
    /// Replaces entries by equal, smaller ones, then signals completion.
    InstallRewritten(Rewrite, oneshot::Sender<usize>),
    /// Adds restored entries to the store, then signals completion.
    #[cfg(feature = "persistence")]
    Restore(Vec<Arc<Entry>>, oneshot::Sender<()>),
    /// Removes restored entries from the store.
    #[cfg(feature = "persistence")]
    DiscardRestored,
    /// Returns the snapshot to save, and the changes that led to it.
    #[cfg(feature = "persistence")]
    Cut(oneshot::Sender<Cut>),
}
