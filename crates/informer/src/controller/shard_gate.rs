//! The gate of a sharded controller: which keys are reconciled by this process, and when a range may be released.
//!
//! A reconcile starts only if the process holds the range of its key, and if the caches of all sources contain that
//! range: otherwise it would act on objects that appear to be missing. Before a range is released, its reconciles end in
//! order; if the range is lost, they are dropped at once.
//!
//! Invariant: a view is confirmed for a range that is not held only while no reconcile of it runs, so that a slow reconcile
//! delays the release of its own range alone. The check and the start of a reconcile happen under one lock.

use super::sharding::{ControllerShard, DeletedKey, DeletedKeys};
use crate::clock::{instant_after, sleep_until};
use crate::shard_view::{Participant, ShardView};
use crate::shared::Engine;
use crate::status::CompleteRanges;
use crate::workqueue::WorkQueue;
use futures::future::select_all;
use informer_core::shard::RangeToken;
use informer_core::workqueue::Priority;
use informer_core::{Key, StoreReader};
use std::collections::{BTreeMap, HashMap};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Delay after which deferred keys are checked again, if nothing else has changed.
const DEFERRED_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The gate of one run of a sharded controller.
pub(super) struct ShardGate {
    shard: ControllerShard,
    participant: Participant,
    /// The cache of the controller's own kind.
    own_kind: StoreReader,
    /// The informers of the sources that are divided.
    sources: Vec<GateSource>,
    deleted_keys: Arc<DeletedKeys>,
    queue: WorkQueue<Key>,
    /// How long reconciles may continue while their range is released.
    release_timeout: Duration,
    state: Mutex<State>,
    /// Notifies the task of the gate of a deferred key, and of the end of the gate.
    wake: Arc<Notify>,
}

/// A source of a sharded controller.
pub(super) struct GateSource {
    pub(super) engine: Arc<Engine>,
    /// Whether no key waits for it while it is forbidden or not served.
    pub(super) optional: bool,
}

#[derive(Default)]
struct State {
    /// The running reconciles by the number of their permit. Two permits of a key overlap while the first one ends.
    running: BTreeMap<u64, Running>,
    /// The number of the last permit.
    last_permit: u64,
    /// Keys whose range is held, but not complete in all caches, or whose group was not renewed in time.
    deferred: HashMap<Key, Priority>,
    /// What the caches of the sources contain, by scope. Those of optional sources that are forbidden or not served are
    /// left out.
    complete: Vec<CompleteRanges>,
}

struct Running {
    hash: u64,
    /// The number of the view since which the hash was held when the reconcile began. If it is another one now, the
    /// range was lost in between.
    since: u64,
    withdrawal: watch::Sender<Withdrawal>,
    /// When the reconcile is dropped, while its range is released.
    deadline: Option<Instant>,
}

/// Whether a reconcile may go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Withdrawal {
    None,
    /// It should end soon.
    Requested,
    /// It must be dropped.
    Immediate,
}

/// The decision about a key.
pub(super) enum Admission {
    Admitted(Permit),
    /// It is queued again later.
    Deferred,
    /// Another process acts for it.
    Foreign,
}

/// The permission to reconcile one key. While it exists, the range of the key is not released.
pub(super) struct Permit {
    gate: Arc<ShardGate>,
    key: Key,
    number: u64,
    hash: u64,
    /// The number of the view since which the hash was held.
    since: u64,
    /// What was known about the deletion of the object when the reconcile began.
    deleted: Option<DeletedKey>,
    token: Option<RangeToken>,
    withdrawal: watch::Receiver<Withdrawal>,
}

impl ShardGate {
    pub(super) fn new(
        shard: &ControllerShard,
        own_kind: &Arc<Engine>,
        sources: impl Iterator<Item = GateSource>,
        deleted_keys: &Arc<DeletedKeys>,
        queue: &WorkQueue<Key>,
        release_timeout: Duration,
    ) -> Arc<Self> {
        let sources: Vec<_> = sources.filter(|source| source.engine.shard.is_some()).collect();
        // Known before the first decision.
        let complete = complete_ranges(&sources);
        Arc::new(Self {
            participant: shard.group.join(),
            shard: shard.clone(),
            own_kind: own_kind.reader.clone(),
            sources,
            deleted_keys: Arc::clone(deleted_keys),
            queue: queue.clone(),
            release_timeout,
            state: Mutex::new(State { complete, ..State::default() }),
            wake: Arc::default(),
        })
    }

    /// Decides about a key that is to be reconciled.
    pub(super) fn admit(self: &Arc<Self>, key: &Key, priority: Priority) -> Admission {
        let deleted = self.deleted_keys.get(key);
        let hash = self.hash_of(key);
        let mut state = self.lock();
        let view = self.shard.group.view();
        let held = hash.and_then(|hash| Some((hash, view.held_since(hash)?)));
        let Some((hash, since)) = held else {
            self.forget_deleted(key, deleted);
            return Admission::Foreign;
        };
        // A group that was not renewed in time may still be renewed before it loses the range.
        if !self.shard.group.acts() || !state.is_complete(hash, since) {
            let is_first = state.deferred.is_empty();
            state.deferred.insert(key.clone(), priority);
            if is_first {
                // Later ones are checked at the deadline of this one.
                self.wake.notify_one();
            }
            return Admission::Deferred;
        }
        let (sender, withdrawal) = watch::channel(Withdrawal::None);
        state.last_permit += 1;
        let number = state.last_permit;
        state.running.insert(number, Running { hash, since, withdrawal: sender, deadline: None });
        let (gate, key, token) = (Arc::clone(self), key.clone(), view.token(hash).cloned());
        Admission::Admitted(Permit { gate, key, number, hash, since, deleted, token, withdrawal })
    }

    /// Starts the task that applies views of the group and states of the caches. It ends with the gate: a reconcile that
    /// continues after the run of its controller, because it blocks its thread, delays only its own range.
    pub(super) fn start(self: &Arc<Self>) -> JoinHandle<()> {
        let (gate, wake) = (Arc::downgrade(self), Arc::clone(&self.wake));
        let mut view = self.shard.group.subscribe();
        let mut statuses: Vec<_> =
            self.sources.iter().map(|source| source.engine.subscribe_status()).collect();
        tokio::spawn(async move {
            loop {
                view.mark_seen();
                statuses.iter_mut().for_each(watch::Receiver::mark_unchanged);
                let Some(gate) = gate.upgrade() else { return };
                let deadline = gate.apply();
                drop(gate);
                let caches = async {
                    if statuses.is_empty() {
                        return std::future::pending().await;
                    }
                    let changes = statuses.iter_mut().map(|status| Box::pin(status.changed()));
                    if select_all(changes).await.0.is_err() {
                        // The informer has stopped, which ends the run.
                        std::future::pending::<()>().await;
                    }
                };
                tokio::select! {
                    biased;
                    () = view.changed() => {}
                    () = caches => {}
                    () = wake.notified() => {}
                    () = sleep_until(deadline) => {}
                }
            }
        })
    }

    /// Applies the newest view and the states of the caches; returns when it must be called again at the latest.
    fn apply(&self) -> Option<Instant> {
        let complete = complete_ranges(&self.sources);
        let mut state = self.lock();
        let view = self.shard.group.view();
        let now = Instant::now();
        state.complete = complete;
        for running in state.running.values_mut() {
            running.withdraw(&view, now, self.release_timeout);
        }
        if self.shard.group.acts() {
            let hash_of = |key: &Key| self.hash_of(key);
            for (key, priority) in state.take_decided(&view, hash_of) {
                self.queue.add_with_priority(key, priority);
            }
        }
        self.confirm(&state, &view);
        let retry = (!state.deferred.is_empty()).then(|| now + DEFERRED_RETRY_DELAY);
        state.running.values().filter_map(|running| running.deadline).chain(retry).min()
    }

    /// Confirms a view, except for the ranges that are not held any more but of which reconciles run.
    fn confirm(&self, state: &State, view: &ShardView) {
        let is_ending = |running: &&Running| view.held_since(running.hash) != Some(running.since);
        let ending = state.running.values().filter(is_ending);
        let remaining = ending.filter_map(|running| view.range_of(running.hash)).collect();
        self.participant.confirm(view.number, remaining);
    }

    /// Returns the hash that decides which process acts for a key; `None` if it is unknown here.
    fn hash_of(&self, key: &Key) -> Option<u64> {
        if let Some(hash) = self.shard.property.hash_of_key(key) {
            return Some(hash);
        }
        let deleted = self.deleted_keys.get(key);
        match self.own_kind.get(key) {
            Some(entry) => {
                self.forget_deleted(key, deleted);
                self.shard.property.hash(entry.head())
            }
            None => deleted.map(|deleted| deleted.hash),
        }
    }

    /// Forgets a deletion, unless a later one was recorded.
    fn forget_deleted(&self, key: &Key, deleted: Option<DeletedKey>) {
        if let Some(deleted) = deleted {
            self.deleted_keys.remove(key, deleted);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns what the caches of the sources contain, by scope.
fn complete_ranges(sources: &[GateSource]) -> Vec<CompleteRanges> {
    sources.iter().flat_map(|source| source.engine.complete_ranges(source.optional)).collect()
}

impl State {
    /// Returns whether the caches of all sources contain the range of a hash that is held since a view.
    fn is_complete(&self, hash: u64, since: u64) -> bool {
        self.complete.iter().all(|complete| complete.view >= since && complete.ranges.contains(hash))
    }

    /// Removes and returns the deferred keys that need not be deferred any more.
    fn take_decided(
        &mut self,
        view: &ShardView,
        hash_of: impl Fn(&Key) -> Option<u64>,
    ) -> Vec<(Key, Priority)> {
        let is_deferred = |key: &Key| {
            let since = hash_of(key).and_then(|hash| Some((hash, view.held_since(hash)?)));
            since.is_some_and(|(hash, since)| !self.is_complete(hash, since))
        };
        let decided: Vec<Key> = self.deferred.keys().filter(|key| !is_deferred(key)).cloned().collect();
        decided.iter().filter_map(|key| self.deferred.remove_entry(key)).collect()
    }
}

impl Running {
    /// Withdraws the permission if the range is not held any more, or was lost and gained again.
    fn withdraw(&mut self, view: &ShardView, now: Instant, timeout: Duration) {
        let is_same_claim = view.acting_since(self.hash) == Some(self.since);
        let withdrawal = if is_same_claim && view.held.contains(self.hash) {
            self.deadline = None;
            Withdrawal::None
        } else if is_same_claim && self.deadline.is_none_or(|deadline| now < deadline) {
            self.deadline.get_or_insert(instant_after(now, timeout));
            Withdrawal::Requested
        } else {
            self.deadline = None;
            Withdrawal::Immediate
        };
        self.withdrawal.send_if_modified(|current| {
            let is_later = withdrawal != *current && *current != Withdrawal::Immediate;
            if is_later {
                *current = withdrawal;
            }
            is_later
        });
    }
}

impl Drop for ShardGate {
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Permit {
    /// Returns a channel that tells whether the reconcile may go on.
    pub(super) fn withdrawal(&self) -> watch::Receiver<Withdrawal> {
        self.withdrawal.clone()
    }

    /// Runs a reconcile while this process may act for its key; `None` if that has ended before. The reconcile of a process
    /// that was paused does not continue, even if the gate has not noticed yet.
    pub(super) async fn guard<F: Future>(&self, reconcile: F) -> Option<F::Output> {
        let mut reconcile = pin!(reconcile);
        let guarded = poll_fn(|context| {
            if self.gate.shard.group.may_continue(self.hash, self.since) {
                reconcile.as_mut().poll(context).map(Some)
            } else {
                Poll::Ready(None)
            }
        });
        tokio::select! {
            biased;
            () = dropped(self.withdrawal()) => None,
            ended = guarded => ended,
        }
    }

    /// Returns the token of the range of the key, as it was when the reconcile began.
    pub(super) fn token(&self) -> Option<RangeToken> {
        self.token.clone()
    }

    /// Records that nothing more is to be done for a deleted object.
    pub(super) fn forget_deleted(&self) {
        if self.gate.own_kind.get(&self.key).is_none() {
            self.gate.forget_deleted(&self.key, self.deleted);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.gate.lock();
        state.running.remove(&self.number);
        let view = self.gate.shard.group.view();
        self.gate.confirm(&state, &view);
    }
}

/// Waits until a reconcile must be dropped.
async fn dropped(mut withdrawal: watch::Receiver<Withdrawal>) {
    if withdrawal.wait_for(|withdrawal| *withdrawal == Withdrawal::Immediate).await.is_err() {
        // The permit exists as long as the reconcile.
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests;
