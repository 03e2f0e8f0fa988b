//! The faults that can be injected, one function each.
//!
//! The documentation of a function is the meaning of its fault; `http::request_faults` and
//! `http::stream_faults` apply the faults.

use std::time::Duration;

use bytes::Bytes;

use super::{Action, FaultRule};
use crate::log::Verb;

/// Responds to matching requests with a `Status` of this code and the message `injected fault`.
pub fn respond(code: u16) -> FaultRule {
    FaultRule::new(Action::Respond(code, None))
}

/// Responds to matching requests with this code and body.
pub fn respond_with(code: u16, body: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::Respond(code, Some(body.into())))
}

/// Responds with 429 and a `Retry-After` header of this many seconds, like an overloaded server.
pub fn too_many_requests(seconds: u32) -> FaultRule {
    respond(429).retry_after(seconds)
}

/// Expires the client's position: lists get 410; watches, including open ones, get an ERROR frame with 410
/// and end.
pub fn gone() -> FaultRule {
    FaultRule::new(Action::Gone)
}

/// Responds with 403 to requests for a resource, with the message of kube-apiserver for a user without
/// permission.
pub fn forbid(plural: &str) -> FaultRule {
    FaultRule::new(Action::Forbid).for_resource(plural)
}

/// Exempts matching requests from all rules that were injected later.
///
/// Rules that act on the frames of a watch still apply.
pub fn exempt() -> FaultRule {
    FaultRule::new(Action::Exempt)
}

/// Delays matching requests, before the rules that were injected later apply to them. Dropping the guard ends
/// the delay.
pub fn delay(delay: Duration) -> FaultRule {
    FaultRule::new(Action::Delay(delay))
}

/// Sends no response to matching requests, not even headers, until the guard is dropped.
pub fn stall_request() -> FaultRule {
    FaultRule::new(Action::StallRequest)
}

/// Breaks the connection before response headers are sent.
pub fn drop_connection() -> FaultRule {
    FaultRule::new(Action::Drop)
}

/// Truncates response bodies after this many bytes.
///
/// By default the connection breaks there. With [`with_clean_end`](FaultRule::with_clean_end) the body ends
/// normally, with [`without_end`](FaultRule::without_end) it never ends.
pub fn truncate(bytes: usize) -> FaultRule {
    FaultRule::new(Action::Truncate(bytes))
}

/// Serves old state, like a replica that lags.
///
/// Applies to lists and gets with a `resourceVersion`; without one, a read requires the newest state. They
/// return the state of five writes ago (see [`lag_writes`](FaultRule::lag_writes)), but never one older than
/// the requested version. If the history does not contain that state, they return the newest one. A list that
/// requires an exact version counts as a hit, but its response does not change.
pub fn stale_read() -> FaultRule {
    FaultRule::new(Action::StaleRead)
}

/// Puts a value that the type does not allow into one object: `spec` becomes a number.
///
/// In matching lists the first object is changed, in matching watches the object of one frame. An object
/// without `spec` gets one. In protobuf, which has no field names, the field with the number of `spec` is
/// changed (in a config map, the data). In a table the rows become a number. Empty lists and bookmarks are
/// not changed and not counted.
pub fn malformed_object() -> FaultRule {
    FaultRule::new(Action::MalformedObject)
}

/// Inserts one frame without an object into each matching watch. The frame is valid JSON or protobuf.
pub fn frame_without_object() -> FaultRule {
    FaultRule::new(Action::FrameWithoutObject).for_verb(Verb::Watch)
}

/// Breaks watches: the body ends with an error, or normally with
/// [`with_clean_end`](FaultRule::with_clean_end).
pub fn break_watch() -> FaultRule {
    FaultRule::new(Action::BreakWatch).for_verb(Verb::Watch)
}

/// Breaks watches in the middle of a frame.
pub fn break_mid_frame() -> FaultRule {
    FaultRule::new(Action::BreakMidFrame).for_verb(Verb::Watch)
}

/// Makes watches silent forever without closing them, as if the peer had disappeared.
pub fn half_open() -> FaultRule {
    break_watch().without_end()
}

/// Makes watches silent, without closing them, until the guard is dropped.
pub fn stall_watch() -> FaultRule {
    FaultRule::new(Action::StallWatch).for_verb(Verb::Watch)
}

/// Responds with 422 to watches with the parameter `sendInitialEvents`, like a server that does not support
/// it.
pub fn refuse_watch_list() -> FaultRule {
    FaultRule::new(Action::RefuseWatchList).for_verb(Verb::Watch)
}

/// Never sends the bookmark that ends the initial events of a watch. Applies to watches with the parameter
/// `sendInitialEvents`.
pub fn endless_watch_list() -> FaultRule {
    FaultRule::new(Action::EndlessWatchList).for_verb(Verb::Watch)
}

/// Opens watches with 200, sends one ERROR frame with this code and ends them.
pub fn error_frame(code: u16) -> FaultRule {
    FaultRule::new(Action::ErrorFrame(code)).for_verb(Verb::Watch)
}

/// Inserts these bytes once into each matching watch, unchanged.
pub fn raw_frame(bytes: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::RawFrame(bytes.into())).for_verb(Verb::Watch)
}

/// Omits one frame of each matching watch.
///
/// No real server does this. A client can detect it only by comparing its cache with a list (audit).
pub fn drop_frame() -> FaultRule {
    FaultRule::new(Action::DropFrame).for_verb(Verb::Watch)
}

/// Sends one frame of each matching watch twice.
pub fn duplicate_frame() -> FaultRule {
    FaultRule::new(Action::DuplicateFrame).for_verb(Verb::Watch)
}
