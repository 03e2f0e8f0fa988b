//! What an informer says about itself, and who may wait for it to change.

mod diagnostic;

pub use diagnostic::Problem;
pub(crate) use diagnostic::{Hook, Problems};

use informer_core::reflector::{Counters, Reflector, State};
use informer_core::{Applied, Change, Key, Moment, ResourceVersion, Scope, StoreSnapshot};
use std::time::Duration;
use tokio::sync::watch;

/// Where an informer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state of its connection to the server (C7); of several namespaces, the one that is worst off.
    pub state: State,
    /// When this was so, on the clock of all moments here. In a value from [`watch_status`](crate::SharedInformer::watch_status) that is
    /// when it last changed.
    pub now: Moment,
    /// Whether the first complete set is in the cache. Never goes back.
    pub synced: bool,
    /// The version that the cache stands for; of several namespaces, the smallest. `None` until it is synced.
    pub version: Option<ResourceVersion>,
    /// When the server last gave a sign of life; of several namespaces, the one that has been silent for longest.
    pub last_heard: Option<Moment>,
    /// When the cache was last known to be current; of several namespaces, the one that is furthest behind.
    pub last_current: Option<Moment>,
    /// What happened on the wire so far, over all namespaces.
    pub counters: Counters,
    /// What happened in the cache so far.
    pub changes: ChangeCounters,
    /// Objects whose newest state could not be read, with the reason. What the cache has of them is stale.
    pub unreadable: Vec<(Key, String)>,
    /// One for all, or one for each namespace.
    pub scopes: Vec<ScopeStatus>,
}

impl Status {
    /// How long before `now` the server last gave a sign of life; `None` if it never had.
    pub fn silence(&self) -> Option<Duration> {
        self.last_heard.map(|heard| self.now - heard)
    }

    /// How far the cache may be behind at `now`: nothing while it is live, otherwise the time since it was. `None` if it never was.
    pub fn staleness(&self) -> Option<Duration> {
        match &self.state {
            State::Live => Some(Duration::ZERO),
            _ => self.last_current.filter(|_| self.synced).map(|current| self.now - current),
        }
    }

    /// Brings up to date what follows from the scopes.
    fn sum_up(&mut self, now: Moment) {
        self.now = now;
        self.last_heard = self.scopes.iter().map(|scope| scope.last_heard).min().flatten();
        // What is live is current, however quiet.
        let behind = self.scopes.iter().filter(|scope| scope.state != State::Live);
        self.last_current = behind.map(|scope| scope.last_current).min().unwrap_or(Some(now));
        self.counters = Counters::default();
        for scope in &self.scopes {
            self.counters += scope.counters;
        }
        let worst = self.scopes.iter().map(|scope| &scope.state).max_by_key(|state| badness(state));
        // A stream that is live tells nobody anything until the cache has the first set.
        if let Some(worst) = worst.filter(|state| self.synced || **state != State::Live) {
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
    pub state: State,
    /// When the server last gave a sign of life.
    pub last_heard: Option<Moment>,
    /// When it was last known to be current.
    pub last_current: Option<Moment>,
    /// What happened on the wire so far.
    pub counters: Counters,
    /// The version that the cache stands for here.
    pub version: Option<ResourceVersion>,
}

/// What happened in a cache. Numbers only ever grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChangeCounters {
    /// Objects that came.
    pub added: u64,
    /// Newer states of objects that were there.
    pub updated: u64,
    /// Objects that went.
    pub deleted: u64,
    /// Deltas that were older than what the cache held, and dropped (C1).
    pub outdated: u64,
    /// Deletions of objects that the cache did not hold; they are not told.
    pub unknown_deletes: u64,
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
pub(crate) struct StatusCell(watch::Sender<Status>);

impl StatusCell {
    pub(crate) fn new(scopes: &[Scope]) -> Self {
        let one = |scope: &Scope| ScopeStatus {
            scope: scope.clone(),
            state: State::NotStarted,
            last_heard: None,
            last_current: None,
            counters: Counters::default(),
            version: None,
        };
        Self(watch::Sender::new(Status {
            state: State::NotStarted,
            now: Moment::default(),
            synced: false,
            version: None,
            last_heard: None,
            last_current: None,
            counters: Counters::default(),
            changes: ChangeCounters::default(),
            unreadable: Vec::new(),
            scopes: scopes.iter().map(one).collect(),
        }))
    }

    /// The status as it is now.
    pub(crate) fn get(&self, now: Moment) -> Status {
        let mut status = self.0.borrow().clone();
        status.sum_up(now);
        status
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.0.borrow().state == State::Stopped
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    /// Notes where the reflector of one scope stands. Only a change of state wakes those who wait; the rest moves with every chunk, and is
    /// summed up when somebody looks.
    pub(crate) fn set_reflector(&self, lane: usize, machine: &Reflector, now: Moment) {
        let state = machine.state();
        self.0.send_if_modified(|status| {
            let Some(scope) = status.scopes.get_mut(lane) else { return false };
            scope.counters = *machine.counters();
            (scope.last_heard, scope.last_current) = (machine.heard(), machine.last_current());
            let changed = scope.state != state;
            scope.state = state;
            if changed {
                status.sum_up(now);
            }
            changed
        });
    }

    pub(crate) fn set_synced(&self, now: Moment) {
        self.0.send_modify(|status| {
            status.synced = true;
            status.sum_up(now);
        });
    }

    /// Notes that compression panicked.
    #[cfg(feature = "compressed")]
    pub(crate) fn note_compression_panic(&self) {
        self.0.send_modify(|status| status.changes.compression_panics += 1);
    }

    /// Notes what a batch did, and where the cache stands after it.
    pub(crate) fn note_applied(&self, applied: &Applied, after: &StoreSnapshot, now: Moment) {
        let version = after.version();
        self.0.send_if_modified(|status| {
            let changes = &mut status.changes;
            for change in &applied.changes {
                match change {
                    Change::Added(_) => changes.added += 1,
                    Change::Updated { .. } => changes.updated += 1,
                    Change::Deleted { .. } => changes.deleted += 1,
                }
            }
            changes.outdated += applied.outdated;
            changes.unknown_deletes += applied.unknown_deletes;
            changes.duplicates += applied.duplicates;
            changes.drift += applied.drift;
            changes.rewinds += u64::from(applied.rewound);
            changes.index_panics += applied.index_panics;
            if !status.unreadable.is_empty() || applied.unreadable > 0 {
                status.unreadable = unreadable(after);
            }
            let mut moved = applied.rewound;
            for scope in &mut status.scopes {
                let version = after.scope_version(&scope.scope);
                if scope.version.as_ref() != version {
                    scope.version = version.cloned();
                    moved = true;
                }
            }
            if moved {
                status.version = version.cloned();
                status.sum_up(now);
            }
            moved
        });
    }
}

fn unreadable(snapshot: &StoreSnapshot) -> Vec<(Key, String)> {
    snapshot.unreadable().map(|(key, reason)| (key.clone(), reason.to_owned())).collect()
}

/// Of the states of several namespaces the worst is told.
fn badness(state: &State) -> u8 {
    match state {
        State::Live => 0,
        State::Stale { .. } => 1,
        State::Listing { .. } => 2,
        State::Connecting => 3,
        State::NotStarted => 4,
        State::BackingOff { .. } => 5,
        State::NotServed { .. } => 6,
        State::Forbidden { .. } => 7,
        _ => 8,
    }
}
