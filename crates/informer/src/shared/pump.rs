//! The pump: the only task that writes the store, and that fills the outboxes, except those of durable handlers.
//!
//! It applies a batch, the store publishes it, then the changes are added to the outbox of every listener
//! (C4), or recorded for the next save if it is durable. Listeners and indexes are added between two batches, so that a listener receives one snapshot as
//! its initial list and then every later change (C6). Resyncs happen between two batches as well: every
//! outbox has then received each change up to the published snapshot, so a resync overtakes no change (C1,
//! C12).

use super::command::Command;
use super::compression::CacheCompression;
use super::durable::DurableHandlers;
use super::listener::{BLOCKED_CALL_THRESHOLD, Listener};
use super::persist::PumpPersistence;
use crate::clock::{Clock, sleep_until};
use crate::coop::YieldBudget;
use crate::delta_queue::DeltaQueue;
use crate::status::{Diagnostic, DiagnosticSink, StatusCell};
use informer_core::{Change, Moment, Scope, StoreReader, StoreWriter};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// Upper bound on the deltas that are applied and published together.
const MAX_BATCH_DELTAS: usize = 256;
/// Number of batches, commands and resyncs after which the pump yields to other tasks.
const YIELD_BUDGET: u32 = 32;
/// Period at which an idle pump checks whether the memory of retired snapshots (replaced ones that readers
/// may still use) can be freed.
const RELEASE_PERIOD: Duration = Duration::from_secs(1);
/// Period at which the pump checks for handlers whose call does not return, while events are delivered.
const CALL_CHECK_PERIOD: Duration = Duration::from_secs(5);
/// Time for which a shutdown waits until the streams of durable handlers have acknowledged their last events. A task
/// that waits for the shutdown does not poll its stream meanwhile.
#[cfg(feature = "persistence")]
const STREAM_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Pump {
    pub(super) writer: StoreWriter,
    pub(super) reader: StoreReader,
    pub(super) scopes: Vec<Scope>,
    pub(super) queue: Arc<DeltaQueue>,
    pub(super) status: Arc<StatusCell>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) stop: watch::Sender<bool>,
    pub(super) clock: Clock,
    pub(super) diagnostics: DiagnosticSink,
    /// Set if the retention is compressed.
    pub(super) compression: Option<CacheCompression>,
    /// Set if the cache is persisted.
    pub(super) persistence: Option<PumpPersistence>,
}

/// However the pump ends, it stops the informer: the drivers end, and the state becomes `Stopped` (C9).
impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.queue.close();
        self.commands.close();
        let drain = false;
        loop {
            match self.commands.try_recv() {
                Ok(Command::AddListener(listener)) => drop(listener.close(drain)),
                Ok(_) => {}
                // In a closed channel, this means that a sender is in the middle of sending.
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => break,
            }
        }
    }
}

/// The listeners that receive changes, and their tasks.
#[derive(Default)]
struct Listeners {
    active: Vec<Arc<Listener>>,
    tasks: JoinSet<()>,
    synced: bool,
    /// The next check for blocked handlers; `None` while no event is being delivered.
    call_check_at: Option<Moment>,
    /// The blocked calls that were reported: the listener and the start of the call.
    blocked: Vec<(u64, Moment)>,
}

/// However the pump ends, the listeners are closed, so that nothing waits for further events. Streams can
/// still take pending events.
impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &self.active {
            listener.close_after_pump_exit();
        }
    }
}

impl Listeners {
    /// Returns when the next resync of any listener is due.
    fn next_resync(&self) -> Option<Moment> {
        self.active.iter().filter_map(|listener| listener.next_resync()).min()
    }

    /// Schedules a check for blocked handlers unless one is scheduled.
    fn schedule_call_check(&mut self, now: Moment) {
        self.call_check_at.get_or_insert(now + CALL_CHECK_PERIOD);
    }
}

impl Pump {
    /// Runs until the queue is closed and empty, then waits until the listeners have delivered their
    /// pending events. Closing the listeners ends this wait early.
    pub(super) async fn run(mut self) {
        let mut listeners = Listeners::default();
        let (mut commands_open, mut budget) = (true, YieldBudget::new(YIELD_BUDGET));
        // Whether readers still hold retired snapshots. Their memory is then freed later, when the pump is
        // idle.
        let mut has_retired = false;
        loop {
            let resync_at = self.next_resync(&listeners).map(|at| self.clock.instant(at));
            let call_check_at = listeners.call_check_at.map(|at| self.clock.instant(at));
            tokio::select! {
                biased;
                command = self.commands.recv(), if commands_open => match command {
                    Some(command) => {
                        self.handle_command(command, &mut listeners);
                        has_retired = self.writer.release();
                    }
                    None => commands_open = false,
                },
                () = sleep_until(resync_at) => self.resync(&mut listeners),
                () = sleep_until(call_check_at) => self.check_calls(&mut listeners),
                batch = self.queue.pop(MAX_BATCH_DELTAS) => match batch {
                    Some((scope_index, batch)) => {
                        self.apply(scope_index, batch, &mut listeners);
                        has_retired = self.writer.release();
                    }
                    None => break,
                },
                () = tokio::time::sleep(RELEASE_PERIOD), if has_retired => {
                    has_retired = self.writer.release();
                }
            }
            budget.consume().await;
        }
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.handle_command(command, &mut listeners);
        }
        #[cfg(feature = "persistence")]
        let drained = match &mut self.persistence {
            Some(persistence) => {
                let cut = persistence.durable.cut(self.reader.snapshot());
                persistence.deliver_last_events(cut).await
            }
            None => None,
        };
        let drain = true;
        for listener in &listeners.active {
            listener.close(drain);
        }
        while listeners.tasks.join_next().await.is_some() {}
        #[cfg(feature = "persistence")]
        if let Some(drained) = drained {
            // They take their events themselves, if they still do.
            let streams = listeners.active.iter().filter(|listener| listener.is_durable());
            let ended = futures::future::join_all(streams.map(|listener| listener.ended()));
            let _is_late = tokio::time::timeout(STREAM_TIMEOUT, ended).await.is_err();
            let _ended = drained.send(()).is_err();
        }
    }

    /// Returns when the next resync is due; `None` during a shutdown, because a resync would delay pending
    /// events (C10).
    fn next_resync(&self, listeners: &Listeners) -> Option<Moment> {
        listeners.next_resync().filter(|_| !self.queue.is_closed())
    }

    fn apply(&mut self, scope_index: usize, batch: informer_core::Batch, listeners: &mut Listeners) {
        let (initial, end) = (batch.initial, batch.end());
        let Some(scope) = self.scopes.get(scope_index) else { return };
        let applied = self.writer.apply(scope, batch.deltas);
        let (snapshot, now) = (self.reader.snapshot(), self.clock.now());
        self.status.record_batch(&applied, &snapshot, now);
        if applied.index_panics > 0 {
            self.diagnostics.report(&Diagnostic::IndexPanicked { calls: applied.index_panics });
        }
        if applied.drift > 0 {
            self.diagnostics.report(&Diagnostic::CacheDrift { changes: applied.drift });
        }
        let mut has_durable = false;
        for listener in &listeners.active {
            if listener.is_durable() {
                has_durable = true;
            } else {
                listener.enqueue(&applied.changes, initial);
            }
        }
        listeners.schedule_call_check(now);
        if let Some(compression) = &self.compression {
            compression.observe_batch(&applied.changes, &snapshot);
        }
        if let Some(durable) = self.durable().filter(|_| has_durable) {
            durable.record(applied.changes);
        }
        if self.queue.applied(scope_index, end) && !listeners.synced {
            listeners.synced = true;
            // The informer first: a handler must not be synced before its informer.
            self.status.set_synced(now);
            for listener in listeners.active.iter().filter(|listener| !listener.is_durable()) {
                listener.mark_initial_list_complete();
            }
            if let Some(durable) = self.durable() {
                durable.set_synced();
            }
        }
        // Frees the finished tasks of removed listeners.
        while listeners.tasks.try_join_next().is_some() {}
    }

    /// Adds the due objects to the outbox of each listener whose resync is due.
    fn resync(&self, listeners: &mut Listeners) {
        let snapshot = self.reader.snapshot();
        for listener in &listeners.active {
            match self.durable().filter(|_| listener.is_durable()) {
                Some(durable) => durable.resync(listener),
                None => listener.resync(&snapshot),
            }
        }
        listeners.schedule_call_check(self.clock.now());
    }

    /// Reports the handlers whose call has not returned for a long time, each call once (C8).
    fn check_calls(&self, listeners: &mut Listeners) {
        let now = self.clock.now();
        let calling = listeners.active.iter().filter_map(|one| Some((one, one.call_started()?)));
        let (mut is_delivering, mut blocked, mut names) = (false, Vec::new(), Vec::new());
        for (listener, started) in calling {
            is_delivering = true;
            let duration = now - started;
            if duration < BLOCKED_CALL_THRESHOLD {
                continue;
            }
            let (call, handler) = ((listener.id, started), Arc::clone(&listener.options.name));
            names.push(Arc::clone(&handler));
            if !listeners.blocked.contains(&call) {
                self.diagnostics.report(&Diagnostic::HandlerBlocked { handler, duration });
            }
            blocked.push(call);
        }
        listeners.blocked = blocked;
        self.status.set_blocked_handlers(names);
        is_delivering |= listeners.active.iter().any(|listener| listener.has_pending_calls());
        listeners.call_check_at = is_delivering.then(|| now + CALL_CHECK_PERIOD);
    }

    /// Adds the initial list of a listener: the objects of one snapshot.
    fn add_initial_list(&self, listener: &Listener, synced: bool) {
        let snapshot = self.reader.snapshot();
        let mut initial_list = Vec::with_capacity(snapshot.len());
        // Restored entries are delivered when the server has confirmed them.
        let entries = snapshot.list().filter(|entry| snapshot.is_confirmed(entry.key()));
        initial_list.extend(entries.map(|entry| Change::Added(Arc::clone(entry))));
        let initial = true;
        listener.enqueue(&initial_list, initial);
        if synced {
            listener.mark_initial_list_complete();
        }
    }

    fn durable(&self) -> Option<&DurableHandlers> {
        self.persistence.as_ref().map(|persistence| &*persistence.durable)
    }

    /// Makes a handler durable if it has a durable name; reports if that is not possible.
    fn join_durable(&self, listener: &Arc<Listener>) {
        if listener.options.durable.is_none() {
            return;
        }
        let joined =
            self.durable().map_or(Err("the cache is not persisted"), |durable| durable.join(listener));
        if let Err(reason) = joined {
            #[cfg(feature = "persistence")]
            if let Some(keys) = listener.options.durable.as_ref().and_then(|durable| durable.keys.as_ref()) {
                let all = true;
                keys.resume(crate::persistence::Unfinished { all, ..Default::default() });
            }
            let (handler, reason) = (Arc::clone(&listener.options.name), reason.into());
            self.diagnostics.report(&Diagnostic::NotDurable { handler, reason });
        }
    }

    fn handle_command(&mut self, command: Command, listeners: &mut Listeners) {
        match command {
            // The listener was closed before it was added: its handler is never called.
            Command::AddListener(listener) if !listener.mark_started() => {}
            Command::AddListener(listener) => {
                self.join_durable(&listener);
                if !listener.is_durable() {
                    self.add_initial_list(&listener, listeners.synced);
                }
                if let Some(handler) = listener.take_handler() {
                    listeners.tasks.spawn(Arc::clone(&listener).run(handler).in_current_span());
                    listeners.schedule_call_check(self.clock.now());
                }
                listeners.active.push(listener);
            }
            Command::RemoveListener(listener) => {
                if let Some(durable) = self.durable() {
                    durable.leave(&listener);
                }
                listeners.active.retain(|known| !Arc::ptr_eq(known, &listener));
            }
            Command::InstallIndex(built) => self.writer.install_index(*built),
            Command::InstallRewritten(rewrite, done) => {
                let replaced = self.writer.install_rewritten(rewrite);
                // The receiver is dropped if the informer is being stopped.
                let _ = done.send(replaced);
            }
            #[cfg(feature = "persistence")]
            Command::Restore(entries, done) => {
                self.writer.restore(entries);
                let _ = done.send(());
            }
            #[cfg(feature = "persistence")]
            Command::DiscardRestored => self.writer.discard_restored(),
            #[cfg(feature = "persistence")]
            Command::Cut(reply) => {
                let cut = self.durable().map(|durable| durable.cut(self.reader.snapshot()));
                let _stopped = cut.and_then(|cut| reply.send(cut).err()).is_some();
            }
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
