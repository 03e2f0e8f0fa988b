//! The published state of a membership.
//!
//! Invariant: only the current run publishes; when it ends, for whatever reason, the process acts for no range.

use super::status::{Counters, ShardStatus};
use crate::shard_view::ShardHandle;
use informer_core::shard::{HashRange, HashRanges, RangeToken};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::time::Instant;

/// The ranges for which a process acts.
#[derive(Debug, Clone, Default)]
pub(super) struct PublishedRanges {
    pub(super) held: Arc<HashRanges>,
    pub(super) releasing: Arc<HashRanges>,
    pub(super) is_settled: bool,
}

/// The state that the handles of a membership, its run and its participants share.
#[derive(Debug)]
pub(super) struct GroupState {
    /// What informers and controllers see.
    pub(super) handle: ShardHandle,
    pub(super) status: watch::Sender<ShardStatus>,
    pub(super) counters: Mutex<Counters>,
    /// Identifies the current run; odd while one is running.
    run: Mutex<u64>,
}

impl GroupState {
    pub(super) fn new(identity: &str, handle: ShardHandle) -> Self {
        Self {
            handle,
            status: watch::Sender::new(ShardStatus::new(identity)),
            counters: Mutex::default(),
            run: Mutex::new(0),
        }
    }

    /// Begins a run, which publishes until the returned guard is dropped.
    pub(super) fn begin_run(self: &Arc<Self>) -> RunGuard {
        let mut run = self.lock_run();
        *run += 1;
        RunGuard { publisher: Publisher { state: Arc::clone(self), run: *run } }
    }

    /// Returns the token of the range that contains a hash, while the process acts for it.
    pub(super) fn token(&self, hash: u64) -> Option<RangeToken> {
        let view = self.handle.view();
        view.token(hash).filter(|_| self.handle.acts()).cloned()
    }

    pub(super) fn lock_counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes for which ranges the process acts; returns the number of the view.
    pub(super) fn publish(
        &self,
        ranges: PublishedRanges,
        acts_until: Option<Instant>,
        tokens: Arc<BTreeMap<HashRange, RangeToken>>,
    ) -> u64 {
        let PublishedRanges { held, releasing, is_settled } = ranges;
        self.handle.set_acts_until(acts_until);
        self.handle.publish(|view| {
            (view.held, view.releasing, view.is_settled) = (held, releasing, is_settled);
            view.tokens = tokens;
        })
    }

    fn lock_run(&self) -> MutexGuard<'_, u64> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Publishes the state of one run, until the run has ended.
#[derive(Clone)]
pub(super) struct Publisher {
    state: Arc<GroupState>,
    run: u64,
}

impl Publisher {
    pub(super) fn state(&self) -> &GroupState {
        &self.state
    }

    /// Calls `publish` if this run has not ended; it does not end during the call.
    pub(super) fn publish<T>(&self, publish: impl FnOnce(&GroupState) -> T) -> Option<T> {
        let run = self.state.lock_run();
        (*run == self.run).then(|| publish(&self.state))
    }
}

/// Publishes the end of a run when dropped: a task of the run that has not noticed yet publishes nothing more.
pub(super) struct RunGuard {
    publisher: Publisher,
}

impl RunGuard {
    pub(super) fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        let state = &self.publisher.state;
        let mut run = state.lock_run();
        *run += 1;
        state.publish(PublishedRanges::default(), None, Arc::default());
        let identity = state.status.borrow().identity.clone();
        state.status.send_replace(ShardStatus::new(&identity));
        let mut counters = state.lock_counters();
        (counters.held, counters.releasing, counters.claimed) = (0, 0, 0);
    }
}
