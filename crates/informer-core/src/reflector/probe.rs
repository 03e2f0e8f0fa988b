//! The probe: a list of one object, sent before a watch resumes after a failure, and when a watch is silent.
//!
//! It checks that the server has reached the position, the resource version from which the watch resumes;
//! otherwise states would be delivered out of order (C1).
//!
//! A server restored from a backup that is older than the position accepts a watch from there, and stays
//! silent until its own versions have passed the position. A list with `resourceVersionMatch=NotOlderThan`
//! detects such a server. Only the version or the failure of the list is used; the object is dropped.

use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{ListKind, Listing, Phase, Resume};
use super::request::{Consistency, ListRequest};
use super::server::Probes;
use super::{RelistReason, RequestKind};
use crate::time::Moment;
use std::time::Duration;

/// Number of probes with a transient failure, since the last success, after which the watch starts without
/// a probe.
///
/// Lists can fail for reasons that do not affect watches. Throttled and unreachable servers do not count,
/// because a watch would fail there too.
const MAX_FAILED_PROBES: u32 = 3;

impl Reflector {
    /// Resumes the watch after a backoff: relists if nothing was received for too long, otherwise probes
    /// first, unless [`MAX_FAILED_PROBES`] probes have failed. With a saved state, the first watch follows the
    /// list that tells which version has to be reached.
    pub(super) fn resume_watch(&mut self, now: Moment) {
        if self.cache.needs_goal() {
            self.begin_confirmation(now);
        } else if self.is_suspect(now) {
            self.begin_relist(now, RelistReason::Suspect);
        } else if self.health.probes.failed >= MAX_FAILED_PROBES {
            self.health.probes.failed = 0;
            self.begin_watch(now);
        } else {
            self.begin_probe(now);
        }
    }

    /// Replaces a watch that has been silent for too long by a probe, followed by a new watch.
    ///
    /// A quiet server responds, and the state stays live. A server that does not respond within 20 seconds
    /// has failed.
    pub(super) fn begin_check(&mut self, now: Moment) {
        self.record_health(now);
        self.cancel_stream();
        self.server.record_check();
        self.send_probe(now, ListKind::Check);
    }

    pub(super) fn check_timed_out(&mut self, now: Moment) {
        self.out.counters.silence_timeouts += 1;
        let silence = now - self.contact.last_up_to_date();
        self.cancel_stream();
        self.probe_failed(now, Failure::timeout(format!("nothing received for {silence:.0?}")));
    }

    fn begin_probe(&mut self, now: Moment) {
        self.send_probe(now, ListKind::Probe);
    }

    fn send_probe(&mut self, now: Moment, kind: ListKind) {
        let Some(position) = self.position.version().cloned() else { return };
        let request = ListRequest::new(Consistency::NotOlderThan(position), Some(1));
        let request = ListRequest { version_only: true, ..request };
        let id = self.send_list(now, request.clone());
        self.phase = Phase::Listing(Listing::new(id, kind, request));
    }

    pub(super) fn probe_failed(&mut self, now: Moment, failure: Failure) {
        match failure.class() {
            // One server of several may only lag. After two such probes, the server is considered restored
            // from a backup.
            FailureClass::VersionTooLarge if !self.health.probes.behind => {
                self.health.probes.behind = true;
                self.enter_backoff(now, RequestKind::List, Resume::Watch, failure);
            }
            FailureClass::Expired | FailureClass::VersionTooLarge => {
                self.health.probes = Probes::default();
                self.position.mark_unavailable();
                // As after a watch whose position has expired.
                if self.position.record_expired() {
                    return self.enter_backoff(now, RequestKind::List, Resume::Relist, failure);
                }
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
            // A user without permission to list may still watch. If the resource is not served, the watch
            // fails too and decides what happens next.
            FailureClass::Forbidden | FailureClass::NotServed | FailureClass::Rejected => {
                let seamless = self.is_check();
                self.report_failure(RequestKind::List, failure, Duration::ZERO);
                self.open_watch(now, seamless);
            }
        }
    }

    pub(super) fn probe_complete(&mut self, now: Moment) {
        let Phase::Listing(listing) = &self.phase else { return };
        let Some(version) = listing.version().cloned() else {
            return self.probe_failed(now, Failure::malformed("the list has no resource version"));
        };
        let consistent = false;
        if let Some(failure) = self.stale_list_failure(RequestKind::List, &version, consistent) {
            return self.probe_failed(now, failure);
        }
        let seamless = listing.kind == ListKind::Check;
        self.health.probes = Probes::default();
        self.open_watch(now, seamless);
    }
}
