//! Warm start: a saved state of the scope, and how the server confirms it.
//!
//! 1. A list of one object, of the server's most recent state, tells which version has to be reached (the
//!    goal). A server that was restored from an older backup is detected here (C1).
//! 2. A watch from the saved version brings the changes since then. They are applied to the saved entries,
//!    not to the store. The watch has a short timeout, because kube-apiserver sends a bookmark shortly before
//!    it ends a watch, and only a bookmark confirms a kind without changes.
//! 3. When the position has reached the goal, the saved entries become the initial list of the cache.
//!
//! If the server cannot confirm the saved state, a full list replaces it. That list is not older than the
//! saved version, unless the server itself is.

use super::RequestKind;
use super::cached::SavedScope;
use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{ListKind, Listing, Phase, Resume};
use super::request::{Consistency, ListRequest};
use super::state::RelistReason;
use crate::delta::{Delta, Replaced};
use crate::time::Moment;
use std::time::Duration;

/// The timeout of a watch that confirms a saved state. kube-apiserver sends a bookmark two seconds before it
/// ends a watch, but not to watches that last two seconds or less.
pub(super) const CONFIRMATION_WATCH_TIMEOUT: Duration = Duration::from_secs(3);
/// Number of watches that may end regularly before the goal is reached.
const MAX_CONFIRMATION_WATCHES: u32 = 3;
/// The audit after a warm start is at a random time within this period.
const FIRST_AUDIT_PERIOD: Duration = Duration::from_secs(3600);

impl Reflector {
    /// Sets a saved state of the scope, to be confirmed by the server instead of requesting the initial list.
    /// Has no effect after the start.
    ///
    /// The saved entries are passed to the store only after the server has confirmed them. Its version is a
    /// lower bound: no list that is older is accepted, except of a server whose most recent state is older.
    pub fn restore(&mut self, saved: SavedScope) {
        if matches!(self.phase, Phase::Idle) {
            self.position.restore(saved.version.clone());
            self.cache.restore(saved);
        }
    }

    /// Requests the version that has to be reached.
    pub(super) fn begin_confirmation(&mut self, now: Moment) {
        let request =
            ListRequest { version_only: true, ..ListRequest::new(Consistency::MostRecent, Some(1)) };
        let id = self.send_list(now, request.clone());
        self.phase = Phase::Listing(Listing::new(id, ListKind::Confirmation, request));
    }

    pub(super) fn confirmation_failed(&mut self, now: Moment, failure: Failure) {
        match failure.class() {
            FailureClass::Throttled | FailureClass::Unreachable | FailureClass::Transient => {
                self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
            }
            // The initial list fails in the same way and decides what happens next, or it is allowed.
            _ => {
                self.report_failure(RequestKind::List, failure, Duration::ZERO);
                self.begin_relist(now, RelistReason::Initial);
            }
        }
    }

    pub(super) fn confirmation_complete(&mut self, now: Moment) {
        let Phase::Listing(listing) = &self.phase else { return };
        let Some(goal) = listing.version().cloned() else {
            return self.confirmation_failed(now, Failure::malformed("the list has no resource version"));
        };
        let reached = self.position.version().and_then(|position| position.compare(&goal));
        match reached {
            // The server was restored from a backup. The position stays for comparison, and the next list
            // requests the most recent state.
            Some(std::cmp::Ordering::Greater) => {
                self.position.mark_unavailable();
                self.begin_relist(now, RelistReason::Expired);
            }
            Some(_) => {
                self.contact.record_up_to_date(now);
                self.cache.set_goal(goal);
                if !self.confirm_saved(now) {
                    self.begin_watch(now);
                }
            }
            None => self.begin_relist(now, RelistReason::Initial),
        }
    }

    /// Passes the saved entries to the store if the position has reached the goal; returns whether it has.
    pub(super) fn confirm_saved(&mut self, now: Moment) -> bool {
        let Some(version) = self.position.version().cloned() else { return false };
        let Some(saved) = self.cache.take_confirmed(&version) else { return false };
        self.out.counters.warm_starts += 1;
        self.contact.record_up_to_date(now);
        // A restored server whose versions have passed the saved one is not recognised above.
        let delay = self.health.jittered(FIRST_AUDIT_PERIOD).saturating_sub(FIRST_AUDIT_PERIOD);
        self.contact.schedule_audit(Some(now + delay));
        let scope = self.config.scope.clone();
        let (entries, unreadable) = saved.into_parts();
        self.push(Delta::Replaced(Replaced { scope, version, entries, unreadable, audit: false }));
        // The next watch has the usual timeout.
        let seamless = matches!(self.phase, Phase::Watching(_));
        if seamless {
            self.cancel_stream();
        }
        self.open_watch(now, seamless);
        true
    }

    /// Handles the regular end of a watch that should confirm the saved state: the next one continues, unless
    /// this one received nothing or too many have ended.
    pub(super) fn confirmation_watch_ended(&mut self, now: Moment) {
        let Phase::Watching(watching) = &self.phase else { return };
        let received = watching.stream.frames > 0;
        if received && self.cache.count_confirmation_watch() < MAX_CONFIRMATION_WATCHES {
            return self.begin_watch(now);
        }
        self.saved_unconfirmed(now);
    }

    /// Handles the silence of a watch that should confirm the saved state.
    pub(super) fn confirmation_watch_silent(&mut self, now: Moment) {
        self.cancel_stream();
        self.saved_unconfirmed(now);
    }

    fn saved_unconfirmed(&mut self, now: Moment) {
        let failure = Failure::interrupted("the watch did not reach the version of the server");
        self.report_failure(RequestKind::Watch, failure, Duration::ZERO);
        self.begin_relist(now, RelistReason::Suspect);
    }
}
