//! What all handles of one server share: the model behind its lock, and the bells that wake who waits.
//!
//! The lock is held for one operation of the model at a time and never across an await. After each, the bells of what
//! changed are rung; whoever waits listens first and looks then, so nothing is missed.

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

/// How long a request waits for a version that is not there yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Shared {
    model: Mutex<Model>,
    notifiers: Mutex<BTreeMap<ResourceId, ResourceNotifiers>>,
    /// Rings when the version changes. It wakes in the order in which they wait, so that a run can be repeated.
    progress: Notify,
    pub(crate) faults: Arc<faults::Registry>,
    pub(crate) log: Log,
    pub(crate) open_watches: AtomicUsize,
    watches: AtomicU64,
    requests: AtomicU64,
    /// When the server began, by the calendar and by the clock that tests can pause.
    began: (Timestamp, Instant),
}

/// The bells of a resource: one for whoever watches all of it, and one for each namespace that somebody watches alone. Two hundred
/// watchers of twenty namespaces are not all woken by every change.
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
        if let Some(bell) = self.namespaces.get(namespace) {
            return bell.clone();
        }
        self.namespaces.retain(|_, bell| Arc::strong_count(bell) > 1);
        self.namespaces.entry(namespace.to_owned()).or_default().clone()
    }

    /// Rings for a change in a namespace, or for everybody.
    fn notify(&self, namespace: Option<&str>) {
        self.all.notify_waiters();
        match namespace {
            Some(namespace) => {
                if let Some(bell) = self.namespaces.get(namespace) {
                    bell.notify_waiters();
                }
            }
            None => self.namespaces.values().for_each(|bell| bell.notify_waiters()),
        }
    }
}

impl Shared {
    pub(crate) fn new(model: Model, began: Timestamp) -> Self {
        Shared {
            model: Mutex::new(model),
            notifiers: Mutex::default(),
            progress: Notify::new(),
            faults: Arc::default(),
            log: Log::default(),
            open_watches: AtomicUsize::new(0),
            watches: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            began: (began, Instant::now()),
        }
    }

    /// The time of day. It goes as tokio's clock goes: paused time stands still here too.
    pub(crate) fn now(&self) -> Timestamp {
        let (began, since) = self.began;
        let passed = jiff::SignedDuration::try_from(since.elapsed()).unwrap_or(jiff::SignedDuration::MAX);
        began.saturating_add(passed).unwrap_or(began)
    }

    /// Runs an operation on the model, and wakes who waits for what it changed.
    pub(crate) fn model<R>(&self, operation: impl FnOnce(&mut Model) -> R) -> R {
        let (result, touched, moved) = {
            let mut model = self.lock();
            let before = model.version();
            let result = operation(&mut model);
            (result, model.take_touched(), model.version() != before)
        };
        if moved {
            self.progress.notify_waiters();
        }
        if !touched.is_empty() {
            let bells = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
            for news in touched {
                if let Some(bells) = bells.get(&news.id) {
                    bells.notify(news.namespace.as_deref());
                }
            }
        }
        result
    }

    /// The bell that rings when a resource changes in a namespace; an empty one stands for all.
    pub(crate) fn notifier(&self, id: ResourceId, namespace: &str) -> Arc<Notify> {
        let mut bells = self.notifiers.lock().unwrap_or_else(PoisonError::into_inner);
        bells.entry(id).or_default().for_namespace(namespace)
    }

    /// Waits for a version, as long as a real server does.
    pub(crate) async fn reach(&self, wanted: u64, cached: bool) -> Result<(), Status> {
        if !cached {
            // Storage knows at once what it has.
            let current = self.model(|model| model.version());
            if wanted <= current {
                return Ok(());
            }
            let mut status = Status::version_too_large(wanted, current);
            if let Some(details) = &mut status.details {
                details.retry_after_seconds = None;
            }
            return Err(status);
        }
        let reached = async {
            loop {
                let mut progress = std::pin::pin!(self.progress.notified());
                progress.as_mut().enable();
                if self.model(|model| model.version()) >= wanted {
                    return;
                }
                progress.await;
            }
        };
        let reached = tokio::time::timeout(VERSION_WAIT, reached);
        let in_time = reached.await.is_ok();
        if in_time {
            return Ok(());
        }
        Err(Status::version_too_large(wanted, self.model(|model| model.version())))
    }

    /// A number for a new watch, so that watches without a timeout do not all end together.
    pub(crate) fn watch_number(&self) -> u64 {
        self.watches.fetch_add(1, Ordering::Relaxed)
    }

    /// What a request is called in its answer. Uids of objects do not come from here, so they do not depend on who reads.
    pub(crate) fn audit_id(&self) -> String {
        Ids::new(self.requests.fetch_add(1, Ordering::Relaxed)).uid()
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        // A panic under the lock is a bug of ours; the model is whole between operations.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
