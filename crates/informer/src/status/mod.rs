//! State, counters and diagnostics of an informer.

mod diagnostic;
mod persistence;

pub use diagnostic::Diagnostic;
pub(crate) use diagnostic::{DiagnosticHook, DiagnosticSink};
pub use informer_core::reflector::{
    Failure, FailureKind, InformerState, ReflectorCounters, RelistCounters, RequestKind,
};
pub use informer_core::wire::{ObjectError, UnreadableObject};
pub use informer_core::{Moment, Scope};
pub use persistence::{ColdStartReason, ForgottenHandler, PersistenceStatus, StartKind};

use informer_core::reflector::ShardedReflector;
use informer_core::shard::HashRanges;
use informer_core::{BatchResult, Change, Key, ResourceVersion, StoreSnapshot};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The status of an informer: its state, versions, times and counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerStatus {
    /// The state of the informer (C7); with several namespaces, the worst of their states.
    pub state: InformerState,
    /// The moment of this status, on the same clock as all other moments in it.
    ///
    /// In a value from [`subscribe_status`](crate::SharedInformer::subscribe_status) it is the moment of the
    /// last change.
    pub now: Moment,
    /// Whether the cache contains the initial list. Never becomes `false` again.
    pub synced: bool,
    /// The version that the cache represents; with several namespaces, the lowest of their versions. `None`
    /// until the cache is synced, and if the versions cannot be compared.
    pub resource_version: Option<ResourceVersion>,
    /// When a part of a response was last received; with several namespaces, the earliest of these moments.
    pub last_contact: Option<Moment>,
    /// When the cache was last known to be up to date; with several namespaces, the earliest of these
    /// moments.
    pub last_up_to_date: Option<Moment>,
    /// The last request or stream that failed since the informer was live, and when it failed; `None` while the
    /// informer is live. With several namespaces, the latest of their failures.
    ///
    /// Unlike the failure in [`InformerState::BackingOff`], it stays while the next request is on its way.
    pub last_failure: Option<(Moment, Failure)>,
    /// Counters of the requests and responses, over all namespaces.
    pub reflector: ReflectorCounters,
    /// Counters of the cache.
    pub cache: CacheCounters,
    /// Objects whose newest state is unreadable, with the reason. Their cached states are stale.
    pub unreadable_objects: Vec<(Key, String)>,
    /// The saved cache; `None` if the cache is not persisted.
    pub persistence: Option<PersistenceStatus>,
    /// The names of the handlers whose call has not returned for 10 s (C8).
    pub blocked_handlers: Vec<Arc<str>>,
    /// The status of each namespace, or a single one for all namespaces.
    pub scopes: Vec<ScopeStatus>,
}

/// The hash ranges that the cache of one scope contains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CompleteRanges {
    /// The number of the newest view of the shard group that was applied.
    pub(crate) view: u64,
    pub(crate) ranges: HashRanges,
}

impl InformerStatus {
    /// Returns the status before the start.
    fn new(scopes: &[Scope]) -> Self {
        let new_scope = |scope: &Scope| ScopeStatus {
            scope: scope.clone(),
            state: InformerState::NotStarted,
            last_contact: None,
            last_up_to_date: None,
            last_failure: None,
            reflector: ReflectorCounters::default(),
            resource_version: None,
            complete: None,
        };
        Self {
            state: InformerState::NotStarted,
            now: Moment::default(),
            synced: false,
            resource_version: None,
            last_contact: None,
            last_up_to_date: None,
            last_failure: None,
            reflector: ReflectorCounters::default(),
            cache: CacheCounters::default(),
            unreadable_objects: Vec::new(),
            persistence: None,
            blocked_handlers: Vec::new(),
            scopes: scopes.iter().map(new_scope).collect(),
        }
    }

    /// Returns the time between the last contact and `now`; `None` if there was no contact.
    ///
    /// Response headers, a part of a list and a complete frame of a watch are contacts. While an informer is
    /// live, up to a little more than a minute is normal: if nothing changes, kube-apiserver sends a bookmark
    /// about once a minute. A connection that is silent for longer than 95 to 100 s is given up (C11), so more
    /// than two minutes mean that the server does not respond.
    pub fn contact_age(&self) -> Option<Duration> {
        self.last_contact.map(|contact| self.now - contact)
    }

    /// Returns by how much the cache may be out of date at `now`; `None` until the cache is synced.
    ///
    /// Zero while the informer is live, otherwise the time since the cache was last known to be up to date: the
    /// last frame of a watch or the last complete list. Normally zero, and a few seconds while a watch is
    /// renewed. A server that stops responding is noticed after 95 to 100 s of silence; until then the staleness
    /// is zero, and then it jumps to the duration of the silence. To see the silence earlier, look at
    /// [`contact_age`](Self::contact_age).
    pub fn staleness(&self) -> Option<Duration> {
        match &self.state {
            InformerState::Live => Some(Duration::ZERO),
            _ => self.last_up_to_date.filter(|_| self.synced).map(|up_to_date| self.now - up_to_date),
        }
    }

    /// Returns the hash ranges whose objects are in the cache; `None` without sharding.
    ///
    /// Ranges that are being gained are missing, although the cache stays [synced](Self::synced).
    pub fn complete_ranges(&self) -> Option<HashRanges> {
        let mut ranges = self.scopes.iter().map(|scope| scope.complete.as_ref());
        ranges.try_fold(HashRanges::all(), |all, complete| Some(all.intersection(&complete?.ranges)))
    }

    /// Recomputes the fields that are derived from the scopes.
    fn aggregate(&mut self, now: Moment) {
        self.now = now;
        self.last_contact = self.scopes.iter().map(|scope| scope.last_contact).min().flatten();
        let failures = self.scopes.iter().filter_map(|scope| scope.last_failure.as_ref());
        self.last_failure = failures.max_by_key(|(at, _)| *at).cloned();
        // A live scope is up to date, even without recent contact.
        let stale = self.scopes.iter().filter(|scope| scope.state != InformerState::Live);
        self.last_up_to_date = stale.map(|scope| scope.last_up_to_date).min().unwrap_or(Some(now));
        self.reflector = ReflectorCounters::default();
        for scope in &self.scopes {
            self.reflector += scope.reflector;
        }
        let worst = self.scopes.iter().map(|scope| &scope.state).max_by_key(|state| severity(state));
        // A live watch does not make the informer live before the cache contains the initial list; until then
        // the previous state stays.
        if let Some(worst) = worst.filter(|state| self.synced || **state != InformerState::Live) {
            self.state = worst.clone();
        }
    }
}

/// The status of an informer for one namespace, or for all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeStatus {
    /// The namespace, or all of them.
    pub scope: Scope,
    /// The state.
    pub state: InformerState,
    /// When a part of a response was last received.
    pub last_contact: Option<Moment>,
    /// When the cache was last known to be up to date.
    pub last_up_to_date: Option<Moment>,
    /// The last request or stream that failed since the scope was live, and when it failed; `None` while the
    /// scope is live.
    pub last_failure: Option<(Moment, Failure)>,
    /// Counters of the requests and responses.
    pub reflector: ReflectorCounters,
    /// The version that the cache represents.
    pub resource_version: Option<ResourceVersion>,
    /// The hash ranges that the cache contains, with sharding.
    pub(crate) complete: Option<CompleteRanges>,
}

/// Counters of a cache. They only increase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheCounters {
    /// Objects added.
    pub added: u64,
    /// Updates of cached objects.
    pub updated: u64,
    /// Objects deleted.
    pub deleted: u64,
    /// Objects that belong to other processes of a shard group since.
    pub released: u64,
    /// Deltas dropped because they were older than the cached state (C1).
    pub stale_deltas: u64,
    /// Deletions of objects that were not cached. They are not delivered.
    pub deletes_of_unknown: u64,
    /// Duplicate items of lists.
    pub duplicates: u64,
    /// Changes by which audits corrected the cache. A re-created object counts as two.
    pub drift: u64,
    /// Full lists that were older than the cache (C1).
    pub rewinds: u64,
    /// Calls of index functions that panicked.
    pub index_panics: u64,
    /// Panics of compression. After the first one, no further dictionary is trained.
    pub compression_panics: u64,
}

/// The status, shared between the tasks of an informer and its handles.
#[derive(Debug)]
pub(crate) struct StatusCell(watch::Sender<InformerStatus>);

impl StatusCell {
    pub(crate) fn new(scopes: &[Scope]) -> Self {
        Self(watch::Sender::new(InformerStatus::new(scopes)))
    }

    /// Forgets everything, before the same scopes are reflected again from the beginning.
    pub(crate) fn reset(&self) {
        self.0.send_modify(|status| {
            let scopes: Vec<_> = status.scopes.iter().map(|scope| scope.scope.clone()).collect();
            *status = InformerStatus::new(&scopes);
        });
    }

    /// Returns the status at `now`.
    pub(crate) fn get(&self, now: Moment) -> InformerStatus {
        let mut status = self.0.borrow().clone();
        status.aggregate(now);
        status
    }

    /// Returns the hash ranges that the cache contains of each scope; if `without_absent`, scopes that are forbidden or
    /// not served are left out.
    pub(crate) fn complete_ranges(&self, without_absent: bool) -> Vec<CompleteRanges> {
        let is_absent = |state: &InformerState| {
            matches!(state, InformerState::Forbidden { .. } | InformerState::NotServed { .. })
        };
        let status = self.0.borrow();
        let scopes = status.scopes.iter().filter(|scope| !(without_absent && is_absent(&scope.state)));
        scopes.map(|scope| scope.complete.clone().unwrap_or_default()).collect()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.borrow().state == InformerState::Stopped
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<InformerStatus> {
        self.0.subscribe()
    }

    /// Records the state and counters of the reflector of one scope.
    ///
    /// Of these values, only a new state wakes subscribers. Counters and times change with every chunk;
    /// [`StatusCell::get`] aggregates them.
    pub(crate) fn record_reflector(&self, scope_index: usize, reflector: &ShardedReflector, now: Moment) {
        let state = reflector.state();
        self.0.send_if_modified(|status| {
            let Some(scope) = status.scopes.get_mut(scope_index) else { return false };
            scope.reflector = reflector.counters();
            (scope.last_contact, scope.last_up_to_date) =
                (reflector.last_contact(), reflector.last_up_to_date());
            let changed = scope.state != state;
            if state == InformerState::Live {
                scope.last_failure = None;
            }
            scope.state = state;
            if changed {
                status.aggregate(now);
            }
            changed
        });
    }

    /// Records the hash ranges that the store contains for one scope; a difference wakes subscribers.
    pub(crate) fn record_ranges(&self, scope_index: usize, complete: CompleteRanges, now: Moment) {
        self.0.send_if_modified(|status| {
            let Some(scope) = status.scopes.get_mut(scope_index) else { return false };
            let is_changed = scope.complete.as_ref() != Some(&complete);
            scope.complete = Some(complete);
            status.now = now;
            is_changed
        });
    }

    /// Records a failed request of one scope.
    pub(crate) fn record_failure(&self, scope_index: usize, failure: &Failure, now: Moment) {
        self.0.send_modify(|status| {
            // A probe that fails may leave the state live, for example if the user may watch but not list.
            let scope = status.scopes.get_mut(scope_index);
            if let Some(scope) = scope.filter(|scope| scope.state != InformerState::Live) {
                scope.last_failure = Some((now, failure.clone()));
            }
            status.aggregate(now);
        });
    }

    /// Records the version up to which the changes of one scope were processed, without a cache.
    pub(crate) fn record_version(&self, scope_index: usize, version: ResourceVersion, now: Moment) {
        self.0.send_if_modified(|status| {
            let Some(scope) = status.scopes.get_mut(scope_index) else { return false };
            if scope.resource_version.as_ref() == Some(&version) {
                return false;
            }
            scope.resource_version = Some(version);
            let mut versions = status.scopes.iter().map(|scope| scope.resource_version.clone());
            let first = versions.next().flatten();
            status.resource_version = versions.fold(first, |lowest, version| {
                let (lowest, version) = (lowest?, version?);
                Some(if version.compare(&lowest)?.is_lt() { version } else { lowest })
            });
            status.aggregate(now);
            true
        });
    }

    pub(crate) fn set_synced(&self, now: Moment) {
        self.0.send_modify(|status| {
            status.synced = true;
            status.aggregate(now);
        });
    }

    /// Records the handlers whose call does not return; a difference wakes subscribers.
    pub(crate) fn set_blocked_handlers(&self, handlers: Vec<Arc<str>>) {
        self.0.send_if_modified(|status| {
            let changed = status.blocked_handlers != handlers;
            status.blocked_handlers = handlers;
            changed
        });
    }

    /// Changes the status of the saved cache.
    #[cfg(feature = "persistence")]
    pub(crate) fn update_persistence(&self, update: impl FnOnce(&mut PersistenceStatus)) {
        self.0.send_modify(|status| {
            let unknown = PersistenceStatus {
                start: StartKind::Loading,
                saved_at: None,
                error: None,
                forgotten_handlers: Vec::new(),
            };
            update(status.persistence.get_or_insert(unknown));
        });
    }

    /// Records that the cache was loaded, before the first request.
    #[cfg(feature = "persistence")]
    pub(crate) fn record_restored(&self, as_of: jiff::Timestamp, now: Moment) {
        self.0.send_modify(|status| {
            let waiting = status.scopes.iter_mut().filter(|scope| scope.state == InformerState::NotStarted);
            waiting.for_each(|scope| scope.state = InformerState::Restored { as_of });
            status.aggregate(now);
        });
    }

    /// Records a panic of compression.
    #[cfg(feature = "compression")]
    pub(crate) fn record_compression_panic(&self) {
        self.0.send_modify(|status| status.cache.compression_panics += 1);
    }

    /// Records the result of a batch and the snapshot after it; a new version, a rewind, and after the sync every
    /// change wakes subscribers.
    pub(crate) fn record_batch(&self, batch: &BatchResult, after: &StoreSnapshot, now: Moment) {
        let version = after.resource_version();
        self.0.send_if_modified(|status| {
            let counters = &mut status.cache;
            for change in &batch.changes {
                match change {
                    Change::Added(_) => counters.added += 1,
                    Change::Updated { .. } => counters.updated += 1,
                    Change::Deleted { .. } => counters.deleted += 1,
                    Change::Released(_) => counters.released += 1,
                }
            }
            counters.stale_deltas += batch.stale_deltas;
            counters.deletes_of_unknown += batch.deletes_of_unknown;
            counters.duplicates += batch.duplicates;
            counters.drift += batch.drift;
            counters.rewinds += u64::from(batch.server_rewound);
            counters.index_panics += batch.index_panics;
            if !status.unreadable_objects.is_empty() || batch.unreadable > 0 {
                status.unreadable_objects = unreadable(after);
            }
            // An audit, or a source with few versions, changes objects without a new version.
            let mut is_changed = batch.server_rewound || (status.synced && !batch.changes.is_empty());
            for scope in &mut status.scopes {
                let version = after.scope_version(&scope.scope);
                if scope.resource_version.as_ref() != version {
                    scope.resource_version = version.cloned();
                    is_changed = true;
                }
            }
            if is_changed {
                status.resource_version = version.cloned();
                status.aggregate(now);
            }
            is_changed
        });
    }
}

fn unreadable(snapshot: &StoreSnapshot) -> Vec<(Key, String)> {
    snapshot.unreadable().map(|(key, reason)| (key.clone(), reason.to_owned())).collect()
}

/// Returns the rank of a state. An informer with several namespaces has the state with the highest rank.
fn severity(state: &InformerState) -> u8 {
    match state {
        InformerState::Live => 0,
        InformerState::Stale { .. } => 1,
        InformerState::Restored { .. } => 2,
        InformerState::Listing { .. } => 3,
        InformerState::Connecting => 4,
        InformerState::NotStarted => 5,
        InformerState::BackingOff { .. } => 6,
        InformerState::NotServed { .. } => 7,
        InformerState::Forbidden { .. } => 8,
        _ => 9,
    }
}
