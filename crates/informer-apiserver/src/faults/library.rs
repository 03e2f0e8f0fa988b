//! The faults by name. What each does is said here; how, by those who carry it out.

use std::time::Duration;

use bytes::Bytes;

use super::{Action, FaultRule};
use crate::log::Verb;

/// Matching requests are answered with a `Status` of this code.
pub fn respond(code: u16) -> FaultRule {
    FaultRule::new(Action::Respond(code, None))
}

/// Matching requests are answered with this code and body.
pub fn respond_with(code: u16, body: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::Respond(code, Some(body.into())))
}

/// A server that is asked too much: 429 with a `Retry-After` of so many seconds.
pub fn too_many_requests(seconds: u32) -> FaultRule {
    respond(429).retry_after(seconds)
}

/// The position is lost. Lists are answered with 410; watches, those that are open too, get 410 as an ERROR frame and end.
pub fn gone() -> FaultRule {
    FaultRule::new(Action::Gone)
}

/// A user without rights to a resource: 403, as a real server words it.
pub fn forbid(plural: &str) -> FaultRule {
    FaultRule::new(Action::Forbid).for_resource(plural)
}

/// Matching requests are let through, past all rules that were set later. Watches still meet what disturbs streams.
pub fn exempt() -> FaultRule {
    FaultRule::new(Action::Exempt)
}

/// Matching requests wait so long before anything else happens to them, or until the guard is dropped.
pub fn delay(time: Duration) -> FaultRule {
    FaultRule::new(Action::Delay(time))
}

/// Matching requests wait, before their headers, until the guard is dropped.
pub fn stall_request() -> FaultRule {
    FaultRule::new(Action::StallRequest)
}

/// The connection breaks before there are headers.
pub fn drop_connection() -> FaultRule {
    FaultRule::new(Action::Drop)
}

/// Bodies are cut after so many bytes: the connection breaks there, or the body ends [cleanly](FaultRule::with_clean_end), or it
/// [does not end](FaultRule::without_end).
pub fn truncate(bytes: usize) -> FaultRule {
    FaultRule::new(Action::Truncate(bytes))
}

/// A replica that lags: lists and reads that do not ask for the newest state are shown one from five writes ago, or
/// [more or less](FaultRule::lag_writes), but never one that is older than they ask for. What is forgotten is not shown.
pub fn stale_read() -> FaultRule {
    FaultRule::new(Action::StaleRead)
}

/// Something that the type does not allow: in matching lists the `spec` of the first object is a number, and so it is in one
/// frame of matching watches. What has no `spec` gets one; in protobuf, which has no names, it is whatever has the number of `spec`
/// (the data of a config map). Of a table it is the rows. Lists without objects and bookmarks are spared, and not counted.
pub fn malformed_object() -> FaultRule {
    FaultRule::new(Action::MalformedObject)
}

/// A frame is put into matching watches, once into each, that is good JSON or protobuf and holds no object.
pub fn frame_without_object() -> FaultRule {
    FaultRule::new(Action::FrameWithoutObject).for_verb(Verb::Watch)
}

/// Watches break: the body ends with an error, or [cleanly](FaultRule::with_clean_end).
pub fn break_watch() -> FaultRule {
    FaultRule::new(Action::BreakWatch).for_verb(Verb::Watch)
}

/// Watches break in the middle of a frame.
pub fn break_mid_frame() -> FaultRule {
    FaultRule::new(Action::BreakMidFrame).for_verb(Verb::Watch)
}

/// Watches fall silent for good: the other side is gone, and nobody says so.
pub fn half_open() -> FaultRule {
    break_watch().without_end()
}

/// Watches fall silent and stay open, until the guard is dropped.
pub fn stall_watch() -> FaultRule {
    FaultRule::new(Action::StallWatch).for_verb(Verb::Watch)
}

/// Watches that ask for initial events are refused, as by a server that does not know them: 422.
pub fn refuse_watch_list() -> FaultRule {
    FaultRule::new(Action::RefuseWatchList).for_verb(Verb::Watch)
}

/// Initial events are sent, and never said to be over.
pub fn endless_watch_list() -> FaultRule {
    FaultRule::new(Action::EndlessWatchList).for_verb(Verb::Watch)
}

/// Watches open and bring one ERROR frame of this code, and end.
pub fn error_frame(code: u16) -> FaultRule {
    FaultRule::new(Action::ErrorFrame(code)).for_verb(Verb::Watch)
}

/// These bytes are put into matching watches, once into each, whatever else is in them.
pub fn raw_frame(bytes: impl Into<Bytes>) -> FaultRule {
    FaultRule::new(Action::RawFrame(bytes.into())).for_verb(Verb::Watch)
}

/// A frame of each matching watch is not sent. No server does that; a client can notice it only by comparing.
pub fn drop_frame() -> FaultRule {
    FaultRule::new(Action::DropFrame).for_verb(Verb::Watch)
}

/// A frame of each matching watch is sent twice.
pub fn duplicate_frame() -> FaultRule {
    FaultRule::new(Action::DuplicateFrame).for_verb(Verb::Watch)
}
