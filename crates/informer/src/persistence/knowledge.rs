//! What a durable handler knows: the objects that it has received, in this process or an earlier one.
//!
//! A handler that keeps up knows exactly the saved objects. So only the [`Difference`] is stored, for each key where
//! there is one. Pure: nothing here reads files or clocks.
//!
//! A handler receives only states that were saved before ([`DurableHandlers`](crate::shared)). So these hold for every
//! save: `known` is what the handler has received and may be receiving now, `delivered` is the state that its events
//! lead to, which was saved before, and `saved` is the state that is being saved. A handler that receives nothing
//! (it is not added in this process) is described by the differences alone.

use informer_core::{Entry, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a handler may know of one key, where it is not exactly the saved object.
#[derive(Debug, Clone, Default)]
pub(crate) struct Difference {
    /// Objects that no longer exist, and whose deletion the handler has not acknowledged: the states that it may have
    /// received, oldest first. The last state of each incarnation is the one that was deleted.
    pub(crate) gone: Vec<Arc<Entry>>,
    /// What it knows of the saved object.
    pub(crate) saved: SavedState,
}

/// What a handler may know of the saved object of a key.
#[derive(Debug, Clone, Default)]
pub(crate) enum SavedState {
    /// It has acknowledged this state, or there is no saved object.
    #[default]
    Acknowledged,
    /// It does not know the object.
    Unknown,
    /// It may have received the object, in this state or in earlier ones.
    Received(ReceivedStates),
}

/// States of the saved object that a handler may have received.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReceivedStates {
    /// The last state that it has acknowledged.
    pub(crate) acknowledged: Option<Arc<Entry>>,
    /// Earlier states than the saved one that it may have received since, oldest first.
    pub(crate) others: Vec<Arc<Entry>>,
    /// Whether it may have received the saved state.
    pub(crate) includes_saved: bool,
}

/// Differences by key. Each is shared with earlier versions of the map, so that a copy of the map is cheap.
pub(crate) type Differences = BTreeMap<Key, Arc<Difference>>;

/// A key whose saved object has changed.
#[derive(Debug, Clone)]
pub(crate) struct ChangedKey {
    pub(crate) old: Option<Arc<Entry>>,
    pub(crate) new: Option<Arc<Entry>>,
}

/// What an active handler knows of a key with events that it has not acknowledged.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnacknowledgedKey {
    /// The last state that it has acknowledged.
    pub(crate) acknowledged: Option<Arc<Entry>>,
    /// The states in events that it has received since, or may receive before others.
    pub(crate) received: Vec<Arc<Entry>>,
    /// Whether events are pending that lead to the delivered state.
    pub(crate) is_pending: bool,
}

impl ChangedKey {
    pub(crate) fn key(&self) -> Option<&Key> {
        self.new.as_ref().or(self.old.as_ref()).map(|entry| entry.key())
    }
}

impl Difference {
    /// Returns what an active handler may know of a key after the next save; `None` if it knows exactly the saved
    /// object. `known` is `None` if it has acknowledged the delivered state.
    pub(crate) fn of(
        known: Option<&UnacknowledgedKey>,
        delivered: Option<&Arc<Entry>>,
        saved: Option<&Arc<Entry>>,
    ) -> Option<Self> {
        let acknowledged = known.map_or(delivered, |known| known.acknowledged.as_ref());
        let received = known.into_iter().flat_map(|known| &known.received);
        // It may take pending events before the next save is complete.
        let pending = delivered.filter(|_| known.is_some_and(|known| known.is_pending));
        let mut difference = Self::default();
        for entry in acknowledged.into_iter().chain(received).chain(pending) {
            if saved.is_none_or(|saved| saved.is_other_incarnation(entry)) {
                difference.add_gone(entry);
            }
        }
        let saved = saved.map(|saved| {
            let acknowledged = acknowledged.filter(|entry| !entry.is_other_incarnation(saved)).cloned();
            let mut states = ReceivedStates { acknowledged, others: Vec::new(), includes_saved: true };
            if states.acknowledged.as_ref().is_some_and(|own| is_same_state(own, saved)) {
                return SavedState::Acknowledged;
            }
            let received = known.into_iter().flat_map(|known| &known.received).chain(pending);
            for entry in received {
                states.add(entry, saved);
            }
            SavedState::Received(states)
        });
        difference.saved = saved.unwrap_or_default();
        difference.into_some()
    }

    /// Returns the approximate size of all states in bytes.
    pub(super) fn bytes(&self) -> usize {
        let received = match &self.saved {
            SavedState::Received(states) => Some(states.acknowledged.iter().chain(&states.others)),
            _ => None,
        };
        received.into_iter().flatten().chain(&self.gone).map(|entry| entry.memory_size()).sum()
    }

    /// Returns the number of states.
    pub(crate) fn states(&self) -> usize {
        let others = if let SavedState::Received(states) = &self.saved { states.others.len() } else { 0 };
        others + self.gone.len()
    }

    /// Removes all states except the last acknowledged one, and the last one of each object that no longer exists.
    pub(crate) fn keep_last_states(&mut self) {
        if let SavedState::Received(states) = &mut self.saved {
            states.others.clear();
        }
        let gone = std::mem::take(&mut self.gone);
        for (index, state) in gone.iter().enumerate() {
            if gone[index + 1..].iter().all(|later| later.is_other_incarnation(state)) {
                self.gone.push(Arc::clone(state));
            }
        }
    }

    /// Adds a state of an object that no longer exists.
    pub(crate) fn add_gone(&mut self, state: &Arc<Entry>) {
        if self.gone.iter().all(|gone| !is_same_state(gone, state)) {
            self.gone.push(Arc::clone(state));
        }
    }

    /// Returns what a handler that receives nothing knows after the saved object has changed.
    fn rebase(mut self, changed: &ChangedKey) -> Option<Self> {
        let ChangedKey { old, new } = changed;
        let known = old.as_ref().and_then(|old| match std::mem::take(&mut self.saved) {
            SavedState::Acknowledged => {
                Some(ReceivedStates { acknowledged: Some(Arc::clone(old)), ..ReceivedStates::default() })
            }
            SavedState::Received(mut states) => {
                if std::mem::take(&mut states.includes_saved) {
                    states.others.push(Arc::clone(old));
                }
                Some(states)
            }
            SavedState::Unknown => None,
        });
        let is_same_object =
            old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| !old.is_other_incarnation(new));
        self.saved = match (known, new) {
            (Some(states), Some(_)) if is_same_object => SavedState::Received(states),
            (known, new) => {
                if let Some(states) = known {
                    for state in states.acknowledged.iter().chain(&states.others).chain(old) {
                        self.add_gone(state);
                    }
                }
                if new.is_some() { SavedState::Unknown } else { SavedState::Acknowledged }
            }
        };
        self.into_some()
    }

    /// Returns whether the handler knows exactly the saved object.
    pub(crate) fn is_none(&self) -> bool {
        self.gone.is_empty() && matches!(self.saved, SavedState::Acknowledged)
    }

    fn into_some(self) -> Option<Self> {
        (!self.is_none()).then_some(self)
    }

    /// Returns whether both are stored in the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_gone = self.gone.len() == other.gone.len()
            && self.gone.iter().zip(&other.gone).all(|(left, right)| is_same_state(left, right));
        is_same_gone
            && match (&self.saved, &other.saved) {
                (SavedState::Acknowledged, SavedState::Acknowledged)
                | (SavedState::Unknown, SavedState::Unknown) => true,
                (SavedState::Received(left), SavedState::Received(right)) => left.is_same(right),
                _ => false,
            }
    }
}

impl SavedState {
    /// Records that the handler may receive the saved object.
    pub(crate) fn receive(&mut self) {
        match self {
            Self::Acknowledged => {}
            Self::Unknown => {
                *self = Self::Received(ReceivedStates { includes_saved: true, ..ReceivedStates::default() });
            }
            Self::Received(states) => states.includes_saved = true,
        }
    }
}

impl ReceivedStates {
    /// Adds a state that the handler may receive after the others, if it is an earlier state of the saved object.
    pub(crate) fn add(&mut self, state: &Arc<Entry>, saved: &Arc<Entry>) {
        let last = self.others.last().or(self.acknowledged.as_ref());
        if !state.is_other_incarnation(saved)
            && !is_same_state(state, saved)
            && last.is_none_or(|last| !is_same_state(last, state))
        {
            self.others.push(Arc::clone(state));
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let states =
            |states: &Self| states.acknowledged.iter().chain(&states.others).cloned().collect::<Vec<_>>();
        let (left, right) = (states(self), states(other));
        self.acknowledged.is_some() == other.acknowledged.is_some()
            && self.includes_saved == other.includes_saved
            && left.len() == right.len()
            && left.iter().zip(&right).all(|(left, right)| is_same_state(left, right))
    }
}

/// Makes the differences of a handler that receives nothing refer to the changed objects.
pub(crate) fn rebase(differences: &mut Differences, changes: &[ChangedKey]) {
    for changed in changes {
        let Some(key) = changed.key() else { continue };
        let difference = differences.remove(key).map(Arc::unwrap_or_clone).unwrap_or_default();
        if let Some(difference) = difference.rebase(changed) {
            differences.insert(key.clone(), Arc::new(difference));
        }
    }
}

/// Removes the states that only controllers need.
pub(crate) fn keep_last_states(differences: &mut Differences) {
    for difference in differences.values_mut().filter(|difference| difference.states() > 0) {
        Arc::make_mut(difference).keep_last_states();
    }
}

fn is_same_state(left: &Arc<Entry>, right: &Arc<Entry>) -> bool {
    Arc::ptr_eq(left, right) || left.is_same_state(right)
}
