//! Rewriting of cached entries in the background: the slices are computed on blocking threads, and the pump
//! installs them between two batches, so that no event waits.

use super::command::Command;
use crate::reflector::stopped;
use informer_core::{Entry, StoreReader};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;

/// Number of store slots that are rewritten before the entries are sent to the pump: a few milliseconds of
/// work.
const SLOTS_PER_SLICE: u32 = 256;

/// Access to the entries of a cache for rewriting.
#[derive(Clone)]
pub(super) struct Rewriter {
    pub(super) reader: StoreReader,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

/// Why a rewrite was not completed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Exit {
    /// The informer or its runtime is shutting down.
    ShutDown,
    Panicked,
}

impl Rewriter {
    /// Replaces each entry for which `rewrite` returns a replacement, a slice at a time. Returns whether there
    /// was one.
    pub(super) async fn rewrite(
        &self,
        rewrite: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>> + Clone + Send + 'static,
    ) -> Result<bool, Exit> {
        let (mut next_slot, mut found) = (Some(0), false);
        while let Some(start) = next_slot {
            let slice = self.rewrite_slice(start, rewrite.clone()).await?;
            next_slot = slice.next_slot;
            found |= slice.found;
        }
        Ok(found)
    }

    /// Replaces the entries of one slice, from slot `start` on.
    pub(super) async fn rewrite_slice(
        &self,
        start: u32,
        rewrite: impl Fn(&Arc<Entry>) -> Option<Arc<Entry>> + Send + 'static,
    ) -> Result<RewrittenSlice, Exit> {
        let reader = self.reader.clone();
        // One snapshot per slice: a snapshot keeps the replaced entries in memory.
        let slice = blocking(move || reader.snapshot().rewrite(start, SLOTS_PER_SLICE, rewrite)).await?;
        let (next_slot, found) = (slice.next_slot(), !slice.is_empty());
        let mut replaced = 0;
        if found {
            let (done, installed) = oneshot::channel();
            let command = Command::InstallRewritten(slice, done);
            self.commands.send(command).map_err(|_| Exit::ShutDown)?;
            replaced = installed.await.map_err(|_| Exit::ShutDown)?;
        }
        Ok(RewrittenSlice { next_slot, found, replaced })
    }
}

/// The result of rewriting one slice.
pub(super) struct RewrittenSlice {
    /// The slot at which to continue; `None` at the end of the cache.
    pub(super) next_slot: Option<u32>,
    /// Whether there was an entry to replace.
    pub(super) found: bool,
    /// The number of entries that were replaced; others had changed meanwhile.
    pub(super) replaced: usize,
}

/// Runs `work` until the informer stops. Returns why the work ended; `None` if the informer has stopped.
pub(super) async fn run_until_stopped(
    stop: &watch::Sender<bool>,
    work: impl Future<Output = Exit>,
) -> Option<Exit> {
    let mut stop = stop.subscribe();
    tokio::select! {
        biased;
        () = stopped(&mut stop) => None,
        exit = work => Some(exit),
    }
}

/// Runs a function on a blocking thread.
pub(super) async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Exit> {
    let result = spawn_blocking(work).await;
    result.map_err(|error| if error.is_panic() { Exit::Panicked } else { Exit::ShutDown })
}
