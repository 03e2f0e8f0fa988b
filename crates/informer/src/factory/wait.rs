//! Waiting for all informers of a factory, and ending them all.

use super::SharedInformerFactory;
use crate::error::{FactoryShutdownError, FactorySyncError, KindState};
use crate::shared::{Engine, Standing, is_synced};
use futures::future::{FutureExt as _, join_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::sync::Arc;
use std::time::Duration;

impl SharedInformerFactory {
    /// Waits until every informer is synced (C7). Fails at once when one is forbidden, not served or stopped, and at the deadline; either
    /// way it says how each kind stands. The informers go on regardless, and one of them never delays another.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), FactorySyncError> {
        // Whoever waits keeps nothing alive.
        let engines: Vec<Standing> = self.registry.engines().iter().map(Engine::standing).collect();
        let waits = engines.iter().map(|engine| engine.wait_for_sync(deadline));
        let waits: FuturesUnordered<_> =
            waits.enumerate().map(|(number, wait)| wait.map(move |end| (number, end))).collect();
        // One that has ended because nobody wants it any more spoils nobody's wait.
        let wanted = |number: usize| !engines[number].is_unwanted();
        let failure = waits.filter_map(|(number, end)| {
            std::future::ready(end.err().filter(|_| wanted(number)).map(|end| (number, end)))
        });
        let Some((number, first)) = std::pin::pin!(failure).next().await else { return Ok(()) };
        let state = |(at, engine): (usize, &Standing)| {
            let status = engine.status();
            let error = if at == number {
                Some(first.clone())
            } else {
                (!is_synced(&status)).then(|| engine.not_synced(status.state, first.after))
            };
            KindState { resource: Arc::clone(&engine.resource), error }
        };
        let living = engines.iter().enumerate().filter(|(at, _)| wanted(*at));
        Err(FactorySyncError { kinds: living.map(state).collect() })
    }

    /// Stops every informer (C10): what they have received is told until the deadline, then the rest is dropped. When this returns without
    /// an error, all tasks have ended and no handler is called any more. What is asked for afterwards is stopped from the beginning.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), FactoryShutdownError> {
        let engines = self.registry.shut_down();
        let outcomes = join_all(engines.iter().map(|engine| engine.shutdown(deadline))).await;
        let late: Vec<_> = outcomes.into_iter().filter_map(Result::err).collect();
        if late.is_empty() { Ok(()) } else { Err(FactoryShutdownError { late }) }
    }
}
