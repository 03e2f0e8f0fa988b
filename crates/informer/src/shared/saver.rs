//! Saving: writes the cache of an informer to its file, on blocking threads, and delivers the events of durable
//! handlers that wait for it.

use super::command::Command;
use super::durable::{Cut, DurableHandlers};
use super::persist::{on_disk, retry_delay};
use super::rewrite::Exit;
use crate::clock::Clock;
use crate::persistence::{
    AnyError, Base, CacheFile, ClusterUid, Handlers, Identity, Persistence, SaveInfo, Usage, are_same,
    fetch_cluster_uid, open, replace,
};
use crate::status::{Diagnostic, DiagnosticSink, StatusCell};
use futures::FutureExt as _;
use informer_core::reflector::Config;
use informer_core::{StoreReader, StoreSnapshot};
use jiff::Timestamp;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// The time between two saves.
const SAVE_PERIOD: Duration = Duration::from_secs(1);
/// The time between two saves while durable handlers wait for them.
const DURABLE_SAVE_PERIOD: Duration = Duration::from_millis(100);
/// The time after which a save that has not ended is reported: durable handlers wait for it.
const SLOW_DISK_THRESHOLD: Duration = Duration::from_secs(10);
/// The time between two attempts to read the uid of the cluster, while the server does not respond.
const UID_RETRY_PERIOD: Duration = Duration::from_secs(30);

/// The content of a file.
#[derive(Default)]
pub(super) struct Saved {
    pub(super) rows: Base,
    pub(super) handlers: Handlers,
    pub(super) cluster_uid: Option<String>,
}

/// Saves the cache of one informer.
pub(super) struct Saver {
    pub(super) persistence: Persistence,
    pub(super) identity: Identity,
    pub(super) config: Config,
    pub(super) client: Option<kube::Client>,
    pub(super) reader: StoreReader,
    pub(super) status: Arc<StatusCell>,
    pub(super) diagnostics: DiagnosticSink,
    pub(super) durable: Arc<DurableHandlers>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) clock: Clock,
    /// For how long the cache was in use before this process.
    pub(super) usage_before: Usage,
    /// The open file and its content; `None` if it cannot be used now.
    pub(super) file: Option<(CacheFile, Saved)>,
    pub(super) uid: Option<ClusterUid>,
    /// The running request for the uid.
    pub(super) uid_request: Option<JoinHandle<ClusterUid>>,
    /// When the uid was requested last.
    pub(super) uid_requested_at: Option<Instant>,
    /// Number of consecutive failures.
    pub(super) failures: u32,
    /// When the next attempt follows, after a failure.
    pub(super) retry_at: Option<Instant>,
}

impl Saver {
    /// Waits for the time of the next save: soon if durable handlers wait for it.
    pub(super) async fn wait(&self) {
        tokio::select! {
            biased;
            () = self.durable.wait() => sleep(DURABLE_SAVE_PERIOD).await,
            () = sleep(SAVE_PERIOD) => {}
        }
    }

    /// Saves the cache, even if the last attempt has just failed.
    pub(super) async fn save_now(&mut self, cut: Cut) -> Result<(), Exit> {
        self.retry_at = None;
        self.save_cut(cut).await
    }

    /// Saves the cache if it is synced, and if it or what the durable handlers know has changed.
    pub(super) async fn save(&mut self) -> Result<(), Exit> {
        if !self.reader.snapshot().has_synced() {
            return Ok(());
        }
        let (reply, cut) = oneshot::channel();
        // An error means that the pump has ended; its last request follows.
        let _ended = self.commands.send(Command::Cut(reply)).is_err();
        match cut.await {
            Ok(cut) => self.save_cut(cut).await,
            Err(_) => Ok(()),
        }
    }

    /// Saves a snapshot. Then delivers the events of durable handlers, even if it could not be saved: handlers do not
    /// wait for a disk that fails.
    async fn save_cut(&mut self, cut: Cut) -> Result<(), Exit> {
        if !cut.snapshot.has_synced() {
            return Ok(());
        }
        let usage = self.usage_before.in_next_process(self.clock.now().since_origin());
        self.report_forgotten(usage);
        let save = Save {
            persistence: self.persistence.clone(),
            identity: self.identity.clone(),
            config: self.config.clone(),
            file: self.file.take(),
            cluster_uid: self.cluster_uid(),
            saved_at: crate::clock::now(),
            usage,
        };
        let is_due = self.retry_at.is_none_or(|at| Instant::now() >= at);
        let (saved_at, durable) = (save.saved_at, Arc::clone(&self.durable));
        let storage = Arc::clone(&self.persistence.storage);
        let mut saving = pin!(on_disk(&*storage, move || save.run(cut, &durable, is_due)));
        let (file, result) = if let Ok(saved) = timeout(SLOW_DISK_THRESHOLD, &mut saving).await {
            saved?
        } else {
            self.report_error("the disk does not respond");
            saving.await?
        };
        self.file = file;
        match result {
            Ok(false) => {}
            Ok(true) => {
                (self.failures, self.retry_at) = (0, None);
                self.status.update_persistence(|status| {
                    (status.saved_at, status.error) = (Some(saved_at), None);
                });
            }
            Err(message) => self.record_failure(&message),
        }
        Ok(())
    }

    /// Returns the uid of the cluster, if it is known; requests it otherwise.
    fn cluster_uid(&mut self) -> Option<String> {
        if let Some(request) = self.uid_request.take_if(|request| request.is_finished())
            && let Some(Ok(uid)) = request.now_or_never()
        {
            self.uid = Some(uid);
        }
        let is_settled = matches!(self.uid, Some(ClusterUid::Known(_) | ClusterUid::Unknown));
        let is_recent = self.uid_requested_at.is_some_and(|at| at.elapsed() < UID_RETRY_PERIOD);
        if let Some(client) = self.client.clone().filter(|_| !is_settled && !is_recent) {
            self.uid_request = Some(tokio::spawn(async move { fetch_cluster_uid(&client).await }));
            self.uid_requested_at = Some(Instant::now());
        }
        match &self.uid {
            Some(ClusterUid::Known(uid)) => Some(uid.clone()),
            _ => None,
        }
    }

    /// Forgets durable handlers that are not used any more.
    fn report_forgotten(&self, usage: Usage) {
        for forgotten in self.durable.forget_unused(usage) {
            self.status.update_persistence(|status| status.forgotten_handlers.push(forgotten.clone()));
            self.diagnostics.report(&Diagnostic::HandlerForgotten(forgotten));
        }
    }

    fn record_failure(&mut self, message: &str) {
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + retry_delay(self.failures));
        self.report_error(message);
    }

    fn report_error(&self, message: &str) {
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

/// One save, on a blocking thread.
struct Save {
    persistence: Persistence,
    identity: Identity,
    config: Config,
    file: Option<(CacheFile, Saved)>,
    cluster_uid: Option<String>,
    saved_at: Timestamp,
    usage: Usage,
}

impl Save {
    /// Saves a snapshot if `is_due`, and delivers the events of durable handlers. Returns the file, and whether
    /// something was written.
    fn run(
        mut self,
        cut: Cut,
        durable: &DurableHandlers,
        is_due: bool,
    ) -> (Option<(CacheFile, Saved)>, Result<bool, String>) {
        let used = self.usage.at_full_hour();
        let (handlers, prepared) = durable.prepare(&cut, used);
        let result = if is_due {
            // Also closing the file can panic.
            let write = AssertUnwindSafe(|| self.write(&cut.snapshot, handlers));
            catch_unwind(write).unwrap_or_else(|_| Err("the database panicked".to_owned()))
        } else {
            Ok(false)
        };
        durable.deliver(cut, prepared, used, is_due && result.is_ok());
        (self.file, result)
    }

    fn write(&mut self, snapshot: &StoreSnapshot, handlers: Handlers) -> Result<bool, String> {
        if let Some((_, saved)) = &self.file
            && saved.cluster_uid == self.cluster_uid
            && matches!(&saved.rows, Base::Snapshot(rows) if rows.is_same(snapshot))
            && are_same(&saved.handlers, &handlers)
        {
            return Ok(false);
        }
        // After a failure, the file contains the previous state or this one: it is opened and compared again.
        let (mut file, saved) = self.current_file()?;
        let info = SaveInfo {
            identity: &self.identity,
            saved_at: self.saved_at,
            cluster_uid: self.cluster_uid.as_deref(),
            usage: self.usage,
            handlers: (&saved.handlers, &handlers),
        };
        if let Err(error) = file.save(&saved.rows, snapshot, &info).map_err(AnyError::from) {
            drop(file);
            // The next save opens the new file.
            let storage = &*self.persistence.storage;
            let replaced = replace(storage, &self.config, snapshot, &info, error);
            return replaced.map(|()| true).map_err(|error| error.to_string());
        }
        let (rows, cluster_uid) = (Base::Snapshot(snapshot.clone()), self.cluster_uid.take());
        self.file = Some((file, Saved { rows, handlers, cluster_uid }));
        Ok(true)
    }

    /// Returns the file, and opens it again if it was lost.
    fn current_file(&mut self) -> Result<(CacheFile, Saved), String> {
        let storage = &*self.persistence.storage;
        if let Some((file, saved)) = self.file.take()
            && file.is_current(storage, &self.identity)
        {
            return Ok((file, saved));
        }
        let (file, contents) =
            open(storage, &self.identity, &self.config).map_err(|reason| reason.to_string())?;
        let saved = contents.map(|contents| Saved {
            rows: Base::Entries(contents.entries),
            handlers: contents.handlers,
            cluster_uid: contents.cluster_uid,
        });
        Ok((file, saved.unwrap_or_default()))
    }
}
