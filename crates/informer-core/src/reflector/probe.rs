//! The probe: a list of one object that checks after an outage whether the server has reached the position
//! (C1).
//!
//! A server restored from a backup that is older than the position accepts a watch from there, and stays
//! silent until its own versions have passed the position. A list with `resourceVersionMatch=NotOlderThan`
//! detects this. Only its version, or its failure, is used; the object is dropped.

use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{Listing, Phase, Resume};
use super::request::{Consistency, ListRequest};
use super::server::Probes;
use super::{RelistReason, RequestKind};
use crate::time::Moment;
use std::time::Duration;

/// Number of consecutive failed probes after which the watch starts without one.
///
/// Lists can fail for reasons that do not affect watches.
const MAX_FAILED_PROBES: u32 = 3;

impl Reflector {
    /// Resumes the watch after a backoff: relists if the position is suspect, otherwise probes the position
    /// first.
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
                self.position.mark_unavailable();
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
            // A user without permission to list may still watch. Other problems are reported by the watch
            // itself.
            FailureClass::Forbidden | FailureClass::NotServed | FailureClass::Rejected => {
                self.report_failure(RequestKind::List, failure, Duration::ZERO);
                self.begin_watch(now);
            }
        }
    }

    pub(super) fn probe_complete(&mut self, now: Moment) {
        let Phase::Listing(listing) = &self.phase else { return };
        let Some(version) = listing.version().cloned() else {
            return self.probe_failed(now, Failure::malformed("the list has no resource version"));
        };
        if let Some(failure) = self.rewind_failure(RequestKind::List, &version, false) {
            return self.probe_failed(now, failure);
        }
        self.health.probes = Probes::default();
        self.begin_watch(now);
    }
}
