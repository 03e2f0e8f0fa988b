//! The events that a durable handler has received and not acknowledged.

use super::Listener;
use crate::event::{Delivery, Event, Untyped};
use crate::persistence::{Differences, SavedState, UnacknowledgedKey};
use informer_core::{Key, StoreSnapshot};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

/// The name under which it is saved what a handler has acknowledged.
#[derive(Clone)]
pub(crate) struct DurableName {
    pub(crate) name: Arc<str>,
    /// The keys that a controller has to reconcile, which are saved as well.
    pub(crate) keys: Option<Arc<dyn UnfinishedKeys>>,
}

/// The keys that a controller has not reconciled successfully.
pub(crate) trait UnfinishedKeys: Send + Sync {
    /// Returns the keys.
    fn unfinished(&self) -> BTreeSet<Key>;

    /// Adds the keys of an earlier process, or all keys if `None`: it is not known what the controller has handled.
    fn resume(&self, keys: Option<BTreeSet<Key>>);
}

impl fmt::Debug for DurableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name.fmt(f)
    }
}

/// What a durable handler has received and not acknowledged: one event, or a batch of a stream.
#[derive(Debug, Default)]
pub(super) struct Ledger(HashMap<Key, UnacknowledgedKey>);

impl Ledger {
    /// Records that the handler receives an event.
    pub(super) fn record(&mut self, delivery: &Delivery<Untyped>) {
        let Delivery::Event(event) = delivery else { return };
        let key = self.0.entry(event.object().key().clone()).or_insert_with(|| {
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

    /// Records that the handler has acknowledged what it has received.
    pub(super) fn acknowledge(&mut self) {
        self.0.clear();
    }
}

impl Listener {
    /// Makes the handler durable: it receives no events from the pump.
    pub(in crate::shared) fn make_durable(&self) {
        self.lock().ledger = Some(Ledger::default());
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
            let (is_known, previous) = match differences.get(entry.key()).map(|one| &one.saved) {
                None | Some(SavedState::Acknowledged) => (true, Some(entry)),
                Some(SavedState::Received(acknowledged)) => (true, acknowledged.as_ref()),
                Some(SavedState::Unknown) => (false, None),
            };
            outbox.add_initial(entry, is_known, previous, now);
        }
        drop(state);
        self.mark_initial_list_complete();
    }

    /// Records changes that a durable handler does not receive, because it receives newer ones of the same objects.
    pub(in crate::shared) fn add_skipped(&self, changes: u64) {
        self.lock().outbox.add_skipped(changes);
    }

    /// Returns what a durable handler has not acknowledged, by key.
    pub(in crate::shared) fn unacknowledged(&self) -> HashMap<Key, UnacknowledgedKey> {
        let state = self.lock();
        let Some(ledger) = &state.ledger else { return HashMap::new() };
        let mut keys = ledger.0.clone();
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
