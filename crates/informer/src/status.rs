//! What an informer says about itself, and who may wait for it to change.

use informer_core::reflector::{Counters, State};
use informer_core::{Applied, Key, Moment};
use tokio::sync::watch;

/// Where an informer stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// The state of its connection to the server (C7).
    pub state: State,
    /// When this was so, on the clock of the moments in `state`.
    pub now: Moment,
    /// Whether the first complete set is in the cache. Never goes back.
    pub synced: bool,
    /// What happened on the wire so far.
    pub counters: Counters,
    /// Deltas that were older than what the cache held, and dropped (C1).
    pub outdated: u64,
    /// Deletions of objects that the cache did not hold; they are not told.
    pub unknown_deletes: u64,
    /// Items that a list contained more than once.
    pub duplicates: u64,
    /// Objects whose newest state could not be read, with the reason. What the cache has of them is stale.
    pub unreadable: Vec<(Key, String)>,
}

/// The status, shared between the tasks of an informer and its handles.
#[derive(Debug)]
pub(crate) struct StatusCell(watch::Sender<Status>);

impl StatusCell {
    pub(crate) fn new() -> Self {
        Self(watch::Sender::new(Status {
            state: State::NotStarted,
            now: Moment::default(),
            synced: false,
            counters: Counters::default(),
            outdated: 0,
            unknown_deletes: 0,
            duplicates: 0,
            unreadable: Vec::new(),
        }))
    }

    pub(crate) fn get(&self) -> Status {
        self.0.borrow().clone()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }

    /// Only a change of state wakes those who wait; counters move with every chunk.
    pub(crate) fn set_reflector(&self, state: State, counters: Counters) {
        self.0.send_if_modified(|status| {
            status.counters = counters;
            let changed = status.state != state;
            status.state = state;
            changed
        });
    }

    pub(crate) fn set_synced(&self) {
        self.0.send_modify(|status| status.synced = true);
    }

    pub(crate) fn count_applied(&self, applied: &Applied) {
        self.0.send_if_modified(|status| {
            status.outdated += applied.outdated;
            status.unknown_deletes += applied.unknown_deletes;
            status.duplicates += applied.duplicates;
            false
        });
    }
}
