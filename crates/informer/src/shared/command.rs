//! The commands of the pump: what handles of an informer, and the task that compresses, ask of it.
//!
//! The pump executes them one at a time, between two batches. Nothing here knows how.

use super::listener::Listener;
use informer_core::BuiltIndex;
use std::sync::Arc;

/// What an informer's handles ask of the pump.
pub(super) enum Command {
    AddListener(Arc<Listener>),
    RemoveListener(Arc<Listener>),
    InstallIndex(Box<BuiltIndex>),
    /// Puts equal entries in, and says when that is done.
    #[cfg(feature = "compression")]
    Rewrite(informer_core::Recompression, tokio::sync::oneshot::Sender<()>),
}
