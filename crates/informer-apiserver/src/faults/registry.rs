//! The rules in force, and how often each was met.
//!
//! Requests meet rules when they come in, one after the other by number; watches when they first see them. Meeting a rule is
//! counted for `after` and `chance`; what `times` counts is the rule being carried out, so one that waits behind
//! another for its frames takes nothing from those who come later. Whoever waits for a rule to go is woken by its guard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::FaultRule;
use crate::log::RecordedRequest;

/// Keeps a rule in force; dropping it takes the rule away.
#[derive(Debug)]
#[must_use = "the rule ends when this is dropped"]
pub struct FaultGuard {
    active: Arc<Active>,
    registry: Arc<Registry>,
}

impl FaultGuard {
    /// How often the rule did what it says.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::SeqCst)
    }

    /// How many open watches the rule has reached. Those that let frames pass first may not show it yet.
    pub fn affected_watches(&self) -> u64 {
        self.active.watches.load(Ordering::SeqCst)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.registry.change(|rules| rules.retain(|rule| !Arc::ptr_eq(rule, &self.active)));
    }
}

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rule: FaultRule,
    /// Rises from rule to rule.
    pub(crate) number: u64,
    matched: AtomicU64,
    hits: AtomicU64,
    watches: AtomicU64,
}

impl Active {
    /// Counts a matching request or watch; whether the rule is for it.
    fn matches_next(&self) -> bool {
        let number = self.matched.fetch_add(1, Ordering::SeqCst);
        number >= self.rule.skip_first && self.rule.is_picked(number)
    }

    /// Counts that the rule is carried out; `false` if that has been often enough.
    pub(crate) fn take(&self) -> bool {
        let times = self.rule.max_hits.unwrap_or(u64::MAX);
        self.hits
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |hits| (hits < times).then_some(hits + 1))
            .is_ok()
    }
}

/// All rules in force, in the order in which they were set.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    rules: Mutex<Vec<Arc<Active>>>,
    set: AtomicU64,
    revision: AtomicU64,
    /// Rings when rules come and go. It wakes in the order in which they wait, so that a run can be repeated.
    pub(crate) rules_changed: Notify,
}

impl Registry {
    pub(crate) fn add(self: &Arc<Self>, rule: FaultRule) -> FaultGuard {
        let active = Arc::new(Active {
            rule,
            number: self.set.fetch_add(1, Ordering::SeqCst) + 1,
            matched: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            watches: AtomicU64::new(0),
        });
        self.change(|rules| rules.push(active.clone()));
        FaultGuard { active, registry: self.clone() }
    }

    /// The next rule for a request, behind the one with a number. It counts as carried out, unless that is not known yet.
    pub(crate) fn for_request(&self, seen: &RecordedRequest, behind: u64) -> Option<Arc<Active>> {
        let rules = self.lock();
        let mut later = rules.iter().filter(|active| {
            active.number > behind && !active.rule.action.disturbs_stream(seen) && active.rule.matches(seen)
        });
        later.find(|active| active.matches_next() && (active.rule.action.is_late() || active.take())).cloned()
    }

    /// The rules that disturb a watch and that it has not met. All that it meets go into `met`.
    pub(crate) fn for_stream(&self, seen: &RecordedRequest, met: &mut Vec<u64>) -> Vec<Arc<Active>> {
        let rules = self.lock();
        met.retain(|number| rules.iter().any(|active| active.number == *number));
        let mut found = Vec::new();
        for active in rules.iter() {
            if !active.rule.action.disturbs_stream(seen) || met.contains(&active.number) {
                continue;
            }
            met.push(active.number);
            if active.rule.matches(seen) && active.matches_next() {
                active.watches.fetch_add(1, Ordering::SeqCst);
                found.push(active.clone());
            }
        }
        found
    }

    pub(crate) fn is_in_force(&self, active: &Arc<Active>) -> bool {
        self.lock().iter().any(|other| Arc::ptr_eq(other, active))
    }

    /// Changes with the rules.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Waits until a rule is taken away.
    pub(crate) async fn gone(&self, active: &Arc<Active>) {
        loop {
            let mut news = std::pin::pin!(self.rules_changed.notified());
            news.as_mut().enable();
            if !self.is_in_force(active) {
                return;
            }
            news.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Active>>)) {
        change(&mut self.lock());
        self.revision.fetch_add(1, Ordering::SeqCst);
        self.rules_changed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Active>>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
