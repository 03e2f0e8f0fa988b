//! One handler's life: its outbox, and whoever empties it.
//!
//! The pump fills the outbox and never waits. A task empties it into the handler, or an event stream takes from it as it is polled: one
//! mechanism, of which [`Listener::poll_next`] is the whole. A handler that panics is caught and goes on with the next event (C9). Once
//! [`Listener::close`] has been called and the listener has ended, nothing is told any more.

use super::outbox::Outbox;
use super::resync::ResyncSchedule;
use crate::clock::Clock;
use crate::coop::YieldBudget;
use crate::event::{Delivery, Untyped};
use crate::status::{Diagnostic, DiagnosticSink};
use futures::task::AtomicWaker;
use informer_core::{Change, Moment, StoreSnapshot};
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub(crate) type Handler = Box<dyn FnMut(Delivery<Untyped>) + Send>;

/// An inline handler that takes longer for one event is named (C8).
const SLOW_CALL_THRESHOLD: Duration = Duration::from_millis(100);

/// So many calls of an inline handler are a turn, as many as a batch of the pump may bring. A count and no time, so that simulations go the same way
/// twice; a handler whose calls take long is named.
const YIELD_BUDGET: u32 = 256;

/// Where a handler runs (C8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// On the runtime's threads.
    #[default]
    Inline,
    /// On a thread that may block.
    Blocking,
}

/// What a listener is made from.
#[derive(Debug, Clone)]
pub(crate) struct ListenerOptions {
    pub(crate) name: Arc<str>,
    /// Zero for none.
    pub(crate) resync_period: Duration,
    pub(crate) mode: Mode,
    /// Every state up to so many pending ones, instead of one transition per key.
    pub(crate) uncoalesced_capacity: Option<usize>,
    /// Of an object that came and went while the handler was behind, the end is told.
    pub(crate) deliver_transient_deletes: bool,
}

/// How far a listener has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncStage {
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

impl SyncStage {
    /// Whether the handler has, or had, returned from every event of the initial set.
    pub(super) fn has_synced(self) -> bool {
        matches!(self, Self::Synced | Self::Ended { synced: true })
    }
}

/// When to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseMode {
    No,
    /// When everything pending has been told.
    Drained,
    /// After the call in progress.
    Now,
}

#[derive(Debug)]
struct ListenerState {
    outbox: Outbox,
    pace: Option<ResyncSchedule>,
    closing: CloseMode,
    /// Whether the task has begun; a listener that was closed before never begins.
    started: bool,
    /// Whether the initial set was told, and that was said.
    synced: bool,
}

/// How often things happened to a handler.
#[derive(Debug, Default)]
pub(super) struct ListenerCounters {
    pub(super) delivered: AtomicU64,
    pub(super) coalesced: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) slow: AtomicU64,
}

pub(super) struct Listener {
    /// Distinguishes it from others of its informer; for metrics.
    pub(super) number: u64,
    pub(super) options: ListenerOptions,
    pub(super) tally: ListenerCounters,
    clock: Clock,
    diagnostics: DiagnosticSink,
    state: Mutex<ListenerState>,
    /// The handler, until its task takes it. It is let go with a listener that is closed before: a handler may hold handles of its own
    /// informer, which would otherwise keep each other alive.
    handler: Mutex<Option<Handler>>,
    /// Whether somebody polls it, instead of a task.
    polled: bool,
    wake: AtomicWaker,
    stage: watch::Sender<SyncStage>,
}

thread_local! {
    /// The listener whose handler is being called on this thread.
    static CALLING: Cell<Option<*const Listener>> = const { Cell::new(None) };
}

impl Listener {
    /// A listener with a handler, or one that somebody will poll.
    pub(super) fn new(
        number: u64,
        options: ListenerOptions,
        handler: Option<Handler>,
        clock: Clock,
        diagnostics: DiagnosticSink,
    ) -> Self {
        let pace = ResyncSchedule::new(options.resync_period);
        let outbox = Outbox::new(options.uncoalesced_capacity, options.deliver_transient_deletes);
        Self {
            number,
            options,
            tally: ListenerCounters::default(),
            clock,
            diagnostics,
            state: Mutex::new(ListenerState {
                outbox,
                pace,
                closing: CloseMode::No,
                started: false,
                synced: false,
            }),
            polled: handler.is_none(),
            handler: Mutex::new(handler),
            wake: AtomicWaker::new(),
            stage: watch::Sender::new(SyncStage::Initial),
        }
    }

    /// Adds changes to what is to be told.
    pub(super) fn enqueue<'a>(&self, changes: impl IntoIterator<Item = &'a Change>, initial: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let (mut told, changes) = (false, changes.into_iter());
        if initial {
            state.outbox.reserve(changes.size_hint().0);
        }
        for change in changes {
            state.outbox.add(change, initial, now);
            told = true;
        }
        drop(state);
        if told {
            self.wake.wake();
        }
    }

    /// Says that the initial set has been told to the outbox.
    pub(super) fn mark_initial_list_complete(&self) {
        let mut state = self.lock();
        state.outbox.mark_initial_list_complete();
        if let Some(pace) = &mut state.pace {
            pace.begin(self.clock.now());
        }
        drop(state);
        self.wake.wake();
    }

    /// When its next resync is due.
    pub(super) fn next_resync(&self) -> Option<Moment> {
        // Most handlers have none, and need not be locked to know it.
        if self.options.resync_period.is_zero() {
            return None;
        }
        self.lock().pace.as_ref().and_then(ResyncSchedule::next)
    }

    /// Adds the part of these objects that its resync is due to repeat by now, and puts the next part off. The outbox must have been given
    /// every change up to this state, so that none of them is older than what it holds (C1).
    pub(super) fn resync(&self, objects: &StoreSnapshot) {
        // As in `next_resync`.
        if self.options.resync_period.is_zero() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        let ListenerState { outbox, pace, .. } = &mut *state;
        let Some(pace) = pace else { return };
        if !pace.is_due(now) {
            return;
        }
        let due = pace.take(objects, now);
        for entry in &due {
            outbox.add_resync(entry, now);
        }
        drop(state);
        if !due.is_empty() {
            self.wake.wake();
        }
    }

    /// Says that the task begins; `false` if the listener was closed before.
    pub(super) fn begin(&self) -> bool {
        let mut state = self.lock();
        state.started = state.closing == CloseMode::No;
        state.started
    }

    /// Ends the listener: at once, dropping what is pending, or when everything pending has been told. Returns whether there is a task
    /// whose end can be waited for.
    pub(super) fn close(&self, drain: bool) -> bool {
        let mut state = self.lock();
        state.closing = match (state.closing, drain) {
            (CloseMode::No | CloseMode::Drained, true) => CloseMode::Drained,
            _ => CloseMode::Now,
        };
        let begun = state.started;
        drop(state);
        self.wake.wake();
        if !begun {
            // There is no task that could say so, and none that will ever take the handler.
            self.discard(self.take_handler());
            self.end();
        }
        begun && !self.polled
    }

    /// Ends it because its pump has gone. What was told can still be polled; a task is not waited for.
    pub(super) fn close_after_pump_exit(&self) {
        self.close(self.polled);
    }

    /// Takes the handler, for its task.
    pub(super) fn take_handler(&self) -> Option<Handler> {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Lets a handler go. What it holds may panic when dropped; that is its own affair (C9).
    fn discard(&self, handler: Option<Handler>) {
        if catch_unwind(AssertUnwindSafe(|| drop(handler))).is_err() {
            self.tally.panics.fetch_add(1, Ordering::Relaxed);
            let handler = Arc::clone(&self.options.name);
            self.diagnostics.report(&Diagnostic::HandlerPanicked { handler });
        }
    }

    /// Whether this is asked from inside the handler's own call, which cannot wait for its own end.
    pub(super) fn is_calling(&self) -> bool {
        CALLING.get() == Some(std::ptr::from_ref(self))
    }

    pub(super) fn stage(&self) -> watch::Receiver<SyncStage> {
        self.stage.subscribe()
    }

    /// How much is pending, and for how long the oldest has been.
    pub(super) fn backlog(&self) -> (usize, Option<Duration>) {
        let mut state = self.lock();
        let oldest = state.outbox.oldest().map(|oldest| self.clock.now() - oldest);
        (state.outbox.len(), oldest)
    }

    /// Tells the handler what the outbox holds, until the listener is closed. The end is told also for a task that never ran.
    pub(super) fn run(self: Arc<Self>, mut handler: Handler) -> impl Future<Output = ()> + Send {
        let ended = Ended(Arc::clone(&self));
        async move {
            let mut turn = YieldBudget::new(YIELD_BUDGET);
            while let Some(told) = poll_fn(|context| self.poll_next(context)).await {
                match self.options.mode {
                    Mode::Inline => {
                        let began = Instant::now();
                        self.call(&mut handler, told);
                        self.record_call_duration(began.elapsed());
                        // Handlers run on the runtime's threads; others want a turn too.
                        turn.consume().await;
                    }
                    Mode::Blocking => match Arc::clone(&self).call_on_thread(handler, told).await {
                        Some(back) => handler = back,
                        None => return,
                    },
                }
            }
            // What the handler holds is let go before the end is told.
            self.discard(Some(handler));
            drop(ended);
        }
    }

    /// The next thing to tell; `None` at the end. For one caller at a time.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<Untyped>>> {
        let mut next = self.next();
        if let Next::Wait = next {
            // Registered, then looked again, so that what came in between is not missed.
            self.wake.register(context.waker());
            next = self.next();
        }
        match next {
            Next::Deliver(told) => Poll::Ready(Some(told)),
            Next::Wait => Poll::Pending,
            Next::End => Poll::Ready(None),
        }
    }

    /// Says that nothing more will be told.
    pub(super) fn end(&self) {
        self.stage.send_modify(|stage| *stage = SyncStage::Ended { synced: stage.has_synced() });
    }

    fn next(&self) -> Next {
        let mut state = self.lock();
        let ListenerState { outbox, closing, synced, .. } = &mut *state;
        if !*synced && outbox.initial_list_delivered() {
            *synced = true;
            self.stage.send_if_modified(|stage| {
                let begins = *stage == SyncStage::Initial;
                if begins {
                    *stage = SyncStage::Synced;
                }
                begins
            });
        }
        let next = match closing {
            CloseMode::Now => Next::End,
            _ => match outbox.pop() {
                Some(told) => Next::Deliver(told),
                None if *closing == CloseMode::Drained && outbox.is_empty() => Next::End,
                None => Next::Wait,
            },
        };
        drop(state);
        match &next {
            Next::Deliver(Delivery::Lagged { skipped }) => {
                self.tally.coalesced.fetch_add(*skipped, Ordering::Relaxed);
            }
            Next::Deliver(_) => drop(self.tally.delivered.fetch_add(1, Ordering::Relaxed)),
            Next::Wait | Next::End => {}
        }
        next
    }

    /// Calls the handler on a thread that may block, until there is nothing to tell. Gives the handler back, unless the runtime is
    /// going down.
    async fn call_on_thread(
        self: Arc<Self>,
        mut handler: Handler,
        told: Delivery<Untyped>,
    ) -> Option<Handler> {
        let calls = move || {
            self.call(&mut handler, told);
            while let Next::Deliver(told) = self.next() {
                self.call(&mut handler, told);
            }
            handler
        };
        tokio::task::spawn_blocking(calls).await.ok()
    }

    fn call(&self, handler: &mut Handler, told: Delivery<Untyped>) {
        let before = CALLING.replace(Some(std::ptr::from_ref(self)));
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(told)));
        CALLING.set(before);
        if outcome.is_err() {
            self.tally.panics.fetch_add(1, Ordering::Relaxed);
            let handler = Arc::clone(&self.options.name);
            self.diagnostics.report(&Diagnostic::HandlerPanicked { handler });
        }
    }

    fn record_call_duration(&self, duration: Duration) {
        if duration >= SLOW_CALL_THRESHOLD {
            let times = self.tally.slow.fetch_add(1, Ordering::Relaxed) + 1;
            // One that is always slow is told of less and less often; all its calls are counted.
            if times.is_power_of_two() {
                let handler = Arc::clone(&self.options.name);
                self.diagnostics.report(&Diagnostic::SlowHandler { handler, duration });
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Next {
    Deliver(Delivery<Untyped>),
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
