//! Scripts: a text of inputs to a reflector, with what it did in answer written below each.
//!
//! [`check`] carries out the inputs, writes the text anew with what the machine really did, and compares. It does so for several seeds, so
//! what is random shows only as the range it must lie in; with odd seeds bodies arrive byte by byte. Where a script's bodies can be said in
//! protobuf it does all of this again in that form: what the machine does must be the same. After each input it also holds
//! the machine to what must always be true: one request at most, and never neither a request nor a deadline.
//!
//! | line | means |
//! |---|---|
//! | `> …` | what the machine does; everything else is an input, `#` a comment |
//! | `with lists`, `with page-size 2`, `with limit 300`, `with relist-every 4m` | settings, before `start` |
//! | `live v=9 a/x@5 …` | started with a list like that, and watching: nothing of it is told but the state |
//! | `start`, `stop`, `tick` | the call of that name; `tick` calls `handle_timeout` now |
//! | `after 5s`, `wake` | time passes, deadlines on the way are kept; to the next deadline |
//! | `200`, `403 retry-after=5 type=text/html` | headers |
//! | `list v=9 continue=t remaining=1 a/x@5 …` | headers and a whole list; `page …` is the body alone |
//! | `ADDED a/x@5`, `BOOKMARK @9 end`, `ERROR 410 Expired` | a frame; ` + ` puts several into one chunk |
//! | `refuse 410 Expired` | headers, a `Status` and the end; `TooLarge` as reason names that cause |
//! | `bytes …`, `end`, `error refused`, `error broken` | a part of a body, its end, and ways to fail |
//! | `old …` | the same, from the request before |
//! | `state`, `deadline`, `count late …` | questions; a change of state is told unasked |
//! | `during 5m 3..9 list: … / …; watch: …` | for so long each request is answered like that; so many are sent |
//!
//! An object is `namespace/name@version`, with `;uid=…`, `;kind=…` or `;big` behind it; name or version may be missing.

use super::super::{
    Action, Config, Failure, FailureKind, InformerState, Reflector, RequestKind, ResponseHead, StreamId,
};
use super::super::{ReflectorDiagnostic, WatchListPolicy};
use super::encoding::Form;
use crate::Scope;
use crate::delta::{Delta, Replaced};
use crate::object::Entry;

use crate::time::Moment;
use crate::wire::{Limits, TypeMeta, UnreadableObject};
use std::fmt::Write as _;
use std::time::Duration;

const SEEDS: u64 = 12;

/// Carries out a script and compares what happened with what it says.
#[track_caller]
pub(super) fn check(script: &str) {
    let expected: Vec<&str> = script.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let forms = [Form::Json, Form::Protobuf].into_iter().filter(|form| form.is_for(script));
    for (seed, form) in forms.flat_map(|form| (0..SEEDS).map(move |seed| (seed, form))) {
        let mut run = Run { form, ..Run::new(seed) };
        for line in expected.iter().filter(|line| !line.starts_with('>')) {
            run.line(line);
        }
        let actual: Vec<&str> = run.transcript.lines().collect();
        let same = actual.iter().zip(&expected).take_while(|(actual, expected)| actual == expected).count();
        assert!(
            actual == expected,
            "seed {seed}, {form:?}: as written up to line {same}\n{}\n--- written:\n{}\n--- happened:\n{}\n",
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
    form: Form,
    seed: u64,
    now: Moment,
    transcript: String,
    /// The request that is under way.
    open: Option<(StreamId, RequestKind)>,
    /// The last one that is not any more.
    closed: Option<StreamId>,
    /// The last one that [`Run::is_asked`] was told of.
    answered: Option<StreamId>,
    requests: u64,
    watch_timeout: Duration,
    retry_in: Duration,
    /// As told last.
    state: String,
    /// When the cache was last known to be current.
    current: Moment,
    quiet: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        Self {
            machine: None,
            config: Config::new(TypeMeta::new("v1", "Pod"), Scope::All),
            form: Form::Json,
            seed,
            now: Moment::default(),
            transcript: String::new(),
            open: None,
            closed: None,
            answered: None,
            requests: 0,
            watch_timeout: Duration::ZERO,
            retry_in: Duration::ZERO,
            state: InformerState::Connecting.to_string(),
            current: Moment::default(),
            quiet: false,
        }
    }

    /// A run without a script, just started.
    pub(super) fn quiet(seed: u64) -> Self {
        let mut run = Self { quiet: true, ..Self::new(seed) };
        run.input("start");
        run
    }

    pub(super) fn now(&self) -> Moment {
        self.now
    }

    /// Whether there is a request that nothing was answered to.
    pub(super) fn is_asked(&mut self) -> bool {
        let asked = self.open.is_some_and(|(id, _)| self.answered != Some(id));
        self.answered = self.open.map(|(id, _)| id);
        asked
    }

    /// Answers the open request, if there is one, as long as somebody listens.
    pub(super) fn answer_with(&mut self, answer: &str) {
        let Some((id, _)) = self.open else { return };
        for part in answer.split(" / ") {
            if self.is_open(id) {
                self.answer(id, part);
            }
        }
        self.tell_state();
    }

    /// To the next deadline. Before the headers it is the source that watches the time.
    pub(super) fn sleep(&mut self) {
        // There is a deadline at all times, also before an answer's headers.
        self.wake();
        self.tell_state();
    }

    fn line(&mut self, line: &str) {
        writeln!(self.transcript, "{line}").unwrap();
        if !line.starts_with('#') {
            self.input(line);
            self.tell_state();
        }
    }

    fn input(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "with" => self.with(rest),
            "start" => self.call(Reflector::start),
            "live" => self.live(rest),
            "state" => {
                let text = match self.machine().state() {
                    InformerState::Stale { since } => format!("state stale since {since:?}"),
                    state => format!("state {state}"),
                };
                self.tell(&text);
            }
            "stop" => {
                self.call(|machine, _| machine.stop());
                self.close();
            }
            "tick" => self.call(Reflector::handle_timeout),
            "after" => self.after(duration(rest)),
            "wake" => self.wake(),
            "deadline" => self.tell_deadline(),
            "count" => self.tell_counters(rest),
            "during" => self.during(rest),
            "old" => {
                let id = self.closed.unwrap_or_else(|| panic!("no request before: {line}"));
                self.answer(id, rest);
            }
            _ => {
                let (id, _) = self.open.unwrap_or_else(|| panic!("no request is under way: {line}"));
                self.answer(id, line);
            }
        }
    }

    /// The way to a watch that all goes well, without a word about it.
    fn live(&mut self, list: &str) {
        self.quiet = true;
        self.with("lists");
        self.input("start");
        self.input(&format!("list {list}"));
        self.input("200");
        self.quiet = false;
    }

    fn with(&mut self, setting: &str) {
        match setting.split_once(' ').unwrap_or((setting, "")) {
            ("lists", "") => self.config.watch_list = WatchListPolicy::Never,
            ("page-size", size) => self.config.page_size = Some(size.parse().unwrap()),
            ("relist-every", time) => self.config.audit_period = Some(duration(time)),
            ("limit", bytes) => self.config.limits = Limits::new(bytes.parse().unwrap()),
            _ => panic!("no such setting: {setting}"),
        }
    }

    /// Something arrives for a request.
    fn answer(&mut self, id: StreamId, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "list" => {
                self.head(id, ResponseHead::new(200));
                self.bytes(id, &self.form.body(&list_body(rest)));
                self.end(id);
            }
            "page" => self.bytes(id, &self.form.body(&list_body(rest))),
            "refuse" => {
                let code = rest.split(' ').next().unwrap();
                self.head(id, ResponseHead::new(code.parse().unwrap()));
                self.bytes(id, &self.form.body(&status(rest)));
                self.end(id);
            }
            "bytes" => self.bytes(id, rest.as_bytes()),
            "end" => self.end(id),
            "error" => {
                let failure = match rest {
                    "refused" => Failure::new(FailureKind::Connect, "connection refused"),
                    "broken" => Failure::new(FailureKind::Interrupted, "connection reset"),
                    _ => panic!("no such error: {rest}"),
                };
                self.close_if(id);
                self.call(|machine, now| machine.handle_error(now, id, failure));
            }
            _ if word.parse::<u16>().is_ok() => self.head(id, head(line)),
            _ => {
                let frames: Vec<_> = line.split(" + ").map(|text| self.form.body(&frame(text))).collect();
                self.bytes(id, &frames.concat());
            }
        }
    }

    fn head(&mut self, id: StreamId, mut head: ResponseHead) {
        head.content_type = head.content_type.or(self.form.content_type());
        self.call(|machine, now| machine.handle_response(now, id, head));
        self.hear(id);
    }

    fn end(&mut self, id: StreamId) {
        self.close_if(id);
        self.call(|machine, now| machine.handle_end(now, id));
    }

    /// Hands bytes over, as far as anybody still wants them. What is late comes in one piece, so that it can be counted.
    fn bytes(&mut self, id: StreamId, body: &[u8]) {
        self.hear(id);
        if self.seed.is_multiple_of(2) || !self.is_open(id) {
            return self.call(|machine, now| machine.handle_bytes(now, id, body));
        }
        for byte in body {
            if self.is_open(id) {
                self.call(|machine, now| machine.handle_bytes(now, id, &[*byte]));
            }
        }
    }

    fn after(&mut self, passed: Duration) {
        let then = self.now + passed;
        while let Some(deadline) = self.machine().next_deadline().filter(|deadline| *deadline <= then) {
            self.now = deadline.max(self.now);
            self.call(Reflector::handle_timeout);
        }
        self.now = then;
    }

    fn wake(&mut self) {
        let deadline = self.machine().next_deadline().expect("a deadline to wake at");
        // A timer that goes off too early does no harm.
        self.now = self.now.max(Moment::at(deadline.since_origin().saturating_sub(Duration::from_millis(1))));
        self.call(Reflector::handle_timeout);
        self.now = deadline.max(self.now);
        self.call(Reflector::handle_timeout);
    }

    /// Answers every request alike, as fast as they come.
    fn during(&mut self, rest: &str) {
        let mut words = rest.splitn(3, ' ');
        let mut word = || words.next().expect("during TIME LEAST..MOST ANSWERS");
        let (then, range, answers) = (self.now + duration(word()), word(), word());
        let (least, most) = range.split_once("..").unwrap();
        let before = self.requests;
        self.quiet = true;
        loop {
            while let Some((id, asked)) = self.open.filter(|_| self.now < then) {
                let known = answers.split("; ").find_map(|answer| answer.strip_prefix(&format!("{asked}: ")));
                let answer = known.unwrap_or_else(|| panic!("no answer to a {asked}: {answers}"));
                assert!(self.requests - before < 10_000, "a hot loop");
                for part in answer.split(" / ") {
                    match part.strip_prefix("after ") {
                        Some(passed) => self.after(duration(passed)),
                        None => self.answer(id, part),
                    }
                }
                assert!(!self.is_open(id), "the answer must end: {answer}");
            }
            let deadline = self.machine().next_deadline();
            if self.now >= then || deadline.is_none_or(|deadline| deadline > then) {
                break;
            }
            self.wake();
        }
        (self.now, self.quiet) = (then.max(self.now), false);
        let sent = self.requests - before;
        let expected = least.parse().unwrap()..most.parse().unwrap();
        assert!(expected.contains(&sent), "{sent} requests during {rest}");
    }

    fn tell_deadline(&mut self) {
        let left = self.machine().next_deadline().map(|deadline| deadline - self.now);
        let text = match left {
            None => "none".to_owned(),
            Some(left) if left < Duration::from_secs(200) => format!("in {left:?}"),
            Some(left) if left < self.watch_timeout => {
                format!("in the watch's timeout - {:?}", self.watch_timeout.abs_diff(left))
            }
            Some(left) => format!("in the watch's timeout + {:?}", left.abs_diff(self.watch_timeout)),
        };
        self.tell(&format!("deadline {text}"));
    }

    fn tell_counters(&mut self, names: &str) {
        let counters = format!("{:?} ", self.machine().counters());
        let told: Vec<_> = names
            .split(' ')
            .map(|name| {
                let (_, value) = counters.split_once(&format!(" {name}: ")).expect(name);
                format!("{name} {}", value.split([',', ' ']).next().unwrap())
            })
            .collect();
        self.tell(&told.join(" "));
    }

    fn machine(&mut self) -> &mut Reflector {
        self.machine.get_or_insert_with(|| Reflector::new(self.config.clone(), self.seed, None))
    }

    /// One call of the machine, and all that it leads to.
    fn call(&mut self, call: impl FnOnce(&mut Reflector, Moment)) {
        let now = self.now;
        call(self.machine(), now);
        while let Some(action) = self.machine().poll_action() {
            let text = self.act(action);
            self.tell(&text);
        }
        self.machine().check_invariants();
        let (deadline, state) = (self.machine().next_deadline(), self.machine().state());
        let at_rest = state == InformerState::Stopped || self.requests == 0;
        assert!(
            self.open.is_some() || deadline.is_some() || at_rest,
            "nothing is under way or to be waited for"
        );
        assert!(state != InformerState::Live || self.open.is_some(), "live without a watch");
    }

    /// Tells the state if it is another than before. Its times are checked instead of told: they may be random.
    fn tell_state(&mut self) {
        let Some(machine) = &self.machine else { return };
        let text = match machine.state() {
            InformerState::BackingOff { until, failure } => {
                let waits_as_told = until > self.now && until <= self.now + self.retry_in;
                assert!(waits_as_told, "the state says {until:?}, the report {:?}", self.retry_in);
                format!("backing off: {failure}")
            }
            InformerState::Stale { since } => {
                assert_eq!(since, self.current, "stale since the cache was last known to be current");
                "stale".to_owned()
            }
            state => state.to_string(),
        };
        if text != self.state {
            self.tell(&format!("state {text}"));
            self.state = text;
        }
    }

    fn tell(&mut self, text: &str) {
        if !self.quiet {
            writeln!(self.transcript, "> {text}").unwrap();
        }
    }

    fn act(&mut self, action: Action) -> String {
        match action {
            Action::List(id, request) => {
                self.send(id, RequestKind::List);
                format!("list{}{}", query(&request.query()), form(request.json_only))
            }
            Action::Watch(id, request) => {
                let query = query(&request.query());
                self.watch_timeout = request.timeout;
                let within = (300..600).contains(&request.timeout.as_secs());
                assert!(within, "a watch of {:?}", request.timeout);
                let asked =
                    if query.contains("initial") { RequestKind::WatchList } else { RequestKind::Watch };
                self.send(id, asked);
                format!("{asked}{}{}", query.replace(" initial", ""), form(request.json_only))
            }
            Action::Cancel(id) => {
                assert_eq!(self.open.map(|(open, _)| open), Some(id), "given up what is not under way");
                self.close();
                "cancel".to_owned()
            }
            Action::Push(delta) => {
                if matches!(delta, crate::delta::Delta::Replaced(_)) {
                    self.current = self.now;
                }
                format!("push {}", delta_text(&delta))
            }
            Action::Report(ReflectorDiagnostic::RequestFailed { request, failure, retry_in }) => {
                self.retry_in = retry_in;
                format!("{request} failed: {failure}; again {}", wait_text(failure.kind(), retry_in))
            }
            Action::Report(ReflectorDiagnostic::ObjectSkipped(unreadable)) => {
                format!("unreadable {}: {}", unreadable_text(&unreadable), unreadable.error)
            }
            Action::Report(ReflectorDiagnostic::TransformFailed { key, message }) => {
                format!("not transformed {key}: {message}")
            }
            Action::Report(ReflectorDiagnostic::WatchListDisabled { failure }) => {
                format!("no more watch-lists: {failure}")
            }
            Action::Report(ReflectorDiagnostic::ProtobufDisabled { failure }) => {
                format!("no more protobuf: {failure}")
            }
            Action::Report(ReflectorDiagnostic::ServerRewound { from, to }) => {
                format!("rewound from {from} to {to}")
            }
        }
    }

    fn send(&mut self, id: StreamId, asked: RequestKind) {
        assert!(self.open.is_none(), "a second request while one is under way");
        self.open = Some((id, asked));
        self.requests += 1;
    }

    fn is_open(&self, id: StreamId) -> bool {
        self.open.is_some_and(|(open, _)| open == id)
    }

    /// A live watch was heard.
    fn hear(&mut self, id: StreamId) {
        let live = self.machine.as_ref().is_some_and(|machine| machine.state() == InformerState::Live);
        if live && self.is_open(id) {
            self.current = self.now;
        }
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

// Outputs as text.

/// What is said of a request that takes nothing but JSON.
fn form(json_only: bool) -> &'static str {
    if json_only { " in JSON" } else { "" }
}

/// The parameters that vary; the others are checked.
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
            let more =
                if unreadable.is_empty() { String::new() } else { format!(" unreadable {unreadable:?}") };
            let word = if *audit { "audited" } else { "replaced" };
            format!("{word} @{version} {entries:?}{more}").replace('"', "")
        }
        Delta::Bookmark(version) => format!("bookmark @{version}"),
        Delta::Unreadable(unreadable) => format!("unreadable {}", unreadable_text(unreadable)),
    }
}

fn entry_text(entry: &Entry) -> String {
    format!("{}@{}", entry.key(), entry.head().version)
}

fn unreadable_text(unreadable: &UnreadableObject) -> String {
    let key = unreadable.key.as_ref().map_or("?".to_owned(), ToString::to_string);
    unreadable.version.as_ref().map_or(key.clone(), |version| format!("{key}@{version}"))
}

/// A wait that was asked for is exact; one that grew is told as the range its jitter allows.
fn wait_text(kind: FailureKind, wait: Duration) -> String {
    let millis = wait.as_millis();
    match (kind, millis) {
        (_, 0) => "now".to_owned(),
        (FailureKind::Forbidden | FailureKind::NotServed, 30_000..60_000) => "in 30s..60s".to_owned(),
        (_, millis) if millis % 1000 == 0 => format!("in {wait:?}"),
        (_, 25_600..60_000) => "in 25.6s..60s".to_owned(),
        _ => {
            let base = (0..5).map(|doubled| Duration::from_millis(800 << doubled));
            let base = base.rev().find(|base| *base <= wait).unwrap_or_default();
            format!("in {base:?}..{:?}", 2 * base)
        }
    }
}

// Inputs as bytes.

fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap());
    let number = number.parse().unwrap();
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_mins(number),
        _ => panic!("no such time: {text}"),
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
            _ => panic!("no such header: {word}"),
        }
    }
    head
}

/// `v=9 continue=t remaining=1 a/x@5 …`
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

/// `ADDED a/x@5`, `BOOKMARK @9 end`, `ERROR 410 Expired`
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
                _ => panic!("no such bookmark: {text}"),
            };
            let metadata = format!(r#""annotations":{{{marker}}}{}"#, version.unwrap_or_default());
            format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{{metadata}}}}}"#)
        }
        "ADDED" | "MODIFIED" | "DELETED" | "PING" => object(rest),
        _ => panic!("no such input: {text}"),
    };
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// `410 Expired retry-after=5`
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

/// `a/x@5;uid=u;kind=Node;big`; a text that begins with `=` is the JSON itself.
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
            _ => panic!("no such object: {text}"),
        }
    }
    let version = version.map(|version| format!(r#""resourceVersion":"{version}","#)).unwrap_or_default();
    let name = if name.is_empty() { String::new() } else { format!(r#""name":"{name}","#) };
    format!(
        r#"{{"kind":"{kind}","apiVersion":"v1","metadata":{{{name}{version}"namespace":"{namespace}","uid":"{uid}"}}{rest}}}"#
    )
}
