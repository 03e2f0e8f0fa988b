//! The events that a durable handler has received and not acknowledged.

use super::{Listener, SyncStage};
use crate::event::{Delivery, Event, Untyped};
use crate::persistence::{Differences, SavedState, UnacknowledgedKey, Unfinished};
use informer_core::{Change, Key, StoreSnapshot};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The name under which it is saved what a handler has acknowledged.
#[derive(Clone)]
pub(crate) struct DurableName {
    pub(crate) name: Arc<str>,
    /// The start of the names of other versions. Only the last of them is kept.
    pub(crate) versions: Option<Arc<str>>,
    /// The keys that a controller has to reconcile, which are saved as well.
    pub(crate) keys: Option<Arc<dyn ControllerKeys>>,
}

/// The keys that a controller has not reconciled successfully.
pub(crate) trait ControllerKeys: Send + Sync {
    /// Returns the keys.
    fn unfinished(&self) -> Unfinished;

    /// Records that the source begins to save the keys.
    fn begin(&self);

    /// Adds the keys of an earlier process.
    fn resume(&self, keys: Unfinished);

    /// Records that a snapshot of the source is taken; returns its number.
    fn cut(&self) -> u64;

    /// Records that the snapshot with this number was saved. Reconciles that ended before have only read states of the
    /// source that are saved.
    fn saved(&self, cut: u64);
}

impl fmt::Debug for DurableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What a durable handler has received and not acknowledged: one event, or a batch of a stream.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    keys: HashMap<Key, UnacknowledgedKey>,
    /// Whether it has received that events were skipped.
    has_lagged: bool,
}

impl Ledger {
    /// Records that everything is acknowledged.
    pub(super) fn acknowledge(&mut self) {
        self.keys.clear();
        self.has_lagged = false;
    }

    /// Records that the handler receives an event.
    pub(super) fn record(&mut self, delivery: &Delivery<Untyped>) {
        let Delivery::Event(event) = delivery else {
            self.has_lagged = true;
            return;
        };
        let key = self.keys.entry(event.object().key().clone()).or_insert_with(|| {
            let before = match event {
                Event::Added { previous, .. } => previous.as_ref(),
                Event::Updated { old, .. } => Some(old),
                Event::Deleted { .. } => None,
            };
            let acknowledged = before.map(|before| Arc::clone(before.entry()));
            UnacknowledgedKey { acknowledged, ..UnacknowledgedKey::default() }
        });
        key.received.push(Arc::clone(event.object().entry()));
    }
}

impl Listener {
    /// Makes the handler durable: its events are added after they were saved, not by the pump.
    pub(in crate::shared) fn make_durable(&self) {
        self.lock().ledger = Some(Ledger::default());
        self.is_durable.store(true, Ordering::Relaxed);
    }

    /// Returns whether the handler is durable. Takes no lock, which the addition of an initial list may hold for long.
    pub(in crate::shared) fn is_durable(&self) -> bool {
        self.is_durable.load(Ordering::Relaxed)
    }

    /// Waits until nothing more will be delivered. A stream must be polled for that.
    pub(in crate::shared) async fn ended(&self) {
        let _exists =
            self.stage.subscribe().wait_for(|stage| matches!(stage, SyncStage::Ended { .. })).await.is_ok();
    }

    /// Adds the events with which a durable handler begins: the deletions of objects that it knows and that no longer
    /// exist, then all objects.
    pub(in crate::shared) fn begin_durable(&self, snapshot: &StoreSnapshot, differences: &Differences) {
        let now = self.clock.now();
        let mut state = self.lock();
        let outbox = &mut state.outbox;
        outbox.reserve(snapshot.len());
        for last in differences.values().flat_map(|difference| &difference.gone) {
            outbox.add_earlier_deletion(last, now);
        }
        for entry in snapshot.list() {
            let (is_known, previous, others) = match differences.get(entry.key()).map(|one| &one.saved) {
                None | Some(SavedState::Acknowledged) => (true, Some(entry), &[][..]),
                Some(SavedState::Received(states)) => {
                    (true, states.acknowledged.as_ref(), &states.others[..])
                }
                Some(SavedState::Unknown) => (false, None, &[][..]),
            };
            let mut states = others.iter().chain([entry]);
            let mut last = states.next().unwrap_or(entry);
            outbox.add_initial(last, is_known, previous, now);
            for new in states {
                let initial = true;
                outbox.add(&Change::Updated { old: Arc::clone(last), new: Arc::clone(new) }, initial, now);
                last = new;
            }
        }
        drop(state);
        self.mark_initial_list_complete();
    }

    /// Records changes that a durable handler does not receive, because it receives newer ones of the same objects.
    pub(in crate::shared) fn add_skipped(&self, changes: u64) {
        self.lock().outbox.add_skipped(changes);
        self.wake.wake();
    }

    /// Returns whether a durable handler has skipped events, and has not acknowledged that.
    pub(in crate::shared) fn has_lagged(&self) -> bool {
        let state = self.lock();
        state.ledger.as_ref().is_some_and(|ledger| ledger.has_lagged) || state.outbox.has_unreported_skips()
    }

    /// Returns what a durable handler has not acknowledged, by key.
    pub(in crate::shared) fn unacknowledged(&self) -> HashMap<Key, UnacknowledgedKey> {
        let state = self.lock();
        let Some(ledger) = &state.ledger else { return HashMap::new() };
        let mut keys = ledger.keys.clone();
        state.outbox.for_each_pending(|key, before| {
            let has_received = keys.contains_key(key);
            let key = keys.entry(key.clone()).or_default();
            key.is_pending = true;
            match before {
                // The state before is one that it has received, or will receive before.
                before if has_received => key.received.extend(before.cloned()),
                before => key.acknowledged = before.cloned(),
            }
        });
        keys
    }
}
