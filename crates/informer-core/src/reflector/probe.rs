//! One object, asked for to learn whether a server that may have been away still knows the position (C1).
//!
//! A server that was restored to a point before the position accepts a watch from there and says nothing until it has come past it by another way.
//! A list that must not be older finds that out. What it brings is dropped; only its version, or the response, is looked at.

use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{Listing, Phase, Resume};
use super::request::{Consistency, ListRequest};
use super::server::Probes;
use super::{RelistReason, RequestKind};
use crate::time::Moment;
use std::time::Duration;

/// So many probes in a row that fail otherwise mean that lists cannot be had, for a reason that need not concern the watch.
const MAX_FAILED_PROBES: u32 = 3;

impl Reflector {
    /// Watches from the position on after a time in which the server may have been away: if it still knows that position.
    pub(super) fn resume_watch(&mut self, now: Moment) {
        if self.is_suspect(now) {
            self.begin_relist(now, RelistReason::Suspect);
        } else if self.health.probes.failed >= MAX_FAILED_PROBES {
            self.health.probes.failed = 0;
            self.begin_watch(now);
        } else {
            self.begin_probe(now);
        }
    }

    fn begin_probe(&mut self, now: Moment) {
        let Some(position) = self.position.version().cloned() else { return };
        let request = ListRequest::new(Consistency::NotOlderThan(position), Some(1));
        let id = self.send_list(now, request.clone());
        self.phase = Phase::Listing(Listing::probe(id, request));
    }

    pub(super) fn probe_failed(&mut self, now: Moment, failure: Failure) {
        match failure.class() {
            FailureClass::VersionTooLarge if !self.health.probes.behind => {
                self.health.probes.behind = true;
                self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
            }
            FailureClass::Expired | FailureClass::VersionTooLarge => {
                self.health.probes = Probes::default();
                self.position.lose();
                self.report_failure(RequestKind::List, failure, Duration::ZERO);
                self.begin_relist(now, RelistReason::Expired);
            }
            FailureClass::Throttled | FailureClass::Unreachable => {
                self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
            }
            FailureClass::Transient => {
                self.health.probes.failed += 1;
                self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
            }
            // Whoever may not list is not told, and watches as if there were no probe. The watch says for itself what else is wrong.
            FailureClass::Forbidden | FailureClass::NotServed | FailureClass::Rejected => {
                self.report_failure(RequestKind::List, failure, Duration::ZERO);
                self.begin_watch(now);
            }
        }
    }

    pub(super) fn probe_answered(&mut self, now: Moment) {
        let Phase::Listing(listing) = &self.phase else { return };
        let Some(version) = listing.version().cloned() else {
            return self.probe_failed(now, Failure::malformed("the list has no resource version"));
        };
        if let Some(failure) = self.is_rewind(RequestKind::List, &version, false) {
            return self.probe_failed(now, failure);
        }
        self.health.probes = Probes::default();
        self.begin_watch(now);
    }
}
