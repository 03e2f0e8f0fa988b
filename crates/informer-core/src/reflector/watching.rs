//! Following changes.
//!
//! A watch that lived for [`HEALTHY_WATCH_AGE`] is followed by the next one at once; one that ended sooner takes the back-off, whatever its
//! end looked like, so no server can make this a hot loop (C11). A connection on which nothing is heard for longer than this server's
//! bookmarks take is given up.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass};
use super::machine::Reflector;
use super::phase::{MIN_SILENCE_TIMEOUT, Phase, ResponseState, Resume, WatchListing, Watching};
use super::request::{StreamId, WatchStart};
use super::state::RelistReason;
use crate::delta::{Deleted, Delta};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{Frame, FrameKind, ObjectError, UnreadableObject};
use std::time::Duration;

/// A watch that lived so long was a good one.
const HEALTHY_WATCH_AGE: Duration = Duration::from_secs(10);
/// So many silences without a single frame put the position itself in doubt.
const SUSPECT_SILENCES: u32 = 2;
/// Room for so many frames of a chunk is kept for the next.
const RETAINED_FRAMES: usize = 1024;

impl Reflector {
    /// Watches from the position on.
    pub(super) fn begin_watch(&mut self, now: Moment) {
        self.open_watch(now, false);
    }

    /// C1: a server that was restored to a point before our position accepts it and says nothing until it has come there by another way. Only
    /// a list finds that out.
    pub(super) fn is_suspect(&self, now: Moment) -> bool {
        let longest = 2 * self.config.watch_timeout;
        let silence =
            self.server.bookmark_gap.map_or(longest, |gap| (3 * gap).min(longest)).max(MIN_SILENCE_TIMEOUT);
        now - self.contact.last_news() > SUSPECT_SILENCES * silence
    }

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

    /// Bytes of a watch or a watch-list.
    pub(super) fn stream_bytes(&mut self, now: Moment, id: StreamId, chunk: &[u8]) {
        let (Phase::Watching(Watching { stream, .. }) | Phase::WatchListing(WatchListing { stream, .. })) =
            &mut self.phase
        else {
            return;
        };
        let mut frames = std::mem::take(&mut self.frames);
        let (form, outcome) = match &mut stream.response {
            ResponseState::Body(reader) => {
                (reader.encoding(), reader.read(chunk, |frame| frames.push(frame)))
            }
            ResponseState::Rejected(response) => {
                if response.read(chunk) {
                    let failure = response.failure();
                    self.cancel_stream();
                    self.stream_failed(now, failure);
                }
                return;
            }
            ResponseState::Pending => return,
        };
        if !frames.is_empty() {
            self.record_readable_body(form);
        }
        for frame in frames.drain(..) {
            // The first ERROR frame ends the stream; the end of the initial events changes what frames mean.
            if !self.is_current(id) {
                return;
            }
            self.out.counters.frames += 1;
            if matches!(self.phase, Phase::WatchListing(_)) {
                self.watch_list_frame(now, frame);
            } else {
                self.watch_frame(now, frame);
            }
        }
        frames.shrink_to(RETAINED_FRAMES);
        self.frames = frames;
        if let Err(error) = outcome
            && self.is_current(id)
        {
            self.record_malformed_body(&error);
            self.cancel_stream();
            self.stream_failed(now, Failure::from(&error));
        }
    }

    fn watch_frame(&mut self, now: Moment, frame: Frame) {
        if let Phase::Watching(watching) = &mut self.phase {
            let idle = matches!(frame, Frame::Error(_) | Frame::Unreadable(FrameKind::Unknown(_), _));
            watching.stream.frames += u64::from(!idle);
            if !idle {
                self.contact.note_news(now);
            }
        }
        match frame {
            Frame::Added(scanned) => {
                let entry = self.changed(scanned);
                self.position.advance(entry.head().version.clone());
                self.push(Delta::Added(entry));
            }
            Frame::Modified(scanned) => {
                let entry = self.changed(scanned);
                self.position.advance(entry.head().version.clone());
                self.push(Delta::Updated(entry));
            }
            Frame::Deleted(scanned) => {
                let entry = self.changed(scanned);
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
            let before = watching.stream.last_bookmark.replace(now).unwrap_or(watching.stream.opened);
            self.server.note_bookmark(now - before);
        }
        if let Some(version) = version {
            self.position.advance(version.clone());
            self.push(Delta::Bookmark(version));
        }
    }

    /// A change to something that could not be read: told to the store, so that its older state is known to be stale.
    fn watch_unreadable(&mut self, now: Moment, kind: &FrameKind, unreadable: UnreadableObject) {
        self.out.counters.unreadable += 1;
        self.report(ReflectorDiagnostic::ObjectSkipped(unreadable.clone()));
        if matches!(unreadable.error, ObjectError::OtherKind { .. } | ObjectError::UnknownFrame) {
            return; // neither its key nor its version say anything about this cache
        }
        unreadable.version.iter().for_each(|version| self.position.advance(version.clone()));
        match (kind, unreadable.key.clone()) {
            (FrameKind::Deleted, Some(key)) => {
                self.push(Delta::Deleted(Deleted { key, version: unreadable.version, last: None }));
            }
            // C2: something is gone, and only the whole set can tell what.
            (FrameKind::Deleted, None) => {
                self.note_health(now);
                self.cancel_stream();
                self.enter_backoff(now, RequestKind::Watch, Resume::Relist, Failure::unreadable_deletion());
            }
            (FrameKind::Added | FrameKind::Modified, _) => self.push(Delta::Unreadable(unreadable)),
            _ => {}
        }
    }

    /// The server ended the stream, as it does when its time is over.
    pub(super) fn watch_end(&mut self, now: Moment) {
        let Phase::Watching(watching) = &self.phase else { return };
        let failure = match (watching.stream.refusal(), &watching.stream.response) {
            (Some(response), _) => Some(response),
            (None, ResponseState::Body(reader)) => reader.finish().err().map(|error| Failure::from(&error)),
            (None, _) => None,
        };
        match failure {
            None if self.note_health(now) => self.open_watch(now, true),
            None => self.watch_unproductive(now, Failure::interrupted("the watch ended early")),
            Some(failure) => self.watch_failed(now, failure),
        }
    }

    /// Nothing was heard for too long.
    pub(super) fn watch_silent(&mut self, now: Moment) {
        self.out.counters.silence_timeouts += 1;
        self.cancel_stream();
        self.watch_failed(now, Failure::timeout("nothing received before the timeout, not even a bookmark"));
    }

    pub(super) fn watch_failed(&mut self, now: Moment, failure: Failure) {
        let healthy = self.note_health(now);
        match failure.class() {
            // A 410 keeps the position: the next list is asked for at least that version.
            FailureClass::Expired | FailureClass::VersionTooLarge => {
                self.out.counters.expired += 1;
                if self.position.expire() {
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
                self.open_watch(now, false);
            }
            FailureClass::Transient | FailureClass::Rejected => self.watch_unproductive(now, failure),
        }
    }

    /// A watch that ended too soon. If that happens again and again and nothing ever comes, the set is asked for anew.
    fn watch_unproductive(&mut self, now: Moment, failure: Failure) {
        let Phase::Watching(watching) = &self.phase else { return };
        let exhausted = self.health.note_early_end(watching.stream.frames == 0);
        self.enter_backoff(
            now,
            RequestKind::Watch,
            if exhausted { Resume::Relist } else { Resume::Watch },
            failure,
        );
    }

    /// Whether the current watch lived long enough; if so, earlier trouble is forgotten.
    pub(super) fn note_health(&mut self, now: Moment) -> bool {
        let Phase::Watching(watching) = &self.phase else { return false };
        let healthy = watching.stream.is_open() && now - watching.stream.opened >= HEALTHY_WATCH_AGE;
        if healthy {
            self.health.recover();
            self.position.note_health();
        }
        healthy
    }
}
