//! The network between the model server and the reflector: turns requests into responses, including faults,
//! as headers and bytes of a connection.

use super::faults::{Dice, Fault};
use super::json::{self, Decoration};
use super::server::{Event, EventKind, Fit, SLOTS, Server};
use informer_core::Moment;
use informer_core::reflector::{Consistency, ListRequest, ResponseHead, StreamId, WatchRequest, WatchStart};
use std::time::Duration;

/// Progress of the headers.
#[derive(Debug)]
pub(crate) enum Head {
    Refused,
    Never,
    Ready(ResponseHead),
    Sent,
}

/// How the bytes end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Clean,
    Broken,
    Silent,
}

/// The bookmark that ends the initial events of a watch-list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    None,
    Due,
    Never,
}

#[derive(Debug)]
struct Live {
    /// Version up to which everything was sent.
    cursor: u64,
    ends: Moment,
    marker: Marker,
}

/// One request and its response.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) id: StreamId,
    /// Branch of the server that responds.
    pub(crate) branch: usize,
    pub(crate) sent: Moment,
    pub(crate) head: Head,
    pub(crate) bytes: Vec<u8>,
    /// Number of delivered bytes.
    pub(crate) at: usize,
    pub(crate) end: End,
    /// Whether the bytes contain an ERROR frame.
    pub(crate) error_frame: bool,
    /// Whether it is a plain watch.
    pub(crate) watches: bool,
    live: Option<Live>,
}

impl Conn {
    fn new(id: StreamId, branch: usize, now: Moment, head: Head, body: &str, end: End) -> Self {
        Self {
            id,
            branch,
            sent: now,
            head,
            bytes: body.as_bytes().to_vec(),
            at: 0,
            end,
            error_frame: false,
            watches: false,
            live: None,
        }
    }

    /// Breaks the connection; undelivered bytes are lost.
    pub(crate) fn reset(&mut self) {
        self.bytes.truncate(self.at);
        self.error_frame = false;
        self.live = None;
        if matches!(self.head, Head::Ready(_)) {
            self.head = Head::Refused;
        }
        if self.end != End::Silent {
            self.end = End::Broken;
        }
    }

    /// When the server ends the stream by itself.
    pub(crate) fn ends(&self) -> Option<Moment> {
        self.live.as_ref().filter(|_| self.end == End::Open).map(|live| live.ends)
    }
}

/// Whether watch-lists are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchLists {
    Work,
    /// Rejected with 422 or 400.
    Refused,
    /// The parameters are ignored: all objects are sent, but never the marker.
    Ignored,
}

/// Response to a watch from a version that the server has not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Future {
    /// Sends nothing until it has, as kube-apiserver does.
    Waits,
    TooLarge,
    Gone,
}

/// How the server of this seed behaves without faults.
#[derive(Debug)]
pub(crate) struct Net {
    watch_lists: WatchLists,
    future: Future,
    /// Upper bound on the items of a page, whatever is requested.
    page_cap: Option<usize>,
    /// Whether lists from the watch cache are paged too.
    cache_pages: bool,
    /// Pretty-printed: 0 never, 1 always, 2 sometimes.
    pretty: u64,
    pub(crate) bookmarks: bool,
    outage: Option<(u16, Moment)>,
}

impl Net {
    pub(crate) fn new(dice: &mut Dice) -> Self {
        Self {
            watch_lists: [
                WatchLists::Work,
                WatchLists::Work,
                WatchLists::Work,
                WatchLists::Refused,
                WatchLists::Ignored,
            ][dice.index(5)],
            future: [Future::Waits, Future::TooLarge, Future::Gone][dice.index(3)],
            page_cap: dice.one_in(3).then(|| 1 + dice.index(4)),
            cache_pages: dice.one_in(2),
            pretty: dice.below(6).saturating_sub(3),
            bookmarks: !dice.one_in(4),
            outage: None,
        }
    }

    /// Ends ongoing faults.
    pub(crate) fn end_faults(&mut self) {
        self.outage = None;
    }

    /// Responds to a list request.
    pub(crate) fn list(
        &mut self,
        server: &Server,
        dice: &mut Dice,
        now: Moment,
        id: StreamId,
        request: &ListRequest,
    ) -> Conn {
        if let Some(conn) = self.fail_request(server, dice, now, id) {
            return conn;
        }
        let refuse = |code: u16, body: &str| {
            Conn::new(id, server.branch(), now, Head::Ready(ResponseHead::new(code)), body, End::Clean)
        };
        let gone = || refuse(410, &json::status(410, "Expired", ""));
        let (branch, version, from) = if let Some(token) = &request.continue_token {
            let parts: Vec<u64> = token.split('.').map(|part| part.parse().unwrap()).collect();
            let lost = usize::try_from(parts[0]).unwrap() != server.branch() || parts[1] < server.oldest;
            if lost || dice.strikes(Fault::TokenExpired) {
                return gone();
            }
            (server.branch(), parts[1], usize::try_from(parts[2]).unwrap())
        } else {
            let version = match &request.consistency {
                Consistency::Any if dice.strikes(Fault::Lag) => server.older(0, dice),
                Consistency::Exact(requested) => {
                    let requested = server.parse(requested);
                    if requested > server.version {
                        return refuse(504, &json::too_large(dice.one_in(2)));
                    }
                    if requested < server.oldest {
                        return gone();
                    }
                    requested
                }
                Consistency::NotOlderThan(requested) => {
                    let requested = server.parse(requested);
                    if requested > server.version || dice.strikes(Fault::TooLarge) {
                        return refuse(504, &json::too_large(dice.one_in(2)));
                    }
                    let floor = if dice.strikes(Fault::OlderThanAsked) { 0 } else { requested };
                    if floor == 0 || dice.strikes(Fault::Lag) {
                        server.older(floor, dice)
                    } else {
                        server.version
                    }
                }
                _ => server.version,
            };
            (server.branch(), version, 0)
        };
        let from_cache = request.continue_token.is_none() && request.consistency != Consistency::MostRecent;
        let max_items = match request.limit {
            Some(limit) if !from_cache || self.cache_pages => {
                usize::try_from(limit).unwrap().min(self.page_cap.unwrap_or(SLOTS))
            }
            None if dice.strikes(Fault::UnaskedPage) => 1,
            _ => SLOTS,
        };
        let body = Self::list_body(server, dice, branch, version, from, max_items);
        self.list_conn(server, dice, now, id, &body)
    }

    fn list_conn(&self, server: &Server, dice: &mut Dice, now: Moment, id: StreamId, body: &str) -> Conn {
        let pretty = self.pretty == 1 || (self.pretty == 2 && dice.one_in(2));
        let body = if pretty { json::spread(body) } else { body.to_owned() };
        let mut conn = Conn::new(id, server.branch(), now, success(dice), &body, End::Clean);
        if dice.strikes(Fault::Truncated) {
            conn.bytes.truncate(dice.index(conn.bytes.len()));
            conn.end = if dice.one_in(2) { End::Clean } else { End::Broken };
        } else if dice.strikes(Fault::StalledBody) {
            conn.bytes.truncate(dice.index(conn.bytes.len()));
            conn.end = End::Silent;
        }
        conn
    }

    fn list_body(
        server: &Server,
        dice: &mut Dice,
        branch: usize,
        version: u64,
        from: usize,
        max_items: usize,
    ) -> String {
        let slots: Vec<usize> = (from..SLOTS)
            .filter(|slot| server.visible(*slot) && server.state_at(branch, version)[*slot].is_some())
            .collect();
        let mut items = Vec::new();
        for slot in slots.iter().take(max_items) {
            let Some(object) = &server.state_at(branch, version)[*slot] else { continue };
            if dice.strikes(Fault::Duplicate) {
                // An older state first, or the same one twice: the later one counts.
                let older = server.older(0, dice);
                let first = server.state_at(branch, older.min(version))[*slot].as_ref();
                let first = first.filter(|first| first.fit == Fit::Readable && object.fit == Fit::Readable);
                items.push(item(first.unwrap_or(object), dice));
            }
            if dice.strikes(Fault::Junk) {
                items.push(json::JUNK_ITEMS[dice.index(json::JUNK_ITEMS.len())].to_owned());
            }
            items.push(item(object, dice));
        }
        let token = slots.get(max_items).map(|next| format!("{branch}.{version}.{next}"));
        let text = server.text(version);
        let shown = (!dice.strikes(Fault::NoVersion)).then_some(text.as_str());
        json::list(shown, token.as_deref(), &items, !dice.one_in(4))
    }

    /// Responds to a watch or watch-list request.
    pub(crate) fn watch(
        &mut self,
        server: &Server,
        dice: &mut Dice,
        now: Moment,
        id: StreamId,
        request: &WatchRequest,
    ) -> Conn {
        if let Some(conn) = self.fail_request(server, dice, now, id) {
            return conn;
        }
        let mut conn = Conn::new(id, server.branch(), now, success(dice), "", End::Open);
        let mut live = Live { cursor: 0, ends: now + request.timeout, marker: Marker::None };
        let mut body = String::new();
        match &request.start {
            WatchStart::After(position) => {
                live.cursor = server.parse(position);
                let ahead = live.cursor > server.version;
                let future = if self.bookmarks { self.future } else { Future::TooLarge };
                if live.cursor < server.oldest || (ahead && future == Future::Gone) {
                    return end_with(conn, 410, &json::status(410, "Expired", ""), dice);
                }
                if ahead && future == Future::TooLarge {
                    return end_with(conn, 504, &json::too_large(dice.one_in(2)), dice);
                }
            }
            WatchStart::InitialEvents(consistency) => {
                if self.watch_lists == WatchLists::Refused {
                    let code = if dice.one_in(3) { 400 } else { 422 };
                    conn.head = Head::Ready(ResponseHead::new(code));
                    conn.bytes = json::status(code, "Invalid", "").into_bytes();
                    conn.end = End::Clean;
                    return conn;
                }
                let mut least = 0;
                let version = match consistency {
                    Consistency::NotOlderThan(requested) => {
                        let requested = server.parse(requested);
                        least = requested;
                        if requested > server.version || dice.strikes(Fault::TooLarge) {
                            return end_with(conn, 504, &json::too_large(dice.one_in(2)), dice);
                        }
                        let floor =
                            if dice.strikes(Fault::OlderThanAsked) { server.oldest } else { requested };
                        if floor != requested || dice.strikes(Fault::Lag) {
                            server.older(floor, dice)
                        } else {
                            server.version
                        }
                    }
                    _ => server.version,
                };
                live.cursor = version;
                live.marker = Marker::Due;
                if self.watch_lists == WatchLists::Ignored || dice.strikes(Fault::NeverEnds) {
                    live.marker = Marker::Never;
                } else if dice.strikes(Fault::NoMarker) {
                    conn.end = End::Clean;
                }
                self.initial_events(server, dice, version, &mut body);
                if version < least && live.marker == Marker::Due {
                    live.marker = Marker::None;
                    json::bookmark(&mut body, &server.text(version), true);
                }
            }
            other => unreachable!("{other:?}"),
        }
        conn.bytes = body.into_bytes();
        conn.live = Some(live);
        conn
    }

    fn initial_events(&self, server: &Server, dice: &mut Dice, version: u64, body: &mut String) {
        for object in server.state_at(server.branch(), version).iter().flatten() {
            if server.visible(object.slot) {
                let event = Event { kind: EventKind::Added, object: object.clone() };
                self.write(body, dice, |out, dice| json::event(out, &event, decoration(dice, true)));
            }
        }
    }

    /// Sends the changes since the last call; faults may corrupt them.
    pub(crate) fn pump(&mut self, server: &Server, dice: &mut Dice, conn: &mut Conn) {
        let Some(live) = &mut conn.live else { return };
        if conn.end != End::Open {
            return;
        }
        let mut out = String::new();
        for event in server.events_after(live.cursor) {
            let before = out.len();
            if dice.strikes(Fault::Junk) {
                out.push_str(&json::junk_frame(dice.index(5), dice.index(SLOTS)));
            }
            if live.marker == Marker::None
                && dice.strikes(Fault::Replayed)
                && let Some(earlier) = server.replayed(live.cursor, dice)
            {
                json::event(&mut out, earlier, decoration(dice, true));
            }
            self.write(&mut out, dice, |out, dice| json::event(out, event, decoration(dice, true)));
            live.cursor = event.object.version;
            if let Some(end) = corrupt(&mut out, before, dice) {
                conn.end = end;
                conn.error_frame = end == End::Silent;
                break;
            }
        }
        if live.marker == Marker::Due && conn.end == End::Open && (dice.quiet || dice.one_in(2)) {
            live.marker = Marker::None;
            json::bookmark(&mut out, &server.text(live.cursor), true);
        }
        if conn.end == End::Open && dice.strikes(Fault::EarlyEnd) {
            conn.end = if dice.one_in(3) { End::Broken } else { End::Clean };
        } else if conn.end == End::Open && dice.strikes(Fault::HalfOpen) {
            conn.end = End::Silent;
        }
        conn.bytes.extend_from_slice(out.as_bytes());
    }

    /// Sends a bookmark. A server that has not reached the start version of the watch sends nothing.
    pub(crate) fn bookmark(&mut self, server: &Server, dice: &mut Dice, conn: &mut Conn) {
        self.pump(server, dice, conn);
        let Some(live) =
            conn.live.as_mut().filter(|live| live.marker == Marker::None && server.version >= live.cursor)
        else {
            return;
        };
        if conn.end == End::Open {
            live.cursor = server.version;
            let mut out = String::new();
            json::bookmark(&mut out, &server.text(server.version), false);
            conn.bytes.extend_from_slice(out.as_bytes());
        }
    }

    fn write(&self, out: &mut String, dice: &mut Dice, write: impl FnOnce(&mut String, &mut Dice)) {
        let pretty = self.pretty == 1 || (self.pretty == 2 && dice.one_in(2));
        if pretty {
            let mut compact = String::new();
            write(&mut compact, dice);
            out.push_str(&json::spread(&compact));
        } else {
            write(out, dice);
        }
    }

    /// Fails a request before the server has processed it.
    fn fail_request(&mut self, server: &Server, dice: &mut Dice, now: Moment, id: StreamId) -> Option<Conn> {
        let branch = server.branch();
        let refuse =
            |head: ResponseHead, body: &str| Conn::new(id, branch, now, Head::Ready(head), body, End::Clean);
        self.outage = self.outage.filter(|(_, until)| now < *until);
        for (fault, code) in [(Fault::Forbidden, 403), (Fault::NotFound, 404)] {
            if dice.strikes(fault) {
                self.outage = Some((code, now + Duration::from_secs(dice.below(300))));
            }
        }
        if let Some((code, _)) = self.outage {
            let body = if code == 403 {
                json::status(403, "Forbidden", "")
            } else {
                "404 page not found\n".to_owned()
            };
            return Some(refuse(ResponseHead::new(code), &body));
        }
        if dice.strikes(Fault::Refused) {
            return Some(Conn::new(id, branch, now, Head::Refused, "", End::Broken));
        }
        if dice.strikes(Fault::NoHeaders) {
            return Some(Conn::new(id, branch, now, Head::Never, "", End::Silent));
        }
        if dice.strikes(Fault::Throttled) {
            let mut head = ResponseHead::new(429);
            head.retry_after = dice.one_in(2).then(|| Duration::from_secs(dice.below(40)));
            return Some(refuse(head, &json::status(429, "TooManyRequests", r#""retryAfterSeconds":3"#)));
        }
        if dice.strikes(Fault::Html) {
            let mut head = ResponseHead::new(if dice.one_in(2) { 200 } else { 502 });
            head.content_type = dice.one_in(2).then(|| "text/html".into());
            return Some(refuse(head, "<html>Please sign in</html>"));
        }
        for (fault, code, reason) in [
            (Fault::Internal, 500, "InternalError"),
            (Fault::Unavailable, 503, "ServiceUnavailable"),
            (Fault::GoneHttp, 410, "Expired"),
        ] {
            if dice.strikes(fault) {
                return Some(refuse(ResponseHead::new(code), &json::status(code, reason, "")));
            }
        }
        None
    }
}

/// Possibly corrupts what was written since `before`, then returns how the stream ends. Nothing follows an
/// ERROR frame, not even an end.
fn corrupt(out: &mut String, before: usize, dice: &mut Dice) -> Option<End> {
    if dice.strikes(Fault::Cut) {
        out.truncate(before + 1 + dice.index(out.len() - before - 1));
        return Some(if dice.one_in(2) { End::Clean } else { End::Broken });
    }
    if dice.strikes(Fault::Garbage) {
        out.insert_str(before, ["garbage", "]]", "\"\"", "{\"type\" \"ADDED\"}"][dice.index(4)]);
    } else if dice.strikes(Fault::GoneFrame) {
        json::error(out, &json::status(410, "Expired", ""));
        return Some(End::Silent);
    } else if dice.strikes(Fault::ErrorFrame) {
        json::error(out, &json::status(500, "InternalError", ""));
        return Some(End::Silent);
    }
    None
}

/// Rejects a stream: with an HTTP status, or with an ERROR frame.
fn end_with(mut conn: Conn, code: u16, status: &str, dice: &mut Dice) -> Conn {
    if dice.one_in(2) {
        conn.head = Head::Ready(ResponseHead::new(code));
        conn.bytes = status.as_bytes().to_vec();
    } else {
        let mut out = String::new();
        json::error(&mut out, status);
        conn.error_frame = true;
        conn.bytes = out.into_bytes();
    }
    conn.end = End::Clean;
    conn
}

fn success(dice: &mut Dice) -> Head {
    let mut head = ResponseHead::new(200);
    head.content_type = (!dice.one_in(4)).then(|| "application/json".into());
    Head::Ready(head)
}

fn item(object: &super::server::Obj, dice: &mut Dice) -> String {
    let mut out = String::new();
    json::object(&mut out, object, decoration(dice, false));
    out
}

fn decoration(dice: &mut Dice, frame: bool) -> Decoration {
    Decoration { typed: frame || dice.one_in(4), managed: dice.one_in(3).then(|| dice.one_in(2)) }
}
