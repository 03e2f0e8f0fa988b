//! The set as a stream: a watch that begins with everything there is.
//!
//! The trap of this form is a server that streams and never says that the initial events are over. It gives no error, so
//! progress is watched: a window of time must bring a fair number of new keys. A server that failed once in a way that shows it cannot
//! is remembered, and asked for lists from then on.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{ByKey, Phase, WatchListing, Watching};
use super::request::{Consistency, WatchStart};
use super::server::MOST_UNFINISHED;
use crate::delta::{Delta, Replaced};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{Frame, FrameKind, ObjectError};
use std::collections::{BTreeMap, BTreeSet};

impl Reflector {
    pub(super) fn begin_watch_list(&mut self, now: Moment) {
        // Unlike a list, a watch-list with no version at all is consistent, so it never asks for "any".
        let consistency = self.position.consistency(Consistency::MostRecent);
        self.out.counters.watch_lists += 1;
        let stream = self.send_watch(now, WatchStart::InitialEvents(consistency.clone()));
        self.phase = Phase::WatchListing(WatchListing {
            stream,
            consistency,
            entries: BTreeSet::new(),
            unreadable: BTreeMap::new(),
            window: None,
        });
    }

    pub(super) fn watch_list_frame(&mut self, now: Moment, frame: Frame) {
        let frame = match frame {
            Frame::Added(scanned) | Frame::Modified(scanned) => {
                let entry = self.entry(scanned);
                if let Phase::WatchListing(listing) = &mut self.phase {
                    listing.unreadable.remove(entry.key());
                    listing.entries.replace(ByKey(entry));
                }
                return;
            }
            frame => frame,
        };
        let Phase::WatchListing(listing) = &mut self.phase else { return };
        match frame {
            Frame::Deleted(scanned) => {
                listing.entries.remove(&scanned.head.key);
                listing.unreadable.remove(&scanned.head.key);
            }
            Frame::Bookmark { initial_events_end: true, version: Some(version) } => {
                self.watch_list_complete(now, version);
            }
            Frame::Bookmark { .. } | Frame::Added(_) | Frame::Modified(_) => {}
            Frame::Error(status) => {
                self.cancel_stream();
                self.watch_list_failed(now, Failure::of_status(&status));
            }
            Frame::Unreadable(kind, unreadable) => {
                let mut lost = false;
                match (&kind, &unreadable.key) {
                    // Another kind's object says nothing about ours.
                    _ if matches!(unreadable.error, ObjectError::OtherKind { .. }) => {}
                    (FrameKind::Deleted, Some(key)) => {
                        listing.entries.remove(key);
                        listing.unreadable.remove(key);
                    }
                    (FrameKind::Deleted, None) => lost = true,
                    (FrameKind::Added | FrameKind::Modified, Some(key)) => {
                        listing.unreadable.insert(key.clone(), unreadable.clone());
                    }
                    _ => {}
                }
                self.out.counters.unreadable += 1;
                self.report(ReflectorDiagnostic::ObjectSkipped(unreadable));
                if lost {
                    // C2: what is gone may be among the objects so far.
                    self.cancel_stream();
                    self.watch_list_failed(now, Failure::unreadable_deletion());
                }
            }
        }
    }

    fn watch_list_complete(&mut self, now: Moment, version: ResourceVersion) {
        let Phase::WatchListing(listing) = std::mem::replace(&mut self.phase, Phase::Idle) else { return };
        let consistent = listing.consistency == Consistency::MostRecent;
        if let Some(failure) = self.is_rewind(RequestKind::WatchList, &version, consistent) {
            self.phase = Phase::WatchListing(listing);
            self.cancel_stream();
            return self.watch_list_failed(now, failure);
        }
        self.record_full_list(now, version.clone(), consistent);
        self.server.capability.unfinished = 0;
        let entries = listing.entries.into_iter().map(|ByKey(entry)| entry).collect();
        let unreadable = listing.unreadable.into_values().collect();
        let scope = self.config.scope.clone();
        self.push(Delta::Replaced(Replaced { scope, version, entries, unreadable, audit: false }));
        self.phase = Phase::Watching(Watching::continued(listing.stream, now));
    }

    /// The stream ended without saying that the initial events are over.
    pub(super) fn watch_list_end(&mut self, now: Moment) {
        let Phase::WatchListing(listing) = &self.phase else { return };
        let failure = listing.stream.refusal().unwrap_or_else(|| {
            let failure = Failure::interrupted("the stream ended before the initial events were complete");
            self.note_unfinished(&failure);
            failure
        });
        self.watch_list_failed(now, failure);
    }

    /// A window of time is over.
    pub(super) fn watch_list_stalled(&mut self, now: Moment) {
        let Phase::WatchListing(listing) = &mut self.phase else { return };
        if listing.made_progress() {
            listing.window = Some((now, listing.entries.len()));
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
                    // It asked for no version, so no other can help. The list may.
                    self.note_unfinished(&failure);
                }
                self.set_refused(now, RequestKind::WatchList, consistent, failure);
            }
            FailureClass::Throttled | FailureClass::Unreachable => {
                self.set_refused(now, RequestKind::WatchList, consistent, failure);
            }
            // C11: a server that asks for a pause is spared the list too.
            FailureClass::Transient if failure.retry_after().is_some() => {
                self.set_refused(now, RequestKind::WatchList, consistent, failure);
            }
            FailureClass::Rejected | FailureClass::Forbidden | FailureClass::NotServed => {
                // Old servers refuse the parameters, each in its own way. If the list works, that was it; if not, the
                // list's own refusal says what is wrong.
                self.server.capability.refused_this_relist = Some(failure.clone());
                self.report_failure(RequestKind::WatchList, failure, std::time::Duration::ZERO);
                self.begin_list(now);
            }
            FailureClass::Transient => {
                self.report_failure(RequestKind::WatchList, failure, std::time::Duration::ZERO);
                self.begin_list(now);
            }
        }
    }

    /// Once may be chance; twice in a row, and watch-lists are not asked for any more.
    fn note_unfinished(&mut self, failure: &Failure) {
        self.server.capability.unfinished += 1;
        if self.server.capability.unfinished >= MOST_UNFINISHED {
            self.disable_watch_list(failure.clone());
        }
    }

    pub(super) fn disable_watch_list(&mut self, failure: Failure) {
        if !self.server.capability.disabled {
            self.server.capability.disabled = true;
            self.report(ReflectorDiagnostic::WatchListDisabled { failure });
        }
    }
}
