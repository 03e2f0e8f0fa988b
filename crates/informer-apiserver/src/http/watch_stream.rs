//! The body of a watch: frames from the history, bookmarks, timeouts and faults.
//!
//! A stream registers with its notifiers before it inspects the model, so it does not miss a change that is
//! written in between. It writes many changes into one chunk. Dropping a stream closes the watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use informer_objects::status::Status;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::accept::Encoding;
use super::frames::Frames;
use super::response::{BodyError, CHUNK_BYTES};
use super::stream_faults::{StreamFaultEffect, StreamFaults};
use crate::faults::End;
use crate::log::RecordedRequest;
use crate::model::{Cursor, Filter, Frame, Objects, Opened, Step, states_after};
use crate::shared::Shared;

/// Period of bookmarks.
const BOOKMARK_PERIOD: Duration = Duration::from_secs(60);

/// Times before the end of a watch at which a bookmark is sent if the version has advanced since the last
/// frame.
const FINAL_BOOKMARKS_BEFORE_END: [Duration; 2] =
    [Duration::from_millis(2_600), Duration::from_millis(1_400)];

/// Time after the start of a watch with initial events at which a bookmark is sent if the version has
/// advanced since the last frame.
const FIRST_BOOKMARK_DELAY: Duration = Duration::from_secs(1);

/// Duration of a watch whose timeout exceeds the range of the clock.
const MAX_WATCH_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// The parameters of a watch.
pub(crate) struct Request {
    pub(crate) recorded: RecordedRequest,
    pub(crate) filter: Filter,
    pub(crate) frames: Frames,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Whether a fault rule suppresses the bookmark that ends the initial events.
    pub(crate) endless: bool,
}

/// An open watch.
pub(crate) struct WatchStream {
    shared: Arc<Shared>,
    request: Request,
    cursor: Cursor,
    initial: Option<Initial>,
    notifier: Arc<Notify>,
    deadline: Instant,
    next_bookmark: Instant,
    /// Times of bookmarks that are sent only if the version has advanced, latest first.
    conditional_bookmarks: Vec<Instant>,
    /// The version of the last change or bookmark that was written; at first, the version at which the watch
    /// starts.
    last_sent_version: u64,
    /// The version of the server, or of its cache, when changes were last read. Once no change is left to read, all changes up
    /// to this version have been written.
    reached: u64,
    stream_faults: StreamFaults,
    /// How a fault rule ends the watch once the current chunk is sent.
    pending_end: Option<End>,
    ended: bool,
}

/// The existing objects that a watch starts with.
struct Initial {
    objects: Objects,
    /// The key of the last object that was written.
    after: Option<String>,
    /// The version of the bookmark that follows the objects.
    version: u64,
}

/// The next step of a stream.
enum Next {
    Chunk(Vec<u8>),
    /// Try again, because a fault rule dropped the frame.
    Again,
    /// Wait for a notification or the next time to act.
    Wait,
    /// End the body normally.
    End,
    /// Break the connection.
    Break,
    /// Send nothing more, without closing the body.
    Silence,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bookmark {
    /// Marks the end of the initial events.
    InitialEventsEnd,
    /// Reports the version that the watch has reached.
    Progress,
}

impl WatchStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        request: Request,
        opened: Opened,
        stream_faults: StreamFaults,
    ) -> Self {
        let Opened { cursor, initial, version } = opened;
        shared.watch_started();
        let now = shared.clock.instant();
        let deadline = now.checked_add(request.timeout).unwrap_or(now + MAX_WATCH_DURATION);
        let mut conditional_bookmarks: Vec<Instant> =
            FINAL_BOOKMARKS_BEFORE_END.iter().filter_map(|before| deadline.checked_sub(*before)).collect();
        conditional_bookmarks.extend(initial.is_some().then_some(now + FIRST_BOOKMARK_DELAY));
        conditional_bookmarks.retain(|at| *at > now);
        conditional_bookmarks.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        WatchStream {
            notifier: shared.notifier(cursor.id(), &request.filter.namespace),
            shared,
            cursor,
            initial: initial.map(|objects| Initial { objects, after: None, version }),
            deadline,
            next_bookmark: now + BOOKMARK_PERIOD,
            conditional_bookmarks,
            last_sent_version: version,
            reached: version,
            stream_faults,
            pending_end: None,
            ended: false,
            request,
        }
    }

    pub(crate) fn stream(self) -> BoxStream<'static, Result<Bytes, BodyError>> {
        stream::unfold(self, |mut watch| async move {
            let chunk = watch.next_chunk().await?;
            Some((chunk, watch))
        })
        .boxed()
    }

    async fn next_chunk(&mut self) -> Option<Result<Bytes, BodyError>> {
        while !self.ended {
            let (notifier, shared) = (self.notifier.clone(), self.shared.clone());
            let (changed, rules_changed) = (notifier.notified(), shared.faults.rules_changed.notified());
            tokio::pin!(changed, rules_changed);
            changed.as_mut().enable();
            rules_changed.as_mut().enable();
            match self.next() {
                Next::Chunk(chunk) => return Some(Ok(Bytes::from(chunk))),
                Next::Again => {}
                Next::End => self.close(),
                Next::Silence => std::future::pending().await,
                Next::Break => {
                    self.close();
                    // Let the previous chunks be sent: breaking the connection discards what it still
                    // buffers.
                    tokio::task::yield_now().await;
                    return Some(Err(BodyError));
                }
                Next::Wait => {
                    // A stall also suspends bookmarks and the timeout, until the fault rules change.
                    let stalled = self.stream_faults.stalls();
                    let wake = self.wake_at();
                    tokio::select! {
                        biased;
                        () = rules_changed => {}
                        () = changed, if !stalled => {}
                        () = shared.clock.sleep_until(wake), if !stalled => {}
                    }
                }
            }
        }
        None
    }

    fn next(&mut self) -> Next {
        self.update_rules();
        if let Some(next) = self.apply_stream_fault() {
            return next;
        }
        if self.shared.clock.instant() >= self.deadline {
            return Next::End;
        }
        let mut out = Vec::new();
        if self.initial.is_some() {
            self.write_initial(&mut out);
        }
        // If the initial events ended without a frame, read changes now instead of waiting: changes since the
        // watch was opened may have sent their notification already.
        if out.is_empty()
            && self.initial.is_none()
            && let Some(end) = self.write_changes(&mut out)
        {
            return end;
        }
        if out.is_empty() && self.initial.is_none() {
            self.write_due_bookmark(&mut out);
        }
        if out.is_empty() {
            return Next::Wait;
        }
        self.pending_end = self.stream_faults.change_frame(&mut out);
        if out.is_empty() { Next::Again } else { Next::Chunk(out) }
    }

    fn write_initial(&mut self, out: &mut Vec<u8>) {
        let allowed = self.allowed_frames();
        let Some(initial) = &mut self.initial else { return };
        let filter = &self.request.filter;
        let mut written = 0;
        let mut done = true;
        let mut last = None;
        for state in states_after(&initial.objects, initial.after.as_deref(), filter) {
            if out.len() >= CHUNK_BYTES || written >= allowed {
                done = false;
                break;
            }
            self.request.frames.object(out, "ADDED", &state, state.version, self.shared.clock.now());
            written += 1;
            last = Some(state);
        }
        if let Some(last) = last {
            initial.after = Some(last.key());
        }
        let version = initial.version;
        self.count_frames(written);
        // The bookmark is a frame too: if a fault rule is due before it, the next call ends the initial
        // events.
        if done && self.allowed_frames() > 0 {
            self.initial = None;
            if self.request.bookmarks && !self.request.endless {
                self.write_bookmark(out, version, Bookmark::InitialEventsEnd);
            }
        }
    }

    /// Writes changes. Returns the next step if the stream ends without a frame. An expired watch gets an
    /// ERROR frame and is closed.
    fn write_changes(&mut self, out: &mut Vec<u8>) -> Option<Next> {
        let allowed = self.allowed_frames();
        loop {
            // Changes and version are read in one model operation. Otherwise a bookmark with that version
            // could cover a change that was not sent.
            let (step, version) = self.shared.model(|model| {
                let step = model.step(&mut self.cursor, &self.request.filter, allowed);
                (step, model.version().min(self.cursor.limit()))
            });
            self.reached = version;
            let (frames, more) = match step {
                Step::Frames(frames, more) => (frames, more),
                Step::Expired(status) => {
                    self.close();
                    self.request.frames.error(out, &status);
                    return None;
                }
                Step::Ended => return Some(Next::End),
                Step::Broken => return Some(Next::Break),
            };
            for Frame { kind, state, version } in &frames {
                self.request.frames.object(out, kind.name(), state, *version, self.shared.clock.now());
                self.last_sent_version = *version;
            }
            self.count_frames(frames.len());
            if !frames.is_empty() || !more {
                return None;
            }
        }
    }

    fn write_due_bookmark(&mut self, out: &mut Vec<u8>) {
        let now = self.shared.clock.instant();
        let version = self.reached;
        let due = now >= self.next_bookmark;
        let conditional = self.conditional_bookmarks.last().is_some_and(|at| now >= *at);
        if due {
            self.next_bookmark = now + BOOKMARK_PERIOD;
        }
        while self.conditional_bookmarks.pop_if(|at| now >= *at).is_some() {}
        let needed = due || (conditional && version != self.last_sent_version);
        // A cache that begins to lag is behind what the watch has sent.
        let is_behind = self.cursor.is_ahead_of(version) || version < self.last_sent_version;
        if needed && self.request.bookmarks && !is_behind && self.allowed_frames() > 0 {
            self.write_bookmark(out, version, Bookmark::Progress);
        }
    }

    fn write_bookmark(&mut self, out: &mut Vec<u8>, version: u64, bookmark: Bookmark) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if bookmark == Bookmark::InitialEventsEnd {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.request.frames.bookmark(out, &metadata, self.shared.clock.now());
        self.last_sent_version = version;
        self.count_frames(1);
    }

    /// Closes the watch in the model, once. A stream that ends calls this itself, since the client may keep
    /// the body.
    fn close(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.model(|model| model.close_watch(&self.cursor));
            self.shared.watch_ended();
        }
    }

    /// Returns when to continue if there is no notification.
    fn wake_at(&self) -> Instant {
        let next_conditional = self.conditional_bookmarks.last().copied().unwrap_or(self.deadline);
        self.deadline.min(self.next_bookmark).min(next_conditional)
    }

    /// Updates the fault rules if any were added or removed.
    fn update_rules(&mut self) {
        self.stream_faults.update(&self.shared.faults, &self.request.recorded);
        self.cursor.limit_to(self.stream_faults.cache_version(&self.shared.faults));
    }

    /// Applies a fault rule that is due before the next frame. Returns the next step, or `None` if no such
    /// rule is due.
    fn apply_stream_fault(&mut self) -> Option<Next> {
        let end = match self.pending_end {
            Some(end) => end,
            None => match self.stream_faults.take_due_effect()? {
                StreamFaultEffect::Bytes(bytes) => return Some(Next::Chunk(bytes)),
                StreamFaultEffect::NoObject => {
                    let mut out = Vec::new();
                    self.request.frames.no_object(&mut out);
                    return Some(Next::Chunk(out));
                }
                StreamFaultEffect::Stall => return Some(Next::Wait),
                StreamFaultEffect::Gone => {
                    let mut out = Vec::new();
                    self.request
                        .frames
                        .error(&mut out, &Status::watch_expired(self.last_sent_version, self.reached));
                    self.close();
                    return Some(Next::Chunk(out));
                }
                StreamFaultEffect::End(end) => end,
            },
        };
        self.pending_end = Some(end);
        Some(match end {
            End::Broken => Next::Break,
            End::Clean => Next::End,
            End::Silent => Next::Silence,
        })
    }

    /// Returns the number of frames that may be written before a fault rule is due.
    fn allowed_frames(&self) -> usize {
        self.stream_faults.allowed_frames()
    }

    fn count_frames(&mut self, frames: usize) {
        self.stream_faults.count_frames(frames);
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a watch that consists of one ERROR frame.
pub(crate) fn error_only(
    status: &Status,
    encoding: Encoding,
) -> BoxStream<'static, Result<Bytes, BodyError>> {
    let mut out = Vec::new();
    Frames::write_error(&mut out, encoding, status);
    stream::iter([Ok(Bytes::from(out))]).boxed()
}
