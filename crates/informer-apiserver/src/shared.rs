//! State shared by all handles of one server: the model behind its lock, and the notifiers of waiting tasks.
//!
//! `Shared::model` holds the lock for one operation, never across an await, and then triggers the notifiers
//! of the changed resources. A task that waits registers with its notifier before it inspects the model, so
//! it misses no change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use informer_objects::status::Status;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::faults;
use crate::log::{Log, RecordedRequest};
use crate::model::{Ids, Model, ResourceId};
use crate::random::SecretKey;

/// Time that a request waits for a version that the server has not reached yet, as in kube-apiserver.
pub(crate) const VERSION_TIMEOUT: Duration = Duration::from_secs(3);

/// The model, notifiers, fault rules, request log and counters of one server.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: Clock,
    model: Mutex<Model>,
    notifiers: Mutex<BTreeMap<ResourceId, ResourceNotifiers>>,
    /// Notified when the version changes, a request is recorded, a watch starts or ends, or a fault rule counts.
    /// Wakes waiters in the order in which they started to wait, which keeps runs reproducible.
    pub(crate) activity: Arc<Notify>,
    pub(crate) faults: Arc<faults::Registry>,
    log: Log,
    open_watches: AtomicUsize,
    /// The next result of [`Shared::next_watch_number`].
    watch_number: AtomicU64,
    /// Whether the parameter `shardSelector` is ignored.
    ignores_shard_selectors: AtomicBool,
    /// The seed of the next audit id.
    audit_seed: AtomicU64,
    /// The key that signs tokens of service accounts, generated at its first use; `None` if that failed.
    signing_key: OnceLock<Option<SecretKey>>,
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
    /// Returns the notifier for watches of `namespace`, created if it is missing; an empty namespace stands
    /// for all.
    fn for_namespace(&mut self, namespace: &str) -> Arc<Notify> {
        if namespace.is_empty() {
            return self.all.clone();
        }
        if let Some(notifier) = self.namespaces.get(namespace) {
            return notifier.clone();
        }
        // Removes the notifiers that no watch holds any more.
        self.namespaces.retain(|_, notifier| Arc::strong_count(notifier) > 1);
        self.namespaces.entry(namespace.to_owned()).or_default().clone()
    }

    /// Returns whether a watch holds one of the notifiers.
    fn are_used(&self) -> bool {
        std::iter::once(&self.all)
            .chain(self.namespaces.values())
            .any(|notifier| Arc::strong_count(notifier) > 1)
    }

    /// Wakes the watches of all namespaces and the watches of `namespace`. `None` wakes every watch.
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
    pub(crate) fn new(model: Model, clock: Clock) -> Self {
        let activity = Arc::new(Notify::new());
        Shared {
            clock,
            model: Mutex::new(model),
            notifiers: Mutex::default(),
            faults: Arc::new(faults::Registry::new(activity.clone())),
            activity,
            log: Log::default(),
            open_watches: AtomicUsize::new(0),
            watch_number: AtomicU64::new(0),
            ignores_shard_selectors: AtomicBool::new(false),
            audit_seed: AtomicU64::new(0),
            signing_key: OnceLock::new(),
        }
    }

    /// Returns whether lists and watches honour the parameter `shardSelector`.
    pub(crate) fn honours_shard_selectors(&self) -> bool {
        !self.ignores_shard_selectors.load(Ordering::Relaxed)
    }

    pub(crate) fn set_shard_selectors(&self, are_honoured: bool) {
        self.ignores_shard_selectors.store(!are_honoured, Ordering::Relaxed);
    }

    /// Runs an operation on the model, then wakes the tasks that wait for what it changed.
    pub(crate) fn model<R>(&self, operation: impl FnOnce(&mut Model) -> R) -> R {
        let (result, notices, version_changed) = {
            let mut model = self.lock();
            let before = model.version();
            let result = operation(&mut model);
            (result, model.take_notices(), model.version() != before)
        };
        if version_changed {
            self.activity.notify_waiters();
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
        if !notifiers.contains_key(&id) {
            // Removes the notifiers of resources without watches, some of which may not be served any more.
            notifiers.retain(|_, notifiers| notifiers.are_used());
        }
        notifiers.entry(id).or_default().for_namespace(namespace)
    }

    /// Waits until the server has reached a version. Returns the error of kube-apiserver if the version is
    /// too large: after [`VERSION_TIMEOUT`] if the requested resource is cached, immediately otherwise.
    pub(crate) async fn wait_for_version(&self, version: u64, cached: bool) -> Result<(), Status> {
        if !cached {
            // Without a watch cache, kube-apiserver asks etcd, which has no newer version to wait for. Its
            // error then contains no time to retry after.
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
                let mut activity = std::pin::pin!(self.activity.notified());
                activity.as_mut().enable();
                if self.model(|model| model.version()) >= version {
                    return;
                }
                activity.await;
            }
        };
        if self.clock.timeout(VERSION_TIMEOUT, reached).await.is_some() {
            return Ok(());
        }
        Err(Status::version_too_large(version, self.model(|model| model.version())))
    }

    /// Adds a request to the log.
    pub(crate) fn record(&self, request: RecordedRequest) {
        self.log.push(request);
        self.activity.notify_waiters();
    }

    /// Returns the requests in the log.
    pub(crate) fn recorded_requests(&self) -> Vec<RecordedRequest> {
        self.log.all()
    }

    /// Counts a watch that starts.
    pub(crate) fn watch_started(&self) {
        self.open_watches.fetch_add(1, Ordering::SeqCst);
        self.activity.notify_waiters();
    }

    /// Counts a watch that ends.
    pub(crate) fn watch_ended(&self) {
        self.open_watches.fetch_sub(1, Ordering::SeqCst);
        self.activity.notify_waiters();
    }

    pub(crate) fn open_watches(&self) -> usize {
        self.open_watches.load(Ordering::SeqCst)
    }

    /// Returns the number of a new watch without a timeout. It staggers the ends of these watches.
    pub(crate) fn next_watch_number(&self) -> u64 {
        self.watch_number.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a new `Audit-Id`, or id of a token. It does not come from the ids of the model: uids of objects
    /// must not depend on the number of requests.
    pub(crate) fn next_audit_id(&self) -> String {
        Ids::new(self.audit_seed.fetch_add(1, Ordering::Relaxed)).next_uid()
    }

    /// Returns the key that signs tokens of service accounts, or `None` if there are no random numbers.
    pub(crate) fn signing_key(&self) -> Option<&SecretKey> {
        self.signing_key.get_or_init(SecretKey::generate).as_ref()
    }

    fn lock(&self) -> MutexGuard<'_, Model> {
        // Ignores poisoning: a panic in one operation must not make all later operations panic.
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
