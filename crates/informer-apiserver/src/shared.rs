//! State shared by all handles of one server: the model behind its lock, and the notifiers of waiting tasks.
//!
//! The lock is held for one model operation at a time and never across an await. After each operation the
//! notifiers of the changed resources are triggered. A task that waits registers with its notifier before it
//! inspects the model, so it misses no change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_objects::status::Status;
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults;
use crate::log::Log;
use crate::model::{Ids, Model, ResourceId};

/// Time that a request waits for a version that the server has not reached yet.
const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// The model, its notifiers and the counters of one server.
#[derive(Debug)]
pub(crate) struct Shared {
    model: Mutex<Model>,
    notifiers: Mutex<BTreeMap<ResourceId, ResourceNotifiers>>,
    /// Notified when the version changes. Wakes waiters in the order in which they started to wait, which
    /// keeps runs reproducible.
    progress: Notify,
    pub(crate) faults: Arc<faults::Registry>,
    pub(crate) log: Log,
    pub(crate) open_watches: AtomicUsize,
    watches: AtomicU64,
    requests: AtomicU64,
    /// Start of the server as wall-clock time and on tokio's clock, which tests can pause.
    started: (Timestamp, Instant),
}

/// The notifiers of one resource: one for watches of all namespaces, and one per namespace that is watched
/// alone.
///
/// With a single notifier, every change would wake every watch, for example 200 watches in 20 namespaces.
#[derive(Debug, Default)]
struct ResourceNotifiers {
    all: Arc<Notify>,
    namespaces: BTreeMap<String, Arc<Notify>>,
}

impl ResourceNotifiers {
    fn for_namespace(&mut self, namespace: &str) -> Arc<Notify> {
        if namespace.is_empty() {
            return self.all.clone();
        }
        if let Some(notifier) = self.namespaces.get(namespace) {
            return notifier.clone();
        }
        self.namespaces.retain(|_, notifier| Arc::strong_count(notifier) > 1);
        self.namespaces.entry(namespace.to_owned()).or_default().clone()
    }

    /// Wakes the watches of all namespaces and those of `namespace`, or every watch if it is `None`.
    fn notify(&self, namespace: Option<&str>) {
        self.all.notify_waiters();
        match namespace {
            Some(namespace) => {
                if let Some(notifier) = self.namespaces.get(namespace) {
                    notifier.notify_waiters();
                }
            }
            None => self.namespaces.values().for_each(|notifier| notifier.notify_waiters()),
        }
    }
}

impl Shared {
    pub(crate) fn new(model: Model, started: Timestamp) -> Self {
        Shared {
            model: Mutex::new(model),
            notifiers: Mutex::default(),
            progress: Notify::new(),
            faults: Arc::default(),
            log: Log::default(),
            open_watches: AtomicUsize::new(0),
            watches: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            started: (started, Instant::now()),
        }
    }

    /// Returns the current wall-clock time. It follows tokio's clock: while that is paused, it does not
    /// advance.
    pub(crate) fn now(&self) -> Timestamp {
        let (started, instant) = self.started;
        let elapsed = jiff::SignedDuration::try_from(instant.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        started.saturating_add(elapsed).unwrap_or(started)
    }

    /// Runs an operation on the model, then wakes the tasks that wait for what it changed.
    pub(crate) fn model<R>(&self, operation: impl FnOnce(&mut Model) -> R) -> R {
        let (result, notices, moved) = {
            let mut model = self.lock();
            let before = model.version();
            let result = operation(&mut model);
            (result, model.take_notices(), model.version() != before)
        };
        if moved {
            self.progress.notify_waiters();
        }
        if !notices.is_empty() {
            let notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
            for notice in notices {
                if let Some(notifiers) = notifiers.get(&notice.id) {
                    notifiers.notify(notice.namespace.as_deref());
                }
            }
        }
        result
    }

    /// Returns the notifier for changes of a resource in `namespace`; an empty namespace stands for all.
    pub(crate) fn notifier(&self, id: ResourceId, namespace: &str) -> Arc<Notify> {
        let mut notifiers = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        notifiers.entry(id).or_default().for_namespace(namespace)
    }

    /// Waits until the server has reached a version, as long as kube-apiserver does.
    pub(crate) async fn reach(&self, version: u64, cached: bool) -> Result<(), Status> {
        if !cached {
            // Storage knows its current version, so there is nothing to wait for.
            let current = self.model(|model| model.version());
            if version <= current {
                return Ok(());
            }
            let mut status = Status::version_too_large(version, current);
            if let Some(details) = &mut status.details {
                details.retry_after_seconds = None;
            }
            return Err(status);
        }
        let reached = async {
            loop {
                let mut progress = std::pin::pin!(self.progress.notified());
                progress.as_mut().enable();
                if self.model(|model| model.version()) >= version {
                    return;
                }
                progress.await;
            }
        };
        let reached = tokio::time::timeout(VERSION_TIMEOUT, reached);
        let in_time = reached.await.is_ok();
        if in_time {
            return Ok(());
        }
        Err(Status::version_too_large(version, self.model(|model| model.version())))
    }

    /// Returns a number for a new watch. It staggers the ends of watches without a timeout.
    pub(crate) fn watch_number(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the `Audit-Id` of a request. It has its own source of ids, so that uids of objects do not
    /// depend on the number of requests.
    pub(crate) fn audit_id(&self) -> String {
        Ids::new(self.requests.fetch_add(1, Ordering::Relaxed)).uid()
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        // After a panic the model is still consistent: it is consistent between any two operations.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
