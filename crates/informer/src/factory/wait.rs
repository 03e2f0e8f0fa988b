//! Waiting for, and shutting down, all informers of a factory.

use super::SharedInformerFactory;
use crate::error::{ShutdownError, SyncError};
use crate::shared::{Engine, SyncWaiter};
use futures::future::{FutureExt as _, join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::time::Duration;

impl SharedInformerFactory {
    /// Waits until every informer has synced (C7).
    ///
    /// The informers continue whatever the result, and none of them delays another.
    ///
    /// # Errors
    ///
    /// Returns an error immediately if an informer is forbidden, not served or stopped, and after
    /// `timeout`. The error lists the state of each informer.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        // The wait must not keep informers alive.
        let engines: Vec<SyncWaiter> = self.registry.engines().iter().map(Engine::sync_waiter).collect();
        let waits = engines.iter().map(|engine| engine.wait_for_sync(timeout));
        let waits: FuturesUnordered<_> =
            waits.enumerate().map(|(index, wait)| wait.map(move |end| (index, end))).collect();
        // An informer that stopped because its last handle was dropped does not fail the wait.
        let is_needed = |index: usize| !engines[index].is_dropped();
        let failure = waits.filter_map(|(index, end)| {
            std::future::ready(end.err().filter(|_| is_needed(index)).map(|end| (index, end)))
        });
        let Some((index, error)) = std::pin::pin!(failure).next().await else { return Ok(()) };
        let failed = error.informers.into_iter().next();
        let sync = |(at, engine): (usize, &SyncWaiter)| match &failed {
            Some(failed) if at == index => failed.clone(),
            _ => engine.sync_state(),
        };
        let existing = engines.iter().enumerate().filter(|(at, _)| is_needed(*at));
        Err(SyncError { informers: existing.map(sync).collect(), timeout: error.timeout })
    }

    /// Stops every informer (C10).
    ///
    /// Sends no more requests, and delivers the events that are pending until `timeout`; the rest is
    /// dropped. When this returns without an error, all tasks have ended and no handler is called any more.
    /// An informer that is requested afterwards is stopped from the beginning.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the informers that had not stopped after `timeout`.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let engines = self.registry.shutdown();
        ShutdownError::collect(timeout, join_all(engines.iter().map(|engine| engine.shutdown(timeout))).await)
    }
}
