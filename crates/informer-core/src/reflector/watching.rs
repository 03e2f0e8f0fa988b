//! The watching phase.
//!
//! A watch that was open for [`HEALTHY_WATCH_AGE`] is healthy: the next one follows without a delay, unless
//! the failure that ended it requires one. No server can cause a hot loop (C11), because a watch that ended
//! earlier is followed by
//!
//! - a probe and the next watch, [`MIN_WATCH_INTERVAL`] after its own start, if it received a frame: a proxy
//!   may end every stream after a few seconds, and changes must not wait for a backoff;
//! - the same after at most its own duration, if it was quiet, but open for [`MIN_QUIET_AGE`] and ended
//!   regularly;
//! - a backoff in all other cases. Only the first watch whose position has expired is followed by a relist
//!   immediately.
//!
//! A watch that receives nothing for a while is replaced by a probe and a new watch (`begin_check`), which
//! detects a dead connection. If it receives bytes but no frame, it is followed by a relist.

use super::diagnostic::{ReflectorDiagnostic, RequestKind};
use super::failure::{Failure, FailureClass, FailureKind};
use super::machine::Reflector;
use super::phase::{Phase, ResponseState, Resume, WatchListing, Watching};
use super::request::{StreamId, WatchStart};
use super::state::RelistReason;
use crate::delta::{Deleted, Delta};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{BodyEncoding, Frame, FrameKind, ObjectError, UnreadableObject, WireError};
use std::time::Duration;

/// The age from which a watch counts as healthy.
const HEALTHY_WATCH_AGE: Duration = Duration::from_secs(10);
/// The minimum time between the starts of two watches.
const MIN_WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// The age from which a watch without a frame that ended regularly counts as quiet, not as failed.
const MIN_QUIET_AGE: Duration = Duration::from_secs(1);
/// The minimum time without a frame after which the position is suspect.
const MIN_SUSPECT_SILENCE: Duration = Duration::from_secs(180);
/// Number of bytes of an incomplete frame that count as contact, for large objects on slow connections.
const PARTIAL_CONTACT_BYTES: u64 = 64 * 1024;

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
        let max_silence = 4 * self.config.watch_timeout;
        let silence = match self.server.bookmark_gap {
            // A proxy that ends watches may also keep back what they should bring.
            _ if self.health.has_quiet_ends() => Duration::ZERO,
            Some(gap) => (6 * gap).min(max_silence),
            None => max_silence,
        };
        now - self.contact.last_up_to_date() > silence.max(MIN_SUSPECT_SILENCE)
    }

    /// Starts a watch from the position, or relists if there is none or it is suspect.
    ///
    /// `seamless` if the cache counts as live until the headers arrive.
    pub(super) fn open_watch(&mut self, now: Moment, seamless: bool) {
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
        let mut rest = chunk.len();
        // A frame can change the phase: the end of the initial events turns a watch-list into a watch, and an
        // ERROR frame ends the stream and thereby the loop.
        while let Some(next) = self.next_frame(id, &mut chunk) {
            match next {
                Ok((encoding, frame)) => {
                    let bytes = rest - chunk.len();
                    rest = chunk.len();
                    self.record_frame(now, &frame, bytes as u64);
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
        self.record_partial_frame(now, id, rest as u64);
    }

    /// Records the end of a frame as contact, if it reports the state of the server.
    fn record_frame(&mut self, now: Moment, frame: &Frame, bytes: u64) {
        let (Phase::Watching(Watching { stream, .. }) | Phase::WatchListing(WatchListing { stream, .. })) =
            &mut self.phase
        else {
            return;
        };
        if is_progress(frame) {
            (stream.bytes_since_frame, stream.contact_bytes) = (0, 0);
            self.contact.record_contact(now);
        } else {
            stream.bytes_since_frame += bytes;
        }
    }

    /// Records `bytes` behind the last complete frame: a large part of a frame is contact, and a frame that
    /// does not end is a failure.
    ///
    /// Blanks between frames and a few bytes of a frame are no contact: a broken proxy can send them forever.
    fn record_partial_frame(&mut self, now: Moment, id: StreamId, bytes: u64) {
        let max_bytes = self.config.max_item_bytes();
        let (Phase::Watching(Watching { stream, .. }) | Phase::WatchListing(WatchListing { stream, .. })) =
            &mut self.phase
        else {
            return;
        };
        let ResponseState::Body(reader) = &stream.response else { return };
        if stream.id != id {
            return;
        }
        stream.bytes_since_frame += bytes;
        let in_frame = reader.finish().is_err();
        if stream.bytes_since_frame > max_bytes {
            self.cancel_stream();
            self.stream_failed(now, Failure::malformed("a frame does not end"));
        } else if in_frame && stream.bytes_since_frame - stream.contact_bytes >= PARTIAL_CONTACT_BYTES {
            stream.contact_bytes = stream.bytes_since_frame;
            self.contact.record_contact(now);
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
        if let Phase::Watching(watching) = &mut self.phase
            && is_progress(&frame)
        {
            watching.stream.frames += 1;
            self.contact.record_up_to_date(now);
        }
        self.log_frame(&frame);
        match frame {
            Frame::Added(scanned) | Frame::Modified(scanned) if !self.accepts_frame(&scanned.head) => {
                self.skip_frame(&FrameKind::Modified, scanned);
            }
            Frame::Deleted(scanned) if !self.accepts_frame(&scanned.head) => {
                self.skip_frame(&FrameKind::Deleted, scanned);
            }
            Frame::Added(scanned) => {
                let entry = self.changed_entry(scanned);
                self.advance(entry.head().version.clone());
                self.push(Delta::Added(entry));
            }
            Frame::Modified(scanned) => {
                let entry = self.changed_entry(scanned);
                self.advance(entry.head().version.clone());
                self.push(Delta::Updated(entry));
            }
            Frame::Deleted(scanned) => {
                let entry = self.changed_entry(scanned);
                let version = entry.head().version.clone();
                self.advance(version.clone());
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
        if matches!(self.phase, Phase::Watching(_)) {
            self.confirm_saved(now);
        }
    }

    fn bookmark(&mut self, now: Moment, version: Option<ResourceVersion>) {
        self.out.counters.bookmarks += 1;
        if let Phase::Watching(watching) = &mut self.phase {
            let previous = watching.stream.last_bookmark.replace(now).unwrap_or(watching.stream.opened);
            self.server.record_bookmark_gap(now - previous);
        }
        if let Some(version) = version {
            self.advance(version.clone());
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
        unreadable.version.iter().for_each(|version| self.advance(version.clone()));
        let is_selected = unreadable.key.as_ref().and_then(|key| self.config.key_decides(key));
        match (kind, unreadable.key.clone()) {
            _ if is_selected == Some(false) => {}
            (FrameKind::Deleted, Some(key)) if is_selected == Some(true) => {
                self.push(Delta::Deleted(Deleted { key, version: unreadable.version, last: None }));
            }
            // C2: only a full list can reveal which object was deleted.
            (FrameKind::Deleted, _) => {
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
        let open_for = now - watching.stream.opened;
        let no_frames = watching.stream.frames == 0 && !watching.stream.has_stray_bytes();
        let is_quiet = no_frames && open_for >= MIN_QUIET_AGE;
        let failure = match (watching.stream.response_failure(), &watching.stream.response) {
            (Some(failure), _) => Some(failure),
            (None, ResponseState::Body(reader)) => reader.finish().err().map(|error| Failure::from(&error)),
            (None, _) => None,
        };
        match failure {
            None if self.cache.unconfirmed_since().is_some() => self.confirmation_watch_ended(now),
            None if self.record_health(now) => {
                let seamless = true;
                self.open_watch(now, seamless);
            }
            None if is_quiet => {
                self.health.record_quiet_watch();
                let delay = self.health.next_delay(Resume::Watch).min(open_for);
                self.back_off_for(now, delay, RequestKind::Watch, Resume::Watch, ended_early());
            }
            None => self.watch_ended_early(now, ended_early()),
            Some(failure) => self.watch_failed(now, failure),
        }
    }

    /// Handles a watch that has received no frame for a while.
    ///
    /// A server without changes sends nothing at all, and a probe tells whether it still works. A stream that
    /// brings bytes but no frames is broken, and the changes that it should have brought are unknown.
    pub(super) fn watch_silent(&mut self, now: Moment) {
        if self.cache.unconfirmed_since().is_some() {
            return self.confirmation_watch_silent(now);
        }
        let Phase::Watching(watching) = &self.phase else { return };
        if !watching.stream.has_stray_bytes() {
            return self.begin_check(now);
        }
        self.out.counters.silence_timeouts += 1;
        let text = format!("{} bytes received without a usable frame", watching.stream.bytes_since_frame);
        self.cancel_stream();
        self.enter_backoff(now, RequestKind::Watch, Resume::Relist, Failure::malformed(text));
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

    /// Resumes after a watch that ended early: soon if it received a frame, otherwise after a backoff, with a
    /// relist if several in a row received none.
    fn watch_ended_early(&mut self, now: Moment, failure: Failure) {
        let Phase::Watching(watching) = &self.phase else { return };
        if watching.stream.frames == 0 {
            let too_many = self.health.record_unproductive_watch();
            let resume = if too_many { Resume::Relist } else { Resume::Watch };
            return self.enter_backoff(now, RequestKind::Watch, resume, failure);
        }
        self.health.record_productive_watch();
        if failure.kind() != FailureKind::Interrupted {
            return self.enter_backoff(now, RequestKind::Watch, Resume::Watch, failure);
        }
        self.health.reset_watch_backoff();
        let delay = (self.contact.request_sent() + MIN_WATCH_INTERVAL) - now;
        if delay.is_zero() {
            self.report_failure(RequestKind::Watch, failure, delay);
            self.resume_watch(now);
        } else {
            self.back_off_for(now, delay, RequestKind::Watch, Resume::Watch, failure);
        }
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

/// Returns whether a frame reports the state of the server.
fn is_progress(frame: &Frame) -> bool {
    match frame {
        Frame::Error(_) | Frame::Unreadable(FrameKind::Unknown(_), _) => false,
        Frame::Unreadable(_, unreadable) => !matches!(unreadable.error, ObjectError::OtherKind { .. }),
        _ => true,
    }
}

fn ended_early() -> Failure {
    Failure::interrupted("the watch ended early")
}
