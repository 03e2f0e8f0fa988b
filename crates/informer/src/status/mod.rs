//! What an informer says about itself, and who may wait for it to change.

mod diagnostic;

pub use diagnostic::Diagnostic;
pub(crate) use diagnostic::{DiagnosticHook, DiagnosticSink};
pub use informer_core::reflector::{
    Failure, FailureKind, InformerState, ReflectorCounters, RelistCounters, RequestKind,
};
pub use informer_core::wire::{ObjectError, UnreadableObject};
pub use informer_core::{Moment, Scope};

use informer_core::reflector::Reflector;
use informer_core::{BatchResult, Change, Key, ResourceVersion, StoreSnapshot};
use std::time::Duration;
use tokio::sync::watch;

/// Where an informer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerStatus {
    /// The state of its connection to the server (C7); of several namespaces, the one that is worst off.
    pub state: InformerState,
    /// When this was so, on the clock of all moments here. In a value from [`watch_status`](crate::SharedInformer::subscribe_status) that is
    /// when it last changed.
    pub now: Moment,
    /// Whether the first complete set is in the cache. Never goes back.
    pub synced: bool,
    /// The version that the cache stands for; of several namespaces, the smallest. `None` until it is synced.
    pub resource_version: Option<ResourceVersion>,
    /// When the server last gave a sign of life; of several namespaces, the one that has been silent for longest.
    pub last_contact: Option<Moment>,
    /// When the cache was last known to be current; of several namespaces, the one that is furthest behind.
    pub last_up_to_date: Option<Moment>,
    /// What happened on the wire so far, over all namespaces.
    pub reflector: ReflectorCounters,
    /// What happened in the cache so far.
    pub cache: CacheCounters,
    /// Objects whose newest state could not be read, with the reason. What the cache has of them is stale.
    pub unreadable_objects: Vec<(Key, String)>,
    /// One for all, or one for each namespace.
    pub scopes: Vec<ScopeStatus>,
}

impl InformerStatus {
    /// How long before `now` the server last gave a sign of life; `None` if it never had.
    pub fn contact_age(&self) -> Option<Duration> {
        self.last_contact.map(|heard| self.now - heard)
    }

    /// How far the cache may be behind at `now`: nothing while it is live, otherwise the time since it was. `None` if it never was.
    pub fn staleness(&self) -> Option<Duration> {
        match &self.state {
            InformerState::Live => Some(Duration::ZERO),
            _ => self.last_up_to_date.filter(|_| self.synced).map(|current| self.now - current),
        }
    }

    /// Brings up to date what follows from the scopes.
    fn aggregate(&mut self, now: Moment) {
        self.now = now;
        self.last_contact = self.scopes.iter().map(|scope| scope.last_contact).min().flatten();
        // What is live is current, however quiet.
        let behind = self.scopes.iter().filter(|scope| scope.state != InformerState::Live);
        self.last_up_to_date = behind.map(|scope| scope.last_up_to_date).min().unwrap_or(Some(now));
        self.reflector = ReflectorCounters::default();
        for scope in &self.scopes {
            self.reflector += scope.reflector;
        }
        let worst = self.scopes.iter().map(|scope| &scope.state).max_by_key(|state| severity(state));
        // A stream that is live tells nobody anything until the cache has the first set.
        if let Some(worst) = worst.filter(|state| self.synced || **state != InformerState::Live) {
            self.state = worst.clone();
        }
    }
}

/// Where an informer stands with one namespace, or with all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScopeStatus {
    /// What it is about.
    pub scope: Scope,
    /// The state of its connection.
    pub state: InformerState,
    /// When the server last gave a sign of life.
    pub last_contact: Option<Moment>,
    /// When it was last known to be current.
    pub last_up_to_date: Option<Moment>,
    /// What happened on the wire so far.
    pub reflector: ReflectorCounters,
    /// The version that the cache stands for here.
    pub resource_version: Option<ResourceVersion>,
}

/// What happened in a cache. Numbers only ever grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheCounters {
    /// Objects that came.
    pub added: u64,
    /// Newer states of objects that were there.
    pub updated: u64,
    /// Objects that went.
    pub deleted: u64,
    /// Deltas that were older than what the cache held, and dropped (C1).
    pub stale_deltas: u64,
    /// Deletions of objects that the cache did not hold; they are not told.
    pub deletes_of_unknown: u64,
    /// Items that a list contained more than once.
    pub duplicates: u64,
    /// Changes by which an audit put the cache right; one that was created anew counts as two.
    pub drift: u64,
    /// Complete sets that lay behind what the cache had (C1).
    pub rewinds: u64,
    /// Calls of index functions that panicked.
    pub index_panics: u64,
    /// How often compression panicked; once is enough for it to learn no more.
    pub compression_panics: u64,
}

/// The status, shared between the tasks of an informer and its handles.
#[derive(Debug)]
pub(crate) struct StatusCell(watch::Sender<InformerStatus>);

impl StatusCell {
    pub(crate) fn new(scopes: &[Scope]) -> Self {
        let one = |scope: &Scope| ScopeStatus {
            scope: scope.clone(),
            state: InformerState::NotStarted,
            last_contact: None,
            last_up_to_date: None,
            reflector: ReflectorCounters::default(),
            resource_version: None,
        };
        Self(watch::Sender::new(InformerStatus {
            state: InformerState::NotStarted,
            now: Moment::default(),
            synced: false,
            resource_version: None,
            last_contact: None,
            last_up_to_date: None,
            reflector: ReflectorCounters::default(),
            cache: CacheCounters::default(),
            unreadable_objects: Vec::new(),
            scopes: scopes.iter().map(one).collect(),
        }))
    }

    /// The status as it is now.
    pub(crate) fn get(&self, now: Moment) -> InformerStatus {
        let mut status = self.0.borrow().clone();
        status.aggregate(now);
        status
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.borrow().state == InformerState::Stopped
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<InformerStatus> {
        self.0.subscribe()
    }

    /// Notes where the reflector of one scope stands. Only a change of state wakes those who wait; the rest moves with every chunk, and is
    /// summed up when somebody looks.
    pub(crate) fn record_reflector(&self, lane: usize, machine: &Reflector, now: Moment) {
        let state = machine.state();
        self.0.send_if_modified(|status| {
            let Some(scope) = status.scopes.get_mut(lane) else { return false };
            scope.reflector = *machine.counters();
            (scope.last_contact, scope.last_up_to_date) = (machine.last_contact(), machine.last_up_to_date());
            let changed = scope.state != state;
            scope.state = state;
            if changed {
                status.aggregate(now);
            }
            changed
        });
    }

    pub(crate) fn set_synced(&self, now: Moment) {
        self.0.send_modify(|status| {
            status.synced = true;
            status.aggregate(now);
        });
    }

    /// Notes that compression panicked.
    #[cfg(feature = "compression")]
    pub(crate) fn record_compression_panic(&self) {
        self.0.send_modify(|status| status.cache.compression_panics += 1);
    }

    /// Notes what a batch did, and where the cache stands after it.
    pub(crate) fn record_batch(&self, applied: &BatchResult, after: &StoreSnapshot, now: Moment) {
        let version = after.resource_version();
        self.0.send_if_modified(|status| {
            let changes = &mut status.cache;
            for change in &applied.changes {
                match change {
                    Change::Added(_) => changes.added += 1,
                    Change::Updated { .. } => changes.updated += 1,
                    Change::Deleted { .. } => changes.deleted += 1,
                }
            }
            changes.stale_deltas += applied.stale_deltas;
            changes.deletes_of_unknown += applied.deletes_of_unknown;
            changes.duplicates += applied.duplicates;
            changes.drift += applied.drift;
            changes.rewinds += u64::from(applied.server_rewound);
            changes.index_panics += applied.index_panics;
            if !status.unreadable_objects.is_empty() || applied.unreadable > 0 {
                status.unreadable_objects = unreadable(after);
            }
            let mut moved = applied.server_rewound;
            for scope in &mut status.scopes {
                let version = after.scope_version(&scope.scope);
                if scope.resource_version.as_ref() != version {
                    scope.resource_version = version.cloned();
                    moved = true;
                }
            }
            if moved {
                status.resource_version = version.cloned();
                status.aggregate(now);
            }
            moved
        });
    }
}

fn unreadable(snapshot: &StoreSnapshot) -> Vec<(Key, String)> {
    snapshot.unreadable().map(|(key, reason)| (key.clone(), reason.to_owned())).collect()
}

/// Of the states of several namespaces the worst is told.
fn severity(state: &InformerState) -> u8 {
    match state {
        InformerState::Live => 0,
        InformerState::Stale { .. } => 1,
        InformerState::Listing { .. } => 2,
        InformerState::Connecting => 3,
        InformerState::NotStarted => 4,
        InformerState::BackingOff { .. } => 5,
        InformerState::NotServed { .. } => 6,
        InformerState::Forbidden { .. } => 7,
        _ => 8,
    }
}
