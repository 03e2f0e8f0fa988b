//! One run: server, network, reflector, queue, store and handlers in one thread, driven by one seed in
//! virtual time.

use super::checks::{Cause, HeldSnapshot, Mirror, Pace, check_exact, check_indexes};
use super::faults::{Dice, Fault};
use super::net::{Conn, End, Head, Net};
use super::server::{OBJECT_LIMIT, Server};
use informer_core::reflector::{
    Action, Config, Consistency, Failure, FailureKind, InformerState, Reflector, ReflectorDiagnostic,
    RequestKind, WatchListPolicy, WatchStart,
};
use informer_core::wire::Limits;
use informer_core::{
    BuiltIndex, Delta, DeltaFifo, FifoCapacity, Index, IndexHandle, Moment, ResourceVersion, Retention,
    Scope, StoreReader, StoreWriter, TypeMeta,
};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// Response header timeout of the source.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Duration after which a watch is healthy.
const HEALTHY_AGE: Duration = Duration::from_secs(10);
/// Time within which everything converges after the last fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(3600);

/// What to do with the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Kept,
    Printed,
}

/// Result of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) trace: String,
    pub(crate) hits: Vec<u64>,
    pub(crate) reported: u64,
    pub(crate) rewinds: u64,
    pub(crate) widest: u64,
    /// Time it took to recover.
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
    /// The open request, and the cancelled ones.
    open: Option<Conn>,
    late: Vec<Conn>,
    /// Time of the last input to the reflector; its actions may wait for space in the queue.
    last_input_at: Moment,
    /// When the open stream became a watch.
    watch_since: Option<Moment>,
    /// Number of frames received before the last watch or watch-list was requested.
    frames_before_watch: u64,
    /// Whether the stream before the next request was healthy.
    was_healthy: bool,
    next_bookmark: Moment,
    /// Delta for which the queue had no space.
    blocked: bool,
    /// Branches of the queued deltas, of the last one pushed and of the last one applied.
    branches: VecDeque<usize>,
    pushed_branch: usize,
    applied_branch: usize,
    /// Branch that responds to the newest request.
    request_branch: usize,
    /// Version of the newest delta that was handed over.
    handed_over: Option<ResourceVersion>,
    mirror: Mirror,
    pace: Pace,
    snapshots: Vec<HeldSnapshot>,
    by_app: IndexHandle,
    by_node: IndexHandle,
    building: Option<BuiltIndex>,
    was_synced: bool,
    trace: Trace,
    lines: String,
}

/// Runs one seed to its end. Panics if a check fails.
pub(crate) fn run(seed: u64, trace: Trace) -> Outcome {
    let mut run = Run::new(seed, trace);
    run.reflector.start(run.now);
    run.execute_actions();
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
        reported: run.mirror.reported,
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
        config.audit_period = dice.one_in(3).then(|| Duration::from_secs(60 + 60 * dice.below(10)));
        let (mut writer, reader) = StoreWriter::new([scope.clone()]);
        let known = (!dice.one_in(4)).then(|| reader.clone());
        let by_app = Index::label("app").build().unwrap();
        let by_node = Index::field("spec.nodeName").build().unwrap();
        if dice.one_in(2) {
            writer.add_index(by_app.clone());
        }
        let limits = match dice.below(3) {
            0 => FifoCapacity::new(1 + dice.index(4), 16 << 20),
            1 => FifoCapacity::new(4096, 1 + dice.index(4000)),
            _ => FifoCapacity::default(),
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
            last_input_at: Moment::default(),
            watch_since: None,
            frames_before_watch: 0,
            was_healthy: false,
            next_bookmark: Moment::at(Duration::from_secs(60)),
            blocked: false,
            branches: VecDeque::new(),
            pushed_branch: 0,
            applied_branch: 0,
            request_branch: 0,
            handed_over: None,
            mirror: Mirror::default(),
            pace: Pace::default(),
            snapshots: Vec::new(),
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

    /// Performs one random step.
    fn step(&mut self) {
        match self.dice.below(100) {
            0..22 => self.write(),
            22..52 => (0..=self.dice.below(8)).for_each(|_| self.deliver()),
            52..70 => self.consume(),
            70..90 => self.pass_time(),
            90..93 => self.read_store(),
            93..96 => self.deliver_late(),
            96 => {
                // Between two batches the published state is the sum of all changes so far, so a resync may repeat it.
                self.note(|| "resync".to_owned());
                self.mirror.check_equal(&self.reader.snapshot(), "resync");
            }
            _ => self.compact_or_restore(),
        }
    }

    fn write(&mut self) {
        for _ in 0..=self.dice.below(3) {
            if let Some(line) = self.server.write(&mut self.dice) {
                self.note(|| format!("server: {line}"));
            }
        }
    }

    /// Compacts the history, or restores the server from a backup.
    fn compact_or_restore(&mut self) {
        if self.dice.strikes(Fault::Compacted) {
            self.server.oldest = self.server.older(self.server.oldest, &mut self.dice);
            let oldest = self.server.oldest;
            self.note(|| format!("server: compacted before {oldest}"));
        }
        let jump = self.dice.strikes(Fault::Restored);
        if jump || self.dice.strikes(Fault::Rewound) {
            let position = self.reflector.position().map(|position| self.server.parse(position));
            let line = self.server.restore(jump, position, &mut self.dice);
            self.note(|| format!("server: {line}"));
            self.open.iter_mut().for_each(Conn::reset);
        }
    }

    /// Delivers the next piece of the response: headers, bytes, or the end.
    fn deliver(&mut self) {
        if self.blocked {
            return;
        }
        let Some(mut conn) = self.open.take() else { return };
        self.net.pump(&self.server, &mut self.dice, &mut conn);
        let over = self.deliver_from(&mut conn);
        // Executing the actions may open another request; this one is then over for the reflector, but not
        // for the network.
        let failed = (conn.error_frame && conn.at == conn.bytes.len()).then_some(conn.id);
        self.open = (!over).then_some(conn);
        self.execute_actions();
        let open = self.open.as_ref().map(|conn| conn.id);
        assert!(self.blocked || failed.is_none() || open != failed, "an ERROR frame must end the stream");
    }

    /// Delivers one piece of a connection to the reflector. Returns `true` when nothing more can follow.
    fn deliver_from(&mut self, conn: &mut Conn) -> bool {
        let (id, now) = (conn.id, self.now);
        self.last_input_at = now;
        match std::mem::replace(&mut conn.head, Head::Sent) {
            Head::Refused => {
                self.note(|| format!("{id:?} refused"));
                self.reflector.handle_error(
                    now,
                    id,
                    Failure::new(FailureKind::Connect, "connection refused"),
                );
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
                self.reflector.handle_error(
                    now,
                    id,
                    Failure::new(FailureKind::Interrupted, "connection reset"),
                );
            }
        }
        true
    }

    /// Delivers late bytes of a cancelled request.
    fn deliver_late(&mut self) {
        let Some(mut conn) = self.late.pop().filter(|_| !self.blocked) else { return };
        conn.watches = false;
        for _ in 0..3 {
            if self.deliver_from(&mut conn) {
                break;
            }
        }
        self.execute_actions();
    }

    /// Executes the reflector's actions until the queue has no space.
    fn execute_actions(&mut self) {
        while self.fifo.has_capacity() {
            let Some(delta) = self.reflector.deltas().pop_front() else { break };
            self.push(delta);
        }
        self.blocked = !self.reflector.deltas().is_empty();
        if self.blocked {
            return;
        }
        while let Some(action) = self.reflector.poll_action() {
            match action {
                Action::Cancel(id) => {
                    self.note(|| format!("{id:?} cancelled"));
                    if self.open.as_ref().is_some_and(|conn| conn.id == id) {
                        self.cancel_open();
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
            Delta::Gained(_) | Delta::Released(_) => panic!("not sharded: {delta:?}"),
        };
        self.pushed_branch = self.request_branch;
        if matches!(delta, Delta::Replaced(_)) {
            self.watch_since = Some(self.last_input_at);
            if self.pushed_branch == self.server.branch() {
                self.server.gate = None;
            }
        }
        // A repeated frame does not decrease the position.
        let list = matches!(delta, Delta::Replaced(_));
        let ahead = |version: &ResourceVersion| {
            list || !self.handed_over.as_ref().is_some_and(|known| version.is_before(known))
        };
        if let Some(version) = version.filter(ahead) {
            self.handed_over = Some(version);
        }
        self.branches.push_back(self.pushed_branch);
        self.fifo.push(delta).unwrap();
    }

    fn report(&mut self, report: &ReflectorDiagnostic) {
        self.note(|| format!("report: {report:?}"));
        match report {
            ReflectorDiagnostic::RequestFailed { failure, request: RequestKind::Watch, .. }
                if failure.kind() == FailureKind::Interrupted && self.may_resume_soon() =>
            {
                self.note_health();
                self.pace.interrupted();
            }
            ReflectorDiagnostic::RequestFailed { failure, retry_in, request } if !retry_in.is_zero() => {
                self.note_health();
                let lost = *request == RequestKind::Watch && failure.kind() == FailureKind::Expired;
                assert!(!(self.was_healthy && lost), "C11: a 410 after a healthy watch relists immediately");
                let slow = matches!(failure.kind(), FailureKind::Forbidden | FailureKind::NotServed);
                self.pace.wait(*retry_in, slow);
            }
            ReflectorDiagnostic::ServerRewound { .. } => {
                assert!(self.server.rewinds > 0, "C1: the server was never restored");
            }
            _ => {}
        }
    }

    /// Whether the last watch had received a frame, or had lasted for a second.
    fn may_resume_soon(&self) -> bool {
        let open_for = self.watch_since.map(|since| self.last_input_at - since);
        self.reflector.counters().frames > self.frames_before_watch
            || open_for.is_some_and(|open_for| open_for >= Duration::from_secs(1))
    }

    fn request(&mut self, request: Action) {
        self.note(|| format!("request {request:?}"));
        self.note_health();
        self.cancel_open();
        let position = self.reflector.position();
        let (net, server, dice) = (&mut self.net, &self.server, &mut self.dice);
        let mut conn = match request {
            Action::List(id, request) => {
                match &request.consistency {
                    Consistency::Any => {
                        assert!(position.is_none(), "any version, although a position is known");
                    }
                    Consistency::NotOlderThan(version) | Consistency::Exact(version) => {
                        assert_eq!(Some(version), position);
                    }
                    _ => {}
                }
                if request.continue_token.is_some() {
                    self.pace.page();
                } else {
                    self.pace.request(self.now, Some(&request));
                }
                net.list(server, dice, self.now, id, &request)
            }
            Action::Watch(id, request) => {
                if let WatchStart::After(version) = &request.start {
                    assert_eq!(
                        Some(version),
                        self.handed_over.as_ref(),
                        "a watch starts at the version that was handed over"
                    );
                }
                let watches = matches!(request.start, WatchStart::After(_));
                self.frames_before_watch = self.reflector.counters().frames;
                // Requests wait for space in the queue; the reflector decided at its last input.
                self.pace.watch(self.last_input_at);
                self.pace.request(self.now, None);
                let mut conn = net.watch(server, dice, self.now, id, &request);
                conn.watches = watches;
                conn
            }
            Action::Cancel(_) | Action::Report(_) => unreachable!("no request"),
        };
        self.request_branch = conn.branch;
        if self.dice.quiet && conn.end == End::Silent {
            conn.end = End::Open;
        }
        self.watch_since = None;
        self.was_healthy = false;
        self.open = Some(conn);
    }

    /// Cancels the open request; its bytes may still arrive.
    fn cancel_open(&mut self) {
        if let Some(mut conn) = self.open.take().filter(|_| self.dice.strikes(Fault::Late)) {
            self.net.pump(&self.server, &mut self.dice, &mut conn);
            self.late.push(conn);
        }
        self.note_health();
    }

    /// Records whether the open stream was healthy.
    fn note_health(&mut self) {
        if self.watch_since.take().is_some_and(|since| self.last_input_at - since >= HEALTHY_AGE) {
            self.pace.healthy();
            self.was_healthy = true;
        }
    }

    /// Takes a batch out of the queue and applies it.
    fn consume(&mut self) {
        let max_deltas = 1 + self.dice.index(8);
        if let Some(mut batch) = self.fifo.pop(max_deltas) {
            assert_eq!(
                batch.initial, !self.was_synced,
                "batches are initial until the first list is applied"
            );
            let list = matches!(batch.deltas[..], [Delta::Replaced(_)]);
            let branch = self.branches.drain(..batch.deltas.len()).next_back().unwrap();
            let cause = Cause { list, other_branch: branch != self.applied_branch };
            let deltas = std::mem::take(&mut batch.deltas);
            self.note(|| format!("apply {deltas:?}"));
            let applied = self.writer.apply(&self.scope, deltas);
            self.fifo.record_applied(batch.end());
            self.applied_branch = branch;
            self.was_synced |= list;
            assert_eq!(self.fifo.has_synced(), self.was_synced);
            for change in &applied.changes {
                self.note(|| format!("  reported {change:?}"));
            }
            self.mirror.fold(&self.server, &applied, cause);
            assert!(!applied.server_rewound || cause.other_branch, "C1: rewound without a restore");
            let snapshot = self.reader.snapshot();
            self.mirror.check_equal(&snapshot, "after a batch");
            check_exact(&self.server, branch, &snapshot);
            self.writer.check_invariants();
        }
        self.execute_actions();
    }

    /// Reads the store, takes snapshots, and adds indexes.
    fn read_store(&mut self) {
        match self.dice.below(4) {
            0 => {
                self.snapshots.truncate(2);
                self.snapshots.push(HeldSnapshot::take(&self.reader, &self.by_app));
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
        self.snapshots.iter().for_each(|snapshots| snapshots.check(&self.by_app));
    }

    /// When the next timer fires.
    fn next_timer(&self) -> Moment {
        let headers = self
            .open
            .as_ref()
            .filter(|conn| !matches!(conn.head, Head::Sent))
            .map(|conn| conn.sent + HEADER_TIMEOUT);
        let ends = self.open.as_ref().and_then(Conn::ends);
        let deadline = self.reflector.next_deadline().filter(|_| !self.blocked);
        [headers, ends, deadline].into_iter().flatten().fold(self.next_bookmark, Moment::min)
    }

    fn pass_time(&mut self) {
        let wanted = match self.dice.below(4) {
            0 => Duration::from_millis(self.dice.below(500)),
            1 => Duration::from_millis(self.dice.below(20_000)),
            _ => Duration::from_secs(3600),
        };
        let late = Duration::from_millis(if self.dice.one_in(4) { self.dice.below(100) } else { 0 });
        let until = (self.now + wanted).min(self.next_timer() + late);
        self.pass_until(until);
    }

    /// Advances the clock and fires due timers.
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
        if self.blocked {
            return;
        }
        let headers_late =
            |conn: &Conn| !matches!(conn.head, Head::Sent) && conn.sent + HEADER_TIMEOUT <= now;
        if let Some(conn) = self.open.take_if(|conn| headers_late(conn)) {
            let id = conn.id;
            self.last_input_at = now;
            self.note(|| format!("{id:?} no headers"));
            self.reflector.handle_error(now, id, Failure::new(FailureKind::Timeout, "no headers in time"));
        }
        self.last_input_at = now;
        self.reflector.handle_timeout(now);
        self.execute_actions();
    }

    fn check_position(&self) {
        assert_eq!(
            self.reflector.position(),
            self.handed_over.as_ref(),
            "the position is the version that was handed over"
        );
    }

    /// Checks invariants between two steps.
    fn check(&self) {
        self.reflector.check_invariants();
        self.fifo.check_invariants();
        if !self.blocked {
            let deadline = self.reflector.next_deadline();
            match &self.open {
                None => assert!(deadline.is_some(), "no open request and no deadline"),
                Some(conn) if matches!(conn.head, Head::Sent) => {
                    assert!(deadline.is_some(), "a silent stream without a deadline");
                }
                Some(_) => {} // the source has a timeout
            }
        }
    }

    /// Ends all faults: the cache must converge to the server and report it, then follow changes again.
    fn recover(&mut self) -> Duration {
        self.note(|| "--- faults ended".to_owned());
        self.dice.quiet = true;
        self.net.end_faults();
        let began = self.now;
        self.converge();
        let took = self.now - began;
        self.server.heal(&mut self.dice);
        self.write();
        self.converge();
        took
    }

    fn converge(&mut self) {
        let deadline = self.now + RECOVERY_TIMEOUT;
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
            if self.is_converged() {
                return;
            }
            assert!(self.now < deadline, "not recovered after {RECOVERY_TIMEOUT:?}: {}", self.divergence());
            self.pass_until(self.next_timer());
        }
    }

    /// Whether the reflector is live and up to date.
    fn is_converged(&self) -> bool {
        let snapshot = self.reader.snapshot();
        let newest = snapshot.resource_version().is_some_and(|version| {
            let version = self.server.parse(version);
            // Without bookmarks the reflector does not learn how far other kinds advanced the version.
            let nothing_newer = !self.net.bookmarks && self.server.events_after(version).next().is_none();
            version == self.server.version || (version < self.server.version && nothing_newer)
        });
        newest && self.reflector.state() == InformerState::Live && self.applied_branch == self.server.branch()
    }

    fn divergence(&self) -> String {
        let snapshot = self.reader.snapshot();
        format!(
            "reflector {}, cache {snapshot:?}, server at {}, branches {} and {}",
            self.reflector.state(),
            self.server.version,
            self.applied_branch,
            self.server.branch()
        )
    }

    /// Checks that the cache equals the server, and that no action follows a stop.
    fn finish(&mut self) {
        let snapshot = self.reader.snapshot();
        check_exact(&self.server, self.server.branch(), &snapshot);
        let visible =
            self.server.state().iter().flatten().filter(|object| self.server.visible(object.slot)).count();
        assert_eq!(snapshot.len(), visible, "number of objects");
        check_indexes(&self.server, &snapshot, &self.by_app, &self.by_node);
        self.snapshots.iter().for_each(|snapshots| snapshots.check(&self.by_app));
        self.reflector.stop();
        if let Some(mut conn) = self.open.take() {
            self.deliver_from(&mut conn);
        }
        assert!(self.reflector.deltas().is_empty(), "deltas after the stop");
        while let Some(action) = self.reflector.poll_action() {
            assert!(matches!(action, Action::Cancel(_)), "{action:?} after the stop");
        }
        assert_eq!((self.reflector.state(), self.reflector.next_deadline()), (InformerState::Stopped, None));
    }
}
