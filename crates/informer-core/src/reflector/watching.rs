//! The watching phase.
//!
//! A watch that was open for [`HEALTHY_WATCH_AGE`] is healthy: the next watch follows without a delay, unless
//! the failure that ended the healthy watch requires a delay. A watch that ended earlier is followed by a
//! backoff, so that no server can cause a hot loop (C11). An exception is the first watch since a healthy one
//! whose position has expired: it is followed by a relist immediately.
//!
//! The reflector closes a watch if nothing is received before the silence timeout: three times the longest
//! time between this server's bookmarks, but at least 90 seconds and at most the timeout of the watch plus 10
//! seconds. Before this server's first bookmark, the maximum applies.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{MIN_SILENCE_TIMEOUT, Phase, ResponseState, Resume, WatchListing, Watching};
use super::request::{StreamId, WatchStart};
use super::state::RelistReason;
use crate::delta::{Deleted, Delta};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{BodyEncoding, Frame, FrameKind, ObjectError, UnreadableObject, WireError};
use std::time::Duration;

/// The age from which a watch counts as healthy.
const HEALTHY_WATCH_AGE: Duration = Duration::from_secs(10);
/// Number of silence timeouts without a frame after which the position is suspect.
const SUSPECT_SILENCES: u32 = 2;

impl Reflector {
    /// Starts a watch from the position.
    pub(super) fn begin_watch(&mut self, now: Moment) {
        let seamless = false;
        self.open_watch(now, seamless);
    }

    /// Returns whether no frame was received for so long that only a list can confirm the position (C1).
    ///
    /// A server restored from a backup that is older than the position accepts a watch from there, and stays
    /// silent until its own versions have passed the position.
    pub(super) fn is_suspect(&self, now: Moment) -> bool {
        let max_silence = 2 * self.config.watch_timeout;
        let silence = self.server.bookmark_gap.map_or(max_silence, |gap| (3 * gap).min(max_silence));
        let silence = silence.max(MIN_SILENCE_TIMEOUT);
        now - self.contact.last_progress() > SUSPECT_SILENCES * silence
    }

    /// Starts a watch from the position, or relists if there is none or it is suspect.
    ///
    /// `seamless` if the previous watch was healthy and ended regularly.
    fn open_watch(&mut self, now: Moment, seamless: bool) {
        let Some(position) = self.position.version().cloned() else {
            return self.begin_relist(now, RelistReason::Initial);
        };
        if self.is_suspect(now) {
            return self.begin_relist(now, RelistReason::Suspect);
        }
        self.out.counters.watches += 1;
        let stream = self.send_watch(now, WatchStart::After(position));
        self.phase = Phase::Watching(Watching { stream, seamless });
    }

    /// Reads a chunk of a watch or a watch-list.
    pub(super) fn stream_bytes(&mut self, now: Moment, id: StreamId, mut chunk: &[u8]) {
        let (Phase::Watching(Watching { stream, .. }) | Phase::WatchListing(WatchListing { stream, .. })) =
            &mut self.phase
        else {
            return;
        };
        if let ResponseState::Error(response) = &mut stream.response {
            if response.read(chunk) {
                let failure = response.failure();
                self.cancel_stream();
                self.stream_failed(now, failure);
            }
            return;
        }
        // A frame can change the phase: the end of the initial events turns a watch-list into a watch, and an
        // ERROR frame ends the stream and thereby the loop.
        while let Some(next) = self.next_frame(id, &mut chunk) {
            match next {
                Ok((encoding, frame)) => {
                    self.record_readable_body(encoding);
                    self.out.counters.frames += 1;
                    if matches!(self.phase, Phase::WatchListing(_)) {
                        self.watch_list_frame(now, frame);
                    } else {
                        self.watch_frame(now, frame);
                    }
                }
                Err(error) => {
                    self.record_malformed_body(&error);
                    self.cancel_stream();
                    return self.stream_failed(now, Failure::from(&error));
                }
            }
        }
    }

    /// Reads the next frame from the front of a chunk; `None` if the chunk is consumed or its stream has
    /// ended.
    fn next_frame(
        &mut self,
        id: StreamId,
        chunk: &mut &[u8],
    ) -> Option<Result<(BodyEncoding, Frame), WireError>> {
        match &mut self.phase {
            Phase::Watching(Watching { stream, .. }) | Phase::WatchListing(WatchListing { stream, .. })
                if stream.id == id =>
            {
                let ResponseState::Body(reader) = &mut stream.response else { return None };
                let encoding = reader.encoding();
                reader.next(chunk).map(|frame| frame.map(|frame| (encoding, frame))).transpose()
            }
            _ => None,
        }
    }

    fn watch_frame(&mut self, now: Moment, frame: Frame) {
        if let Phase::Watching(watching) = &mut self.phase {
            let is_progress = !matches!(frame, Frame::Error(_) | Frame::Unreadable(FrameKind::Unknown(_), _));
            watching.stream.frames += u64::from(is_progress);
            if is_progress {
                self.contact.record_progress(now);
            }
        }
        match frame {
            Frame::Added(scanned) => {
                let entry = self.changed_entry(scanned);
                self.position.advance(entry.head().version.clone());
                self.push(Delta::Added(entry));
            }
            Frame::Modified(scanned) => {
                let entry = self.changed_entry(scanned);
                self.position.advance(entry.head().version.clone());
                self.push(Delta::Updated(entry));
            }
            Frame::Deleted(scanned) => {
                let entry = self.changed_entry(scanned);
                let version = entry.head().version.clone();
                self.position.advance(version.clone());
                let key = entry.key().clone();
                self.push(Delta::Deleted(Deleted { key, version: Some(version), last: Some(entry) }));
            }
            Frame::Bookmark { version, .. } => self.bookmark(now, version),
            Frame::Error(status) => {
                self.cancel_stream();
                self.watch_failed(now, Failure::of_status(&status));
            }
            Frame::Unreadable(kind, unreadable) => self.watch_unreadable(now, &kind, unreadable),
        }
    }

    fn bookmark(&mut self, now: Moment, version: Option<ResourceVersion>) {
        self.out.counters.bookmarks += 1;
        if let Phase::Watching(watching) = &mut self.phase {
            let previous = watching.stream.last_bookmark.replace(now).unwrap_or(watching.stream.opened);
            self.server.record_bookmark_gap(now - previous);
        }
        if let Some(version) = version {
            self.position.advance(version.clone());
            self.push(Delta::Bookmark(version));
        }
    }

    /// Handles a change of an unreadable object. The delta makes the store mark the cached state of the
    /// object as stale.
    fn watch_unreadable(&mut self, now: Moment, kind: &FrameKind, unreadable: UnreadableObject) {
        self.out.counters.unreadable += 1;
        self.report(ReflectorDiagnostic::ObjectSkipped(unreadable.clone()));
        if matches!(unreadable.error, ObjectError::OtherKind { .. } | ObjectError::UnknownFrame) {
            return; // the key and version of the object do not belong to this cache
        }
        unreadable.version.iter().for_each(|version| self.position.advance(version.clone()));
        match (kind, unreadable.key.clone()) {
            (FrameKind::Deleted, Some(key)) => {
                self.push(Delta::Deleted(Deleted { key, version: unreadable.version, last: None }));
            }
            // C2: only a full list can reveal which object was deleted.
            (FrameKind::Deleted, None) => {
                self.record_health(now);
                self.cancel_stream();
                self.enter_backoff(now, RequestKind::Watch, Resume::Relist, Failure::unreadable_deletion());
            }
            (FrameKind::Added | FrameKind::Modified, _) => self.push(Delta::Unreadable(unreadable)),
            _ => {}
        }
    }

    /// Handles the regular end of the stream, which is expected at the timeout of the watch.
    pub(super) fn watch_end(&mut self, now: Moment) {
        let Phase::Watching(watching) = &self.phase else { return };
        let failure = match (watching.stream.response_failure(), &watching.stream.response) {
            (Some(failure), _) => Some(failure),
            (None, ResponseState::Body(reader)) => reader.finish().err().map(|error| Failure::from(&error)),
            (None, _) => None,
        };
        match failure {
            None if self.record_health(now) => {
                let seamless = true;
                self.open_watch(now, seamless);
            }
            None => self.watch_ended_early(now, Failure::interrupted("the watch ended early")),
            Some(failure) => self.watch_failed(now, failure),
        }
    }

    /// Closes a watch that has been silent for too long.
    pub(super) fn watch_silent(&mut self, now: Moment) {
        self.out.counters.silence_timeouts += 1;
        self.cancel_stream();
        self.watch_failed(now, Failure::timeout("nothing received before the timeout, not even a bookmark"));
    }

    pub(super) fn watch_failed(&mut self, now: Moment, failure: Failure) {
        let healthy = self.record_health(now);
        match failure.class() {
            // The position is kept after a 410: the next list requests that version or a newer one.
            FailureClass::Expired | FailureClass::VersionTooLarge => {
                self.out.counters.expired += 1;
                if self.position.record_expired() {
                    return self.enter_backoff(now, RequestKind::Watch, Resume::Relist, failure);
                }
                self.report_failure(RequestKind::Watch, failure, Duration::ZERO);
                self.begin_relist(now, RelistReason::Expired);
            }
            FailureClass::NotServed => self.enter_backoff(now, RequestKind::Watch, Resume::Relist, failure),
            FailureClass::Throttled | FailureClass::Forbidden | FailureClass::Unreachable => {
                self.enter_backoff(now, RequestKind::Watch, Resume::Watch, failure);
            }
            FailureClass::Transient | FailureClass::Rejected
                if healthy && failure.retry_after().is_none() =>
            {
                self.report_failure(RequestKind::Watch, failure, Duration::ZERO);
                self.begin_watch(now);
            }
            FailureClass::Transient | FailureClass::Rejected => self.watch_ended_early(now, failure),
        }
    }

    /// Backs off after a watch that ended early, or that failed with `Retry-After`. Then the watch resumes,
    /// or the reflector relists if several watches in a row received no frame.
    fn watch_ended_early(&mut self, now: Moment, failure: Failure) {
        let Phase::Watching(watching) = &self.phase else { return };
        let too_many_unproductive = self.health.record_early_end(watching.stream.frames == 0);
        self.enter_backoff(
            now,
            RequestKind::Watch,
            if too_many_unproductive { Resume::Relist } else { Resume::Watch },
            failure,
        );
    }

    /// Returns whether the current watch is healthy; if so, earlier failures are forgotten.
    pub(super) fn record_health(&mut self, now: Moment) -> bool {
        let Phase::Watching(watching) = &self.phase else { return false };
        let healthy = watching.stream.is_open() && now - watching.stream.opened >= HEALTHY_WATCH_AGE;
        if healthy {
            self.health.recover();
            self.position.record_healthy_watch();
        }
        healthy
    }
}
