//! A watch stream, and the phase of watching. It must not know what frames mean.

use super::response::ResponseState;
use crate::reflector::config::Config;
use crate::reflector::failure::{ErrorResponse, Failure, ResponseHead};
use crate::reflector::request::StreamId;
use crate::time::Moment;
use crate::wire::WatchBody;
use std::time::Duration;

/// The minimum silence after which a connection is considered dead.
pub(in crate::reflector) const MIN_SILENCE_TIMEOUT: Duration = Duration::from_secs(90);
/// The time that a watch may last beyond its own timeout.
const WATCH_END_SLACK: Duration = Duration::from_secs(10);

/// The stream of a watch or a watch-list.
#[derive(Debug)]
pub(in crate::reflector) struct Stream {
    pub(in crate::reflector) id: StreamId,
    pub(in crate::reflector) response: ResponseState<WatchBody>,
    /// When the headers were received; until then, when the request was sent. For a watch that began as a
    /// watch-list, when the initial events ended.
    pub(in crate::reflector) opened: Moment,
    /// The requested timeout, after which the server ends the stream.
    pub(in crate::reflector) timeout: Duration,
    pub(in crate::reflector) last_bookmark: Option<Moment>,
    /// Number of frames of a watch, not counting ERROR frames and frames of unknown type.
    pub(in crate::reflector) frames: u64,
}

impl Stream {
    pub(in crate::reflector) fn new(id: StreamId, now: Moment, timeout: Duration) -> Self {
        Self { id, response: ResponseState::Pending, opened: now, timeout, last_bookmark: None, frames: 0 }
    }

    pub(in crate::reflector) fn receive_head(&mut self, now: Moment, head: ResponseHead, config: &Config) {
        self.opened = now;
        let body = head.is_success().then(|| config.watch_body(&head)).flatten();
        self.response =
            body.map_or_else(|| ResponseState::Error(ErrorResponse::new(now, head)), ResponseState::Body);
    }

    /// Returns the failure of a stream that ends without a successful response; `None` if the response is
    /// successful.
    pub(in crate::reflector) fn response_failure(&self) -> Option<Failure> {
        match &self.response {
            ResponseState::Pending => Some(Failure::interrupted("the response ended before its headers")),
            ResponseState::Error(response) => Some(response.failure()),
            ResponseState::Body(_) => None,
        }
    }

    pub(in crate::reflector) fn error_response(&self) -> Option<&ErrorResponse> {
        self.response.error_response()
    }

    /// Returns whether no response headers have been received.
    pub(in crate::reflector) fn is_pending(&self) -> bool {
        matches!(self.response, ResponseState::Pending)
    }

    /// Returns whether the response is successful, and its body is being read.
    pub(in crate::reflector) fn is_open(&self) -> bool {
        matches!(self.response, ResponseState::Body(_))
    }
}

/// A watch from the position, the version that the cache has reached.
#[derive(Debug)]
pub(in crate::reflector) struct Watching {
    pub(in crate::reflector) stream: Stream,
    /// Whether the previous watch was healthy and ended regularly, so that the cache counts as live before
    /// the headers of this watch arrive.
    pub(in crate::reflector) seamless: bool,
}

impl Watching {
    /// Creates the watch that a watch-list becomes after its initial events.
    pub(in crate::reflector) fn from_watch_list(stream: Stream, now: Moment) -> Self {
        Self { stream: Stream { opened: now, last_bookmark: Some(now), frames: 0, ..stream }, seamless: true }
    }

    pub(in crate::reflector) fn is_live(&self) -> bool {
        self.stream.is_open() || (self.seamless && self.stream.error_response().is_none())
    }

    /// Returns the moment at which the connection is considered dead; `None` while the headers are pending.
    pub(in crate::reflector) fn deadline(
        &self,
        bookmark_gap: Option<Duration>,
        last_contact: Option<Moment>,
    ) -> Option<Moment> {
        let silence = match bookmark_gap {
            // A single long gap must not extend the silence timeout beyond the duration of a watch.
            Some(gap) => (3 * gap).min(self.stream.timeout + WATCH_END_SLACK).max(MIN_SILENCE_TIMEOUT),
            None => self.stream.timeout + WATCH_END_SLACK,
        };
        last_contact.filter(|_| !self.stream.is_pending()).map(|last| last + silence)
    }
}
