//! A watch stream, and the watch that follows changes. It must not know what frames mean.

use super::response::ResponseState;
use crate::reflector::config::Config;
use crate::reflector::failure::{ErrorResponse, Failure, ResponseHead};
use crate::reflector::request::StreamId;
use crate::time::Moment;
use crate::wire::WatchBody;
use std::time::Duration;

/// The shortest silence that is taken for a dead connection.
pub(in crate::reflector) const MIN_SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// How much later than its own timeout a watch may end.
const WATCH_END_SLACK: Duration = Duration::from_secs(10);

/// A watch stream, whatever it is used for.
#[derive(Debug)]
pub(in crate::reflector) struct Stream {
    pub(in crate::reflector) id: StreamId,
    pub(in crate::reflector) response: ResponseState<WatchBody>,
    /// When the headers came; before that, when the request was sent.
    pub(in crate::reflector) opened: Moment,
    /// How long the server was asked to keep it open.
    pub(in crate::reflector) timeout: Duration,
    pub(in crate::reflector) last_bookmark: Option<Moment>,
    /// Frames of a watch that brought something: an ERROR does not, nor does a frame of no known type.
    pub(in crate::reflector) frames: u64,
}

impl Stream {
    pub(in crate::reflector) fn new(id: StreamId, now: Moment, timeout: Duration) -> Self {
        Self { id, response: ResponseState::Pending, opened: now, timeout, last_bookmark: None, frames: 0 }
    }

    pub(in crate::reflector) fn open(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        self.opened = now;
        let body = head.is_success().then(|| config.watch_body(&head)).flatten();
        self.response =
            body.map_or_else(|| ResponseState::Rejected(ErrorResponse::new(now, head)), ResponseState::Body);
    }

    /// Why the request was refused, if it was.
    pub(in crate::reflector) fn refusal(&self) -> Option<Failure> {
        match &self.response {
            ResponseState::Pending => Some(Failure::interrupted("the response ended before its headers")),
            ResponseState::Rejected(response) => Some(response.failure()),
            ResponseState::Body(_) => None,
        }
    }

    pub(in crate::reflector) fn refused(&self) -> Option<&ErrorResponse> {
        self.response.rejected()
    }

    pub(in crate::reflector) fn is_awaited(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    pub(in crate::reflector) fn is_open(&self) -> bool {
        matches!(self.response, ResponseState::Body(_))
    }
}

/// A watch from the position on.
#[derive(Debug)]
pub(in crate::reflector) struct Watching {
    pub(in crate::reflector) stream: Stream,
    /// Follows a healthy watch without a pause, so the cache is not worth less while the headers are awaited.
    pub(in crate::reflector) seamless: bool,
}

impl Watching {
    /// A watch-list whose initial events are over.
    pub(in crate::reflector) fn continued(stream: Stream, now: Moment) -> Self {
        Self { stream: Stream { opened: now, last_bookmark: Some(now), frames: 0, ..stream }, seamless: true }
    }

    pub(in crate::reflector) fn is_live(&self) -> bool {
        self.stream.is_open() || (self.seamless && self.stream.refused().is_none())
    }

    /// When silence has lasted too long.
    pub(in crate::reflector) fn deadline(
        &self,
        bookmark_gap: Option<Duration>,
        last_contact: Moment,
    ) -> Option<Moment> {
        let silence = match bookmark_gap {
            // One long gap must not make every later silence longer than a watch lasts.
            Some(gap) => (3 * gap).min(self.stream.timeout + WATCH_END_SLACK).max(MIN_SILENCE_TIMEOUT),
            None => self.stream.timeout + WATCH_END_SLACK,
        };
        (!self.stream.is_awaited()).then(|| last_contact + silence)
    }
}
