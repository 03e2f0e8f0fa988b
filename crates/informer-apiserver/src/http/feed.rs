//! The body of a watch: frames from the history, bookmarks, timeouts, and what faults make of them.
//!
//! A feed listens for news before it looks for them, so it sleeps only when there are none. It takes many changes at once
//! and writes them into one chunk. Every frame passes through `next_chunk`, and a feed that is gone is not counted as open.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::answer::{BodyError, CHUNK};
use crate::faults::{Action, Active};
use crate::log::Seen;
use crate::model::{Cursor, Filter, Frame, Objects, Status, Step, View, states_after};
use crate::shared::Shared;

/// How often a bookmark says where a stream stands.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);

/// How long before its end a stream says so once more, if there was news that it did not show.
const LAST_BOOKMARK: Duration = Duration::from_secs(2);

/// What a watch is about.
pub(crate) struct Request {
    pub(crate) seen: Seen,
    pub(crate) filter: Filter,
    pub(crate) view: View,
    /// Kind and apiVersion of bookmarks.
    pub(crate) bookmark_type: (String, String),
    pub(crate) bookmarks: bool,
    pub(crate) timeout: Duration,
    /// Never says that the initial events are over.
    pub(crate) endless: bool,
}

/// A watch that is being sent.
pub(crate) struct Feed {
    shared: Arc<Shared>,
    request: Request,
    cursor: Cursor,
    initial: Option<Initial>,
    bell: Arc<Notify>,
    deadline: Instant,
    next_bookmark: Instant,
    last_bookmark: Option<Instant>,
    /// The version of the last frame.
    told: u64,
    /// The version up to which everything has been written.
    reached: u64,
    rules: watch::Receiver<u64>,
    met: Vec<Arc<Active>>,
    disturbance: Option<Disturbance>,
    ended: bool,
}

/// Objects that were there when the watch began.
struct Initial {
    objects: Objects,
    after: Option<String>,
    version: u64,
}

struct Disturbance {
    active: Arc<Active>,
    /// How many frames it still lets pass.
    frames: usize,
}

/// What a feed does next.
enum Next {
    Chunk(Vec<u8>),
    Wait,
    End,
    Break,
}

impl Feed {
    pub(crate) fn new(
        shared: Arc<Shared>,
        request: Request,
        cursor: Cursor,
        initial: Option<(Objects, u64)>,
        version: u64,
    ) -> Self {
        shared.open_watches.fetch_add(1, Ordering::SeqCst);
        let now = Instant::now();
        let deadline = now + request.timeout;
        let mut rules = shared.faults.changes();
        rules.mark_changed();
        Feed {
            bell: shared.bell(cursor.id()),
            rules,
            shared,
            cursor,
            initial: initial.map(|(objects, version)| Initial { objects, after: None, version }),
            deadline,
            next_bookmark: now + BOOKMARK_EVERY,
            last_bookmark: deadline.checked_sub(LAST_BOOKMARK).filter(|at| *at > now),
            told: version,
            reached: version,
            met: Vec::new(),
            disturbance: None,
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
            let bell = self.bell.clone();
            let news = bell.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            match self.next() {
                Next::Chunk(chunk) => return Some(Ok(Bytes::from(chunk))),
                Next::End => self.close(),
                Next::Break => {
                    self.close();
                    return Some(Err(BodyError));
                }
                Next::Wait => {
                    let stalled = self.is_stalled();
                    let wake = self.wake_at();
                    tokio::select! {
                        biased;
                        // Still to be looked at, though it has been seen.
                        _ = self.rules.changed() => self.rules.mark_changed(),
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
        if let Some(next) = self.disturb() {
            return next;
        }
        if self.is_stalled() {
            return Next::Wait;
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
        if out.is_empty() { Next::Wait } else { Next::Chunk(out) }
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
            write_frame(out, "ADDED", |out| state.write(&self.request.view, state.version, out));
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
                    write_error(out, &status);
                    return None;
                }
                Step::Ended => return Some(Next::End),
                Step::Broken => return Some(Next::Break),
            };
            for Frame { kind, state, version } in &frames {
                write_frame(out, kind.name(), |out| state.write(&self.request.view, *version, out));
                self.told = *version;
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
        let last = self.last_bookmark.is_some_and(|at| now >= at);
        if due {
            self.next_bookmark = now + BOOKMARK_EVERY;
        }
        if last {
            self.last_bookmark = None;
        }
        let useful = due || (last && version != self.told);
        if useful && self.request.bookmarks && !self.cursor.is_ahead_of(version) && self.allowed_frames() > 0
        {
            self.write_bookmark(out, version, false);
        }
    }

    fn write_bookmark(&mut self, out: &mut Vec<u8>, version: u64, ends_initial: bool) {
        let (kind, api_version) = &self.request.bookmark_type;
        let mut metadata = json!({"resourceVersion": version.to_string()});
        if ends_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let quoted = |text: &str| Value::from(text).to_string();
        let object = format!(
            r#"{{"kind":{},"apiVersion":{},"metadata":{metadata}}}"#,
            quoted(kind),
            quoted(api_version)
        );
        write_frame(out, "BOOKMARK", |out| out.extend_from_slice(object.as_bytes()));
        self.told = version;
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
        let last = self.last_bookmark.unwrap_or(self.deadline);
        self.deadline.min(self.next_bookmark).min(last)
    }

    /// Meets rules that came since it last looked, and lets go of one that went.
    fn look_for_rules(&mut self) {
        if !self.rules.has_changed().unwrap_or(false) {
            return;
        }
        self.rules.mark_unchanged();
        let faults = &self.shared.faults;
        if self.disturbance.as_ref().is_some_and(|current| !faults.is_in_force(&current.active)) {
            self.disturbance = None;
        }
        self.meet_next_rule();
    }

    fn meet_next_rule(&mut self) {
        if self.disturbance.is_none()
            && let Some(active) = self.shared.faults.for_stream(&self.request.seen, &mut self.met)
        {
            let frames = active.rule.frames;
            self.disturbance = Some(Disturbance { active, frames });
        }
    }

    /// Carries out a rule whose frames have passed.
    fn disturb(&mut self) -> Option<Next> {
        let due = self.disturbance.take_if(|current| current.frames == 0)?;
        match &due.active.rule.action {
            Action::RawFrame(bytes) => {
                due.active.hit();
                let bytes = bytes.to_vec();
                self.meet_next_rule();
                Some(Next::Chunk(bytes))
            }
            Action::StallWatch => {
                // Counted once; afterwards it only waits.
                due.active.hit();
                self.disturbance = Some(Disturbance { frames: STALLED, ..due });
                Some(Next::Wait)
            }
            _ => {
                due.active.hit();
                Some(if due.active.rule.cleanly { Next::End } else { Next::Break })
            }
        }
    }

    fn is_stalled(&self) -> bool {
        self.disturbance.as_ref().is_some_and(|current| current.frames == STALLED)
    }

    /// How many frames may be written before a rule sets in.
    fn allowed_frames(&self) -> usize {
        self.disturbance.as_ref().map_or(usize::MAX, |current| current.frames)
    }

    fn passed(&mut self, frames: usize) {
        if let Some(current) = &mut self.disturbance {
            current.frames = current.frames.saturating_sub(frames);
        }
    }
}

/// Marks a stall that has begun.
const STALLED: usize = usize::MAX;

impl Drop for Feed {
    fn drop(&mut self) {
        self.close();
    }
}

/// A watch that brings one ERROR frame and ends.
pub(crate) fn error_only(status: &Status) -> BoxStream<'static, Result<Bytes, BodyError>> {
    let mut out = Vec::new();
    write_error(&mut out, status);
    stream::iter([Ok(Bytes::from(out))]).boxed()
}

fn write_error(out: &mut Vec<u8>, status: &Status) {
    write_frame(out, "ERROR", |out| out.extend_from_slice(&status.to_json()));
}

fn write_frame(out: &mut Vec<u8>, kind: &str, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}
