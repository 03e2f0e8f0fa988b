//! Commands that an informer's handles and its background tasks send to the pump, the only task that
//! writes the store.
//!
//! The pump executes them one at a time, between two batches. This file does not know how.

use super::listener::Listener;
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
}
