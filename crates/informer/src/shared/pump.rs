//! The pump: the one task that writes the cache and tells the listeners.
//!
//! It applies a batch, the store publishes it, then the changes go to every listener's outbox (C4). Listeners and indexes are added
//! between two batches, so that each sees a clean cut: the state before, then every change after (C6).

use super::listener::{Handler, Listener};
use crate::queue::Queue;
use crate::status::StatusCell;
use informer_core::{BuiltIndex, Change, Scope, StoreReader, StoreWriter};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// How many deltas are applied and published at a time.
const BATCH: usize = 256;
/// How often a quiet pump looks whether old states can be let go.
const RELEASE_EVERY: Duration = Duration::from_secs(1);

/// What an informer's handles ask of the pump.
pub(super) enum Command {
    AddListener(Arc<Listener>, Handler),
    RemoveListener(Arc<Listener>),
    InstallIndex(Box<BuiltIndex>),
}

pub(super) struct Pump {
    pub(super) writer: StoreWriter,
    pub(super) reader: StoreReader,
    pub(super) scope: Scope,
    pub(super) queue: Arc<Queue>,
    pub(super) status: Arc<StatusCell>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
    pub(super) stop: watch::Sender<bool>,
}

/// However the pump ends: the driver has nobody to work for, ends too, and everybody can see it (C9).
impl Drop for Pump {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.queue.close();
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            if let Command::AddListener(listener, handler) = command {
                listener.close(false);
                discard(handler);
            }
        }
    }
}

/// Lets a handler go that is never called. What it holds may panic when dropped; that is its own affair (C9).
fn discard(handler: Handler) {
    if catch_unwind(AssertUnwindSafe(|| drop(handler))).is_err() {
        tracing::error!("a handler panicked while it was dropped");
    }
}

/// The listeners that are told, and their tasks.
#[derive(Default)]
struct Listeners {
    told: Vec<Arc<Listener>>,
    tasks: JoinSet<()>,
    synced: bool,
}

impl Pump {
    /// Runs until the queue is closed and empty, then lets the listeners tell what they still have. To end that
    /// early, close the listeners.
    pub(super) async fn run(mut self) {
        let mut listeners = Listeners::default();
        let mut open = true;
        // Whether somebody still holds an old state, whose memory is then to be let go when nothing else happens.
        let mut held = false;
        loop {
            tokio::select! {
                biased;
                command = self.commands.recv(), if open => match command {
                    Some(command) => self.obey(command, &mut listeners),
                    None => open = false,
                },
                batch = self.queue.pop(BATCH) => match batch {
                    Some(batch) => {
                        self.apply(batch, &mut listeners);
                        held = self.writer.release();
                        // A stream that never pauses must not keep the commands waiting.
                        tokio::task::consume_budget().await;
                    }
                    None => break,
                },
                () = tokio::time::sleep(RELEASE_EVERY), if held => held = self.writer.release(),
            }
        }
        self.commands.close();
        while let Some(command) = self.commands.recv().await {
            self.obey(command, &mut listeners);
        }
        for listener in &listeners.told {
            listener.close(true);
        }
        while listeners.tasks.join_next().await.is_some() {}
    }

    fn apply(&mut self, batch: informer_core::Batch, listeners: &mut Listeners) {
        let (initial, end) = (batch.initial, batch.end());
        let applied = self.writer.apply(&self.scope, batch.deltas);
        self.status.count_applied(&applied);
        for listener in &listeners.told {
            listener.tell(&applied.changes, initial);
        }
        if self.queue.applied(end) && !listeners.synced {
            listeners.synced = true;
            // The informer first: a handler is never synced before its informer is.
            self.status.set_synced();
            for listener in &listeners.told {
                listener.end_initial();
            }
        }
        // Finished tasks of removed listeners are let go.
        while listeners.tasks.try_join_next().is_some() {}
    }

    fn obey(&mut self, command: Command, listeners: &mut Listeners) {
        match command {
            // Removed before it was added: it is never called.
            Command::AddListener(listener, handler) if !listener.begin() => discard(handler),
            Command::AddListener(listener, handler) => {
                let present = self.reader.snapshot();
                let initial: Vec<Change> =
                    present.list().map(|entry| Change::Added(Arc::clone(entry))).collect();
                listener.tell(&initial, true);
                if listeners.synced {
                    listener.end_initial();
                }
                listeners.tasks.spawn(Arc::clone(&listener).run(handler));
                listeners.told.push(listener);
            }
            Command::RemoveListener(listener) => {
                listeners.told.retain(|known| !Arc::ptr_eq(known, &listener));
            }
            Command::InstallIndex(built) => self.writer.install_index(*built),
        }
    }
}
