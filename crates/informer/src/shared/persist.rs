//! Warm start and saving: loads the saved cache before the reflectors start, and saves the cache while it changes.
//!
//! The reflectors wait for the saved state of their scope. The task never calls the cache synced: the state
//! machine of each reflector does, after the server has confirmed the saved state (C1, C7).

use super::command::Command;
use super::durable::{Cut, DurableHandlers};
use super::options::InformerOptions;
use super::parts::EngineParts;
use super::rewrite::{Exit, blocking};
use super::saver::{Saved, Saver};
use crate::clock::Clock;
use crate::persistence::{
    Base, CacheFile, ClusterUid, Contents, Identity, Persistence, RestoredReads, Storage, Usage,
    fetch_cluster_uid, open,
};
use crate::reflector::stopped;
use crate::resource::ResourceType;
use crate::source::QueryParameters;
use crate::status::{ColdStartReason, Diagnostic, DiagnosticSink, StartKind, StatusCell};
use informer_core::reflector::{Config, Failure, FailureKind, RequestKind, SavedScope};
use informer_core::{Scope, StoreReader};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::sleep;

/// The longest delay between attempts that fail. The first is a second, each further one twice as long.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// How often it is tried to open a file that is inaccessible, and the delay between two attempts.
const OPEN_ATTEMPTS: u32 = 3;
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(100);

/// The saved state that a reflector waits for; `None` for a cold start.
pub(crate) type SavedReceiver = oneshot::Receiver<Option<SavedScope>>;

/// What the pump needs for a persisted cache.
pub(super) struct PumpPersistence {
    pub(super) durable: Arc<DurableHandlers>,
    end: Option<oneshot::Sender<End>>,
}

/// The request of a pump that has applied its last change.
struct End {
    cut: Cut,
    /// To be sent when the last events were added to the durable handlers.
    delivered: oneshot::Sender<()>,
    /// Sent when the handlers have handled them.
    drained: oneshot::Receiver<()>,
}

impl PumpPersistence {
    /// Waits until the last events were saved and added to the durable handlers. The cache is saved once more when a
    /// message is sent to the channel that is returned.
    pub(super) async fn deliver_last_events(&mut self, cut: Cut) -> Option<oneshot::Sender<()>> {
        let ((delivered, is_delivered), (sender, drained)) = (oneshot::channel(), oneshot::channel());
        self.end.take()?.send(End { cut, delivered, drained }).ok()?;
        is_delivered.await.ok().map(|()| sender)
    }
}

/// The task that loads and saves the cache of one informer.
pub(super) struct PersistTask {
    persistence: Persistence,
    identity: Identity,
    /// The configuration of each scope, and the channel to its reflector.
    scopes: Vec<(Config, oneshot::Sender<Option<SavedScope>>)>,
    client: Option<kube::Client>,
    reader: StoreReader,
    commands: mpsc::UnboundedSender<Command>,
    status: Arc<StatusCell>,
    diagnostics: DiagnosticSink,
    clock: Clock,
    stop: watch::Sender<bool>,
    durable: Arc<DurableHandlers>,
    end: oneshot::Receiver<End>,
}

impl PersistTask {
    /// Creates the task if the options request it, and its connection to the pump. If the cache cannot be persisted,
    /// the status contains the reason.
    pub(super) fn from_options(
        resource: &ResourceType,
        options: &InformerOptions,
        parameters: &QueryParameters,
        engine: &EngineParts<'_>,
    ) -> Option<(Self, PumpPersistence)> {
        let persistence = options.persistence()?.clone();
        let identity = match options.identity(resource, parameters, &persistence) {
            Ok(identity) => identity,
            Err(reason) => {
                report_cold_start(engine.status, engine.diagnostics, reason);
                return None;
            }
        };
        engine.status.update_persistence(|status| status.start = StartKind::Loading);
        let (sender, end) = oneshot::channel();
        let durable = Arc::new(DurableHandlers::default());
        let pump = PumpPersistence { durable: Arc::clone(&durable), end: Some(sender) };
        let task = Self {
            persistence,
            identity,
            scopes: Vec::new(),
            client: engine.client.cloned().filter(|_| !options.has_source()),
            reader: engine.reader.clone(),
            commands: engine.commands.clone(),
            status: Arc::clone(engine.status),
            diagnostics: engine.diagnostics.clone(),
            clock: engine.clock,
            stop: engine.stop.clone(),
            durable,
            end,
        };
        Some((task, pump))
    }

    /// Adds a scope; returns the channel through which its reflector receives the saved state.
    pub(super) fn add_scope(&mut self, config: Config) -> SavedReceiver {
        let (sender, receiver) = oneshot::channel();
        self.scopes.push((config, sender));
        receiver
    }

    pub(super) async fn run(mut self) {
        let mut stop = self.stop.subscribe();
        let started = tokio::select! {
            biased;
            () = stopped(&mut stop) => return,
            started = self.start() => started,
        };
        let Ok(mut saver) = started else { return };
        let end = loop {
            tokio::select! {
                biased;
                end = &mut self.end => break end,
                () = saver.wait() => match saver.save().await {
                    Ok(()) => {}
                    Err(Exit::ShutDown) => return,
                    // Durable handlers would wait forever (C9).
                    Err(Exit::Panicked) => {
                        self.diagnostics.report(&Diagnostic::TaskPanicked);
                        self.stop.send_replace(true);
                        return;
                    }
                },
            }
        };
        let Ok(End { cut, delivered, drained }) = end else { return };
        let again = cut.again();
        if saver.save_now(cut).await.is_ok() {
            let _stopped = delivered.send(()).is_err();
            let _stopped = drained.await.is_err();
            let _stopped = saver.save_now(again).await.is_err();
        }
    }

    /// Loads the saved cache and starts the reflectors, with it or without.
    async fn start(&mut self) -> Result<Saver, Exit> {
        let config = self.scopes.first().map(|(config, _)| config.clone()).ok_or(Exit::ShutDown)?;
        let opened = open_file(&self.persistence, &self.identity, &config).await?;
        let (file, contents) = match opened {
            Ok((file, contents)) => (Some(file), contents),
            Err(reason) => (None, Err(reason)),
        };
        let (mut saved, mut uid, mut usage) = (Saved::default(), None, Usage::default());
        match contents {
            Ok(contents) => {
                saved = Saved {
                    rows: Base::Entries(contents.entries.clone()),
                    handlers: contents.handlers.clone(),
                    cluster_uid: contents.cluster_uid.clone(),
                };
                usage = contents.usage;
                self.durable.load(&contents.entries, contents.handlers.clone());
                uid = self.warm_start(contents).await;
            }
            Err(reason) => self.cold_start(reason),
        }
        Ok(Saver {
            persistence: self.persistence.clone(),
            identity: self.identity.clone(),
            config,
            client: self.client.clone(),
            reader: self.reader.clone(),
            status: Arc::clone(&self.status),
            diagnostics: self.diagnostics.clone(),
            durable: Arc::clone(&self.durable),
            commands: self.commands.clone(),
            clock: self.clock,
            usage_before: usage,
            file: file.map(|file| (file, saved)),
            uid,
            uid_request: None,
            uid_requested_at: None,
            failures: 0,
            retry_at: None,
        })
    }

    fn cold_start(&mut self, reason: ColdStartReason) {
        report_cold_start(&self.status, &self.diagnostics, reason);
        for (_, reflector) in self.scopes.drain(..) {
            let _stopped = reflector.send(None).is_err();
        }
    }

    /// Passes the saved cache to the reflectors, after the cluster was verified. Returns the uid of the cluster.
    async fn warm_start(&mut self, contents: Contents) -> Option<ClusterUid> {
        let (as_of, objects) = (contents.saved_at, contents.entries.len());
        if self.scopes.iter().any(|(config, _)| !contents.positions.contains_key(&config.scope)) {
            self.cold_start(ColdStartReason::damaged("a position is missing"));
            return None;
        }
        if self.persistence.restored_reads == RestoredReads::Serve {
            let (done, restored) = oneshot::channel();
            let _stopped = self.commands.send(Command::Restore(contents.entries.clone(), done)).is_err();
            let _stopped = restored.await.is_err();
        }
        self.status.update_persistence(|status| status.start = StartKind::Warm { as_of, objects });
        self.status.record_restored(as_of, self.clock.now());
        let uid = match (&self.client, &contents.cluster_uid) {
            (Some(client), Some(_)) => Some(self.wait_for_uid(client).await),
            _ => None,
        };
        if let (Some(ClusterUid::Known(uid)), Some(saved)) = (&uid, &contents.cluster_uid)
            && uid != saved
        {
            let _stopped = self.commands.send(Command::DiscardRestored).is_err();
            self.durable.forget();
            self.cold_start(ColdStartReason::OtherCluster);
        } else {
            self.send_saved(contents);
        }
        uid
    }

    /// Requests the uid of the cluster until the server responds.
    async fn wait_for_uid(&self, client: &kube::Client) -> ClusterUid {
        let mut failures = 0;
        loop {
            let message = match fetch_cluster_uid(client).await {
                ClusterUid::NoResponse(message) => message,
                uid => return uid,
            };
            failures += 1;
            let retry_in = retry_delay(failures);
            let failure = Failure::new(FailureKind::Connect, format!("verify cluster: {message}"));
            for index in 0..self.scopes.len() {
                self.status.record_failure(index, &failure, self.clock.now());
            }
            let request = RequestKind::List;
            self.diagnostics.report(&Diagnostic::RequestFailed { request, failure, retry_in });
            sleep(retry_in).await;
        }
    }

    fn send_saved(&mut self, contents: Contents) {
        let Contents { saved_at, mut positions, entries, unreadable, .. } = contents;
        for (config, reflector) in self.scopes.drain(..) {
            let is_own = |scope: &Scope, key| *scope == Scope::All || scope.contains(key);
            let own = entries.iter().filter(|entry| is_own(&config.scope, entry.key()));
            let marked = unreadable
                .iter()
                .filter(|object| object.key.as_ref().is_some_and(|key| is_own(&config.scope, key)));
            let saved = positions.remove(&config.scope).map(|version| SavedScope {
                version,
                saved_at,
                entries: own.cloned().collect(),
                unreadable: marked.cloned().collect(),
            });
            let _stopped = reflector.send(saved).is_err();
        }
    }
}

/// Returns the delay after this number of consecutive failures.
pub(super) fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (Duration::from_secs(1) * 2_u32.pow(doublings)).min(MAX_RETRY_DELAY)
}

type Opened = Result<(CacheFile, Result<Contents, ColdStartReason>), ColdStartReason>;

/// Opens the file on a blocking thread. A disk that fails for a moment causes no cold start, which would forget what durable
/// handlers have missed.
async fn open_file(persistence: &Persistence, identity: &Identity, config: &Config) -> Result<Opened, Exit> {
    for _ in 1..OPEN_ATTEMPTS {
        let opened = open_file_once(persistence, identity, config).await?;
        if !matches!(opened, Err(ColdStartReason::Inaccessible { .. })) {
            return Ok(opened);
        }
        sleep(OPEN_RETRY_DELAY).await;
    }
    open_file_once(persistence, identity, config).await
}

async fn open_file_once(
    persistence: &Persistence,
    identity: &Identity,
    config: &Config,
) -> Result<Opened, Exit> {
    let (storage, identity, config) = (Arc::clone(&persistence.storage), identity.clone(), config.clone());
    on_disk(&*persistence.storage, move || open(&*storage, &identity, &config)).await
}

/// Runs a function that uses the disk, on a blocking thread if the disk may block.
pub(super) async fn on_disk<R: Send + 'static>(
    storage: &dyn Storage,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Exit> {
    if storage.may_block() { blocking(work).await } else { Ok(work()) }
}

fn report_cold_start(status: &StatusCell, diagnostics: &DiagnosticSink, reason: ColdStartReason) {
    status.update_persistence(|status| status.start = StartKind::Cold(reason.clone()));
    if reason.is_failure() {
        diagnostics.report(&Diagnostic::ColdStart(reason));
    }
}
