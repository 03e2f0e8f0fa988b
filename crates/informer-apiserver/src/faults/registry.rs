//! The active rules and their counters.
//!
//! Rules are numbered in the order in which they were injected. Rules for requests apply when a request
//! arrives, one after the other by number. Stream rules, which act on the frames of an open watch, apply to a
//! watch when it starts and to all open watches when the rule is injected. Every match counts for
//! `skip_first` and `probability_percent`, but only an applied rule counts for `max_hits`: a rule that still
//! lets frames of one watch pass does not use up hits of other requests. Dropping a guard wakes the tasks
//! that wait for the removal of its rule.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Action, FaultRule};
use crate::log::RecordedRequest;

/// Keeps a rule active; dropping it removes the rule.
#[derive(Debug)]
#[must_use = "the rule is removed when the guard is dropped"]
pub struct FaultGuard {
    active: Arc<Active>,
    registry: Arc<Registry>,
}

impl FaultGuard {
    /// Returns how often the rule has had its effect: the number of requests that it responded to or changed,
    /// of frames that it changed or inserted, and of open watches that it ended or stalled.
    ///
    /// [`FaultRule::max_hits`] limits this number.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::SeqCst)
    }

    /// Returns the number of open watches that the rule was attached to. Always 0 for a rule that acts on
    /// requests instead of open watches.
    ///
    /// Counts each watch once, also after its end, and even if the rule has had no effect on the watch yet
    /// because frames pass first (see [`FaultRule::after_frames`]) or because no frame to change has been
    /// sent. [`FaultGuard::hits`] counts effects: a test that waits until a watch was broken waits for hits,
    /// with [`ApiServer::wait_until`](crate::ApiServer::wait_until).
    pub fn affected_watches(&self) -> u64 {
        self.active.watches.load(Ordering::SeqCst)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        self.registry.change(|rules| rules.retain(|rule| !Arc::ptr_eq(rule, &self.active)));
    }
}

/// An active rule with its counters.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) rule: FaultRule,
    /// Increases with every injected rule.
    pub(crate) number: u64,
    /// Number of requests and watches that matched the conditions.
    matched: AtomicU64,
    /// Number of times that the rule was applied.
    hits: AtomicU64,
    /// See [`FaultGuard::affected_watches`].
    watches: AtomicU64,
    /// Notified when the hits or watches have changed.
    activity: Arc<Notify>,
}

impl Active {
    /// Counts a matching request or watch; returns whether `skip_first` and the probability select it.
    fn count_match(&self) -> bool {
        let number = self.matched.fetch_add(1, Ordering::SeqCst);
        number >= self.rule.skip_first && self.rule.is_selected(number)
    }

    /// Counts a hit; returns `false`, without counting, if `max_hits` is reached.
    pub(crate) fn count_hit(&self) -> bool {
        let max_hits = self.rule.max_hits.unwrap_or(u64::MAX);
        let counted = self
            .hits
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |hits| (hits < max_hits).then_some(hits + 1))
            .is_ok();
        if counted {
            self.activity.notify_waiters();
        }
        counted
    }

    fn count_watch(&self) {
        self.watches.fetch_add(1, Ordering::SeqCst);
        self.activity.notify_waiters();
    }
}

/// All active rules in the order in which they were injected.
#[derive(Debug)]
pub(crate) struct Registry {
    rules: Mutex<Vec<Arc<Active>>>,
    injected: AtomicU64,
    revision: AtomicU64,
    /// Notified when rules are added or removed. Wakes waiters in the order in which they started to wait,
    /// which keeps runs reproducible.
    pub(crate) rules_changed: Notify,
    /// Notified when a rule counts a hit or a watch.
    activity: Arc<Notify>,
}

impl Registry {
    /// Creates a registry without rules, which notifies `activity` when a rule counts a hit or a watch.
    pub(crate) fn new(activity: Arc<Notify>) -> Self {
        Registry {
            rules: Mutex::default(),
            injected: AtomicU64::new(0),
            revision: AtomicU64::new(0),
            rules_changed: Notify::new(),
            activity,
        }
    }

    pub(crate) fn add(self: &Arc<Self>, rule: FaultRule) -> FaultGuard {
        let active = Arc::new(Active {
            rule,
            number: self.injected.fetch_add(1, Ordering::SeqCst) + 1,
            matched: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            watches: AtomicU64::new(0),
            activity: self.activity.clone(),
        });
        self.change(|rules| rules.push(active.clone()));
        FaultGuard { active, registry: self.clone() }
    }

    /// Returns the next rule that applies to a request, after the rule with the number `after`. Counts a hit
    /// of the rule, unless only the response shows whether the rule applies.
    pub(crate) fn for_request(&self, request: &RecordedRequest, after: u64) -> Option<Arc<Active>> {
        let rules = self.lock();
        let mut later = rules.iter().filter(|active| {
            active.number > after
                && active.rule.action.applies_to_request(request)
                && active.rule.matches(request)
        });
        later
            .find(|active| {
                active.count_match() && (active.rule.action.is_counted_by_response() || active.count_hit())
            })
            .cloned()
    }

    /// Returns whether an outage breaks the connections of a user's requests for paths without a resource, such
    /// as discovery. Counts a hit of the rule that decides.
    pub(crate) fn breaks_other_paths(&self, user: &str) -> bool {
        self.is_outage(|rule| rule.applies_to_other_paths(user))
    }

    /// Returns whether an outage breaks the connection of a request that access control rejects. Counts a hit of
    /// the rule that decides.
    pub(crate) fn breaks_refused(&self, request: &RecordedRequest) -> bool {
        self.is_outage(|rule| rule.matches(request))
    }

    /// Returns whether the first outage or exemption that applies is an outage.
    fn is_outage(&self, applies: impl Fn(&FaultRule) -> bool) -> bool {
        let rules = self.lock();
        let is_outage = |active: &Active| matches!(active.rule.action, Action::Outage);
        // Without an outage, there is nothing that an exemption could prevent and count.
        if !rules.iter().any(|active| is_outage(active) && applies(&active.rule)) {
            return false;
        }
        let decides = |active: &Active| {
            matches!(active.rule.action, Action::Outage | Action::Exempt)
                && applies(&active.rule)
                && active.count_match()
                && active.count_hit()
        };
        rules.iter().find(|active| decides(active)).is_some_and(|active| is_outage(active))
    }

    /// Returns the rules that apply to an open watch, have one of the wanted effects, and whose numbers are not in
    /// `known` yet.
    ///
    /// Adds the numbers of all active rules with these effects to `known`, including those that do not match, and
    /// removes those of rules that are no longer active.
    pub(crate) fn for_stream(
        &self,
        request: &RecordedRequest,
        known: &mut Vec<u64>,
        wanted: impl Fn(&Action) -> bool,
    ) -> Vec<Arc<Active>> {
        let rules = self.lock();
        known.retain(|number| rules.iter().any(|active| active.number == *number));
        let mut selected = Vec::new();
        for active in rules.iter() {
            let is_wanted = active.rule.action.applies_to_stream(request) && wanted(&active.rule.action);
            if !is_wanted || known.contains(&active.number) {
                continue;
            }
            known.push(active.number);
            if active.rule.matches(request) && active.count_match() {
                active.count_watch();
                selected.push(active.clone());
            }
        }
        selected
    }

    pub(crate) fn is_active(&self, active: &Arc<Active>) -> bool {
        self.lock().iter().any(|other| Arc::ptr_eq(other, active))
    }

    /// Returns a number that changes whenever rules are added or removed.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Waits until a rule is removed.
    pub(crate) async fn wait_for_removal(&self, active: &Arc<Active>) {
        loop {
            let mut changed = std::pin::pin!(self.rules_changed.notified());
            changed.as_mut().enable();
            if !self.is_active(active) {
                return;
            }
            changed.await;
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
