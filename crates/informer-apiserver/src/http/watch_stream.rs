//! The body of a watch: frames from the history, bookmarks, timeouts, and what faults make of them.
//!
//! A feed listens for news before it looks for them, so it sleeps only when there are none. It takes many changes at once
//! and writes them into one chunk. Every frame passes through `next_chunk`, and a feed that is gone is not counted as open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use informer_objects::status::Status;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::accept::Encoding;
use super::frames::Frames;
use super::response::{BodyError, CHUNK};
use super::stream_faults::{StreamFaultEffect, StreamFaults};
use crate::faults::End;
use crate::log::RecordedRequest;
use crate::model::{Cursor, Filter, Frame, Objects, Step, states_after};
use crate::shared::Shared;

/// How often a bookmark says where a stream stands.
const BOOKMARK_PERIOD: Duration = Duration::from_mins(1);

/// How long before its end a stream says where it stands once more, if there was news that it did not show.
const LAST_BOOKMARKS: [Duration; 2] = [Duration::from_millis(2_600), Duration::from_millis(1_400)];

/// How soon after the initial events a stream says where it stands, if there was news that it did not show.
const FIRST_BOOKMARK: Duration = Duration::from_secs(1);

/// How long a watch lasts that asks for more than clocks can tell.
const MAX_WATCH_DURATION: Duration = Duration::from_hours(24 * 365);

/// What a watch is about.
pub(crate) struct Request {
    pub(crate) seen: RecordedRequest,
    pub(crate) filter: Filter,
    pub(crate) frames: Frames,
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Never says that the initial events are over.
    pub(crate) endless: bool,
}

/// A watch that is being sent.
pub(crate) struct WatchStream {
    shared: Arc<Shared>,
    request: Request,
    cursor: Cursor,
    initial: Option<Initial>,
    notifier: Arc<Notify>,
    deadline: Instant,
    next_bookmark: Instant,
    /// When it is said where the stream stands, if that was not seen, the latest first.
    useful_bookmarks: Vec<Instant>,
    /// The version of the last frame.
    last_sent_version: u64,
    /// The version up to which everything has been written.
    reached: u64,
    /// The revision of the rules that it has met; none at first.
    rules: Option<u64>,
    stream_faults: StreamFaults,
    /// How it ends, once what was written is out.
    over: Option<End>,
    ended: bool,
}

/// Objects that were there when the watch began.
struct Initial {
    objects: Objects,
    after: Option<String>,
    version: u64,
}

/// What a feed does next.
enum Next {
    Chunk(Vec<u8>),
    /// What there was is not sent; there may be more.
    Again,
    Wait,
    End,
    Break,
    /// Nothing comes any more, and nobody says so.
    Silence,
}

impl WatchStream {
    pub(crate) fn new(
        shared: Arc<Shared>,
        request: Request,
        cursor: Cursor,
        initial: Option<(Objects, u64)>,
        version: u64,
    ) -> Self {
        shared.open_watches.fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        let deadline = now.checked_add(request.timeout).unwrap_or(now + MAX_WATCH_DURATION);
        let mut useful_bookmarks: Vec<Instant> =
            LAST_BOOKMARKS.iter().filter_map(|before| deadline.checked_sub(*before)).collect();
        useful_bookmarks.extend(initial.is_some().then_some(now + FIRST_BOOKMARK));
        useful_bookmarks.retain(|at| *at > now);
        useful_bookmarks.sort_unstable_by_key(|at| std::cmp::Reverse(*at));
        WatchStream {
            notifier: shared.notifier(cursor.id(), &request.filter.namespace),
            rules: None,
            shared,
            cursor,
            initial: initial.map(|(objects, version)| Initial { objects, after: None, version }),
            deadline,
            next_bookmark: now + BOOKMARK_PERIOD,
            useful_bookmarks,
            last_sent_version: version,
            reached: version,
            stream_faults: StreamFaults::default(),
            over: None,
            ended: false,
            request,
        }
    }

    pub(crate) fn stream(self) -> BoxStream<'static, Result<Bytes, BodyError>> {
        stream::unfold(self, |mut feed| async move {
            let chunk = feed.next_chunk().await?;
            Some((chunk, feed))
        })
        .boxed()
    }

    async fn next_chunk(&mut self) -> Option<Result<Bytes, BodyError>> {
        while !self.ended {
            let (bell, shared) = (self.notifier.clone(), self.shared.clone());
            let (news, rules) = (bell.notified(), shared.faults.rules_changed.notified());
            tokio::pin!(news, rules);
            news.as_mut().enable();
            rules.as_mut().enable();
            match self.next() {
                Next::Chunk(chunk) => return Some(Ok(Bytes::from(chunk))),
                Next::Again => {}
                Next::End => self.close(),
                Next::Silence => std::future::pending().await,
                Next::Break => {
                    self.close();
                    // What was written before has to be on its way: a connection that breaks takes along what it still holds.
                    tokio::task::yield_now().await;
                    return Some(Err(BodyError));
                }
                Next::Wait => {
                    let stalled = self.stream_faults.stalls();
                    let wake = self.wake_at();
                    tokio::select! {
                        biased;
                        () = rules => {}
                        () = news, if !stalled => {}
                        () = tokio::time::sleep_until(wake), if !stalled => {}
                    }
                }
            }
        }
        None
    }

    fn next(&mut self) -> Next {
        self.look_for_rules();
        if let Some(next) = self.apply_stream_fault() {
            return next;
        }
        if Instant::now() >= self.deadline {
            return Next::End;
        }
        let mut out = Vec::new();
        if self.initial.is_some() {
            self.write_initial(&mut out);
        }
        // Also right after initial events that brought nothing: what has happened since rings no bell any more.
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
        self.over = self.stream_faults.change(&mut out);
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
            if out.len() >= CHUNK || written >= allowed {
                done = false;
                break;
            }
            self.request.frames.object(out, "ADDED", &state, state.version, self.shared.now());
            written += 1;
            last = Some(state);
        }
        if let Some(last) = last {
            initial.after = Some(last.key());
        }
        let version = initial.version;
        self.passed(written);
        if done && self.allowed_frames() > 0 {
            self.initial = None;
            if self.request.bookmarks && !self.request.endless {
                self.write_bookmark(out, version, true);
            }
        }
    }

    /// Writes what happened; says how the stream ends if it does.
    fn write_changes(&mut self, out: &mut Vec<u8>) -> Option<Next> {
        let allowed = self.allowed_frames();
        loop {
            // Together: a change between the two would be behind the bookmark, and lost to whoever goes on from there.
            let (step, version) = self.shared.model(|model| {
                (model.step(&mut self.cursor, &self.request.filter, allowed), model.version())
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
                self.request.frames.object(out, kind.name(), state, *version, self.shared.now());
                self.last_sent_version = *version;
            }
            self.passed(frames.len());
            if !frames.is_empty() || !more {
                return None;
            }
        }
    }

    fn write_due_bookmark(&mut self, out: &mut Vec<u8>) {
        let now = Instant::now();
        let version = self.reached;
        let due = now >= self.next_bookmark;
        let last = self.useful_bookmarks.last().is_some_and(|at| now >= *at);
        if due {
            self.next_bookmark = now + BOOKMARK_PERIOD;
        }
        while self.useful_bookmarks.pop_if(|at| now >= *at).is_some() {}
        let useful = due || (last && version != self.last_sent_version);
        if useful && self.request.bookmarks && !self.cursor.is_ahead_of(version) && self.allowed_frames() > 0
        {
            self.write_bookmark(out, version, false);
        }
    }

    fn write_bookmark(&mut self, out: &mut Vec<u8>, version: u64, ends_initial: bool) {
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.request.frames.bookmark(out, &metadata, self.shared.now());
        self.last_sent_version = version;
        self.passed(1);
    }

    /// Lets go of the history, though whoever reads may hold on to the rest.
    fn close(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.model(|model| model.close_watch(&self.cursor));
            self.shared.open_watches.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// When to look again though nothing happened.
    fn wake_at(&self) -> Instant {
        let last = self.useful_bookmarks.last().copied().unwrap_or(self.deadline);
        self.deadline.min(self.next_bookmark).min(last)
    }

    /// Meets rules that came since it last looked, and lets go of those that went.
    fn look_for_rules(&mut self) {
        let revision = self.shared.faults.revision();
        if self.rules.replace(revision) != Some(revision) {
            self.stream_faults.look(&self.shared.faults, &self.request.seen);
        }
    }

    /// Carries out the rules that are due before the next frame.
    fn apply_stream_fault(&mut self) -> Option<Next> {
        let end = match self.over {
            Some(end) => end,
            None => match self.stream_faults.due()? {
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
                StreamFaultEffect::Over(end) => end,
            },
        };
        self.over = Some(end);
        Some(match end {
            End::Broken => Next::Break,
            End::Clean => Next::End,
            End::Silent => Next::Silence,
        })
    }

    /// How many frames may be written before a rule sets in.
    fn allowed_frames(&self) -> usize {
        self.stream_faults.allowed()
    }

    fn passed(&mut self, frames: usize) {
        self.stream_faults.passed(frames);
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.close();
    }
}

/// A watch that brings one ERROR frame and ends.
pub(crate) fn error_only(
    status: &Status,
    encoding: Encoding,
) -> BoxStream<'static, Result<Bytes, BodyError>> {
    let mut out = Vec::new();
    Frames::write_error(&mut out, encoding, status);
    stream::iter([Ok(Bytes::from(out))]).boxed()
}
