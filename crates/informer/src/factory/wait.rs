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
    /// Waits for the informers that exist when it is called. Those that are not started yet are waited for until
    /// `timeout`, so that the factory may be started meanwhile, for example by a
    /// [`Manager`](crate::manager::Manager). The result does not affect the informers: they retry failures
    /// during and after the wait.
    ///
    /// # Errors
    ///
    /// Returns an error immediately if an informer is forbidden, not served or stopped, and after
    /// `timeout` if one has not synced. The error lists the state of each informer.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        // The wait must not keep informers alive.
        let waiters: Vec<SyncWaiter> = self.registry.engines().iter().map(Engine::sync_waiter).collect();
        let waits = waiters.iter().map(|waiter| waiter.wait_for_sync(timeout));
        let waits: FuturesUnordered<_> =
            waits.enumerate().map(|(index, wait)| wait.map(move |result| (index, result))).collect();
        // An informer that stopped because its last handle was dropped does not fail the wait.
        let is_needed = |index: usize| !waiters[index].is_dropped();
        let failures = waits.filter_map(|(index, result)| {
            std::future::ready(result.err().filter(|_| is_needed(index)).map(|error| (index, error)))
        });
        let Some((failed_index, error)) = std::pin::pin!(failures).next().await else { return Ok(()) };
        // The state of the failed informer is the one that ended the wait; it may have changed since.
        let failed = error.informers.into_iter().next();
        let sync = |(index, waiter): (usize, &SyncWaiter)| match &failed {
            Some(failed) if index == failed_index => failed.clone(),
            _ => waiter.sync_state(),
        };
        let needed = waiters.iter().enumerate().filter(|(index, _)| is_needed(*index));
        Err(SyncError { informers: needed.map(sync).collect(), timeout: error.timeout })
    }

    /// Stops every informer (C10).
    ///
    /// The informers send no more requests. They deliver pending events; those not delivered after `timeout`
    /// are dropped. When this returns without an error, all tasks have ended and no handler is called any
    /// more. An informer that is requested after the shutdown is stopped from the beginning.
    ///
    /// # Errors
    ///
    /// Returns an error that lists the informers that had not stopped after `timeout`.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let engines = self.registry.shutdown();
        ShutdownError::collect(timeout, join_all(engines.iter().map(|engine| engine.shutdown(timeout))).await)
    }
}
