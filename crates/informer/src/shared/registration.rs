//! The handle of a handler: as long as it lives, the handler is called.

use super::engine::{DetachedListener, Engine};
use super::listener::{Handler as ListenerHandler, Listener, ListenerOptions, SyncStage};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Keeps a handler registered, and its informer alive. Dropping it removes the handler.
///
/// [`Registration::detach`] gives it up without removing the handler.
#[must_use = "dropping a registration removes its handler; detach() keeps it"]
pub struct Registration {
    engine: Arc<Engine>,
    /// `None` once removed or detached.
    listener: Option<Arc<Listener>>,
}

impl Registration {
    /// Adds a handler to an informer.
    pub(crate) fn add(engine: Arc<Engine>, options: ListenerOptions, handler: ListenerHandler) -> Self {
        let listener = engine.add_listener(options, Some(handler));
        Self { engine, listener: Some(listener) }
    }

    /// Waits until the handler has returned from every event of the initial set; `false` if that will never be.
    pub async fn wait_for_sync(&self) -> bool {
        let Some(listener) = &self.listener else { return false };
        let mut stage = listener.stage();
        let reached = stage.wait_for(|stage| *stage != SyncStage::Initial).await;
        reached.is_ok_and(|stage| stage.has_synced())
    }

    /// Returns when the handler will not be called any more.
    pub(crate) async fn ended(&self) {
        let Some(listener) = &self.listener else { return };
        // A listener that is gone has ended.
        let _gone =
            listener.stage().wait_for(|stage| matches!(stage, SyncStage::Ended { .. })).await.is_err();
    }

    /// Whether the handler has returned from every event of the initial set.
    pub fn has_synced(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.stage().borrow().has_synced())
    }

    /// Removes the handler. When this returns, the handler is not running and is never called again.
    ///
    /// From inside the handler's own call it returns at once: the call in progress is then the last one.
    pub async fn remove(mut self) {
        let Some(listener) = self.listener.take() else { return };
        if self.engine.remove_listener(&listener) && !listener.is_calling() {
            let _ = listener.stage().wait_for(|stage| matches!(stage, SyncStage::Ended { .. })).await;
        }
    }

    /// Leaves the handler registered: for as long as the factory lives that its informer came from, which keeps the informer alive too.
    /// Without a factory, for as long as the informer lives.
    ///
    /// Beware of circles: a handler that holds a handle of its own informer (a lister, say) keeps it alive. With a registration, or a
    /// factory to detach to, that ends with those; detached from an informer that stands alone it ends only with
    /// [`SharedInformer::shutdown`](crate::SharedInformer::shutdown). A detached handler that holds its own factory ends only with the factory's.
    pub fn detach(mut self) {
        let Some(listener) = self.listener.take() else { return };
        if let Some(keeper) = self.engine.keeper.get().and_then(std::sync::Weak::upgrade) {
            keeper.adopt_detached(Arc::clone(&self.engine), DetachedListener(listener));
        }
    }

    /// How many objects the handler has still to be told about; of a handler that wants every state, how many states.
    pub fn pending_events(&self) -> usize {
        self.listener.as_ref().map_or(0, |listener| listener.backlog().0)
    }

    /// For how long the oldest of them has been waiting; `None` if there is none.
    pub fn oldest_pending_age(&self) -> Option<Duration> {
        self.listener.as_ref().and_then(|listener| listener.backlog().1)
    }

    /// How often the handler panicked.
    pub fn panics(&self) -> u64 {
        self.listener.as_ref().map_or(0, |listener| listener.tally.panics.load(Ordering::Relaxed))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            self.engine.remove_listener(&listener);
        }
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.listener.as_ref().map_or("detached", |listener| &*listener.options.name);
        write!(f, "registration of {name}")
    }
}
