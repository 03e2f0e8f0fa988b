//! Following changes.
//!
//! A watch that lived for [`HEALTHY`] is followed by the next one at once; one that ended sooner takes the back-off, whatever its
//! end looked like, so no server can make this a hot loop (C11). A connection on which nothing is heard for longer than this server's
//! bookmarks take is given up.

use super::failure::{Failure, Trouble};
use super::machine::Reflector;
use super::phase::{Answer, Next, Phase, SHORTEST_SILENCE, WatchListing, Watching};
use super::request::{StreamId, WatchStart};
use super::state::{Asked, Relist, Report};
use crate::delta::{Deleted, Delta};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{Frame, FrameKind, ObjectProblem, Unreadable};
use std::time::Duration;

/// A watch that lived so long was a good one.
const HEALTHY: Duration = Duration::from_secs(10);
/// So many silences without a single frame put the position itself in doubt.
const DOUBTFUL: u32 = 2;
/// Room for so many frames of a chunk is kept for the next.
const USUAL_FRAMES: usize = 1024;

impl Reflector {
    /// Watches from the position on.
    pub(super) fn begin_watch(&mut self, now: Moment) {
        self.open_watch(now, false);
    }

    /// C1: a server that was restored to a point before our position accepts it and says nothing until it has come there by another way. Only
    /// a list finds that out.
    pub(super) fn is_doubtful(&self, now: Moment) -> bool {
        let longest = 2 * self.config.watch_timeout;
        let silence =
            self.server.bookmark_gap.map_or(longest, |gap| (3 * gap).min(longest)).max(SHORTEST_SILENCE);
        now - self.contact.last_news() > DOUBTFUL * silence
    }

    fn open_watch(&mut self, now: Moment, seamless: bool) {
        let Some(position) = self.position.version().cloned() else {
            return self.begin_round(now, Relist::First);
        };
        if self.is_doubtful(now) {
            return self.begin_round(now, Relist::Doubt);
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
        let (form, outcome) = match &mut stream.answer {
            Answer::Body(reader) => (reader.form(), reader.read(chunk, |frame| frames.push(frame))),
            Answer::Refused(refusal) => {
                if refusal.read(chunk) {
                    let failure = refusal.failure();
                    self.cancel_stream();
                    self.stream_failed(now, failure);
                }
                return;
            }
            Answer::Awaited => return,
        };
        if !frames.is_empty() {
            self.note_read(form);
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
        frames.shrink_to(USUAL_FRAMES);
        self.frames = frames;
        if let Err(error) = outcome
            && self.is_current(id)
        {
            self.note_broken(&error);
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
    fn watch_unreadable(&mut self, now: Moment, kind: &FrameKind, unreadable: Unreadable) {
        self.out.counters.unreadable += 1;
        self.report(Report::Unreadable(unreadable.clone()));
        if matches!(unreadable.problem, ObjectProblem::OtherKind { .. } | ObjectProblem::UnknownFrame) {
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
                self.wait(now, Asked::Watch, Next::Round, Failure::unreadable_deletion());
            }
            (FrameKind::Added | FrameKind::Modified, _) => self.push(Delta::Unreadable(unreadable)),
            _ => {}
        }
    }

    /// The server ended the stream, as it does when its time is over.
    pub(super) fn watch_end(&mut self, now: Moment) {
        let Phase::Watching(watching) = &self.phase else { return };
        let failure = match (watching.stream.refusal(), &watching.stream.answer) {
            (Some(refusal), _) => Some(refusal),
            (None, Answer::Body(reader)) => reader.finish().err().map(|error| Failure::from(&error)),
            (None, _) => None,
        };
        match failure {
            None if self.note_health(now) => self.open_watch(now, true),
            None => self.watch_barren(now, Failure::transient("the watch ended early")),
            Some(failure) => self.watch_failed(now, failure),
        }
    }

    /// Nothing was heard for too long.
    pub(super) fn watch_silent(&mut self, now: Moment) {
        self.out.counters.silent += 1;
        self.cancel_stream();
        self.watch_failed(now, Failure::transient("nothing was heard for too long, not even a bookmark"));
    }

    pub(super) fn watch_failed(&mut self, now: Moment, failure: Failure) {
        let healthy = self.note_health(now);
        match failure.trouble {
            // A 410 keeps the position: the next list is asked for at least that version.
            Trouble::Expired | Trouble::VersionTooLarge => {
                self.out.counters.expired += 1;
                if self.position.expire() {
                    return self.wait(now, Asked::Watch, Next::Round, failure);
                }
                self.report_failure(Asked::Watch, failure, Duration::ZERO);
                self.begin_round(now, Relist::Forgotten);
            }
            Trouble::NotServed => self.wait(now, Asked::Watch, Next::Round, failure),
            Trouble::Throttled | Trouble::Forbidden | Trouble::Unreachable => {
                self.wait(now, Asked::Watch, Next::Watch, failure);
            }
            Trouble::Transient | Trouble::Rejected if healthy && failure.retry_after.is_none() => {
                self.report_failure(Asked::Watch, failure, Duration::ZERO);
                self.open_watch(now, false);
            }
            Trouble::Transient | Trouble::Rejected => self.watch_barren(now, failure),
        }
    }

    /// A watch that ended too soon. If that happens again and again and nothing ever comes, the set is asked for anew.
    fn watch_barren(&mut self, now: Moment, failure: Failure) {
        let Phase::Watching(watching) = &self.phase else { return };
        let exhausted = self.health.note_early_end(watching.stream.frames == 0);
        self.wait(now, Asked::Watch, if exhausted { Next::Round } else { Next::Watch }, failure);
    }

    /// Whether the current watch lived long enough; if so, earlier trouble is forgotten.
    pub(super) fn note_health(&mut self, now: Moment) -> bool {
        let Phase::Watching(watching) = &self.phase else { return false };
        let healthy = watching.stream.is_open() && now - watching.stream.opened >= HEALTHY;
        if healthy {
            self.health.recover();
            self.position.note_health();
        }
        healthy
    }
}
