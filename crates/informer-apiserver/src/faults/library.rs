//! The faults by name. What each does is said here; how, by those who carry it out.

use std::time::Duration;

use bytes::Bytes;

use super::{Action, Rule};
use crate::log::Verb;

/// Matching requests are answered with a `Status` of this code.
pub fn status(code: u16) -> Rule {
    Rule::new(Action::Answer(code, None))
}

/// The same as [`status`].
pub fn answer(code: u16) -> Rule {
    status(code)
}

/// Matching requests are answered with this code and body.
pub fn answer_with(code: u16, body: impl Into<Bytes>) -> Rule {
    Rule::new(Action::Answer(code, Some(body.into())))
}

/// A server that is asked too much: 429 with a `Retry-After` of so many seconds.
pub fn too_many_requests(seconds: u32) -> Rule {
    status(429).retry_after(seconds)
}

/// The position is lost. Lists are answered with 410; watches, those that are open too, get 410 as an ERROR frame and end.
pub fn gone() -> Rule {
    Rule::new(Action::Gone)
}

/// A user without rights to a resource: 403, as a real server words it.
pub fn forbid(plural: &str) -> Rule {
    Rule::new(Action::Forbid).of(plural)
}

/// Matching requests are let through, past all rules that were set later. Watches still meet what disturbs streams.
pub fn pass() -> Rule {
    Rule::new(Action::Pass)
}

/// Matching requests wait so long before anything else happens to them, or until the guard is dropped.
pub fn delay(time: Duration) -> Rule {
    Rule::new(Action::Delay(time))
}

/// Every page of a list takes so long.
pub fn slow_pages(time: Duration) -> Rule {
    delay(time).on(Verb::List)
}

/// Matching requests wait, before their headers, until the guard is dropped.
pub fn hold() -> Rule {
    Rule::new(Action::Hold)
}

/// The connection breaks before there are headers.
pub fn drop_connection() -> Rule {
    Rule::new(Action::Drop)
}

/// Bodies are cut after so many bytes: the connection breaks there, or the body ends [cleanly](Rule::cleanly), or it
/// [does not end](Rule::silently).
pub fn truncate(bytes: usize) -> Rule {
    Rule::new(Action::Truncate(bytes))
}

/// A replica that lags: lists and reads that do not ask for the newest state are shown one from five writes ago, or
/// [more or less](Rule::behind), but never one that is older than they ask for. What is forgotten is not shown.
pub fn stale_read() -> Rule {
    Rule::new(Action::StaleRead)
}

/// Something that the type does not allow: in matching lists the `spec` of the first object is a number, and so it is in one
/// frame of matching watches. What has no `spec` gets one; in protobuf, which has no names, it is whatever has the number of `spec`
/// (the data of a config map). Of a table it is the rows. Lists without objects and bookmarks are spared, and not counted.
pub fn undecodable_object() -> Rule {
    Rule::new(Action::Undecodable)
}

/// A frame is put into matching watches, once into each, that is good JSON or protobuf and holds no object.
pub fn undecodable_frame() -> Rule {
    Rule::new(Action::NoObject).on(Verb::Watch)
}

/// Watches break: the body ends with an error, or [cleanly](Rule::cleanly).
pub fn cut_watch() -> Rule {
    Rule::new(Action::CutWatch).on(Verb::Watch)
}

/// Watches break in the middle of a frame.
pub fn cut_mid_frame() -> Rule {
    Rule::new(Action::CutMidFrame).on(Verb::Watch)
}

/// Watches fall silent for good: the other side is gone, and nobody says so.
pub fn half_open() -> Rule {
    cut_watch().silently()
}

/// Watches fall silent and stay open, until the guard is dropped.
pub fn stall_watch() -> Rule {
    Rule::new(Action::StallWatch).on(Verb::Watch)
}

/// Watches that ask for initial events are refused, as by a server that does not know them: 422.
pub fn refuse_watch_list() -> Rule {
    Rule::new(Action::RefuseWatchList).on(Verb::Watch)
}

/// Initial events are sent, and never said to be over.
pub fn endless_watch_list() -> Rule {
    Rule::new(Action::EndlessWatchList).on(Verb::Watch)
}

/// The same as [`endless_watch_list`]: the bookmark that ends the initial events does not come.
pub fn no_end_bookmark() -> Rule {
    endless_watch_list()
}

/// Watches open and bring one ERROR frame of this code, and end.
pub fn error_frame(code: u16) -> Rule {
    Rule::new(Action::ErrorFrame(code)).on(Verb::Watch)
}

/// These bytes are put into matching watches, once into each, whatever else is in them.
pub fn raw_frame(bytes: impl Into<Bytes>) -> Rule {
    Rule::new(Action::RawFrame(bytes.into())).on(Verb::Watch)
}

/// A frame of each matching watch is not sent. No server does that; a client can notice it only by comparing.
pub fn drop_frame() -> Rule {
    Rule::new(Action::DropFrame).on(Verb::Watch)
}

/// A frame of each matching watch is sent twice.
pub fn duplicate_frame() -> Rule {
    Rule::new(Action::DuplicateFrame).on(Verb::Watch)
}
