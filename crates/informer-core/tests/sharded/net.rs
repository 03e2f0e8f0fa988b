//! Responses of the model server, as headers and bytes of connections.

use super::dice::{Dice, Fault};
use super::selection::Selector;
use super::server::{EventKind, SLOTS, Server};
use informer_core::reflector::{Consistency, ListRequest, ResponseHead, StreamId, WatchRequest, WatchStart};
use informer_core::{Moment, ResourceVersion};
use std::fmt::Write as _;
use std::time::Duration;

/// How the bytes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Clean,
    Broken,
    Silent,
}

#[derive(Debug)]
struct Live {
    /// All selected changes up to this version were sent.
    cursor: u64,
    ends: Moment,
    selector: Option<Selector>,
    /// Whether the end of the initial events has to be sent.
    is_marker_due: bool,
}

/// One request and its response.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: StreamId,
    /// `None` if they were delivered, or never will be.
    pub(crate) head: Option<ResponseHead>,
    pub(crate) bytes: Vec<u8>,
    /// Number of delivered bytes.
    pub(crate) at: usize,
    pub(crate) end: End,
    /// When everything had been delivered; the time of the request until then.
    pub(crate) idle_since: Moment,
    live: Option<Live>,
}

/// The behaviour of the server in one seed.
#[derive(Debug)]
pub(crate) struct Net {
    /// Whether selectors are honoured.
    pub(crate) is_sharding: bool,
    pub(crate) has_bookmarks: bool,
    max_page: usize,
    has_watch_lists: bool,
}

impl Conn {
    fn new(id: StreamId, now: Moment, head: Option<ResponseHead>, body: String, end: End) -> Self {
        Self { id, head, bytes: body.into_bytes(), at: 0, end, idle_since: now, live: None }
    }

    fn failed(id: StreamId, now: Moment, code: u16) -> Self {
        Self::new(id, now, Some(ResponseHead::new(code)), status(code), End::Clean)
    }

    /// Returns whether something has to be delivered.
    pub(crate) fn is_pending(&self) -> bool {
        let is_marker_due = self.live.as_ref().is_some_and(|live| live.is_marker_due);
        let is_ending = matches!(self.end, End::Clean | End::Broken);
        self.head.is_some() || self.at < self.bytes.len() || is_marker_due || is_ending
    }

    /// When the server ends the stream.
    pub(crate) fn ends(&self) -> Option<Moment> {
        self.live.as_ref().filter(|_| self.end == End::Open).map(|live| live.ends)
    }
}

impl Net {
    pub(crate) fn new(dice: &mut Dice, is_calm: bool) -> Self {
        Self {
            is_sharding: !dice.one_in(3),
            has_bookmarks: is_calm || !dice.one_in(4),
            max_page: 2 + dice.index(5),
            has_watch_lists: is_calm || !dice.one_in(4),
        }
    }

    fn selector(&self, text: Option<&str>) -> Option<Selector> {
        // Parsed in any case: an invalid one must not be sent.
        text.map(Selector::parse).filter(|_| self.is_sharding)
    }

    pub(crate) fn list(
        &self,
        server: &Server,
        dice: &mut Dice,
        now: Moment,
        id: StreamId,
        request: &ListRequest,
    ) -> Conn {
        let selector = self.selector(request.shard_selector.as_deref());
        if let Some(failed) = fail(dice, now, id) {
            return failed;
        }
        let (version, from) = if let Some(token) = &request.continue_token {
            let (version, slot) = token.split_once('.').unwrap();
            let version: u64 = version.parse().unwrap();
            if version < server.oldest || dice.strikes(Fault::TokenExpired) {
                return Conn::failed(id, now, 410);
            }
            (version, slot.parse().unwrap())
        } else {
            match version_of(server, dice, &request.consistency) {
                Some(version) => (version, 0),
                None => return Conn::failed(id, now, 410),
            }
        };
        let max_items = request.limit.map_or(SLOTS, |limit| self.max_page.min(limit as usize));
        let objects = server.at(version);
        let mut objects = objects
            .iter()
            .filter(|(object, state)| object.slot >= from && object.is_selected(selector, *state));
        let items: Vec<String> =
            objects.by_ref().take(max_items).map(|(object, state)| object.json(*state)).collect();
        let token = objects.next().map_or(String::new(), |(next, _)| {
            format!(r#","continue":"{version}.{}","remainingItemCount":3"#, next.slot)
        });
        let body = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{token}}},"items":[{}]}}"#,
            items.join(",")
        );
        let mut conn = Conn::new(id, now, Some(ResponseHead::new(200)), body, End::Clean);
        if dice.strikes(Fault::Truncated) {
            conn.bytes.truncate(dice.index(conn.bytes.len()));
            conn.end = [End::Clean, End::Broken, End::Silent][dice.index(3)];
        }
        conn
    }

    pub(crate) fn watch(
        &self,
        server: &Server,
        dice: &mut Dice,
        now: Moment,
        id: StreamId,
        request: &WatchRequest,
    ) -> Conn {
        let selector = self.selector(request.shard_selector.as_deref());
        if let Some(failed) = fail(dice, now, id) {
            return failed;
        }
        let mut conn = Conn::new(id, now, Some(ResponseHead::new(200)), String::new(), End::Open);
        let (cursor, is_marker_due) = match &request.start {
            WatchStart::After(version) => (parse(version), false),
            WatchStart::InitialEvents(_) if !self.has_watch_lists || dice.strikes(Fault::NoWatchList) => {
                return Conn::failed(id, now, 422);
            }
            WatchStart::InitialEvents(consistency) => match version_of(server, dice, consistency) {
                Some(version) => (version, true),
                None => return Conn::failed(id, now, 410),
            },
            other => unreachable!("{other:?}"),
        };
        if !is_marker_due && cursor < server.oldest {
            if dice.one_in(2) {
                return Conn::failed(id, now, 410);
            }
            conn.bytes = error_frame().into_bytes();
            conn.end = End::Silent;
            return conn;
        }
        assert!(cursor <= server.version, "a version that the server never had");
        if is_marker_due {
            let objects = server.at(cursor);
            let mut body = String::new();
            for (object, state) in
                objects.iter().filter(|(object, state)| object.is_selected(selector, *state))
            {
                let _ = writeln!(body, r#"{{"type":"ADDED","object":{}}}"#, object.json(*state));
            }
            conn.bytes = body.into_bytes();
        }
        conn.live = Some(Live { cursor, ends: now + request.timeout, selector, is_marker_due });
        conn
    }

    /// Sends some of the changes since the last call.
    pub(crate) fn pump(server: &Server, dice: &mut Dice, conn: &mut Conn) {
        let Some(live) = conn.live.as_mut().filter(|_| conn.end == End::Open) else { return };
        let max_events = if dice.is_quiet { usize::MAX } else { dice.index(6) };
        let mut out = String::new();
        for event in server.events_after(live.cursor).take(max_events) {
            live.cursor = event.state.version;
            let object = &server.incarnations[event.number];
            if !object.is_selected(live.selector, event.state) {
                continue;
            }
            let kind = match event.kind {
                EventKind::Added => "ADDED",
                EventKind::Modified => "MODIFIED",
                EventKind::Deleted => "DELETED",
            };
            let before = out.len();
            let _ = writeln!(out, r#"{{"type":"{kind}","object":{}}}"#, object.json(event.state));
            if dice.strikes(Fault::Cut) {
                out.truncate(before + 1 + dice.index(out.len() - before - 1));
                conn.end = if dice.one_in(2) { End::Clean } else { End::Broken };
                break;
            }
        }
        if conn.end == End::Open && live.is_marker_due && (dice.is_quiet || dice.one_in(3)) {
            live.is_marker_due = false;
            bookmark(&mut out, live.cursor, r#","annotations":{"k8s.io/initial-events-end":"true"}"#);
        }
        if conn.end == End::Open && dice.strikes(Fault::GoneFrame) {
            out.push_str(&error_frame());
            conn.end = End::Silent;
        } else if conn.end == End::Open && dice.strikes(Fault::EarlyEnd) {
            conn.end = if dice.one_in(3) { End::Broken } else { End::Clean };
        } else if conn.end == End::Open && dice.strikes(Fault::HalfOpen) {
            conn.end = End::Silent;
        }
        conn.bytes.extend_from_slice(out.as_bytes());
    }

    /// Sends a bookmark: of what was sent, or after sending all changes.
    pub(crate) fn bookmark(&self, server: &Server, dice: &mut Dice, conn: &mut Conn) {
        if !self.has_bookmarks {
            return;
        }
        Self::pump(server, dice, conn);
        let Some(live) = conn.live.as_mut().filter(|live| conn.end == End::Open && !live.is_marker_due)
        else {
            return;
        };
        let is_unsent = |event: &super::server::Event| {
            server.incarnations[event.number].is_selected(live.selector, event.state)
        };
        if !server.events_after(live.cursor).any(is_unsent) {
            live.cursor = server.version;
        }
        let mut out = String::new();
        bookmark(&mut out, live.cursor, "");
        conn.bytes.extend_from_slice(out.as_bytes());
    }
}

/// Returns the version of a list; `None` if it is not available any more.
fn version_of(server: &Server, dice: &mut Dice, consistency: &Consistency) -> Option<u64> {
    match consistency {
        Consistency::Exact(version) => Some(parse(version)).filter(|version| *version >= server.oldest),
        Consistency::NotOlderThan(version) => {
            let least = parse(version);
            assert!(least <= server.version, "a version that the server never had");
            Some(if dice.strikes(Fault::Lag) { dice.between(least, server.version) } else { server.version })
        }
        _ => Some(server.version),
    }
}

/// Fails a request before the server has processed it.
fn fail(dice: &mut Dice, now: Moment, id: StreamId) -> Option<Conn> {
    if dice.strikes(Fault::Refused) {
        return Some(Conn::new(id, now, None, String::new(), End::Broken));
    }
    if dice.strikes(Fault::NoHeaders) {
        return Some(Conn::new(id, now, None, String::new(), End::Silent));
    }
    if dice.strikes(Fault::Internal) {
        return Some(Conn::failed(id, now, 500));
    }
    dice.strikes(Fault::Throttled).then(|| {
        let mut head = ResponseHead::new(429);
        head.retry_after = dice.one_in(2).then(|| Duration::from_secs(dice.below(40)));
        Conn::new(id, now, Some(head), status(429), End::Clean)
    })
}

pub(crate) fn parse(version: &ResourceVersion) -> u64 {
    version.as_str().parse().unwrap()
}

fn bookmark(out: &mut String, version: u64, annotations: &str) {
    let _ = writeln!(
        out,
        r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{annotations}}}}}}}"#
    );
}

fn status(code: u16) -> String {
    let reason = if code == 410 { "Expired" } else { "Other" };
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"{reason}","code":{code}}}"#
    )
}

fn error_frame() -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", status(410))
}
