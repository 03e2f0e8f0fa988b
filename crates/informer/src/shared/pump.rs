//! The pump: the one task that writes the cache and tells the listeners.
//!
//! It applies a batch, the store publishes it, then the changes go to every listener's outbox (C4). Listeners and indexes are added
//! between two batches, so that each sees a clean cut: the state before, then every change after (C6). Resyncs happen there too: every
//! outbox then holds each change up to the published state, so repeating that state overtakes nothing (C1, C12).

use super::command::Command;
use super::compression::CacheCompression;
use super::listener::Listener;
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

/// How many deltas are applied and published at a time.
const MAX_BATCH_DELTAS: usize = 256;
/// So many batches and commands are a turn.
const YIELD_BUDGET: u32 = 32;
/// How often a quiet pump looks whether old states can be let go.
const RELEASE_PERIOD: Duration = Duration::from_secs(1);

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
    /// What looks after compression, if objects are compressed.
    pub(super) compression: Option<CacheCompression>,
}

/// However the pump ends: the driver has nobody to work for, ends too, and everybody can see it (C9).
impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.queue.close();
        self.commands.close();
        loop {
            match self.commands.try_recv() {
                Ok(Command::AddListener(listener)) => drop(listener.close(false)),
                Ok(_) => {}
                // Somebody is in the middle of sending.
                Err(TryRecvError::Empty) => std::thread::yield_now(),
                Err(TryRecvError::Disconnected) => break,
            }
        }
    }
}

/// The listeners that are told, and their tasks.
#[derive(Default)]
struct Listeners {
    active: Vec<Arc<Listener>>,
    tasks: JoinSet<()>,
    synced: bool,
}

/// Whatever ends the pump, nobody waits for what it would have told; what it has told can still be taken.
impl Drop for Listeners {
    fn drop(&mut self) {
        for listener in &self.active {
            listener.close_after_pump_exit();
        }
    }
}

impl Listeners {
    /// When the next resync is due.
    fn next_resync(&self) -> Option<Moment> {
        self.active.iter().filter_map(|listener| listener.next_resync()).min()
    }
}

impl Pump {
    /// Runs until the queue is closed and empty, then lets the listeners tell what they still have. To end that
    /// early, close the listeners.
    pub(super) async fn run(mut self) {
        let mut listeners = Listeners::default();
        let (mut open, mut turn) = (true, YieldBudget::new(YIELD_BUDGET));
        // Whether somebody still holds an old state, whose memory is then to be let go when nothing else happens.
        let mut held = false;
        loop {
            let resync_at = self.next_resync(&listeners).map(|at| self.clock.instant(at));
            tokio::select! {
                biased;
                command = self.commands.recv(), if open => match command {
                    Some(command) => {
                        self.handle_command(command, &mut listeners);
                        held = self.writer.release();
                    }
                    None => open = false,
                },
                () = sleep_until(resync_at) => self.resync(&listeners),
                batch = self.queue.pop(MAX_BATCH_DELTAS) => match batch {
                    Some((lane, batch)) => {
                        self.apply(lane, batch, &mut listeners);
                        held = self.writer.release();
                    }
                    None => break,
                },
                () = tokio::time::sleep(RELEASE_PERIOD), if held => held = self.writer.release(),
            }
            turn.consume().await;
        }
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.handle_command(command, &mut listeners);
        }
        for listener in &listeners.active {
            listener.close(true);
        }
        while listeners.tasks.join_next().await.is_some() {}
    }

    /// When the next resync is due. None follows once a shutdown has begun: it would take time from the events that are left (C10).
    fn next_resync(&self, listeners: &Listeners) -> Option<Moment> {
        listeners.next_resync().filter(|_| !self.queue.is_closed())
    }

    fn apply(&mut self, lane: usize, batch: informer_core::Batch, listeners: &mut Listeners) {
        let (initial, end) = (batch.initial, batch.end());
        let Some(scope) = self.scopes.get(lane) else { return };
        let applied = self.writer.apply(scope, batch.deltas);
        let cached = self.reader.snapshot();
        self.status.record_batch(&applied, &cached, self.clock.now());
        if applied.index_panics > 0 {
            self.diagnostics.report(&Diagnostic::IndexPanicked { calls: applied.index_panics });
        }
        if applied.drift > 0 {
            self.diagnostics.report(&Diagnostic::CacheDrift { changes: applied.drift });
        }
        for listener in &listeners.active {
            listener.enqueue(&applied.changes, initial);
        }
        if let Some(compression) = &self.compression {
            compression.observe_batch(&applied.changes, &cached);
        }
        if self.queue.applied(lane, end) && !listeners.synced {
            listeners.synced = true;
            // The informer first: a handler is never synced before its informer is.
            self.status.set_synced(self.clock.now());
            for listener in &listeners.active {
                listener.mark_initial_list_complete();
            }
        }
        // Finished tasks of removed listeners are let go.
        while listeners.tasks.try_join_next().is_some() {}
    }

    /// Gives each listener whose resync is due the objects it is to repeat.
    fn resync(&self, listeners: &Listeners) {
        let present = self.reader.snapshot();
        for listener in &listeners.active {
            listener.resync(&present);
        }
    }

    fn handle_command(&mut self, command: Command, listeners: &mut Listeners) {
        match command {
            // Removed before it was added: it is never called.
            Command::AddListener(listener) if !listener.begin() => {}
            Command::AddListener(listener) => {
                let present = self.reader.snapshot();
                let mut initial = Vec::with_capacity(present.len());
                initial.extend(present.list().map(|entry| Change::Added(Arc::clone(entry))));
                listener.enqueue(&initial, true);
                if listeners.synced {
                    listener.mark_initial_list_complete();
                }
                if let Some(handler) = listener.take_handler() {
                    listeners.tasks.spawn(Arc::clone(&listener).run(handler).in_current_span());
                }
                listeners.active.push(listener);
            }
            Command::RemoveListener(listener) => {
                listeners.active.retain(|known| !Arc::ptr_eq(known, &listener));
            }
            Command::InstallIndex(built) => self.writer.install_index(*built),
            #[cfg(feature = "compression")]
            Command::Rewrite(rewrite, done) => {
                self.writer.install_recompressed(rewrite);
                // Nobody waits for it any more if the informer is to stop.
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
#[path = "pump_tests.rs"]
mod tests;
