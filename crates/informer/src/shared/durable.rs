//! Durable handlers: what each of them has acknowledged, across processes.
//!
//! A durable handler receives its events not from the pump, but from the task that saves the cache, and only after
//! they were saved: otherwise a crash could make the next process forget that the handler has received an object, and
//! its deletion would never be delivered (C2). Each save has four steps: the pump returns a snapshot and the changes
//! that led to it ([`Cut`]), [`DurableHandlers::prepare`] determines what the handlers may know of the snapshot, the
//! snapshot and that are written in one transaction, and [`DurableHandlers::deliver`] adds the changes to the
//! outboxes of the handlers. A handler begins in the same way: it receives the deletions of objects that it knows
//! from an earlier process and that no longer exist, then all objects.

use super::listener::ledger::ControllerKeys;
use super::listener::{DurableName, Listener};
use crate::persistence::{
    Base, ChangedKey, Difference, Differences, Handlers, SavedHandler, SavedState, Unfinished, Usage,
    keep_last_states, rebase,
};
use crate::status::ForgottenHandler;
use informer_core::{Change, Entry, Key, StoreSnapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The longest name.
const MAX_NAME_BYTES: usize = 253;
/// Upper bound on the changes that wait for a save. If there are more, because the disk does not respond or a relist
/// brings very many, the handlers receive the differences of the snapshots instead.
const MAX_RECORDED_CHANGES: usize = 100_000;
/// Upper bound on the states of one key that are saved for a controller. If there are more, the next process reconciles
/// every key.
const MAX_SAVED_STATES: usize = 64;

/// The durable handlers of one informer.
#[derive(Default)]
pub(super) struct DurableHandlers {
    state: Mutex<State>,
    recorded: Mutex<Recorded>,
    waiting: Notify,
}

/// The changes since the last cut.
#[derive(Default)]
struct Recorded {
    changes: Vec<Change>,
    /// Number of changes that were dropped.
    dropped: u64,
}

/// A snapshot, the changes that have led to it since the previous cut, and the handlers that begin with it.
pub(super) struct Cut {
    pub(super) snapshot: StoreSnapshot,
    recorded: Recorded,
    /// Handlers that are added later begin with a later cut: they would miss changes that were not recorded before.
    beginning: Vec<Arc<Listener>>,
    /// The sources of controllers that have begun, and the numbers of this cut for their keys.
    keys: Vec<(Arc<Listener>, u64)>,
}

impl Cut {
    /// Returns whether a handler begins with this cut.
    fn begins(&self, listener: &Arc<Listener>) -> bool {
        self.beginning.iter().any(|beginning| Arc::ptr_eq(beginning, listener))
    }

    /// Adds states that exist only within the cut, and which an uncoalesced handler receives nevertheless.
    fn add_transient(&self, listener: &Listener, differences: &mut Differences) {
        if listener.options.uncoalesced_capacity.is_none() {
            return;
        }
        for change in &self.recorded.changes {
            let state = match change {
                Change::Added(state)
                | Change::Updated { new: state, .. }
                | Change::Deleted { last: state, .. }
                | Change::Released(state) => state,
            };
            let difference = Arc::make_mut(differences.entry(state.key().clone()).or_default());
            match self.snapshot.get(state.key()) {
                Some(saved) if !saved.is_other_incarnation(state) => {
                    if let SavedState::Received(states) = &mut difference.saved {
                        states.add(state, saved);
                    }
                }
                _ => difference.add_gone(state),
            }
        }
        differences.retain(|_, difference| !difference.is_none());
    }

    /// Returns the same snapshot again, without changes.
    pub(super) fn again(&self) -> Self {
        let (beginning, keys) = (Vec::new(), Vec::new());
        Self { snapshot: self.snapshot.clone(), recorded: Recorded::default(), beginning, keys }
    }
}

#[derive(Default)]
struct State {
    /// The objects to which the events of the handlers have led, and to which the differences refer.
    delivered: Base,
    handlers: BTreeMap<Arc<str>, Handler>,
}

struct Handler {
    last_used: Usage,
    /// What it knows, unless it has begun.
    differences: Arc<Differences>,
    /// The keys that its controller has to reconcile, as saved by an earlier process.
    unfinished: Unfinished,
    /// The keys that its controller has to reconcile, if it has begun in this process.
    keys: Option<Arc<dyn ControllerKeys>>,
    /// Whether it has begun before, in this process or an earlier one.
    is_known: bool,
    /// Whether it is not known which keys its controller has to reconcile, because it has left with too many events.
    has_lagged: bool,
    phase: Phase,
}

impl Handler {
    /// Returns the keys that its controller has to reconcile.
    fn unfinished(&self) -> Unfinished {
        let Unfinished { all, keys } =
            self.keys.as_ref().map_or_else(|| self.unfinished.clone(), |keys| keys.unfinished());
        Unfinished { all: all || self.has_lagged, keys }
    }

    /// Returns the keys that its controller has to reconcile when it begins.
    fn unfinished_at_begin(&self) -> Unfinished {
        let Unfinished { all, keys } = self.unfinished();
        Unfinished { all: all || !self.is_known, keys }
    }
}

enum Phase {
    /// Known from the file, or removed.
    Inactive,
    /// Begins after the next save.
    Waiting(Arc<Listener>),
    Begun(Arc<Listener>),
}

impl Phase {
    /// Returns the start of the names of other versions of the handler.
    fn versions(&self) -> Option<Arc<str>> {
        let (Self::Waiting(listener) | Self::Begun(listener)) = self else { return None };
        listener.options.durable.as_ref().and_then(|durable| durable.versions.clone())
    }
}

/// A save that is prepared.
pub(super) struct Prepared {
    /// The changes since the previous one.
    changes: Vec<ChangedKey>,
    /// The differences of handlers that have not begun, before and after these changes.
    rebased: Vec<(Arc<Differences>, Arc<Differences>)>,
}

impl Prepared {
    /// Returns the differences of a handler that has not begun, after the changes.
    fn rebase(&mut self, differences: &Arc<Differences>) -> Arc<Differences> {
        if self.changes.is_empty() {
            return Arc::clone(differences);
        }
        if let Some((_, after)) = self.rebased.iter().find(|(before, _)| Arc::ptr_eq(before, differences)) {
            return Arc::clone(after);
        }
        let mut after = (**differences).clone();
        rebase(&mut after, &self.changes);
        let after = Arc::new(after);
        self.rebased.push((Arc::clone(differences), Arc::clone(&after)));
        after
    }
}

impl DurableHandlers {
    /// Adds the handlers of a file.
    pub(super) fn load(&self, entries: &[Arc<Entry>], handlers: Handlers) {
        let mut state = self.lock();
        state.delivered = Base::Entries(entries.to_vec());
        let State { delivered, handlers: known } = &mut *state;
        for (name, saved) in handlers {
            let SavedHandler { last_used, differences, unfinished } = saved;
            let phase = known.remove(&name).map_or(Phase::Inactive, |added| added.phase);
            let (is_known, has_lagged, keys) = (true, false, None);
            let handler = Handler { last_used, differences, unfinished, keys, is_known, has_lagged, phase };
            known.insert(name, handler);
        }
        // Handlers that were added before the file was read, and that it does not contain.
        let mut versions = Vec::new();
        for handler in known.values_mut().filter(|handler| !handler.is_known) {
            handler.differences = all_unknown(delivered);
            versions.extend(handler.phase.versions());
        }
        for versions in versions {
            forget_old_versions(known, &versions);
        }
    }

    /// Forgets the handlers that were not used for a long time, and returns them.
    pub(super) fn forget_unused(&self, now: Usage) -> Vec<ForgottenHandler> {
        let mut forgotten = Vec::new();
        self.lock().handlers.retain(|name, handler| {
            let is_used = !matches!(handler.phase, Phase::Inactive);
            if is_used || !now.is_long_after(handler.last_used) {
                return true;
            }
            let missed_deletions = handler.differences.values().filter(|one| !one.gone.is_empty()).count();
            forgotten.push(ForgottenHandler { name: Arc::clone(name), missed_deletions });
            false
        });
        forgotten
    }

    /// Forgets the handlers of the file, which belongs to another cluster.
    pub(super) fn forget(&self) {
        let mut state = self.lock();
        state.delivered = Base::default();
        state.handlers.retain(|_, handler| {
            handler.differences = Arc::default();
            handler.unfinished = Unfinished::default();
            handler.is_known = false;
            !matches!(handler.phase, Phase::Inactive)
        });
    }

    /// Adds a handler, which begins after the next save of a synced cache.
    ///
    /// # Errors
    ///
    /// Returns the reason why the handler cannot be durable.
    pub(super) fn join(&self, listener: &Arc<Listener>) -> Result<(), &'static str> {
        let Some(DurableName { name, versions, .. }) = &listener.options.durable else {
            return Err("it has no durable name");
        };
        if listener.options.is_filtered {
            return Err("it has a filter");
        }
        if name.len() > MAX_NAME_BYTES {
            return Err("its durable name is too long");
        }
        let mut state = self.lock();
        let State { delivered, handlers } = &mut *state;
        match handlers.get_mut(name) {
            Some(Handler { phase: Phase::Waiting(_) | Phase::Begun(_), .. }) => {
                return Err("another handler has its durable name");
            }
            Some(handler) => handler.phase = Phase::Waiting(Arc::clone(listener)),
            None => {
                if let Some(versions) = versions {
                    forget_old_versions(handlers, versions);
                }
                let differences = all_unknown(delivered);
                let phase = Phase::Waiting(Arc::clone(listener));
                let unfinished = Unfinished::default();
                let (is_known, has_lagged, keys) = (false, false, None);
                let last_used = Usage::default();
                let handler =
                    Handler { last_used, differences, unfinished, keys, is_known, has_lagged, phase };
                handlers.insert(Arc::clone(name), handler);
            }
        }
        listener.make_durable();
        self.waiting.notify_one();
        Ok(())
    }

    /// Removes a handler. What it knows is kept.
    pub(super) fn leave(&self, listener: &Arc<Listener>) {
        let mut state = self.lock();
        let State { delivered, handlers } = &mut *state;
        let name = listener.options.durable.as_ref().map(|durable| &durable.name);
        let handler = name.and_then(|name| handlers.get_mut(name));
        let Some(handler) = handler else { return };
        match &handler.phase {
            Phase::Waiting(waiting) if Arc::ptr_eq(waiting, listener) => {}
            Phase::Begun(begun) if Arc::ptr_eq(begun, listener) => {
                let has_lagged = listener.has_lagged();
                let mut differences = differences(listener, delivered, &[]);
                handler.has_lagged = !limit_states(listener, &mut differences) || has_lagged;
                handler.differences = Arc::new(differences);
            }
            _ => return,
        }
        handler.phase = Phase::Inactive;
        handlers.retain(|_, handler| handler.is_known || !matches!(handler.phase, Phase::Inactive));
    }

    /// Adds the objects that are due for a resync. A resync of objects that are not delivered yet would overtake their
    /// events (C1).
    pub(super) fn resync(&self, listener: &Listener) {
        if let Base::Snapshot(delivered) = &self.lock().delivered {
            listener.resync(delivered);
        }
    }

    /// Records changes that were applied to the store.
    pub(super) fn record(&self, changes: Vec<Change>) {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting.notify_one();
        recorded.changes.extend(changes);
        if recorded.changes.len() > MAX_RECORDED_CHANGES {
            recorded.dropped += recorded.changes.len() as u64;
            recorded.changes = Vec::new();
        }
    }

    /// Returns the snapshot to save, with the changes since the previous one. Called by the pump, which has recorded
    /// each change up to this snapshot.
    pub(super) fn cut(&self, snapshot: StoreSnapshot) -> Cut {
        let recorded = std::mem::take(&mut *self.recorded.lock().unwrap_or_else(PoisonError::into_inner));
        let state = self.lock();
        let waiting = state.handlers.values().filter_map(|handler| match &handler.phase {
            Phase::Waiting(listener) => Some(Arc::clone(listener)),
            Phase::Inactive | Phase::Begun(_) => None,
        });
        let keys = state.handlers.values().filter_map(|handler| match (&handler.phase, &handler.keys) {
            (Phase::Begun(listener), Some(keys)) => Some((Arc::clone(listener), keys.cut())),
            _ => None,
        });
        Cut { snapshot, recorded, beginning: waiting.collect(), keys: keys.collect() }
    }

    /// Waits until handlers wait for a save.
    pub(super) async fn wait(&self) {
        self.waiting.notified().await;
    }

    /// Records that the cache is synced, so that handlers can begin.
    pub(super) fn set_synced(&self) {
        self.waiting.notify_one();
    }

    /// Returns what the handlers may know while the events of the next save are delivered, relative to its snapshot.
    pub(super) fn prepare(&self, cut: &Cut, now: Usage) -> (Handlers, Prepared) {
        let state = self.lock();
        let changes = state.delivered.changes(&cut.snapshot);
        let mut prepared = Prepared { changes, rebased: Vec::new() };
        let mut handlers = Handlers::new();
        for (name, handler) in &state.handlers {
            let saved = match &handler.phase {
                Phase::Waiting(listener) if cut.begins(listener) => {
                    let mut differences = prepared.rebase(&handler.differences);
                    // After the save, it receives all objects.
                    for difference in Arc::make_mut(&mut differences).values_mut() {
                        Arc::make_mut(difference).saved.receive();
                    }
                    let unfinished = handler.unfinished_at_begin();
                    SavedHandler { last_used: now, differences, unfinished }
                }
                // It begins with a later save. Saved now, the next process would take it for one that has begun.
                Phase::Inactive | Phase::Waiting(_) if !handler.is_known => continue,
                Phase::Inactive | Phase::Waiting(_) => SavedHandler {
                    last_used: handler.last_used,
                    differences: prepared.rebase(&handler.differences),
                    unfinished: handler.unfinished(),
                },
                Phase::Begun(listener) => {
                    let has_lagged = listener.has_lagged() || cut.recorded.dropped > 0;
                    let mut differences = differences(listener, &state.delivered, &prepared.changes);
                    cut.add_transient(listener, &mut differences);
                    let is_complete = limit_states(listener, &mut differences) && !has_lagged;
                    // Afterwards: the keys of acknowledged events are queued already.
                    let mut unfinished = handler.unfinished();
                    unfinished.all |= !is_complete;
                    SavedHandler { last_used: now, differences: Arc::new(differences), unfinished }
                }
            };
            handlers.insert(Arc::clone(name), saved);
        }
        (handlers, prepared)
    }

    /// Adds the changes of a save to the handlers, and begins those that waited for it.
    pub(super) fn deliver(&self, cut: Cut, mut prepared: Prepared, now: Usage, is_saved: bool) {
        let mut state = self.lock();
        for handler in state.handlers.values_mut() {
            if !matches!(handler.phase, Phase::Inactive) {
                handler.last_used = now;
            }
            if let Phase::Begun(listener) = &handler.phase {
                // A source that has left meanwhile does not receive what is saved.
                let saved = cut.keys.iter().find(|(begun, _)| is_saved && Arc::ptr_eq(begun, listener));
                if let (Some((_, number)), Some(keys)) = (saved, &handler.keys) {
                    keys.saved(*number);
                }
                let initial = false;
                if cut.recorded.dropped == 0 {
                    listener.enqueue(&cut.recorded.changes, initial);
                } else {
                    listener.add_skipped(cut.recorded.dropped);
                    listener.enqueue(&differences_of_snapshots(&prepared.changes), initial);
                }
                continue;
            }
            handler.differences = prepared.rebase(&handler.differences);
            if let Phase::Waiting(listener) = &handler.phase
                && cut.begins(listener)
            {
                let unfinished = handler.unfinished_at_begin();
                handler.keys = listener.options.durable.as_ref().and_then(|durable| durable.keys.clone());
                let mut differences = std::mem::take(&mut handler.differences);
                match &handler.keys {
                    Some(keys) => {
                        keys.begin();
                        keys.resume(unfinished);
                    }
                    None => keep_last_states(Arc::make_mut(&mut differences)),
                }
                listener.begin_durable(&cut.snapshot, &differences);
                (handler.is_known, handler.has_lagged) = (true, false);
                handler.phase = Phase::Begun(Arc::clone(listener));
            }
        }
        state.delivered = Base::Snapshot(cut.snapshot);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets the inactive handlers whose names start with this, except the one that was used last.
fn forget_old_versions(handlers: &mut BTreeMap<Arc<str>, Handler>, versions: &str) {
    let is_old = |name: &str, handler: &Handler| {
        name.starts_with(versions) && matches!(handler.phase, Phase::Inactive)
    };
    let old = handlers.iter().filter(|(name, handler)| is_old(name, handler));
    let last = old.max_by_key(|(_, handler)| handler.last_used).map(|(name, _)| Arc::clone(name));
    handlers.retain(|name, handler| Some(name) == last.as_ref() || !is_old(name, handler));
}

/// Returns the differences of a handler that knows none of these objects.
fn all_unknown(objects: &Base) -> Arc<Differences> {
    let unknown = Arc::new(Difference { gone: Vec::new(), saved: SavedState::Unknown });
    let mut differences = Differences::new();
    objects.for_each(|entry| drop(differences.insert(entry.key().clone(), Arc::clone(&unknown))));
    Arc::new(differences)
}

/// Removes states that the handler does not need, or that are too many; returns false if a controller needs them.
fn limit_states(listener: &Listener, differences: &mut Differences) -> bool {
    if listener.options.durable.as_ref().is_none_or(|durable| durable.keys.is_none()) {
        keep_last_states(differences);
        return true;
    }
    let mut is_complete = true;
    for difference in differences.values_mut().filter(|difference| difference.states() > MAX_SAVED_STATES) {
        Arc::make_mut(difference).keep_last_states();
        is_complete = false;
    }
    is_complete
}

/// Returns what a handler that has begun may know after the changes were saved.
fn differences(listener: &Listener, delivered: &Base, changes: &[ChangedKey]) -> Differences {
    let known = listener.unacknowledged();
    let mut differences = Differences::new();
    let mut add = |key: &Key, delivered: Option<&Arc<Entry>>, saved: Option<&Arc<Entry>>| match Difference::of(
        known.get(key),
        delivered,
        saved,
    ) {
        Some(difference) => drop(differences.insert(key.clone(), Arc::new(difference))),
        None => drop(differences.remove(key)),
    };
    for key in known.keys() {
        let delivered = delivered.get(key);
        add(key, delivered, delivered);
    }
    for changed in changes {
        if let Some(key) = changed.key() {
            add(key, changed.old.as_ref(), changed.new.as_ref());
        }
    }
    differences
}

/// Returns the changes between two snapshots, deletions first.
fn differences_of_snapshots(changes: &[ChangedKey]) -> Vec<Change> {
    let (mut deletions, mut others) = (Vec::new(), Vec::new());
    for ChangedKey { old, new } in changes {
        match (old, new) {
            (Some(old), Some(new)) if !old.is_other_incarnation(new) => {
                others.push(Change::Updated { old: Arc::clone(old), new: Arc::clone(new) });
            }
            (old, new) => {
                let deleted = |last| Change::Deleted { last, observed: false };
                deletions.extend(old.clone().map(deleted));
                others.extend(new.clone().map(Change::Added));
            }
        }
    }
    deletions.append(&mut others);
    deletions
}

#[cfg(test)]
#[path = "durable_tests.rs"]
mod tests;
