//! The registration: an RAII guard that keeps a handler registered.

use super::engine::{DetachedListener, Engine};
use super::listener::{HandlerFn, Listener, ListenerOptions};
use super::sync_stage::SyncStage;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A guard that keeps a handler registered and its informer alive; dropping it removes the handler.
///
/// Dropping does not wait for a call in progress; [`remove`](Self::remove) does. [`detach`](Self::detach)
/// consumes the registration and leaves the handler registered.
///
/// A registration that is not used at all is dropped at once, and the compiler warns. Bind it to a variable
/// that lives as long as the handler: `let _registration`, not `let _`, which also drops it at once.
///
/// ```compile_fail
/// #![deny(unused_must_use)]
/// # use informer::SharedInformer;
/// # use k8s_openapi::api::core::v1::Pod;
/// fn print_events(pods: &SharedInformer<Pod>) {
///     pods.on_event(|event| println!("{event:?}")); // an error with this lint: never called
/// }
/// ```
#[must_use = "dropping a registration removes its handler; detach() keeps it"]
pub struct Registration {
    engine: Arc<Engine>,
    /// `None` once removed or detached.
    listener: Option<Arc<Listener>>,
}

impl Registration {
    /// Adds a handler to an informer.
    pub(crate) fn add(engine: Arc<Engine>, options: ListenerOptions, handler: HandlerFn) -> Self {
        let listener = engine.add_listener(options, Some(handler));
        Self { engine, listener: Some(listener) }
    }

    /// Waits until the handler has returned from every event of the initial list.
    ///
    /// Returns `false` if that will never happen, because the informer or the handler has ended before.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for_sync(&self) -> bool {
        let Some(listener) = &self.listener else { return false };
        let mut stage = listener.stage();
        let reached = stage.wait_for(|stage| !matches!(stage, SyncStage::Initial { .. })).await;
        reached.is_ok_and(|stage| stage.has_synced())
    }

    /// Waits until the handler will not be called any more.
    pub(crate) async fn ended(&self) {
        let Some(listener) = &self.listener else { return };
        // A listener that was dropped has ended.
        let _dropped =
            listener.stage().wait_for(|stage| matches!(stage, SyncStage::Ended { .. })).await.is_err();
    }

    /// Returns whether the handler has returned from every event of the initial list.
    pub fn has_synced(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.stage().borrow().has_synced())
    }

    /// Removes the handler and waits for a call in progress.
    ///
    /// When this returns, the handler is not running and is never called again (C6). Called inside the
    /// handler itself, it returns immediately, and the call in progress is the last one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, polled or not, still removes the handler; only the wait is cancelled.
    pub async fn remove(mut self) {
        let Some(listener) = self.listener.take() else { return };
        if self.engine.remove_listener(&listener) && !listener.is_calling() {
            let _ = listener.stage().wait_for(|stage| matches!(stage, SyncStage::Ended { .. })).await;
        }
    }

    /// Leaves the handler registered for as long as its factory exists.
    ///
    /// The factory then keeps the informer alive too. If the informer was created without a factory, the
    /// handler stays registered for as long as the informer exists.
    ///
    /// Beware of reference cycles: a handler that holds a handle of its own informer, for example a lister,
    /// keeps that informer alive. A registration or a factory ends the cycle when it is dropped. A detached
    /// handler of an informer without a factory ends only with
    /// [`SharedInformer::shutdown`](crate::SharedInformer::shutdown), and a detached handler that holds its
    /// own factory only with [`SharedInformerFactory::shutdown`](crate::SharedInformerFactory::shutdown).
    pub fn detach(mut self) {
        let Some(listener) = self.listener.take() else { return };
        if let Some(target) = self.engine.detach_target.get().and_then(std::sync::Weak::upgrade) {
            target.adopt_detached(Arc::clone(&self.engine), DetachedListener(listener));
        }
    }

    /// Returns the number of objects with pending events, or of pending events if the handler is uncoalesced.
    pub fn pending_events(&self) -> usize {
        self.listener.as_ref().map_or(0, |listener| listener.backlog().0)
    }

    /// Returns the age of the oldest pending event; `None` if no event is pending.
    pub fn oldest_pending_age(&self) -> Option<Duration> {
        self.listener.as_ref().and_then(|listener| listener.backlog().1)
    }

    /// Returns how often the handler has panicked.
    pub fn panics(&self) -> u64 {
        self.listener.as_ref().map_or(0, |listener| listener.counters.panics.load(Ordering::Relaxed))
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
