//! The handle of a handler: as long as it lives, the handler is called.

use super::listener::{Listener, Stage};
use super::pump::Command;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Keeps a handler registered. Dropping it removes the handler; [`Registration::detach`] leaves it for the informer's life.
#[must_use = "dropping a registration removes its handler; detach() keeps it"]
pub struct Registration {
    /// `None` once detached.
    listener: Option<Arc<Listener>>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Registration {
    pub(super) fn new(listener: Arc<Listener>, commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { listener: Some(listener), commands }
    }

    /// Waits until the handler has returned from every event of the initial set; `false` if that will never be.
    pub async fn synced(&self) -> bool {
        let Some(listener) = &self.listener else { return false };
        let mut stage = listener.stage();
        let reached = stage.wait_for(|stage| *stage != Stage::Initial).await;
        reached.is_ok_and(|stage| matches!(*stage, Stage::Synced | Stage::Ended { synced: true }))
    }

    /// Removes the handler. When this returns, the handler is not running and is never called again.
    pub async fn remove(mut self) {
        let Some(listener) = self.listener.take() else { return };
        if self.end(&listener) {
            let _ = listener.stage().wait_for(|stage| matches!(stage, Stage::Ended { .. })).await;
        }
    }

    /// Leaves the handler registered for as long as the informer lives.
    pub fn detach(mut self) {
        self.listener = None;
    }

    /// How many objects the handler has still to be told about.
    pub fn pending(&self) -> usize {
        self.listener.as_ref().map_or(0, |listener| listener.pending())
    }

    /// How often the handler panicked.
    pub fn panics(&self) -> u64 {
        self.listener.as_ref().map_or(0, |listener| listener.panics())
    }

    /// Returns whether there is a task whose end can be waited for.
    fn end(&self, listener: &Arc<Listener>) -> bool {
        // A pump that has ended has no listeners any more.
        let _ = self.commands.send(Command::RemoveListener(Arc::clone(listener)));
        listener.close(false)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.end(&listener);
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.listener.as_ref().map_or("detached", |listener| &*listener.name);
        write!(f, "registration of {name}")
    }
}
