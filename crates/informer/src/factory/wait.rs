//! Waiting for all informers of a factory, and ending them all.

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
    /// Returns an error immediately if an informer is forbidden, not served or stopped, and after `timeout`. The error lists the
    /// state of each informer.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        // A wait keeps no informer running.
        let engines: Vec<SyncWaiter> = self.registry.engines().iter().map(Engine::sync_waiter).collect();
        let waits = engines.iter().map(|engine| engine.wait_for_sync(timeout));
        let waits: FuturesUnordered<_> =
            waits.enumerate().map(|(number, wait)| wait.map(move |end| (number, end))).collect();
        // An informer that stopped because its last handle was dropped does not fail the wait.
        let wanted = |number: usize| !engines[number].is_dropped();
        let failure = waits.filter_map(|(number, end)| {
            std::future::ready(end.err().filter(|_| wanted(number)).map(|end| (number, end)))
        });
        let Some((number, error)) = std::pin::pin!(failure).next().await else { return Ok(()) };
        let failed = error.informers.into_iter().next();
        let sync = |(at, engine): (usize, &SyncWaiter)| match &failed {
            Some(failed) if at == number => failed.clone(),
            _ => engine.sync(),
        };
        let living = engines.iter().enumerate().filter(|(at, _)| wanted(*at));
        Err(SyncError { informers: living.map(sync).collect(), timeout: error.timeout })
    }

    /// Stops every informer (C10).
    ///
    /// What the informers have received is delivered until `timeout`, then the rest is dropped. When this returns without an error, all
    /// tasks have ended and no handler is called any more. An informer that is requested afterwards is stopped from the beginning.
    ///
    /// # Errors
    ///
    /// Lists the informers that had not stopped after `timeout`.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        let engines = self.registry.shutdown();
        ShutdownError::collect(timeout, join_all(engines.iter().map(|engine| engine.shutdown(timeout))).await)
    }
}
