//! Scripts: inputs to a reflector, each followed by the expected output.
//!
//! [`check`] runs the inputs, writes a transcript with the actual output, and compares it with the script. It
//! repeats this for several seeds, so random values appear as the range in which they must lie; with odd
//! seeds, bodies arrive byte by byte. If the bodies of a script can be encoded as protobuf, it runs again in
//! that encoding, with the same expected output. After each input it also checks what must always hold: there
//! is at most one open request, and there is always a request or a deadline.
//!
//! | line | meaning |
//! |---|---|
//! | `> …` | expected output; every other line is an input, `#` a comment |
//! | `with watch-list never`, `with page-size 2` | settings, before `start` |
//! | `with max-object-size 300`, `with audit-period 4m` | settings, before `start` |
//! | `live v=9 a/x@5 …` | starts, lists these objects and watches; the only output is the state |
//! | `saved v=9 a/x@5 …` | restores this saved state, before `start` |
//! | `start`, `stop`, `tick` | the method of that name; `tick` calls `handle_timeout` |
//! | `after 5s`, `wake` | advances the clock by 5 s, or to the next deadline; deadlines on the way are handled |
//! | `200`, `403 retry-after=5 type=text/html` | response headers |
//! | `list v=9 continue=t remaining=1 a/x@5 …` | headers and a complete list; `page …` is only the body |
//! | `ADDED a/x@5`, `BOOKMARK @9 end`, `ERROR 410 Expired` | a frame; ` + ` joins several in one chunk |
//! | `reject 410 Expired` | headers, a `Status` and the end; the reason `TooLarge` adds the cause of that name |
//! | `bytes …`, `blank`, `end`, `error refused`, `error reset` | a part of a body, a line end, the end, a transport error |
//! | `old …` | a part of a response, as in the lines above, for the previous request |
//! | `state`, `deadline`, `count frames …` | prints these; a change of state is always printed |
//! | `during 5m 3..9 list: … / …; watch: …` | responds like this for 5 min; between 3 and 8 requests are sent |
//!
//! `#` in a list stands for the number of requests so far. An object is `namespace/name@version`, followed by
//! `;uid=…`, `;kind=…` or `;big`. Name and version are optional. `=…` is an object as literal JSON.

use super::super::{
    Action, Config, Failure, FailureKind, InformerState, Reflector, RequestKind, ResponseHead, StreamId,
};
use super::super::{ReflectorDiagnostic, SavedScope, WatchListPolicy};
use super::encoding::Encoding;
use crate::Scope;
use crate::delta::{Delta, Replaced};
use crate::object::Entry;
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{BodyEncoding, Limits, ListBody, ListItem, TypeMeta, UnreadableObject};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const SEEDS: u64 = 12;

/// Runs a script and compares the actual output with the expected one.
#[track_caller]
pub(super) fn check(script: &str) {
    let expected: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let encodings =
        [Encoding::Json, Encoding::Protobuf].into_iter().filter(|encoding| encoding.supports(script));
    for (seed, encoding) in encodings.flat_map(|encoding| (0..SEEDS).map(move |seed| (seed, encoding))) {
        let mut run = Run { encoding, ..Run::new(seed) };
        for line in expected.iter().filter(|line| !line.starts_with('>')) {
            run.line(line);
        }
        let actual: Vec<&str> = run.transcript.lines().collect();
        let same = actual.iter().zip(&expected).take_while(|(actual, expected)| actual == expected).count();
        assert!(
            actual == expected,
            "seed {seed}, {encoding:?}: {same} lines match\n{}\n--- expected:\n{}\n--- actual:\n{}\n",
            actual[..same].join("\n"),
            expected[same..].join("\n"),
            actual[same..].join("\n"),
        );
    }
}

/// One run of a script.
pub(super) struct Run {
    machine: Option<Reflector>,
    config: Config,
    encoding: Encoding,
    seed: u64,
    now: Moment,
    transcript: String,
    /// The open request.
    open: Option<(StreamId, RequestKind)>,
    /// The request that was closed last.
    closed: Option<StreamId>,
    /// The request that was open at the last call of [`Run::has_new_request`].
    noticed: Option<StreamId>,
    requests: u64,
    watch_timeout: Duration,
    retry_in: Duration,
    /// The state that was printed last.
    state: String,
    /// When the cache was last known to be up to date.
    last_up_to_date: Moment,
    /// Whether output is left out of the transcript.
    quiet: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            machine: None,
            config: Config::new(TypeMeta::new("v1", "Pod"), Scope::All),
            encoding: Encoding::Json,
            seed,
            now: Moment::default(),
            transcript: String::new(),
            open: None,
            closed: None,
            noticed: None,
            requests: 0,
            watch_timeout: Duration::ZERO,
            retry_in: Duration::ZERO,
            state: InformerState::Connecting.to_string(),
            last_up_to_date: Moment::default(),
            quiet: false,
        }
    }

    /// Creates a started run without a script and without a transcript.
    pub(super) fn quiet(seed: u64) -> Self {
        let mut run = Self { quiet: true, ..Self::new(seed) };
        run.input("start");
        run
    }

    /// Returns the kind of the open request.
    pub(super) fn open_request(&self) -> Option<RequestKind> {
        self.open.map(|(_, kind)| kind)
    }

    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Whether a request was sent since the last call.
    pub(super) fn has_new_request(&mut self) -> bool {
        let is_new = self.open.is_some_and(|(id, _)| self.noticed != Some(id));
        self.noticed = self.open.map(|(id, _)| id);
        is_new
    }

    /// Responds to the open request, if there is one, until it is closed.
    pub(super) fn respond_with(&mut self, response: &str) {
        let Some((id, _)) = self.open else { return };
        for part in response.split(" / ") {
            if self.is_open(id) {
                self.respond(id, part);
            }
        }
        self.print_state_change();
    }

    /// Advances the clock to the next deadline. There always is one, also before the response headers.
    pub(super) fn wake_at_deadline(&mut self) {
        self.wake();
        self.print_state_change();
    }

    fn line(&mut self, line: &str) {
        writeln!(self.transcript, "{line}").unwrap();
        if !line.starts_with('#') {
            self.input(line);
            self.print_state_change();
        }
    }

    fn input(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "with" => self.with(rest),
            "start" => self.call(Reflector::start),
            "live" => self.live(rest),
            "saved" => self.restore(rest),
            "state" => {
                let text = match self.machine().state() {
                    InformerState::Stale { since } => format!("state stale since {since:?}"),
                    state => format!("state {state}"),
                };
                self.print(&text);
            }
            "stop" => {
                self.call(|machine, _| machine.stop());
                self.close();
            }
            "tick" => self.call(Reflector::handle_timeout),
            "after" => self.after(duration(rest)),
            "wake" => self.wake(),
            "deadline" => self.print_deadline(),
            "count" => self.print_counters(rest),
            "during" => self.during(rest),
            "old" => {
                let id = self.closed.unwrap_or_else(|| panic!("no previous request: {line}"));
                self.respond(id, rest);
            }
            _ => {
                let (id, _) = self.open.unwrap_or_else(|| panic!("no open request: {line}"));
                self.respond(id, line);
            }
        }
    }

    /// Restores a saved state.
    fn restore(&mut self, list: &str) {
        let body = list_body(list);
        let mut saved = SavedScope {
            version: ResourceVersion::new("0"),
            saved_at: jiff::Timestamp::UNIX_EPOCH,
            entries: Vec::new(),
            unreadable: Vec::new(),
        };
        let (types, limits) = (self.config.type_meta.clone(), self.config.limits);
        let mut reader = ListBody::new(BodyEncoding::Json, &types, limits, None).unwrap();
        let mut chunk = body.as_bytes();
        while let Some(item) = reader.next(&mut chunk).unwrap() {
            match item {
                ListItem::Object(scanned) => {
                    saved.entries.push(Arc::new(Entry::new(scanned, self.config.retention)));
                }
                ListItem::Meta(meta) => saved.version = meta.version,
                ListItem::Unreadable(object) => saved.unreadable.push(object),
            }
        }
        self.call(|machine, _| machine.restore(saved));
    }

    /// Lists and watches successfully, without output.
    fn live(&mut self, list: &str) {
        self.quiet = true;
        self.with("watch-list never");
        self.input("start");
        self.input(&format!("list {list}"));
        self.input("200");
        self.quiet = false;
    }

    fn with(&mut self, setting: &str) {
        match setting.split_once(' ').unwrap_or((setting, "")) {
            ("watch-list", "never") => self.config.watch_list = WatchListPolicy::Never,
            ("page-size", items) => self.config.page_size = Some(items.parse().unwrap()),
            ("audit-period", period) => self.config.audit_period = Some(duration(period)),
            ("max-object-size", bytes) => self.config.limits = Limits::new(bytes.parse().unwrap()),
            _ => panic!("unknown setting: {setting}"),
        }
    }

    /// Handles an input that belongs to a request.
    fn respond(&mut self, id: StreamId, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "list" => {
                let rest = rest.replace('#', &self.requests.to_string());
                self.head(id, ResponseHead::new(200));
                self.bytes(id, &self.encoding.body(&list_body(&rest)));
                self.end(id);
            }
            "page" => self.bytes(id, &self.encoding.body(&list_body(rest))),
            "reject" => {
                let code = rest.split(' ').next().unwrap();
                self.head(id, ResponseHead::new(code.parse().unwrap()));
                self.bytes(id, &self.encoding.body(&status(rest)));
                self.end(id);
            }
            "bytes" => self.bytes(id, rest.as_bytes()),
            "blank" => self.bytes(id, b"\n"),
            "end" => self.end(id),
            "error" => {
                let failure = match rest {
                    "refused" => Failure::new(FailureKind::Connect, "connection refused"),
                    "reset" => Failure::new(FailureKind::Interrupted, "connection reset"),
                    _ => panic!("unknown error: {rest}"),
                };
                self.close_if(id);
                self.call(|machine, now| machine.handle_error(now, id, failure));
            }
            _ if word.parse::<u16>().is_ok() => self.head(id, head(line)),
            _ => {
                let frames: Vec<_> = line.split(" + ").map(|text| self.encoding.body(&frame(text))).collect();
                let mut before_error = line.split(" + ").take_while(|frame| !frame.starts_with("ERROR"));
                let is_evidence = self.is_live_watch(id) && before_error.any(reports_server_state);
                let before = self.machine().counters().frames;
                self.bytes(id, &frames.concat());
                // No frame is read behind malformed bytes.
                if is_evidence && self.machine().counters().frames > before {
                    self.last_up_to_date = self.now;
                }
            }
        }
    }

    fn head(&mut self, id: StreamId, mut head: ResponseHead) {
        head.content_type = head.content_type.or(self.encoding.content_type());
        self.call(|machine, now| machine.handle_response(now, id, head));
    }

    fn end(&mut self, id: StreamId) {
        self.close_if(id);
        self.call(|machine, now| machine.handle_end(now, id));
    }

    /// Passes on a body until the request is closed. A stray body is one chunk, so that it is counted once.
    fn bytes(&mut self, id: StreamId, body: &[u8]) {
        if self.seed.is_multiple_of(2) || !self.is_open(id) {
            return self.call(|machine, now| machine.handle_bytes(now, id, body));
        }
        for byte in body {
            if self.is_open(id) {
                self.call(|machine, now| machine.handle_bytes(now, id, &[*byte]));
            }
        }
    }

    pub(super) fn after(&mut self, duration: Duration) {
        let until = self.now + duration;
        while let Some(deadline) = self.machine().next_deadline().filter(|deadline| *deadline <= until) {
            self.now = deadline.max(self.now);
            self.call(Reflector::handle_timeout);
        }
        self.now = until;
    }

    fn wake(&mut self) {
        let deadline = self.machine().next_deadline().expect("a deadline to wake at");
        // An early call must have no effect.
        self.now = self.now.max(Moment::at(deadline.since_origin().saturating_sub(Duration::from_millis(1))));
        self.call(Reflector::handle_timeout);
        self.now = deadline.max(self.now);
        self.call(Reflector::handle_timeout);
    }

    /// Responds to every request of a kind in the same way, immediately, and checks the number of requests.
    fn during(&mut self, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let mut word = || words.next().expect("during TIME MIN..MAX RESPONSES");
        let (until, range, responses) = (self.now + duration(word()), word(), word());
        let (min, max) = range.split_once("..").unwrap();
        let before = self.requests;
        self.quiet = true;
        loop {
            while let Some((id, request)) = self.open.filter(|_| self.now < until) {
                let prefix = format!("{request}: ");
                let response = responses.split("; ").find_map(|response| response.strip_prefix(&prefix));
                let response = response.unwrap_or_else(|| panic!("no response to a {request}: {responses}"));
                assert!(self.requests - before < 10_000, "a hot loop");
                for part in response.split(" / ") {
                    match part.strip_prefix("after ") {
                        Some(time) => self.after(duration(time)),
                        None => self.respond(id, part),
                    }
                }
                assert!(!self.is_open(id), "the response must end: {response}");
            }
            let deadline = self.machine().next_deadline();
            if self.now >= until || deadline.is_none_or(|deadline| deadline > until) {
                break;
            }
            self.wake();
        }
        (self.now, self.quiet) = (until.max(self.now), false);
        let sent = self.requests - before;
        let expected = min.parse().unwrap()..max.parse().unwrap();
        assert!(expected.contains(&sent), "{sent} requests during {rest}");
    }

    fn print_deadline(&mut self) {
        let left = self.machine().next_deadline().map(|deadline| deadline - self.now);
        let text = match left {
            None => "none".to_owned(),
            Some(left) if left < Duration::from_secs(200) => format!("in {left:?}"),
            Some(left) if left < self.watch_timeout => {
                format!("in watch timeout - {:?}", self.watch_timeout.abs_diff(left))
            }
            Some(left) => format!("in watch timeout + {:?}", left.abs_diff(self.watch_timeout)),
        };
        self.print(&format!("deadline {text}"));
    }

    fn print_counters(&mut self, names: &str) {
        let counters = format!("{:?} ", self.machine().counters());
        let values: Vec<_> = names
            .split(' ')
            .map(|name| {
                // The last match, because the nested counters of relists precede and repeat some names.
                let (_, value) = counters.rsplit_once(&format!(" {name}: ")).expect(name);
                format!("{name} {}", value.split([',', ' ']).next().unwrap())
            })
            .collect();
        self.print(&values.join(" "));
    }

    pub(super) fn machine(&mut self) -> &mut Reflector {
        self.machine.get_or_insert_with(|| Reflector::new(self.config.clone(), self.seed, None))
    }

    /// Calls the reflector, executes its actions and checks its invariants.
    fn call(&mut self, call: impl FnOnce(&mut Reflector, Moment)) {
        let now = self.now;
        call(self.machine(), now);
        while let Some(delta) = self.machine().deltas().pop_front() {
            if matches!(delta, crate::delta::Delta::Replaced(_)) {
                self.last_up_to_date = self.now;
            }
            self.print(&format!("push {}", delta_text(&delta)));
        }
        while let Some(action) = self.machine().poll_action() {
            let text = self.execute(action);
            self.print(&text);
        }
        self.machine().check_invariants();
        let (deadline, state) = (self.machine().next_deadline(), self.machine().state());
        let is_idle = state == InformerState::Stopped || self.requests == 0;
        assert!(
            self.open.is_some() || deadline.is_some() || is_idle,
            "neither an open request nor a deadline"
        );
        assert!(state != InformerState::Live || self.open.is_some(), "live without a watch");
    }

    /// Prints the state if it has changed. Its times may be random, so they are checked instead of printed.
    fn print_state_change(&mut self) {
        let Some(machine) = &self.machine else { return };
        let text = match machine.state() {
            InformerState::BackingOff { until, failure } => {
                let matches = until > self.now && until <= self.now + self.retry_in;
                assert!(matches, "backing off until {until:?}, but reported a delay of {:?}", self.retry_in);
                format!("backing off: {failure}")
            }
            InformerState::Stale { since } => {
                assert_eq!(since, self.last_up_to_date, "stale since the cache was last up to date");
                "stale".to_owned()
            }
            state => state.to_string(),
        };
        if text != self.state {
            self.print(&format!("state {text}"));
            self.state = text;
        }
    }

    fn print(&mut self, text: &str) {
        if !self.quiet {
            writeln!(self.transcript, "> {text}").unwrap();
        }
    }

    fn execute(&mut self, action: Action) -> String {
        match action {
            Action::List(id, request) => {
                self.send(id, RequestKind::List);
                format!("list{}{}", query(&request.query()), encoding_suffix(request.json_only))
            }
            Action::Watch(id, request) => {
                let query = query(&request.query());
                self.watch_timeout = request.timeout;
                let timeout = match request.timeout.as_secs() {
                    300..600 => "",
                    3 => " for 3s",
                    _ => panic!("a watch timeout of {:?}", request.timeout),
                };
                let kind =
                    if query.contains("initial") { RequestKind::WatchList } else { RequestKind::Watch };
                self.send(id, kind);
                let query = query.replace(" initial", "");
                format!("{kind}{query}{timeout}{}", encoding_suffix(request.json_only))
            }
            Action::Cancel(id) => {
                assert_eq!(self.open.map(|(open, _)| open), Some(id), "cancelled a request that is not open");
                self.close();
                "cancel".to_owned()
            }
            Action::Report(ReflectorDiagnostic::RequestFailed { request, failure, retry_in }) => {
                self.retry_in = retry_in;
                format!("{request} failed: {failure}; retry {}", delay_text(failure.kind(), retry_in))
            }
            Action::Report(ReflectorDiagnostic::ObjectSkipped(unreadable)) => {
                format!("unreadable {}: {}", unreadable_text(&unreadable), unreadable.error)
            }
            Action::Report(ReflectorDiagnostic::TransformFailed { key, message }) => {
                format!("transform of {key} failed: {message}")
            }
            Action::Report(ReflectorDiagnostic::WatchListDisabled { failure }) => {
                format!("watch-list disabled: {failure}")
            }
            Action::Report(ReflectorDiagnostic::ProtobufDisabled { failure }) => {
                format!("protobuf disabled: {failure}")
            }
            Action::Report(ReflectorDiagnostic::ServerRewound { from, to }) => {
                format!("rewound from {from} to {to}")
            }
        }
    }

    fn send(&mut self, id: StreamId, request: RequestKind) {
        assert!(self.open.is_none(), "a second request while one is open");
        self.open = Some((id, request));
        self.requests += 1;
    }

    fn is_open(&self, id: StreamId) -> bool {
        self.open.is_some_and(|(open, _)| open == id)
    }

    /// Returns whether the request is an open watch and the cache is live.
    fn is_live_watch(&self, id: StreamId) -> bool {
        let live = self.machine.as_ref().is_some_and(|machine| machine.state() == InformerState::Live);
        live && self.is_open(id) && self.open.is_some_and(|(_, kind)| kind != RequestKind::List)
    }

    fn close(&mut self) {
        if let Some((id, _)) = self.open.take() {
            self.closed = Some(id);
        }
    }

    fn close_if(&mut self, id: StreamId) {
        if self.is_open(id) {
            self.close();
        }
    }
}

// Output as text.

/// Marks a request that accepts only JSON.
fn encoding_suffix(json_only: bool) -> &'static str {
    if json_only { " in JSON" } else { "" }
}

/// Formats the query parameters that vary.
fn query(query: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in query {
        match *name {
            "watch" | "allowWatchBookmarks" | "timeoutSeconds" => {}
            "sendInitialEvents" => text.push_str(" initial"),
            "resourceVersion" => write!(text, " rv={value}").unwrap(),
            "resourceVersionMatch" => write!(text, " match={value}").unwrap(),
            name => write!(text, " {name}={value}").unwrap(),
        }
    }
    text
}

fn delta_text(delta: &Delta) -> String {
    match delta {
        Delta::Added(entry) => format!("added {}", entry_text(entry)),
        Delta::Updated(entry) => format!("updated {}", entry_text(entry)),
        Delta::Deleted(deleted) => {
            let version = deleted.version.as_ref().map_or(String::new(), |version| format!("@{version}"));
            let last = if deleted.last.is_some() { "" } else { " (last state unreadable)" };
            format!("deleted {}{version}{last}", deleted.key)
        }
        Delta::Replaced(Replaced { version, entries, unreadable, audit, .. }) => {
            let entries: Vec<_> = entries.iter().map(|entry| entry_text(entry)).collect();
            let unreadable: Vec<_> = unreadable.iter().map(unreadable_text).collect();
            let unreadable =
                if unreadable.is_empty() { String::new() } else { format!(" unreadable {unreadable:?}") };
            let word = if *audit { "audited" } else { "replaced" };
            format!("{word} @{version} {entries:?}{unreadable}").replace('"', "")
        }
        Delta::Bookmark(version) => format!("bookmark @{version}"),
        Delta::Unreadable(unreadable) => format!("unreadable {}", unreadable_text(unreadable)),
        Delta::Gained(_) | Delta::Released(_) => panic!("not sharded: {delta:?}"),
    }
}

fn entry_text(entry: &Entry) -> String {
    format!("{}@{}", entry.key(), entry.head().version)
}

fn unreadable_text(unreadable: &UnreadableObject) -> String {
    let key = unreadable.key.as_ref().map_or("?".to_owned(), ToString::to_string);
    unreadable.version.as_ref().map_or(key.clone(), |version| format!("{key}@{version}"))
}

/// Formats a requested delay exactly, and a delay of the backoff as the range of its jitter.
fn delay_text(kind: FailureKind, delay: Duration) -> String {
    let millis = delay.as_millis();
    match (kind, millis) {
        (_, 0) => "now".to_owned(),
        (_, 500) => "in 500ms".to_owned(),
        (FailureKind::Forbidden | FailureKind::NotServed, 30_000..60_000) => "in 30s..60s".to_owned(),
        (_, millis) if millis % 1000 == 0 => format!("in {delay:?}"),
        (_, 25_600..60_000) => "in 25.6s..60s".to_owned(),
        _ => {
            let base = (0..5).map(|doublings| Duration::from_millis(800 << doublings));
            let base = base.rev().find(|base| *base <= delay).unwrap_or_default();
            format!("in {base:?}..{:?}", 2 * base)
        }
    }
}

// Input as bytes.

fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap());
    let number = number.parse().unwrap();
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number * 60),
        _ => panic!("invalid duration: {text}"),
    }
}

fn head(line: &str) -> ResponseHead {
    let mut words = line.split(' ');
    let mut head = ResponseHead::new(words.next().unwrap().parse().unwrap());
    for word in words {
        match word.split_once('=').unwrap() {
            ("retry-after", seconds) => {
                head.retry_after = Some(Duration::from_secs(seconds.parse().unwrap()));
            }
            ("type", content_type) => head.content_type = Some(content_type.into()),
            _ => panic!("unknown header: {word}"),
        }
    }
    head
}

/// Returns the JSON of a list: `v=9 continue=t remaining=1 a/x@5 …`.
fn list_body(text: &str) -> String {
    let (mut meta, mut items) = (String::new(), Vec::new());
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some(("v", version)) => write!(meta, r#","resourceVersion":"{version}""#).unwrap(),
            Some(("continue", token)) => write!(meta, r#","continue":"{token}""#).unwrap(),
            Some(("remaining", count)) => write!(meta, r#","remainingItemCount":{count}"#).unwrap(),
            _ => items.push(object(word)),
        }
    }
    let (meta, items) = (meta.trim_start_matches(','), items.join(","));
    format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{{meta}}},"items":[{items}]}}"#)
}

/// Returns the JSON of a frame: `ADDED a/x@5`, `BOOKMARK @9 end`, `ERROR 410 Expired`.
fn frame(text: &str) -> String {
    let (kind, rest) = text.split_once(' ').unwrap_or((text, ""));
    let object = match kind {
        "ERROR" => status(rest),
        "BOOKMARK" => {
            let (version, end) = rest.split_once(' ').unwrap_or((rest, ""));
            let version =
                version.strip_prefix('@').map(|version| format!(r#","resourceVersion":"{version}""#));
            let marker = match end {
                "" => String::new(),
                "end" => r#""k8s.io/initial-events-end":"true""#.to_owned(),
                "end=false" => r#""k8s.io/initial-events-end":"false""#.to_owned(),
                _ => panic!("unknown bookmark: {text}"),
            };
            let metadata = format!(r#""annotations":{{{marker}}}{}"#, version.unwrap_or_default());
            format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}}}}"#)
        }
        "ADDED" | "MODIFIED" | "DELETED" | "PING" => object(rest),
        _ => panic!("unknown input: {text}"),
    };
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Returns the JSON of a `Status`: `410 Expired retry-after=5`.
fn status(text: &str) -> String {
    let mut fields = String::new();
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some((_, seconds)) => write!(fields, r#","details":{{"retryAfterSeconds":{seconds}}}"#).unwrap(),
            None if word == "TooLarge" => {
                fields.push_str(
                    r#","reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}"#,
                );
            }
            None if word.parse::<u16>().is_ok() => write!(fields, r#","code":{word}"#).unwrap(),
            None => write!(fields, r#","reason":"{word}""#).unwrap(),
        }
    }
    format!(r#"{{"kind":"Status","status":"Failure"{fields}}}"#)
}

/// Returns whether a frame is evidence that the cache is up to date.
fn reports_server_state(frame: &str) -> bool {
    let known = ["ADDED ", "MODIFIED ", "DELETED ", "BOOKMARK "].iter().any(|kind| frame.starts_with(kind));
    known && !frame.contains(";kind=")
}

/// Returns the JSON of an object: `a/x@5;uid=u;kind=Node;big`, or literal JSON after `=`.
fn object(text: &str) -> String {
    if let Some(json) = text.strip_prefix('=') {
        return json.to_owned();
    }
    let mut parts = text.split(';');
    let (key, version) = parts.next().unwrap().split_once('@').map_or((text, None), |(k, v)| (k, Some(v)));
    let key = key.split(';').next().unwrap();
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    let (mut kind, mut uid, mut rest) = ("Pod", "", String::new());
    for part in text.split(';').skip(1) {
        match part.split_once('=').unwrap_or((part, "")) {
            ("uid", text) => uid = text,
            ("kind", text) => kind = text,
            ("big", _) => rest = format!(r#","spec":{{"text":"{}"}}"#, "x".repeat(1000)),
            _ => panic!("unknown object: {text}"),
        }
    }
    let version = version.map(|version| format!(r#""resourceVersion":"{version}","#)).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { format!(r#""name":"{name}","#) };
    format!(
        r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{{name}{version}"namespace":"{namespace}","uid":"{uid}"}}{rest}}}"#
    )
}
