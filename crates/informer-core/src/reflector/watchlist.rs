//! The watch-listing phase: a watch that begins with all current objects.
//!
//! Some servers and proxies stream a watch-list and never end the initial events. They report no error, so
//! the reflector monitors progress: in each progress window, the number of keys must grow by more than 1 %.
//! If a failure shows that the server does not support watch-lists, the reflector disables watch-lists and
//! lists instead.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{EntryByKey, Phase, WatchListing, Watching};
use super::request::{Consistency, WatchStart};
use super::server::MAX_UNFINISHED_WATCH_LISTS;
use crate::delta::{Delta, Replaced};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{Frame, FrameKind, ObjectError};
use std::collections::{BTreeMap, BTreeSet};

impl Reflector {
    pub(super) fn begin_watch_list(&mut self, now: Moment) {
        // The initial list requests any state, because a list of the most recent state may be read from etcd.
        // kube-apiserver serves a watch-list of the most recent state from its watch cache.
        let consistency = self.position.consistency(Consistency::MostRecent);
        self.out.counters.watch_lists += 1;
        let stream = self.send_watch(now, WatchStart::InitialEvents(consistency.clone()));
        self.phase = Phase::WatchListing(WatchListing {
            stream,
            consistency,
            entries: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            foreign: 0,
            window: None,
        });
    }

    pub(super) fn watch_list_frame(&mut self, now: Moment, frame: Frame) {
        let frame = match frame {
            Frame::Added(scanned) | Frame::Modified(scanned) if !self.config.selects(&scanned.head) => {
                self.out.counters.foreign += 1;
                if let Phase::WatchListing(listing) = &mut self.phase {
                    listing.foreign += 1;
                    // It had another owner before, or is the next incarnation.
                    listing.entries.remove(&scanned.head.key);
                    listing.unreadable.remove(&scanned.head.key);
                }
                return;
            }
            Frame::Added(scanned) | Frame::Modified(scanned) => {
                let entry = self.listed_entry(scanned);
                if let Phase::WatchListing(listing) = &mut self.phase {
                    listing.unreadable.remove(entry.key());
                    listing.entries.replace(EntryByKey(entry));
                }
                return;
            }
            frame => frame,
        };
        let Phase::WatchListing(listing) = &mut self.phase else { return };
        match frame {
            // With ranges of uids, another incarnation of the object belongs to another range.
            Frame::Deleted(scanned) if !self.config.selects(&scanned.head) => {}
            Frame::Deleted(scanned) => {
                listing.entries.remove(&scanned.head.key);
                listing.unreadable.remove(&scanned.head.key);
            }
            Frame::Bookmark { initial_events_end: true, version: Some(version) } => {
                self.watch_list_complete(now, version);
            }
            // Added and Modified are handled above.
            Frame::Bookmark { .. } | Frame::Added(_) | Frame::Modified(_) => {}
            Frame::Error(status) => {
                self.cancel_stream();
                self.watch_list_failed(now, Failure::of_status(&status));
            }
            Frame::Unreadable(kind, unreadable) => {
                let mut failure = None;
                match (&kind, &unreadable.key) {
                    _ if matches!(unreadable.error, ObjectError::OtherKind { .. }) => {
                        failure = Some(Failure::malformed("the stream contains another kind"));
                    }
                    // Its uid decides whether it is in the ranges.
                    (FrameKind::Deleted, Some(key)) if self.config.key_decides(key).is_none() => {
                        failure = Some(Failure::unreadable_deletion());
                    }
                    (FrameKind::Deleted, Some(key)) => {
                        listing.entries.remove(key);
                        listing.unreadable.remove(key);
                    }
                    // C2: the deleted object may be among those received so far.
                    (FrameKind::Deleted, None) => failure = Some(Failure::unreadable_deletion()),
                    (FrameKind::Added | FrameKind::Modified, Some(key)) => {
                        listing.unreadable.insert(key.clone(), unreadable.clone());
                    }
                    _ => {}
                }
                self.out.counters.unreadable += 1;
                self.report(ReflectorDiagnostic::ObjectSkipped(unreadable));
                if let Some(failure) = failure {
                    self.cancel_stream();
                    self.watch_list_failed(now, failure);
                }
            }
        }
    }

    fn watch_list_complete(&mut self, now: Moment, version: ResourceVersion) {
        let Phase::WatchListing(listing) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let consistent = listing.consistency == Consistency::MostRecent;
        if let Some(failure) = self.stale_list_failure(RequestKind::WatchList, &version, consistent) {
            self.phase = Phase::WatchListing(listing);
            self.cancel_stream();
            return self.watch_list_failed(now, failure);
        }
        let mut entries: Vec<_> = listing.entries.into_iter().map(|EntryByKey(entry)| entry).collect();
        let unreadable: Vec<_> = listing.unreadable.into_values().collect();
        entries.extend(self.cache.saved_entries(&unreadable));
        self.drop_released(&mut entries);
        self.record_undecided(&unreadable);
        self.record_full_list(now, version.clone(), consistent);
        self.server.watch_list.unfinished = 0;
        let scope = self.config.scope.clone();
        self.push(Delta::Replaced(Replaced { scope, version, entries, unreadable, audit: false }));
        self.phase = Phase::Watching(Watching::from_watch_list(listing.stream, now));
        self.renew_outdated_stream(now);
    }

    /// Handles a stream that ended before the end of the initial events.
    pub(super) fn watch_list_end(&mut self, now: Moment) {
        let Phase::WatchListing(listing) = &self.phase else { return };
        let failure = listing.stream.response_failure().unwrap_or_else(|| {
            let failure = Failure::interrupted("the stream ended before the initial events were complete");
            self.record_unfinished(&failure);
            failure
        });
        self.watch_list_failed(now, failure);
    }

    /// Starts the next progress window; or disables watch-lists and lists instead, if the watch-list made no
    /// progress.
    pub(super) fn check_watch_list_progress(&mut self, now: Moment) {
        let Phase::WatchListing(listing) = &mut self.phase else { return };
        if listing.made_progress() {
            listing.window = Some((now, listing.received()));
            return;
        }
        let failure = Failure::timeout("the initial events did not complete");
        self.cancel_stream();
        self.disable_watch_list(failure.clone());
        self.report_failure(RequestKind::WatchList, failure, std::time::Duration::ZERO);
        self.begin_list(now);
    }

    pub(super) fn watch_list_failed(&mut self, now: Moment, failure: Failure) {
        let Phase::WatchListing(listing) = &self.phase else { return };
        let consistent = listing.consistency == Consistency::MostRecent;
        match failure.class() {
            FailureClass::Expired | FailureClass::VersionTooLarge => {
                if consistent {
                    // The watch-list requested no particular version, so a repetition may fail again. A list
                    // may succeed.
                    self.record_unfinished(&failure);
                }
                self.relist_failed(now, RequestKind::WatchList, consistent, failure);
            }
            FailureClass::Throttled | FailureClass::Unreachable => {
                self.relist_failed(now, RequestKind::WatchList, consistent, failure);
            }
            // C11: Retry-After delays the list as well.
            FailureClass::Transient if failure.retry_after().is_some() => {
                self.relist_failed(now, RequestKind::WatchList, consistent, failure);
            }
            FailureClass::Rejected | FailureClass::Forbidden | FailureClass::NotServed => {
                // Old servers reject the parameters of a watch-list in different ways. If the list succeeds,
                // the parameters were the reason; if not, the failure of the list is reported.
                self.server.watch_list.rejected_this_relist = Some(failure.clone());
                self.report_failure(RequestKind::WatchList, failure, std::time::Duration::ZERO);
                self.begin_list(now);
            }
            FailureClass::Transient => {
                self.report_failure(RequestKind::WatchList, failure, std::time::Duration::ZERO);
                self.begin_list(now);
            }
        }
    }

    /// Records a watch-list that did not end its initial events; disables watch-lists after
    /// [`MAX_UNFINISHED_WATCH_LISTS`] consecutive ones.
    fn record_unfinished(&mut self, failure: &Failure) {
        self.server.watch_list.unfinished += 1;
        if self.server.watch_list.unfinished >= MAX_UNFINISHED_WATCH_LISTS {
            self.disable_watch_list(failure.clone());
        }
    }

    pub(super) fn disable_watch_list(&mut self, failure: Failure) {
        if !self.server.watch_list.disabled {
            self.server.watch_list.disabled = true;
            self.report(ReflectorDiagnostic::WatchListDisabled { failure });
        }
    }
}
