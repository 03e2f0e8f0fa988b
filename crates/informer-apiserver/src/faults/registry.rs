//! The rules in force, and how often each was met.
//!
//! A rule is taken at most `times` times: by requests when they come in, by watches when they first see it. Whoever waits for a
//! rule to go is woken by its guard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::Rule;
use crate::log::Seen;

/// Keeps a rule in force; dropping it takes the rule away.
#[derive(Debug)]
#[must_use = "the rule ends when this is dropped"]
pub struct Fault {
    active: Arc<Active>,
    registry: Arc<Registry>,
}

impl Fault {
    /// How often the rule did what it says.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::SeqCst)
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        self.registry.change(|rules| rules.retain(|rule| !Arc::ptr_eq(rule, &self.active)));
    }
}

/// A rule in force.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rule: Rule,
    matched: AtomicU64,
    taken: AtomicU64,
    hits: AtomicU64,
}

impl Active {
    /// Counts a matching request or watch; whether the rule is for it.
    fn take(&self) -> bool {
        if self.matched.fetch_add(1, Ordering::SeqCst) < self.rule.skip {
            return false;
        }
        let times = self.rule.times.unwrap_or(u64::MAX);
        self.taken
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |taken| (taken < times).then_some(taken + 1))
            .is_ok()
    }

    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::SeqCst);
    }
}

/// All rules in force, in the order in which they were set.
#[derive(Debug)]
pub(crate) struct Registry {
    rules: Mutex<Vec<Arc<Active>>>,
    revision: watch::Sender<u64>,
}

impl Default for Registry {
    fn default() -> Self {
        Registry { rules: Mutex::default(), revision: watch::Sender::new(0) }
    }
}

impl Registry {
    pub(crate) fn add(self: &Arc<Self>, rule: Rule) -> Fault {
        let active = Arc::new(Active {
            rule,
            matched: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        });
        self.change(|rules| rules.push(active.clone()));
        Fault { active, registry: self.clone() }
    }

    /// The rule that answers a request.
    pub(crate) fn for_request(&self, seen: &Seen) -> Option<Arc<Active>> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let mut of_requests = rules.iter().filter(|active| !active.rule.disturbs_streams());
        let found = of_requests.find(|active| active.rule.matches(seen) && active.take())?;
        found.hit();
        Some(found.clone())
    }

    /// The rule that disturbs a watch, among those that the watch has not met. All that it meets go into `met`.
    pub(crate) fn for_stream(&self, seen: &Seen, met: &mut Vec<Arc<Active>>) -> Option<Arc<Active>> {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        met.retain(|old| rules.iter().any(|active| Arc::ptr_eq(active, old)));
        for active in rules.iter().filter(|active| active.rule.disturbs_streams()) {
            if !active.rule.matches(seen) || met.iter().any(|old| Arc::ptr_eq(old, active)) {
                continue;
            }
            met.push(active.clone());
            if active.take() {
                return Some(active.clone());
            }
        }
        None
    }

    pub(crate) fn is_in_force(&self, active: &Arc<Active>) -> bool {
        let rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        rules.iter().any(|other| Arc::ptr_eq(other, active))
    }

    /// Says when rules come and go.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Waits until a rule is taken away.
    pub(crate) async fn gone(&self, active: &Arc<Active>) {
        let mut changes = self.changes();
        while self.is_in_force(active) {
            // The sender is part of `self`, so it cannot be gone.
            let _ = changes.changed().await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Active>>)) {
        change(&mut self.rules.lock().unwrap_or_else(PoisonError::into_inner));
        self.revision.send_modify(|revision| *revision += 1);
    }
}
