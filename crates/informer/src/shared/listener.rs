//! One handler's life: its outbox, and the task that calls it.
//!
//! The pump fills the outbox and never waits; the task empties it into the handler. A handler that panics is caught and goes on
//! with the next event (C9). Once [`Listener::close`] has been called and the task has ended, the handler is never called again.

use super::outbox::Outbox;
use crate::event::Told;
use informer_core::{Change, ListenerId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, watch};

pub(super) type Handler = Box<dyn FnMut(Told) + Send>;

/// How far a listener has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// The initial set is still being told.
    Initial,
    /// The handler has returned from every event of the initial set.
    Synced,
    /// The task has ended, or will never begin.
    Ended {
        /// Whether the handler had been synced.
        synced: bool,
    },
}

/// When to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    No,
    /// When everything pending has been told.
    Drained,
    /// After the call in progress.
    Now,
}

#[derive(Debug)]
struct ListenerState {
    outbox: Outbox,
    closing: Closing,
    /// Whether the task has begun; a listener that was closed before never begins.
    begun: bool,
}

pub(super) struct Listener {
    pub(super) id: ListenerId,
    /// What the handler is called in messages.
    pub(super) name: Arc<str>,
    state: Mutex<ListenerState>,
    wake: Notify,
    stage: watch::Sender<Stage>,
    panics: AtomicU64,
}

impl Listener {
    pub(super) fn new(id: ListenerId, name: Arc<str>) -> Self {
        Self {
            id,
            name,
            state: Mutex::new(ListenerState {
                outbox: Outbox::default(),
                closing: Closing::No,
                begun: false,
            }),
            wake: Notify::new(),
            stage: watch::Sender::new(Stage::Initial),
            panics: AtomicU64::new(0),
        }
    }

    /// Adds changes to what is to be told.
    pub(super) fn tell<'a>(&self, changes: impl IntoIterator<Item = &'a Change>, initial: bool) {
        let mut state = self.lock();
        for change in changes {
            match change {
                Change::Resync { due, .. } if !due.contains(&self.id) => {}
                change => state.outbox.add(change, initial),
            }
        }
        drop(state);
        self.wake.notify_one();
    }

    /// Says that the initial set has been told to the outbox.
    pub(super) fn end_initial(&self) {
        self.lock().outbox.end_initial();
        self.wake.notify_one();
    }

    /// Says that the task begins; `false` if the listener was closed before.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.lock();
        state.begun = state.closing == Closing::No;
        state.begun
    }

    /// Ends the listener: at once, dropping what is pending, or when everything pending has been told. Returns whether there is a task
    /// whose end can be waited for.
    pub(super) fn close(&self, drain: bool) -> bool {
        let mut state = self.lock();
        state.closing = match (state.closing, drain) {
            (Closing::No | Closing::Drained, true) => Closing::Drained,
            _ => Closing::Now,
        };
        self.wake.notify_one();
        if !state.begun {
            // There is no task that could say so.
            self.end();
        }
        state.begun
    }

    pub(super) fn stage(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    pub(super) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    pub(super) fn pending(&self) -> usize {
        self.lock().outbox.len()
    }

    /// Tells the handler what the outbox holds, until the listener is closed. The end is told also for a task that never ran.
    pub(super) fn run(self: Arc<Self>, mut handler: Handler) -> impl Future<Output = ()> + Send {
        let ended = Ended(Arc::clone(&self));
        async move {
            loop {
                match self.next() {
                    Next::Tell(told) => {
                        self.call(&mut handler, told);
                        // Handlers run on the runtime's threads; others want a turn too.
                        tokio::task::consume_budget().await;
                    }
                    Next::Wait => self.wake.notified().await,
                    Next::End => break,
                }
            }
            // What the handler holds is let go before the end is told.
            drop(handler);
            drop(ended);
        }
    }

    fn next(&self) -> Next {
        let mut state = self.lock();
        let ListenerState { outbox, closing, .. } = &mut *state;
        if outbox.initial_is_told() && *self.stage.borrow() == Stage::Initial {
            self.stage.send_replace(Stage::Synced);
        }
        match closing {
            Closing::Now => Next::End,
            _ => match outbox.pop() {
                Some(told) => Next::Tell(told),
                None if *closing == Closing::Drained && outbox.is_empty() => Next::End,
                None => Next::Wait,
            },
        }
    }

    fn end(&self) {
        self.stage.send_modify(|stage| {
            let synced = matches!(stage, Stage::Synced | Stage::Ended { synced: true });
            *stage = Stage::Ended { synced };
        });
    }

    fn call(&self, handler: &mut Handler, told: Told) {
        if catch_unwind(AssertUnwindSafe(|| handler(told))).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!(handler = &*self.name, "handler panicked; it goes on with the next event");
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Tell(Told),
    Wait,
    End,
}

/// Says that the task has ended, however it did.
struct Ended(Arc<Listener>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}
