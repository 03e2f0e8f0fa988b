//! What all handles of one server share: the model behind its lock, and the bells that wake who waits.
//!
//! The lock is held for one operation of the model at a time and never across an await. After each, the bells of what
//! changed are rung; whoever waits listens first and looks then, so nothing is missed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::faults;
use crate::log::Log;
use crate::model::{Model, ResourceId, Status};

/// How long a request waits for a version that is not there yet.
const VERSION_WAIT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct Shared {
    model: Mutex<Model>,
    bells: Mutex<BTreeMap<ResourceId, Arc<Notify>>>,
    version: watch::Sender<u64>,
    pub(crate) faults: Arc<faults::Registry>,
    pub(crate) log: Log,
    pub(crate) open_watches: AtomicUsize,
    watches: AtomicU64,
}

impl Shared {
    pub(crate) fn new(model: Model) -> Self {
        let version = watch::Sender::new(model.version());
        Shared {
            model: Mutex::new(model),
            bells: Mutex::default(),
            version,
            faults: Arc::default(),
            log: Log::default(),
            open_watches: AtomicUsize::new(0),
            watches: AtomicU64::new(0),
        }
    }

    /// Runs an operation on the model, and wakes who waits for what it changed.
    pub(crate) fn model<R>(&self, operation: impl FnOnce(&mut Model) -> R) -> R {
        let (result, touched) = {
            let mut model = self.lock();
            let result = operation(&mut model);
            // Under the lock, or two writers could announce their versions in the wrong order.
            let version = model.version();
            self.version.send_if_modified(|known| std::mem::replace(known, version) != version);
            (result, model.take_touched())
        };
        if !touched.is_empty() {
            let bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
            for bell in touched.iter().filter_map(|id| bells.get(id)) {
                bell.notify_waiters();
            }
        }
        result
    }

    /// The bell that rings when a resource changes.
    pub(crate) fn bell(&self, id: ResourceId) -> Arc<Notify> {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.entry(id).or_default().clone()
    }

    /// Waits for a version, as long as a real server does.
    pub(crate) async fn reach(&self, wanted: u64) -> Result<(), Status> {
        let mut versions = self.version.subscribe();
        let reached = tokio::time::timeout(VERSION_WAIT, versions.wait_for(|version| *version >= wanted));
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

    fn lock(&self) -> MutexGuard<'_, Model> {
        // A panic under the lock is a bug of ours; the model is whole between operations.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
