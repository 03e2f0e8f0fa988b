//! A listener without a task: events are taken by polling it.

use super::engine::Engine;
use super::listener::{Listener, ListenerOptions};
use super::sync_stage::SyncStage;
use crate::event::{Delivery, Untyped};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A handle that takes events from a listener by polling. It keeps the informer alive; dropping it removes
/// the listener.
pub(crate) struct PolledListener {
    engine: Arc<Engine>,
    listener: Arc<Listener>,
}

impl PolledListener {
    pub(crate) fn new(engine: Arc<Engine>, options: ListenerOptions) -> Self {
        let listener = engine.add_listener(options, None);
        Self { engine, listener }
    }

    /// Polls for the next delivery, after those before have been processed.
    pub(crate) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<Untyped>>> {
        self.listener.poll_next(context)
    }

    /// Polls for a further delivery of the same batch.
    pub(crate) fn poll_further(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<Untyped>>> {
        self.listener.poll_further(context)
    }

    pub(crate) fn has_synced(&self) -> bool {
        self.listener.stage().borrow().has_synced()
    }

    /// Waits until the outbox has received the complete initial list; returns `false` if it never will.
    pub(crate) fn wait_for_initial_list(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut stage = self.listener.stage();
        async move {
            let known = stage.wait_for(|stage| stage.has_initial_list().is_some()).await;
            known.is_ok_and(|stage| stage.has_initial_list() == Some(true))
        }
    }

    /// Waits until every event of the initial list was taken; returns `false` if that will never happen.
    pub(crate) fn wait_for_sync(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut stage = self.listener.stage();
        async move {
            let reached = stage.wait_for(|stage| !matches!(stage, SyncStage::Initial { .. })).await;
            reached.is_ok_and(|stage| stage.has_synced())
        }
    }

    pub(crate) fn backlog(&self) -> (usize, Option<Duration>) {
        self.listener.backlog()
    }

    /// Returns the description of the informer for messages.
    pub(crate) fn description(&self) -> &str {
        &self.engine.description
    }
}

impl Drop for PolledListener {
    fn drop(&mut self) {
        self.engine.remove_listener(&self.listener);
        // No task does this for a polled listener.
        self.listener.end();
    }
}
