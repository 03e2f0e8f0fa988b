//! Warm start and saving: loads the saved cache before the reflectors start, and saves the cache while it changes.
//!
//! The reflectors wait for the saved state of their scope. The task never calls the cache synced: the state
//! machine of each reflector does, after the server has confirmed the saved state (C1, C7). Saving reads
//! snapshots only, on blocking threads, so that no event waits for the disk.

use super::command::Command;
use super::options::InformerOptions;
use super::parts::EngineParts;
use super::rewrite::{Exit, blocking};
use crate::clock::Clock;
use crate::persistence::{
    Base, CacheFile, ClusterUid, Contents, Identity, Persistence, RestoredReads, SaveInfo, fetch_cluster_uid,
    open,
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
use tokio::time::{Instant, sleep};

/// The time between two saves.
const SAVE_PERIOD: Duration = Duration::from_secs(1);
/// The time between two attempts to read the uid of the cluster, while the server does not respond.
const UID_RETRY_PERIOD: Duration = Duration::from_secs(30);
/// The longest delay between attempts that fail. The first is a second, each further one twice as long.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The saved state that a reflector waits for; `None` for a cold start.
pub(crate) type SavedReceiver = oneshot::Receiver<Option<SavedScope>>;

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
}

impl PersistTask {
    /// Creates the task if the options request it. If the cache cannot be persisted, the status contains the
    /// reason.
    pub(super) fn from_options(
        resource: &ResourceType,
        options: &InformerOptions,
        parameters: &QueryParameters,
        engine: &EngineParts<'_>,
    ) -> Option<Self> {
        let persistence = options.persistence()?.clone();
        let identity = match options.identity(resource, parameters, &persistence) {
            Ok(identity) => identity,
            Err(reason) => {
                report_cold_start(engine.status, engine.diagnostics, reason);
                return None;
            }
        };
        engine.status.update_persistence(|status| status.start = StartKind::Loading);
        Some(Self {
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
        })
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
        loop {
            let stopping = tokio::select! {
                biased;
                () = stopped(&mut stop) => true,
                () = sleep(SAVE_PERIOD) => false,
            };
            if saver.save().await.is_err() || stopping {
                return;
            }
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
        let (mut entries, mut uid) = (Vec::new(), None);
        match contents {
            Ok(contents) => {
                entries.clone_from(&contents.entries);
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
            file: file.map(|file| (file, Base::Entries(entries))),
            uid,
            uid_at: None,
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

/// Saves the cache of one informer.
struct Saver {
    persistence: Persistence,
    identity: Identity,
    config: Config,
    client: Option<kube::Client>,
    reader: StoreReader,
    status: Arc<StatusCell>,
    diagnostics: DiagnosticSink,
    /// The open file and the state that it contains; `None` if it cannot be used now.
    file: Option<(CacheFile, Base)>,
    uid: Option<ClusterUid>,
    /// When the uid was requested last.
    uid_at: Option<Instant>,
    /// Number of consecutive failures.
    failures: u32,
    /// When the next attempt follows, after a failure.
    retry_at: Option<Instant>,
}

impl Saver {
    /// Saves the cache if it is synced and has changed.
    async fn save(&mut self) -> Result<(), Exit> {
        let snapshot = self.reader.snapshot();
        let is_saved = matches!(&self.file, Some((_, Base::Snapshot(saved))) if saved.is_same(&snapshot));
        let must_wait = self.retry_at.is_some_and(|at| Instant::now() < at);
        if !snapshot.has_synced() || is_saved || must_wait {
            return Ok(());
        }
        self.request_uid().await;
        let Some((mut file, base)) = self.current_file().await? else { return Ok(()) };
        let uid = match &self.uid {
            Some(ClusterUid::Known(uid)) => Some(uid.clone()),
            _ => None,
        };
        let (identity, saved_at) = (self.identity.clone(), crate::clock::now());
        let (file, base, result) = blocking(move || {
            let info = SaveInfo { identity: &identity, saved_at, cluster_uid: uid.as_deref() };
            let result = file.save(&base, &snapshot, &info).map_err(|error| error.to_string());
            (file, Base::Snapshot(snapshot), result)
        })
        .await?;
        match result {
            Ok(_) => {
                self.file = Some((file, base));
                (self.failures, self.retry_at) = (0, None);
                self.status.update_persistence(|status| {
                    (status.saved_at, status.error) = (Some(saved_at), None);
                });
            }
            // The file contains the previous state or this one: it is opened and compared again.
            Err(message) => self.record_failure(&message),
        }
        Ok(())
    }

    /// Returns the file, and opens it again if it was lost.
    async fn current_file(&mut self) -> Result<Option<(CacheFile, Base)>, Exit> {
        let storage = &*self.persistence.storage;
        if let Some((file, base)) = self.file.take()
            && file.is_current(storage, &self.identity)
        {
            return Ok(Some((file, base)));
        }
        let opened = open_file(&self.persistence, &self.identity, &self.config).await?;
        match opened {
            Ok((file, contents)) => {
                let entries = contents.map(|contents| contents.entries).unwrap_or_default();
                Ok(Some((file, Base::Entries(entries))))
            }
            Err(reason) => {
                self.record_failure(&reason.to_string());
                Ok(None)
            }
        }
    }

    async fn request_uid(&mut self) {
        let Some(client) = &self.client else { return };
        let is_settled = matches!(&self.uid, Some(ClusterUid::Known(_) | ClusterUid::Unknown));
        if is_settled || self.uid_at.is_some_and(|at| at.elapsed() < UID_RETRY_PERIOD) {
            return;
        }
        self.uid = Some(fetch_cluster_uid(client).await);
        self.uid_at = Some(Instant::now());
    }

    fn record_failure(&mut self, message: &str) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + retry_delay(self.failures));
        let message: Arc<str> = message.into();
        let mut is_new = false;
        self.status.update_persistence(|status| {
            is_new = status.error.as_ref() != Some(&message);
            status.error = Some(Arc::clone(&message));
        });
        if is_new {
            self.diagnostics.report(&Diagnostic::SaveFailed { message });
        }
    }
}

/// Returns the delay after this number of consecutive failures.
fn retry_delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (Duration::from_secs(1) * 2_u32.pow(doublings)).min(MAX_RETRY_DELAY)
}

type Opened = Result<(CacheFile, Result<Contents, ColdStartReason>), ColdStartReason>;

/// Opens the file on a blocking thread.
async fn open_file(persistence: &Persistence, identity: &Identity, config: &Config) -> Result<Opened, Exit> {
    let (storage, identity, config) = (Arc::clone(&persistence.storage), identity.clone(), config.clone());
    blocking(move || open(&*storage, &identity, &config)).await
}

fn report_cold_start(status: &StatusCell, diagnostics: &DiagnosticSink, reason: ColdStartReason) {
    status.update_persistence(|status| status.start = StartKind::Cold(reason.clone()));
    if reason.is_failure() {
        diagnostics.report(&Diagnostic::ColdStart(reason));
    }
}
