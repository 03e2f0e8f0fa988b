//! The listener: the internal side of one handler, with its outbox and the task that calls the handler.
//!
//! The pump fills the outbox and never waits. A task takes events with [`Listener::poll_next`] and calls
//! the handler, or an event stream polls the same function. A panic of a handler is caught, and the handler
//! receives the next event (C9). Once a closed listener has ended, nothing more is delivered.

mod call_start;
#[cfg_attr(not(feature = "persistence"), path = "listener/ledger_disabled.rs")]
pub(super) mod ledger;

use super::outbox::Outbox;
use super::resync::ResyncSchedule;
use super::sync_stage::SyncStage;
use crate::clock::Clock;
use crate::coop::YieldBudget;
use crate::event::{Delivery, Untyped};
use crate::status::{Diagnostic, DiagnosticSink};
use call_start::CallStart;
use futures::task::AtomicWaker;
use informer_core::{Change, Moment, StoreSnapshot};
pub(crate) use ledger::DurableName;
use ledger::Ledger;
use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::watch;

/// A handler with its filter and the type of its objects erased.
pub(crate) type HandlerFn = Box<dyn FnMut(Delivery<Untyped>) + Send>;

/// Duration from which a call of an inline handler is reported as slow (C8).
const SLOW_CALL_THRESHOLD: Duration = Duration::from_millis(100);

/// Duration from which a call in progress is reported as blocked (C8).
pub(super) const BLOCKED_CALL_THRESHOLD: Duration = Duration::from_secs(10);

/// Number of calls of an inline handler after which its task is rescheduled: the size of the pump's largest
/// batch.
///
/// A count, not a duration, so that simulations are reproducible; slow calls are reported.
const YIELD_BUDGET: u32 = 256;

/// Where a handler runs (C8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// On the runtime's threads.
    #[default]
    Inline,
    /// On a thread of tokio's blocking pool.
    Blocking,
}

/// The options of a listener.
#[derive(Debug, Clone)]
pub(crate) struct ListenerOptions {
    pub(crate) name: Arc<str>,
    /// The resync period; zero disables resyncs.
    pub(crate) resync_period: Duration,
    pub(crate) mode: Mode,
    /// Capacity of the uncoalesced outbox, which delivers every state unless it is full; `None` coalesces the
    /// pending changes of each key.
    pub(crate) uncoalesced_capacity: Option<usize>,
    /// Delivers the deletion of an object even if its addition was coalesced away because the handler lagged.
    pub(crate) deliver_transient_deletes: bool,
    /// Set if the acknowledged events are saved.
    pub(crate) durable: Option<DurableName>,
    /// Whether the handler has a filter.
    pub(crate) is_filtered: bool,
}

/// Whether and how a listener is being closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CloseMode {
    No,
    /// Ends after the pending events are delivered.
    Drained,
    /// Ends after the call in progress.
    Now,
}

#[derive(Debug)]
struct ListenerState {
    outbox: Outbox,
    schedule: Option<ResyncSchedule>,
    closing: CloseMode,
    /// Whether the pump has started the listener. A listener that was closed before never starts.
    started: bool,
    /// Whether the initial list is delivered and the stage was updated.
    synced: bool,
    /// Set if the handler is durable.
    ledger: Option<Ledger>,
}

/// Counters of one handler, for metrics.
#[derive(Debug, Default)]
pub(super) struct ListenerCounters {
    pub(super) delivered: AtomicU64,
    /// Changes that a full uncoalesced outbox skipped. A coalescing outbox counts none.
    pub(super) coalesced: AtomicU64,
    pub(super) panics: AtomicU64,
    /// Inline calls that took at least [`SLOW_CALL_THRESHOLD`], without the call in progress.
    slow: AtomicU64,
}

pub(super) struct Listener {
    /// Unique among the listeners of one informer; for metrics.
    pub(super) id: u64,
    pub(super) options: ListenerOptions,
    pub(super) counters: ListenerCounters,
    /// When the call in progress started.
    call_in_progress: CallStart,
    clock: Clock,
    diagnostics: DiagnosticSink,
    state: Mutex<ListenerState>,
    /// The handler, until its task takes it. If the listener is closed before, it drops the handler: a
    /// handler may hold handles of its own informer, and handler and informer would keep each other alive.
    handler: Mutex<Option<HandlerFn>>,
    /// Whether events are taken by polling instead of by a task.
    polled: bool,
    wake: AtomicWaker,
    #[cfg_attr(not(feature = "persistence"), expect(dead_code, reason = "no handler is durable"))]
    is_durable: AtomicBool,
    stage: watch::Sender<SyncStage>,
}

thread_local! {
    /// The listener whose handler is being called on this thread.
    static CALLING: Cell<Option<*const Listener>> = const { Cell::new(None) };
}

impl Listener {
    /// Creates a listener with a handler; without a handler, events are taken by polling.
    pub(super) fn new(
        id: u64,
        options: ListenerOptions,
        handler: Option<HandlerFn>,
        clock: Clock,
        diagnostics: DiagnosticSink,
    ) -> Self {
        let schedule = ResyncSchedule::new(options.resync_period);
        let outbox = Outbox::new(options.uncoalesced_capacity, options.deliver_transient_deletes);
        Self {
            id,
            options,
            counters: ListenerCounters::default(),
            call_in_progress: CallStart::default(),
            clock,
            diagnostics,
            state: Mutex::new(ListenerState {
                outbox,
                schedule,
                closing: CloseMode::No,
                started: false,
                synced: false,
                ledger: None,
            }),
            polled: handler.is_none(),
            handler: Mutex::new(handler),
            wake: AtomicWaker::new(),
            is_durable: AtomicBool::new(false),
            stage: watch::Sender::new(SyncStage::Initial { complete: false }),
        }
    }

    /// Adds changes to the outbox; `initial` if they belong to the initial list.
    pub(super) fn enqueue<'a>(&self, changes: impl IntoIterator<Item = &'a Change>, initial: bool) {
        let now = self.clock.now();
        let mut state = self.lock();
        let (mut added, changes) = (false, changes.into_iter());
        if initial {
            state.outbox.reserve(changes.size_hint().0);
        }
        for change in changes {
            state.outbox.add(change, initial, now);
            added = true;
        }
        drop(state);
        if added {
            self.wake.wake();
        }
    }

    /// Marks the initial list as complete in the outbox, and starts the first resync round.
    pub(super) fn mark_initial_list_complete(&self) {
        let mut state = self.lock();
        state.outbox.mark_initial_list_complete();
        if let Some(schedule) = &mut state.schedule {
            schedule.start(self.clock.now());
        }
        drop(state);
        self.stage.send_if_modified(SyncStage::mark_complete);
        self.wake.wake();
    }

    /// Returns when the next slice of a resync is due.
    pub(super) fn next_resync(&self) -> Option<Moment> {
        // Most handlers have no resync: this avoids the lock.
        if self.options.resync_period.is_zero() {
            return None;
        }
        self.lock().schedule.as_ref().and_then(ResyncSchedule::next)
    }

    /// Adds the objects that are due for a resync to the outbox, and schedules the next slice.
    ///
    /// The outbox must have received every change up to this snapshot; otherwise a resync could deliver an
    /// older state (C1).
    pub(super) fn resync(&self, objects: &StoreSnapshot) {
        // Avoids the lock, as in `next_resync`.
        if self.options.resync_period.is_zero() {
            return;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        let ListenerState { outbox, schedule, .. } = &mut *state;
        let Some(schedule) = schedule else { return };
        if !schedule.begin_slice(now) {
            return;
        }
        let due = schedule.take(objects, now);
        for entry in &due {
            outbox.add_resync(entry, now);
        }
        drop(state);
        if !due.is_empty() {
            self.wake.wake();
        }
    }

    /// Marks the listener as started; returns `false` if it was closed before.
    pub(super) fn mark_started(&self) -> bool {
        let mut state = self.lock();
        state.started = state.closing == CloseMode::No;
        state.started
    }

    /// Ends the listener: with `drain` after the pending events are delivered, otherwise immediately,
    /// dropping them.
    ///
    /// Returns whether there is a task whose end the caller can await.
    pub(super) fn close(&self, drain: bool) -> bool {
        let mut state = self.lock();
        state.closing = match (state.closing, drain) {
            (CloseMode::No | CloseMode::Drained, true) => CloseMode::Drained,
            _ => CloseMode::Now,
        };
        let (started, is_now) = (state.started, state.closing == CloseMode::Now);
        drop(state);
        self.wake.wake();
        if !started {
            // No task exists, or ever will, that takes the handler and reports the end.
            self.discard(self.take_handler());
            self.end();
        } else if self.polled && is_now {
            // Nothing more can be polled.
            self.end();
        } else if self.polled {
            // Its initial list stays incomplete, and no task reports the end.
            self.stage.send_if_modified(SyncStage::end_if_incomplete);
        }
        started && !self.polled
    }

    /// Closes the listener because its pump has ended. Pending events can still be polled; a task does not
    /// deliver them.
    pub(super) fn close_after_pump_exit(&self) {
        self.close(self.polled);
    }

    /// Takes the handler, to run it in a task.
    pub(super) fn take_handler(&self) -> Option<HandlerFn> {
        self.handler.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Drops a handler. A panic in its destructor is caught, counted and reported (C9).
    fn discard(&self, handler: Option<HandlerFn>) {
        if catch_unwind(AssertUnwindSafe(|| drop(handler))).is_err() {
            self.counters.panics.fetch_add(1, Ordering::Relaxed);
            let handler = Arc::clone(&self.options.name);
            self.diagnostics.report(&Diagnostic::HandlerPanicked { handler });
        }
    }

    /// Returns whether the caller runs inside a call of this listener's handler, which cannot wait for its
    /// own end.
    pub(super) fn is_calling(&self) -> bool {
        CALLING.get() == Some(std::ptr::from_ref(self))
    }

    pub(super) fn stage(&self) -> watch::Receiver<SyncStage> {
        self.stage.subscribe()
    }

    /// Returns the length of the outbox (see [`Outbox::len`]), and the age of the oldest pending event.
    pub(super) fn backlog(&self) -> (usize, Option<Duration>) {
        let mut state = self.lock();
        let oldest_age = state.outbox.oldest_added_at().map(|added_at| self.clock.now() - added_at);
        (state.outbox.len(), oldest_age)
    }

    /// Returns when the call in progress started; `None` if there is none.
    pub(super) fn call_started(&self) -> Option<Moment> {
        self.call_in_progress.get()
    }

    /// Returns the duration of the call in progress.
    pub(super) fn running_call(&self) -> Option<Duration> {
        self.call_started().map(|started| self.clock.now() - started)
    }

    /// Returns whether the call in progress has lasted so long that it may never return.
    pub(super) fn is_blocked(&self) -> bool {
        self.running_call().is_some_and(|duration| duration >= BLOCKED_CALL_THRESHOLD)
    }

    /// Returns whether a task still has events to deliver to the handler.
    pub(super) fn has_pending_calls(&self) -> bool {
        !self.polled && !self.lock().outbox.is_empty()
    }

    /// Returns the number of slow inline calls, with the call in progress if it is one.
    pub(super) fn slow_calls(&self) -> u64 {
        let is_slow = |duration| self.options.mode == Mode::Inline && duration >= SLOW_CALL_THRESHOLD;
        self.counters.slow.load(Ordering::Relaxed) + u64::from(self.running_call().is_some_and(is_slow))
    }

    /// Delivers events to the handler until the listener is closed. The end is reported even if the future
    /// is dropped before it was polled.
    pub(super) fn run(self: Arc<Self>, mut handler: HandlerFn) -> impl Future<Output = ()> + Send {
        let end_guard = EndGuard(Arc::clone(&self));
        async move {
            let mut budget = YieldBudget::new(YIELD_BUDGET);
            loop {
                let Some(delivery) = poll_fn(|context| self.poll_next(context)).await else { break };
                match self.options.mode {
                    Mode::Inline => {
                        let duration = self.call(&mut handler, delivery);
                        self.record_call_duration(duration);
                        // Inline handlers share the runtime's threads with other tasks.
                        budget.consume().await;
                    }
                    Mode::Blocking => match Arc::clone(&self).call_on_thread(handler, delivery).await {
                        Some(returned) => handler = returned,
                        None => return,
                    },
                }
            }
            // The handler and everything it owns is dropped before the end is reported.
            self.discard(Some(handler));
            drop(end_guard);
        }
    }

    /// Polls for the next delivery; `None` at the end. Must have one caller at a time.
    ///
    /// Everything before has been processed: the handler has returned, or the stream is polled again.
    pub(super) fn poll_next(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<Untyped>>> {
        self.poll(context, Progress::Processed)
    }

    /// Polls for a further delivery of the same batch; the ones before have not been processed yet.
    pub(super) fn poll_further(&self, context: &mut Context<'_>) -> Poll<Option<Delivery<Untyped>>> {
        self.poll(context, Progress::Unprocessed)
    }

    fn poll(&self, context: &mut Context<'_>, progress: Progress) -> Poll<Option<Delivery<Untyped>>> {
        let mut next = self.next(progress);
        if let Next::Wait = next {
            // Checks again after registering the waker, so that an event added in between is not missed.
            self.wake.register(context.waker());
            next = self.next(progress);
        }
        match next {
            Next::Deliver(delivery) => Poll::Ready(Some(delivery)),
            Next::Wait => Poll::Pending,
            Next::End => Poll::Ready(None),
        }
    }

    /// Marks the listener as ended: nothing more will be delivered.
    pub(super) fn end(&self) {
        self.stage.send_modify(|stage| *stage = SyncStage::Ended { synced: stage.has_synced() });
    }

    fn next(&self, progress: Progress) -> Next {
        let mut state = self.lock();
        let ListenerState { outbox, closing, synced, ledger, .. } = &mut *state;
        let is_processed = progress == Progress::Processed;
        if is_processed && let Some(ledger) = ledger {
            ledger.acknowledge();
        }
        if is_processed && !*synced && outbox.initial_list_delivered() {
            *synced = true;
            self.stage.send_if_modified(SyncStage::mark_synced);
        }
        let next = match closing {
            CloseMode::Now => Next::End,
            _ => match outbox.pop() {
                Some(delivery) => {
                    if let Some(ledger) = ledger {
                        ledger.record(&delivery);
                    }
                    Next::Deliver(delivery)
                }
                None if *closing == CloseMode::Drained && outbox.is_empty() => Next::End,
                None => Next::Wait,
            },
        };
        drop(state);
        if self.polled && is_processed && matches!(next, Next::End) {
            self.end();
        }
        match &next {
            Next::Deliver(Delivery::Lagged { skipped }) => {
                self.counters.coalesced.fetch_add(*skipped, Ordering::Relaxed);
            }
            Next::Deliver(_) => drop(self.counters.delivered.fetch_add(1, Ordering::Relaxed)),
            Next::Wait | Next::End => {}
        }
        next
    }

    /// Calls the handler on a blocking thread until no event is pending. Returns the handler, or `None` if
    /// the runtime is shutting down.
    async fn call_on_thread(
        self: Arc<Self>,
        mut handler: HandlerFn,
        delivery: Delivery<Untyped>,
    ) -> Option<HandlerFn> {
        let calls = move || {
            let mut delivery = delivery;
            loop {
                self.call(&mut handler, delivery);
                let Next::Deliver(next) = self.next(Progress::Processed) else { return handler };
                delivery = next;
            }
        };
        tokio::task::spawn_blocking(calls).await.ok()
    }

    /// Calls the handler and returns the duration of the call.
    fn call(&self, handler: &mut HandlerFn, delivery: Delivery<Untyped>) -> Duration {
        let previous = CALLING.replace(Some(std::ptr::from_ref(self)));
        let started = self.clock.now();
        self.call_in_progress.set(Some(started));
        let outcome = catch_unwind(AssertUnwindSafe(|| handler(delivery)));
        self.call_in_progress.set(None);
        CALLING.set(previous);
        if outcome.is_err() {
            self.counters.panics.fetch_add(1, Ordering::Relaxed);
            let handler = Arc::clone(&self.options.name);
            self.diagnostics.report(&Diagnostic::HandlerPanicked { handler });
        }
        self.clock.now() - started
    }

    fn record_call_duration(&self, duration: Duration) {
        if duration >= SLOW_CALL_THRESHOLD {
            let times = self.counters.slow.fetch_add(1, Ordering::Relaxed) + 1;
            // Reports at powers of two only, so that a handler that is always slow does not flood the log.
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

/// Whether the handler has processed what it received before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// It has; a durable handler has acknowledged it.
    Processed,
    /// It collects a batch.
    Unprocessed,
}

enum Next {
    Deliver(Delivery<Untyped>),
    Wait,
    End,
}

/// Marks the listener as ended when dropped, however its task ends.
struct EndGuard(Arc<Listener>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end();
    }
}
