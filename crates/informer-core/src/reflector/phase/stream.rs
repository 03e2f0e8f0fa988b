//! A watch stream, and the phase of watching. It must not know what frames mean.

use super::response::ResponseState;
use crate::reflector::config::Config;
use crate::reflector::failure::{ErrorResponse, Failure, ResponseHead};
use crate::reflector::request::StreamId;
use crate::time::Moment;
use crate::wire::WatchBody;
use std::time::Duration;

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
    /// Number of frames of a watch that report the state of the server: not ERROR frames, nor frames of
    /// unknown type or with an object of another kind.
    pub(in crate::reflector) frames: u64,
    /// Number of bytes received since the last complete frame.
    pub(in crate::reflector) bytes_since_frame: u64,
    /// The part of them that was counted as contact.
    pub(in crate::reflector) contact_bytes: u64,
}

impl Stream {
    pub(in crate::reflector) fn new(id: StreamId, now: Moment, timeout: Duration) -> Self {
        Self {
            id,
            response: ResponseState::Pending,
            opened: now,
            timeout,
            last_bookmark: None,
            frames: 0,
            bytes_since_frame: 0,
            contact_bytes: 0,
        }
    }

    /// Returns whether the stream has received bytes that are not a complete frame, besides a line end.
    pub(in crate::reflector) fn has_stray_bytes(&self) -> bool {
        const LINE_END: u64 = 2;
        let in_frame = matches!(&self.response, ResponseState::Body(reader) if reader.finish().is_err());
        in_frame || self.bytes_since_frame > LINE_END
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
    /// Whether the cache counts as live before the headers of this watch arrive: the previous watch was healthy
    /// and ended regularly, or it was silent and the server responded to a probe.
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

    /// Returns the moment at which the watch is checked because it is silent; `None` while the headers are
    /// pending.
    pub(in crate::reflector) fn deadline(
        &self,
        check_delay: Duration,
        last_contact: Option<Moment>,
    ) -> Option<Moment> {
        // A single long gap between bookmarks must not extend the delay beyond the duration of a watch.
        let silence = check_delay.min(self.stream.timeout + WATCH_END_SLACK);
        last_contact.filter(|_| !self.stream.is_pending()).map(|last| last + silence)
    }
}
