//! One run: server, network, reflector, queue, store and handlers in one thread, driven by one seed in virtual time.

use super::checks::{Cause, Held, Mirror, Pace, check_exact, check_indexes};
use super::faults::{Dice, Fault};
use super::net::{Conn, End, Head, Net};
use super::server::{OBJECT_LIMIT, Server};
use informer_core::reflector::{
    Action, Asked, Config, Consistency, Failure, Reflector, Report, State, Trouble, WatchListPolicy,
    WatchStart,
};
use informer_core::wire::Limits;
use informer_core::{
    BuiltIndex, Delta, DeltaFifo, FifoLimits, Index, IndexHandle, Moment, ResourceVersion, Retention, Scope,
    StoreReader, StoreWriter, TypeMeta,
};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// How long the source waits for headers.
const HEADERS: Duration = Duration::from_secs(30);
/// A watch that lived so long is a healthy one.
const HEALTHY: Duration = Duration::from_secs(10);
/// Once nothing goes wrong any more, everything is well after so long.
const RECOVERY: Duration = Duration::from_hours(1);

/// What becomes of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Kept,
    Printed,
}

/// What a run is remembered by.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trace: String,
    pub(crate) hits: Vec<u64>,
    pub(crate) told: u64,
    pub(crate) rewinds: u64,
    pub(crate) widest: u64,
    /// How long it took to recover.
    pub(crate) recovery: Duration,
}

pub(crate) struct Run {
    now: Moment,
    dice: Dice,
    server: Server,
    net: Net,
    scope: Scope,
    reflector: Reflector,
    fifo: DeltaFifo,
    writer: StoreWriter,
    reader: StoreReader,
    /// The request that is open, and those that were given up.
    open: Option<Conn>,
    late: Vec<Conn>,
    /// When the reflector was last told something; what it wants done may wait for room.
    told_at: Moment,
    /// When the open stream became a watch.
    watch_since: Option<Moment>,
    /// Whether the stream before the next request lived long enough.
    was_healthy: bool,
    next_bookmark: Moment,
    /// What the reflector wants done and the queue had no room for.
    blocked: Option<Delta>,
    /// From which branch each queued delta comes, and the last one pushed and the last one applied.
    branches: VecDeque<usize>,
    pushed_branch: usize,
    applied_branch: usize,
    /// Which branch answers the newest request.
    asked_branch: usize,
    /// The version of the newest delta that was handed on.
    handed_on: Option<ResourceVersion>,
    mirror: Mirror,
    pace: Pace,
    held: Vec<Held>,
    by_app: IndexHandle,
    by_node: IndexHandle,
    building: Option<BuiltIndex>,
    was_synced: bool,
    trace: Trace,
    lines: String,
}

/// Runs one seed to its end. Panics if anything is not as it must be.
pub(crate) fn run(seed: u64, trace: Trace) -> Outcome {
    let mut run = Run::new(seed, trace);
    run.reflector.start(run.now);
    run.carry_out();
    let steps = 100 + run.dice.below(200);
    for _ in 0..steps {
        run.step();
        run.check();
    }
    let recovery = run.recover();
    run.finish();
    Outcome {
        trace: run.lines,
        hits: run.dice.hits.to_vec(),
        told: run.mirror.told,
        rewinds: run.reflector.counters().rewinds,
        widest: run.pace.widest,
        recovery,
    }
}

impl Run {
    fn new(seed: u64, trace: Trace) -> Self {
        let opaque = seed % 5 == 4;
        let mut dice = Dice::new(seed, opaque);
        let namespace = dice.one_in(5).then_some("a-b");
        let scope = namespace.map_or(Scope::All, Scope::namespace);
        let mut config = Config::new(TypeMeta::new("v1", "Pod"), scope.clone());
        config.limits = Limits::new(OBJECT_LIMIT);
        config.page_size = dice.one_in(3).then(|| 1 + u32::try_from(dice.below(4)).unwrap());
        config.watch_list = if dice.one_in(3) { WatchListPolicy::Never } else { WatchListPolicy::Auto };
        config.watch_timeout = Duration::from_secs(if dice.one_in(3) { 30 } else { 300 });
        config.retention = if dice.one_in(4) { Retention::Decoded } else { Retention::Bytes };
        config.relist_every = dice.one_in(3).then(|| Duration::from_secs(60 + 60 * dice.below(10)));
        let (mut writer, reader) = StoreWriter::new([scope.clone()]);
        let known = (!dice.one_in(4)).then(|| reader.clone());
        let by_app = Index::label("app").into_handle().unwrap();
        let by_node = Index::field("spec.nodeName").into_handle().unwrap();
        if dice.one_in(2) {
            writer.add_index(by_app.clone());
        }
        let limits = match dice.below(3) {
            0 => FifoLimits::new(1 + dice.index(4), 16 << 20),
            1 => FifoLimits::new(4096, 1 + dice.index(4000)),
            _ => FifoLimits::default(),
        };
        let mut server = Server::new(opaque, namespace);
        for _ in 0..dice.below(15) {
            server.write(&mut dice);
        }
        Self {
            now: Moment::default(),
            net: Net::new(&mut dice),
            reflector: Reflector::new(config, seed, known),
            fifo: DeltaFifo::new(limits),
            open: None,
            late: Vec::new(),
            told_at: Moment::default(),
            watch_since: None,
            was_healthy: false,
            next_bookmark: Moment::at(Duration::from_mins(1)),
            blocked: None,
            branches: VecDeque::new(),
            pushed_branch: 0,
            applied_branch: 0,
            asked_branch: 0,
            handed_on: None,
            mirror: Mirror::default(),
            pace: Pace::default(),
            held: Vec::new(),
            building: None,
            was_synced: false,
            trace,
            lines: String::new(),
            dice,
            server,
            scope,
            writer,
            reader,
            by_app,
            by_node,
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now.since_origin().as_secs_f64();
        match self.trace {
            Trace::Off => {}
            Trace::Kept => drop(writeln!(self.lines, "{at:10.3} {}", line())),
            Trace::Printed => println!("{at:10.3} {}", line()),
        }
    }

    /// One thing happens.
    fn step(&mut self) {
        match self.dice.below(100) {
            0..22 => self.write(),
            22..52 => (0..=self.dice.below(8)).for_each(|_| self.deliver()),
            52..70 => self.consume(),
            70..90 => self.pass_time(),
            90..93 => self.look(),
            93..96 => self.deliver_late(),
            96 => {
                // Between two batches the published state is the sum of all changes so far, so a resync may repeat it.
                self.note(|| "resync".to_owned());
                self.mirror.check_equal(&self.reader.snapshot(), "resync");
            }
            _ => self.disaster(),
        }
    }

    fn write(&mut self) {
        for _ in 0..=self.dice.below(3) {
            if let Some(said) = self.server.write(&mut self.dice) {
                self.note(|| format!("server: {said}"));
            }
        }
    }

    /// History is forgotten, or the server is restored from a backup.
    fn disaster(&mut self) {
        if self.dice.strikes(Fault::Compacted) {
            self.server.oldest = self.server.older(self.server.oldest, &mut self.dice);
            let oldest = self.server.oldest;
            self.note(|| format!("server: nothing before {oldest} any more"));
        }
        let jump = self.dice.strikes(Fault::Restored);
        if jump || self.dice.strikes(Fault::Rewound) {
            let position = self.reflector.position().map(|position| self.server.parse(position));
            let said = self.server.restore(jump, position, &mut self.dice);
            self.note(|| format!("server: {said}"));
            self.open.iter_mut().for_each(Conn::reset);
        }
    }

    /// The next piece of what the server has sent: headers, bytes, or the end.
    fn deliver(&mut self) {
        if self.blocked.is_some() {
            return;
        }
        let Some(mut conn) = self.open.take() else { return };
        self.net.pump(&self.server, &mut self.dice, &mut conn);
        let over = self.deliver_from(&mut conn);
        // Carrying out what follows may open another request; this one is then over for us, but not for the network.
        let failed = (conn.error_frame && conn.at == conn.bytes.len()).then_some(conn.id);
        self.open = (!over).then_some(conn);
        self.carry_out();
        let open = self.open.as_ref().map(|conn| conn.id);
        assert!(
            self.blocked.is_some() || failed.is_none() || open != failed,
            "an ERROR frame ends the stream"
        );
    }

    /// Hands one piece of a connection to the reflector; `true` when nothing more can come.
    fn deliver_from(&mut self, conn: &mut Conn) -> bool {
        let (id, now) = (conn.id, self.now);
        self.told_at = now;
        match std::mem::replace(&mut conn.head, Head::Sent) {
            Head::Refused => {
                self.note(|| format!("{id:?} refused"));
                self.reflector.handle_error(now, id, Failure::unreachable("connection refused"));
                return true;
            }
            Head::Never => {
                conn.head = Head::Never;
                return false;
            }
            Head::Ready(head) => {
                self.note(|| format!("{id:?} headers {}", head.status));
                if conn.watches && head.status == 200 && head.content_type.as_deref() != Some("text/html") {
                    self.watch_since = Some(now);
                }
                self.reflector.handle_response(now, id, head);
                return false;
            }
            Head::Sent => {}
        }
        if conn.at < conn.bytes.len() {
            let left = conn.bytes.len() - conn.at;
            let size = match self.dice.below(4) {
                0 => 1 + self.dice.index(left.min(40)),
                1 | 2 => 1 + self.dice.index(left),
                _ => left,
            };
            let chunk = &conn.bytes[conn.at..conn.at + size];
            conn.at += size;
            self.note(|| format!("{id:?} {size} bytes"));
            self.reflector.handle_bytes(now, id, chunk);
            return false;
        }
        match conn.end {
            End::Open | End::Silent => return false,
            End::Clean => {
                self.note(|| format!("{id:?} ends"));
                self.reflector.handle_end(now, id);
            }
            End::Broken => {
                self.note(|| format!("{id:?} breaks"));
                self.reflector.handle_error(now, id, Failure::transient("connection reset"));
            }
        }
        true
    }

    /// What was still under way on a request that was given up.
    fn deliver_late(&mut self) {
        let Some(mut conn) = self.late.pop().filter(|_| self.blocked.is_none()) else { return };
        conn.watches = false;
        for _ in 0..3 {
            if self.deliver_from(&mut conn) {
                break;
            }
        }
        self.carry_out();
    }

    /// Does what the reflector wants done; stops where the queue has no room.
    fn carry_out(&mut self) {
        loop {
            let action = match self.blocked.take() {
                Some(delta) => Action::Push(delta),
                None => match self.reflector.poll_action() {
                    Some(action) => action,
                    None => break,
                },
            };
            match action {
                Action::Push(delta) if !self.fifo.has_room() => {
                    self.blocked = Some(delta);
                    return;
                }
                Action::Push(delta) => self.push(delta),
                Action::Cancel(id) => {
                    self.note(|| format!("{id:?} is given up"));
                    if self.open.as_ref().is_some_and(|conn| conn.id == id) {
                        self.leave();
                    }
                }
                Action::Report(report) => self.report(&report),
                request => self.request(request),
            }
        }
        self.check_position();
    }

    fn push(&mut self, delta: Delta) {
        self.note(|| format!("push {delta:?}"));
        let version = match &delta {
            Delta::Added(entry) | Delta::Updated(entry) => Some(entry.head().version.clone()),
            Delta::Deleted(deleted) => deleted.version.clone(),
            Delta::Replaced(replaced) => Some(replaced.version.clone()),
            Delta::Bookmark(version) => Some(version.clone()),
            Delta::Unreadable(unreadable) => unreadable.version.clone(),
        };
        self.pushed_branch = self.asked_branch;
        if matches!(delta, Delta::Replaced(_)) {
            self.watch_since = Some(self.told_at);
            if self.pushed_branch == self.server.branch() {
                self.server.gate = None;
            }
        }
        // A frame that was sent before does not take the position back.
        let list = matches!(delta, Delta::Replaced(_));
        let ahead = |version: &ResourceVersion| {
            list || !self.handed_on.as_ref().is_some_and(|known| version.is_before(known))
        };
        if let Some(version) = version.filter(ahead) {
            self.handed_on = Some(version);
        }
        self.branches.push_back(self.pushed_branch);
        self.fifo.push(delta).unwrap();
    }

    fn report(&mut self, report: &Report) {
        self.note(|| format!("says: {report}"));
        match report {
            Report::Failed { failure, retry_in, asked, .. } if !retry_in.is_zero() => {
                self.note_health();
                let lost = *asked == Asked::Watch && failure.trouble == Trouble::Expired;
                assert!(!(self.was_healthy && lost), "C11: a 410 after a healthy watch relists at once");
                let slow = matches!(failure.trouble, Trouble::Forbidden | Trouble::NotServed);
                self.pace.wait(*retry_in, slow);
            }
            Report::Rewound { .. } => assert!(self.server.rewinds > 0, "C1: the server never went back"),
            _ => {}
        }
    }

    fn request(&mut self, request: Action) {
        self.note(|| format!("asks {request:?}"));
        self.note_health();
        self.leave();
        let position = self.reflector.position();
        let (net, server, dice) = (&mut self.net, &self.server, &mut self.dice);
        let mut conn = match request {
            Action::List(id, ask) => {
                match &ask.consistency {
                    Consistency::Any => assert!(position.is_none(), "any version, though one is known"),
                    Consistency::NotOlderThan(version) | Consistency::Exactly(version) => {
                        assert_eq!(Some(version), position);
                    }
                    _ => {}
                }
                if ask.continue_token.is_some() {
                    self.pace.page();
                } else {
                    self.pace.request(self.now, Some(&ask));
                }
                net.list(server, dice, self.now, id, &ask)
            }
            Action::Watch(id, ask) => {
                if let WatchStart::After(version) = &ask.start {
                    assert_eq!(Some(version), self.handed_on.as_ref(), "watches from what was handed on");
                }
                self.pace.request(self.now, None);
                let watches = matches!(ask.start, WatchStart::After(_));
                let mut conn = net.watch(server, dice, self.now, id, &ask);
                conn.watches = watches;
                conn
            }
            Action::Cancel(_) | Action::Push(_) | Action::Report(_) => unreachable!("no request"),
        };
        self.asked_branch = conn.branch;
        if self.dice.quiet && conn.end == End::Silent {
            conn.end = End::Open;
        }
        self.watch_since = None;
        self.was_healthy = false;
        self.open = Some(conn);
    }

    /// The open request is given up; its bytes may still arrive.
    fn leave(&mut self) {
        if let Some(mut conn) = self.open.take().filter(|_| self.dice.strikes(Fault::Late)) {
            self.net.pump(&self.server, &mut self.dice, &mut conn);
            self.late.push(conn);
        }
        self.note_health();
    }

    /// Notes it if the open stream lived long enough.
    fn note_health(&mut self) {
        if self.watch_since.take().is_some_and(|since| self.told_at - since >= HEALTHY) {
            self.pace.healthy();
            self.was_healthy = true;
        }
    }

    /// Takes a batch out of the queue and applies it.
    fn consume(&mut self) {
        let most = 1 + self.dice.index(8);
        if let Some(mut batch) = self.fifo.pop(most) {
            assert_eq!(
                batch.initial, !self.was_synced,
                "the initial batches are those before the first list is applied"
            );
            let list = matches!(batch.deltas[..], [Delta::Replaced(_)]);
            let branch = self.branches.drain(..batch.deltas.len()).next_back().unwrap();
            let cause = Cause { list, other_branch: branch != self.applied_branch };
            let deltas = std::mem::take(&mut batch.deltas);
            self.note(|| format!("apply {deltas:?}"));
            let applied = self.writer.apply(&self.scope, deltas);
            self.fifo.applied(batch.end());
            self.applied_branch = branch;
            self.was_synced |= list;
            assert_eq!(self.fifo.has_synced(), self.was_synced);
            for change in &applied.changes {
                self.note(|| format!("  told {change:?}"));
            }
            self.mirror.fold(&self.server, &applied, cause);
            assert!(!applied.rewound || cause.other_branch, "C1: rewound without a restore");
            let snapshot = self.reader.snapshot();
            self.mirror.check_equal(&snapshot, "after a batch");
            check_exact(&self.server, branch, &snapshot);
            self.writer.check_invariants();
        }
        self.carry_out();
    }

    /// Readers look, hold on to what they see, and add indexes.
    fn look(&mut self) {
        match self.dice.below(4) {
            0 => {
                self.held.truncate(2);
                self.held.push(Held::take(&self.reader, &self.by_app));
            }
            1 => {
                let index = [&self.by_app, &self.by_node][self.dice.index(2)];
                self.building = Some(self.reader.build_index(index.clone()));
            }
            2 => {
                if let Some(built) = self.building.take() {
                    self.note(|| "an index is installed".to_owned());
                    self.writer.install_index(built);
                    self.writer.check_invariants();
                }
            }
            _ => check_indexes(&self.server, &self.reader.snapshot(), &self.by_app, &self.by_node),
        }
        self.held.iter().for_each(|held| held.check(&self.by_app));
    }

    /// When the next thing happens by itself.
    fn next_timer(&self) -> Moment {
        let headers = self
            .open
            .as_ref()
            .filter(|conn| !matches!(conn.head, Head::Sent))
            .map(|conn| conn.sent + HEADERS);
        let ends = self.open.as_ref().and_then(Conn::ends);
        let deadline = self.reflector.next_deadline().filter(|_| self.blocked.is_none());
        [headers, ends, deadline].into_iter().flatten().fold(self.next_bookmark, Moment::min)
    }

    fn pass_time(&mut self) {
        let wanted = match self.dice.below(4) {
            0 => Duration::from_millis(self.dice.below(500)),
            1 => Duration::from_millis(self.dice.below(20_000)),
            _ => Duration::from_hours(1),
        };
        let late = Duration::from_millis(if self.dice.one_in(4) { self.dice.below(100) } else { 0 });
        let until = (self.now + wanted).min(self.next_timer() + late);
        self.pass_until(until);
    }

    /// Moves the clock, and lets happen what is due.
    fn pass_until(&mut self, until: Moment) {
        self.now = self.now.max(until);
        let now = self.now;
        if self.next_bookmark <= now {
            self.next_bookmark = now + Duration::from_millis(45_000 + self.dice.below(20_000));
            if let Some(conn) = self.open.as_mut().filter(|_| self.net.bookmarks) {
                self.net.bookmark(&self.server, &mut self.dice, conn);
            }
        }
        if let Some(conn) = self.open.as_mut().filter(|conn| conn.ends().is_some_and(|ends| ends <= now)) {
            self.net.pump(&self.server, &mut self.dice, conn);
            if conn.end == End::Open {
                conn.end = End::Clean;
            }
        }
        if self.blocked.is_some() {
            return;
        }
        let headers_late = |conn: &Conn| !matches!(conn.head, Head::Sent) && conn.sent + HEADERS <= now;
        if let Some(conn) = self.open.take_if(|conn| headers_late(conn)) {
            let id = conn.id;
            self.told_at = now;
            self.note(|| format!("{id:?} no headers"));
            self.reflector.handle_error(now, id, Failure::transient("no headers in time"));
        }
        self.told_at = now;
        self.reflector.handle_timeout(now);
        self.carry_out();
    }

    fn check_position(&self) {
        assert_eq!(self.reflector.position(), self.handed_on.as_ref(), "the position is what was handed on");
    }

    /// What holds between any two steps.
    fn check(&self) {
        self.reflector.check_invariants();
        self.fifo.check_invariants();
        if self.blocked.is_none() {
            let deadline = self.reflector.next_deadline();
            match &self.open {
                None => assert!(deadline.is_some(), "nothing is open and nothing is awaited"),
                Some(conn) if matches!(conn.head, Head::Sent) => {
                    assert!(deadline.is_some(), "a silent stream would never be noticed");
                }
                Some(_) => {} // the source watches the time
            }
        }
    }

    /// Nothing goes wrong any more: the cache becomes what the server has, and says so. Then it follows again.
    fn recover(&mut self) -> Duration {
        self.note(|| "--- nothing goes wrong any more".to_owned());
        self.dice.quiet = true;
        self.net.calm();
        let began = self.now;
        self.settle();
        let took = self.now - began;
        self.server.heal(&mut self.dice);
        self.write();
        self.settle();
        took
    }

    fn settle(&mut self) {
        let deadline = self.now + RECOVERY;
        loop {
            for _ in 0..100 {
                let before =
                    self.open.as_ref().map(|conn| (conn.id, conn.at, matches!(conn.head, Head::Sent)));
                self.deliver();
                while !self.fifo.is_empty() {
                    self.consume();
                }
                self.check();
                if self.open.as_ref().map(|conn| (conn.id, conn.at, matches!(conn.head, Head::Sent)))
                    == before
                {
                    break;
                }
            }
            if self.is_settled() {
                return;
            }
            assert!(self.now < deadline, "not recovered after {RECOVERY:?}: {}", self.unsettled());
            self.pass_until(self.next_timer());
        }
    }

    /// Whether the reflector believes to be up to date, and is.
    fn is_settled(&self) -> bool {
        let snapshot = self.reader.snapshot();
        let newest = snapshot.version().is_some_and(|version| {
            let version = self.server.parse(version);
            // Without bookmarks nobody says how far other kinds have moved the version.
            let nothing_newer = !self.net.bookmarks && self.server.events_after(version).next().is_none();
            version == self.server.version || (version < self.server.version && nothing_newer)
        });
        newest && self.reflector.state() == State::Live && self.applied_branch == self.server.branch()
    }

    fn unsettled(&self) -> String {
        let snapshot = self.reader.snapshot();
        format!(
            "reflector {}, cache {snapshot:?}, server at {}, branches {} and {}",
            self.reflector.state(),
            self.server.version,
            self.applied_branch,
            self.server.branch()
        )
    }

    /// The end: what the cache holds is what the server has, exactly; nothing follows a stop.
    fn finish(&mut self) {
        let snapshot = self.reader.snapshot();
        check_exact(&self.server, self.server.branch(), &snapshot);
        let visible =
            self.server.state().iter().flatten().filter(|object| self.server.visible(object.slot)).count();
        assert_eq!(snapshot.len(), visible, "as many as the server has");
        check_indexes(&self.server, &snapshot, &self.by_app, &self.by_node);
        self.held.iter().for_each(|held| held.check(&self.by_app));
        self.reflector.stop();
        if let Some(mut conn) = self.open.take() {
            self.deliver_from(&mut conn);
        }
        while let Some(action) = self.reflector.poll_action() {
            assert!(matches!(action, Action::Cancel(_)), "{action:?} after the end");
        }
        assert_eq!((self.reflector.state(), self.reflector.next_deadline()), (State::Stopped, None));
    }
}
