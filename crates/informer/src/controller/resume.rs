//! Restarts that do not reconcile every key: the keys that are not finished are saved with the caches of the sources.

use super::shared::Shared;
use super::source::KeySink;
use super::spec::Settings;
use crate::persistence::Unfinished;
use crate::shared::DurableName;
use imbl::OrdSet;
use informer_core::workqueue::Priority;
use informer_core::{Key, StoreReader};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Upper bound on the completed keys that wait for a save. If there are more, because the disk does not respond, the
/// next process reconciles every key.
const MAX_COMPLETED: usize = 100_000;

/// Returns the set for unfinished keys, if a restart does not reconcile every key.
pub(super) fn unfinished_keys(settings: &Settings) -> Option<Arc<UnfinishedKeys>> {
    settings.resume.as_ref().map(|_| Arc::default())
}

/// Returns the name under which the progress of a source is saved, if a restart does not reconcile every key.
/// `own_kind` is the cache of the controller's own kind.
pub(super) fn durable_name(
    shared: &Shared,
    source: usize,
    sink: &KeySink,
    own_kind: &StoreReader,
) -> Option<DurableName> {
    let (name, version) = (&shared.name, shared.settings.resume.as_ref()?);
    let keys = Arc::clone(shared.unfinished_keys.as_ref()?);
    keys.lock().is_ready = false;
    let keys = SourceKeys { source, keys, sink: sink.clone(), own_kind: own_kind.clone() };
    // The length keeps names that contain a colon apart.
    let versions = format!("controller {source}:{}:{name}:", name.len());
    let name = format!("{versions}{version}").into();
    Some(DurableName { name, versions: Some(versions.into()), keys: Some(Arc::new(keys)) })
}

/// The unfinished keys of a controller, as one of its sources saves them.
struct SourceKeys {
    source: usize,
    keys: Arc<UnfinishedKeys>,
    sink: KeySink,
    own_kind: StoreReader,
}

impl crate::shared::ControllerKeys for SourceKeys {
    fn unfinished(&self) -> Unfinished {
        let state = self.keys.lock();
        Unfinished { all: state.needs_all() || state.overflowed_at.is_some(), keys: state.unfinished.clone() }
    }

    fn begin(&self) {
        self.keys.lock().saved_cuts.insert(self.source, 0);
    }

    fn resume(&self, unfinished: Unfinished) {
        for key in &unfinished.keys {
            self.sink.add_with_priority(key.clone(), Priority::INITIAL);
        }
        if unfinished.all {
            let mut state = self.keys.lock();
            if state.is_ready {
                drop(state);
                // A source that has become available later.
                self.sink.enqueue_all(&self.own_kind);
            } else {
                // The caches are not complete: the keys are queued when all sources are ready.
                state.requests_for_all += 1;
            }
        }
    }

    fn cut(&self) -> u64 {
        let mut state = self.keys.lock();
        state.cuts += 1;
        state.cuts
    }

    fn saved(&self, cut: u64) {
        self.keys.lock().record_saved(self.source, cut);
    }
}

/// The keys that are not reconciled successfully, or were so recently that a source may not have saved what the
/// reconcile has read.
#[derive(Default)]
pub(super) struct UnfinishedKeys(Mutex<State>);

#[derive(Default)]
struct State {
    /// The keys that are not reconciled successfully, each with the number of times it was received.
    pending: HashMap<Key, u64>,
    /// The keys that are reconciled successfully, each with the number of the last cut before.
    completed: HashMap<Key, u64>,
    /// All of them.
    unfinished: OrdSet<Key>,
    /// The number of snapshots that were taken of all sources.
    cuts: u64,
    /// The number of the last cut that was saved, by source.
    saved_cuts: BTreeMap<usize, u64>,
    /// How often every key was requested to be reconciled before the sources were ready.
    requests_for_all: u64,
    /// How many of these requests are fulfilled: all keys were received since.
    fulfilled_requests: u64,
    /// Whether all sources have delivered their initial lists.
    is_ready: bool,
    /// The number of the last cut before completed keys were forgotten, because they were too many.
    overflowed_at: Option<u64>,
}

impl UnfinishedKeys {
    /// Records that a key was received.
    pub(super) fn add(&self, key: &Key) {
        let mut state = self.lock();
        *state.pending.entry(key.clone()).or_default() += 1;
        if !state.unfinished.contains(key) {
            state.unfinished.insert(key.clone());
        }
    }

    /// Returns how often a pending key was received; `None` if it is not pending.
    ///
    /// Read it when a reconcile starts and pass it to [`complete`](Self::complete) after the reconcile.
    pub(super) fn times_received(&self, key: &Key) -> Option<u64> {
        self.lock().pending.get(key).copied()
    }

    /// Records a successful reconcile, unless the key was received again since the reconcile started.
    pub(super) fn complete(&self, key: &Key, times_received: Option<u64>) {
        let mut state = self.lock();
        if times_received.is_some() && state.pending.get(key).copied() == times_received {
            state.pending.remove(key);
            state.complete(key);
        }
    }

    /// Records that all sources have delivered their initial lists: every key was received that has to be reconciled.
    /// If every key has to be, and they were not received yet, returns the number of requests for that instead; pass it
    /// to [`fulfil_requests`](Self::fulfil_requests) when all are added, and call this function again.
    pub(super) fn record_ready(&self) -> Option<u64> {
        let mut state = self.lock();
        state.is_ready = !state.needs_all();
        (!state.is_ready).then_some(state.requests_for_all)
    }

    /// Records that all keys were added after this number of requests.
    pub(super) fn fulfil_requests(&self, requests: u64) {
        self.lock().fulfilled_requests = requests;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns whether every key is to be reconciled, and some may not have been received yet.
    fn needs_all(&self) -> bool {
        self.requests_for_all > self.fulfilled_requests
    }

    fn complete(&mut self, key: &Key) {
        if self.saved_cuts.is_empty() {
            // Nothing is saved.
            self.unfinished.remove(key);
            return;
        }
        if self.completed.len() >= MAX_COMPLETED {
            let Self { pending, completed, unfinished, .. } = self;
            for (key, _) in completed.drain().filter(|(key, _)| !pending.contains_key(key)) {
                unfinished.remove(&key);
            }
            self.overflowed_at = Some(self.cuts);
        }
        self.completed.insert(key.clone(), self.cuts);
    }

    /// Records that a source has saved a cut, and removes the keys whose reconciles have only read what is saved.
    fn record_saved(&mut self, source: usize, cut: u64) {
        self.saved_cuts.insert(source, cut);
        let Some(all_saved) = self.saved_cuts.values().copied().min() else { return };
        self.overflowed_at.take_if(|cuts| *cuts < all_saved);
        let Self { pending, completed, unfinished, .. } = self;
        completed.retain(|key, cuts| {
            let is_kept = *cuts >= all_saved;
            if !is_kept && !pending.contains_key(key) {
                unfinished.remove(key);
            }
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reconcile may have read a state that a source has not saved yet. If the process dies, the next one does not
    /// see that state, so it has to reconcile the key again.
    #[test]
    fn completed_keys_are_saved_until_each_source_has_saved_what_the_reconcile_has_read() {
        let (keys, key) = (UnfinishedKeys::default(), Key::cluster("a"));
        let saved = |keys: &UnfinishedKeys| keys.lock().unfinished.len();
        keys.lock().saved_cuts.extend([(0, 0), (1, 0)]);
        let cut = |keys: &UnfinishedKeys| {
            keys.lock().cuts += 1;
            keys.lock().cuts
        };
        keys.add(&key);
        let before = cut(&keys);
        keys.complete(&key, keys.times_received(&key));
        for source in [0, 1] {
            keys.lock().record_saved(source, before);
        }
        assert_eq!(saved(&keys), 1, "the snapshots are older than the reconcile");
        for (source, expected) in [(0, 1), (1, 0)] {
            let after = cut(&keys);
            keys.lock().record_saved(source, after);
            assert_eq!(saved(&keys), expected, "source {source}");
        }
        // If there are too many, every key is to be reconciled.
        for index in 0..=MAX_COMPLETED {
            let key = Key::cluster(&index.to_string());
            keys.add(&key);
            keys.complete(&key, keys.times_received(&key));
        }
        assert_eq!((saved(&keys), keys.lock().overflowed_at.is_some()), (1, true));
        for source in [0, 1] {
            let after = cut(&keys);
            keys.lock().record_saved(source, after);
        }
        assert_eq!((saved(&keys), keys.lock().overflowed_at), (0, None));
        // A key that is received again stays.
        keys.add(&key);
        keys.complete(&key, keys.times_received(&key));
        keys.add(&key);
        for source in [0, 1] {
            let after = cut(&keys);
            keys.lock().record_saved(source, after);
        }
        assert_eq!(saved(&keys), 1);
    }

    /// A source can request all keys while those of an earlier request are being queued.
    #[test]
    fn sources_are_ready_when_every_request_for_all_keys_is_fulfilled() {
        let keys = UnfinishedKeys::default();
        let request = || keys.lock().requests_for_all += 1;
        request();
        assert_eq!(keys.record_ready(), Some(1));
        request();
        keys.fulfil_requests(1);
        assert_eq!(keys.record_ready(), Some(2));
        assert!(!keys.lock().is_ready && keys.lock().needs_all());
        keys.fulfil_requests(2);
        assert_eq!(keys.record_ready(), None);
        assert!(keys.lock().is_ready && !keys.lock().needs_all());
    }

    /// The disk is missing, or no source is saved: the number of keys does not grow.
    #[test]
    fn completed_keys_are_not_kept_if_nothing_is_saved() {
        let (keys, key) = (UnfinishedKeys::default(), Key::cluster("a"));
        keys.add(&key);
        keys.complete(&key, keys.times_received(&key));
        let state = keys.lock();
        assert!(state.unfinished.is_empty() && state.completed.is_empty());
    }
}
