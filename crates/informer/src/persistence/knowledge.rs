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
    /// Objects that no longer exist, and whose deletion the handler has not acknowledged. Each is another incarnation.
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
    /// It may have received the object, and has acknowledged this earlier state of it.
    Received(Option<Arc<Entry>>),
}

/// Differences by key.
pub(crate) type Differences = BTreeMap<Key, Difference>;

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
        let mut gone: Vec<Arc<Entry>> = Vec::new();
        for entry in acknowledged.into_iter().chain(received).chain(pending) {
            if saved.is_some_and(|saved| !saved.is_other_incarnation(entry)) {
                continue;
            }
            match gone.iter_mut().find(|gone| !gone.is_other_incarnation(entry)) {
                Some(earlier) => *earlier = Arc::clone(entry),
                None => gone.push(Arc::clone(entry)),
            }
        }
        let saved = saved.map(|saved| {
            let own = acknowledged.filter(|entry| !entry.is_other_incarnation(saved));
            match own {
                Some(own) if is_same_state(own, saved) => SavedState::Acknowledged,
                own => SavedState::Received(own.cloned()),
            }
        });
        Self { gone, saved: saved.unwrap_or_default() }.into_some()
    }

    /// Returns what a handler that receives nothing knows after the saved object has changed.
    fn rebase(mut self, changed: &ChangedKey) -> Option<Self> {
        let ChangedKey { old, new } = changed;
        let known = old.as_ref().and_then(|old| match &self.saved {
            SavedState::Acknowledged => Some(Some(Arc::clone(old))),
            SavedState::Received(acknowledged) => Some(acknowledged.clone()),
            SavedState::Unknown => None,
        });
        let is_same_object =
            old.as_ref().zip(new.as_ref()).is_some_and(|(old, new)| !old.is_other_incarnation(new));
        self.saved = match (known, new) {
            (Some(acknowledged), Some(_)) if is_same_object => SavedState::Received(acknowledged),
            (known, new) => {
                self.gone.extend(old.as_ref().filter(|_| known.is_some()).cloned());
                if new.is_some() { SavedState::Unknown } else { SavedState::Acknowledged }
            }
        };
        self.into_some()
    }

    fn into_some(self) -> Option<Self> {
        let is_none = self.gone.is_empty() && matches!(self.saved, SavedState::Acknowledged);
        (!is_none).then_some(self)
    }

    /// Returns whether both are stored in the same way.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_gone = self.gone.len() == other.gone.len()
            && self.gone.iter().zip(&other.gone).all(|(left, right)| is_same_state(left, right));
        is_same_gone
            && match (&self.saved, &other.saved) {
                (SavedState::Acknowledged, SavedState::Acknowledged)
                | (SavedState::Unknown, SavedState::Unknown)
                | (SavedState::Received(None), SavedState::Received(None)) => true,
                (SavedState::Received(Some(left)), SavedState::Received(Some(right))) => {
                    is_same_state(left, right)
                }
                _ => false,
            }
    }
}

/// Makes the differences of a handler that receives nothing refer to the changed objects.
pub(crate) fn rebase(differences: &mut Differences, changes: &[ChangedKey]) {
    for changed in changes {
        let Some(key) = changed.key() else { continue };
        if let Some(difference) = differences.remove(key).unwrap_or_default().rebase(changed) {
            differences.insert(key.clone(), difference);
        }
    }
}

fn is_same_state(left: &Arc<Entry>, right: &Arc<Entry>) -> bool {
    Arc::ptr_eq(left, right) || left.is_same_state(right)
}
