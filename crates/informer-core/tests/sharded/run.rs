//! One run: server, network, reflector, queue and store in one thread, driven by one seed in virtual time.

use super::checks::{Mirror, check_held, check_version, find_difference};
use super::dice::{Dice, Fault};
use super::net::{Conn, End, Net};
use super::selection::{ALL, Buckets, Selector, buckets, ranges};
use super::server::Server;
use informer_core::reflector::{
    Action, Config, Failure, FailureKind, InformerState, ShardedReflector, WatchListPolicy, WatchStart,
};
use informer_core::shard::{HashRanges, ShardFilter, ShardProperty};
use informer_core::{Delta, DeltaFifo, Moment, Scope, StoreReader, StoreWriter, TypeMeta};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

/// Time within which everything converges after the last fault.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(3600);
/// The longest delay of a stream in seeds without faults: silence must not look like one.
const MAX_CALM_DELAY: Duration = Duration::from_secs(4);

/// What to do with the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Kept,
    Printed,
}

/// Result of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) trace: String,
    pub(crate) hits: Vec<u64>,
    pub(crate) reported: u64,
    /// Number of gained lists that were applied.
    pub(crate) gained: u64,
    /// Number of releases that were applied.
    pub(crate) released: u64,
    /// Number of objects of other ranges that were dropped.
    pub(crate) foreign: u64,
    pub(crate) recovery: Duration,
}

/// What is known about a queued delta: it is the last one for now, and then these ranges are held and complete.
type Mark = Option<(Buckets, Buckets)>;

pub(crate) struct Run {
    now: Moment,
    dice: Dice,
    server: Server,
    net: Net,
    by: ShardProperty,
    /// Without faults, so that nothing may be listed twice.
    is_calm: bool,
    reflector: ShardedReflector,
    fifo: DeltaFifo,
    marks: VecDeque<Mark>,
    writer: StoreWriter,
    reader: StoreReader,
    open: Vec<Conn>,
    next_bookmark: Moment,
    held: Buckets,
    /// Ranges of which a list was requested since they are held.
    requested: Buckets,
    mirror: Mirror,
    trace: Trace,
    outcome: Outcome,
}

/// Runs one seed to its end. Panics if a check fails.
pub(crate) fn run(seed: u64, trace: Trace) -> Outcome {
    let mut run = Run::new(seed, trace);
    run.reflector.start(run.now);
    run.execute();
    for _ in 0..run.dice.between(80, 250) {
        run.step();
        run.check();
    }
    run.recover();
    run.stop();
    let Run { mut outcome, dice, mirror, reflector, .. } = run;
    outcome.hits = dice.hits.to_vec();
    outcome.reported = mirror.reported;
    outcome.foreign = reflector.counters().foreign;
    outcome
}

impl Run {
    fn new(seed: u64, trace: Trace) -> Self {
        let is_calm = seed.is_multiple_of(4);
        let mut dice = Dice::new(seed, is_calm);
        let by = [ShardProperty::Uid, ShardProperty::Namespace, ShardProperty::ControllerUid][dice.index(3)];
        let mut config = Config::new(TypeMeta::new("v1", "Pod"), Scope::All);
        config.shard = Some(ShardFilter::new(by, HashRanges::default()));
        config.page_size = dice.one_in(3).then(|| 1 + u32::try_from(dice.below(4)).unwrap());
        config.watch_list = if dice.one_in(2) { WatchListPolicy::Never } else { WatchListPolicy::Auto };
        config.watch_timeout = Duration::from_secs(if dice.one_in(3) { 30 } else { 300 });
        let has_audits = dice.one_in(3) && !is_calm;
        config.audit_period = has_audits.then(|| Duration::from_secs(60 + 60 * dice.below(5)));
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let known = (!dice.one_in(4)).then(|| reader.clone());
        let mut server = Server::new(&mut dice);
        for _ in 0..dice.below(30) {
            server.write(&mut dice);
        }
        Self {
            now: Moment::default(),
            net: Net::new(&mut dice, is_calm),
            by,
            is_calm,
            reflector: ShardedReflector::new(config, seed, known),
            fifo: DeltaFifo::default(),
            marks: VecDeque::new(),
            writer: writer.sharded(),
            reader,
            open: Vec::new(),
            next_bookmark: Moment::at(Duration::from_secs(50)),
            held: 0,
            requested: 0,
            mirror: Mirror::default(),
            trace,
            outcome: Outcome::default(),
            dice,
            server,
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let at = self.now.since_origin().as_secs_f64();
        match self.trace {
            Trace::Off => {}
            Trace::Kept => drop(writeln!(self.outcome.trace, "{at:10.3} {}", line())),
            Trace::Printed => println!("{at:10.3} {}", line()),
        }
    }

    /// Performs one random step.
    fn step(&mut self) {
        match self.dice.below(100) {
            0..22 => (0..=self.dice.below(3)).for_each(|_| self.write()),
            22..54 => (0..=self.dice.below(8)).for_each(|_| self.deliver_any()),
            54..70 => self.consume(),
            70..88 => self.pass_time(),
            88..96 => {
                // A list of gained ranges may be newer than what the watch has brought.
                let writes = if self.dice.one_in(2) { self.dice.below(8) } else { 0 };
                (0..writes).for_each(|_| self.write());
                let held = self.next_ranges();
                self.set_ranges(held);
            }
            96 => {
                self.net.is_sharding ^= true;
                let is_sharding = self.net.is_sharding;
                self.note(|| format!("server: honours selectors: {is_sharding}"));
            }
            _ if self.dice.strikes(Fault::Compacted) => {
                self.server.compact(&mut self.dice);
                let oldest = self.server.oldest;
                self.note(|| format!("server: compacted before {oldest}"));
            }
            _ => {}
        }
    }

    fn write(&mut self) {
        let line = self.server.write(&mut self.dice);
        self.note(|| format!("server: {line}"));
    }

    fn next_ranges(&mut self) -> Buckets {
        let held = self.held;
        let some = |dice: &mut Dice| Buckets::try_from(dice.below(1 << 16)).unwrap();
        match self.dice.below(12) {
            0 => 0,
            1 => ALL,
            2 => held,
            3 => !held,
            // Half of each range, and what follows it.
            4 => held.rotate_left(1),
            5 | 6 => held & some(&mut self.dice),
            7 | 8 => held | (some(&mut self.dice) & some(&mut self.dice)),
            9 => held ^ (1 << self.dice.below(16)),
            _ => some(&mut self.dice),
        }
    }

    fn set_ranges(&mut self, held: Buckets) {
        let is_settled = self.dice.is_quiet || self.dice.one_in(3);
        self.note(|| format!("held: {held:016b}, settled: {is_settled}"));
        self.held = held;
        self.requested &= held;
        self.reflector.set_ranges(self.now, &ranges(held), is_settled);
        self.execute();
    }

    /// Delivers a piece of a random response.
    fn deliver_any(&mut self) {
        if !self.open.is_empty() {
            let index = self.dice.index(self.open.len());
            self.deliver(index);
        }
    }

    /// Delivers the next piece of a response: headers, bytes, or the end. Returns whether there was one.
    fn deliver(&mut self, index: usize) -> bool {
        let now = self.now;
        let conn = &mut self.open[index];
        Net::pump(&self.server, &mut self.dice, conn);
        let id = conn.id;
        if let Some(head) = conn.head.take() {
            self.note(|| format!("{id:?} headers {}", head.status));
            self.reflector.handle_response(now, id, head);
        } else if conn.at < conn.bytes.len() {
            let left = conn.bytes.len() - conn.at;
            let size = match self.dice.below(3) {
                0 => 1 + self.dice.index(left.min(60)),
                1 => 1 + self.dice.index(left),
                _ => left,
            };
            let chunk = conn.bytes[conn.at..conn.at + size].to_vec();
            conn.at += size;
            conn.idle_since = if conn.is_pending() { conn.idle_since } else { now };
            self.note(|| format!("{id:?} {size} bytes: {}", String::from_utf8_lossy(&chunk)));
            self.reflector.handle_bytes(now, id, &chunk);
        } else {
            let end = conn.end;
            if matches!(end, End::Open | End::Silent) {
                return false;
            }
            self.open.remove(index);
            self.note(|| format!("{id:?} ends: {end:?}"));
            if end == End::Clean {
                self.reflector.handle_end(now, id);
            } else {
                self.reflector.handle_error(now, id, Failure::new(FailureKind::Interrupted, "reset"));
            }
        }
        self.execute();
        true
    }

    /// Takes the output of the reflector.
    fn execute(&mut self) {
        let deltas: Vec<Delta> = self.reflector.deltas().drain(..).collect();
        let complete = self.reflector.complete_ranges().map(|ranges| buckets(&ranges)).unwrap();
        assert_eq!(complete & !self.held, 0, "complete, but not held");
        for delta in deltas {
            if let Delta::Released(filter) = &delta {
                assert_eq!(buckets(filter.ranges()) & self.held, 0, "released, but held");
            }
            self.note(|| format!("  queued {delta:?}"));
            self.fifo.push(delta).unwrap();
            self.marks.push_back(None);
        }
        if let Some(last) = self.marks.back_mut() {
            // Ranges without objects may become complete or be released later, without a delta.
            *last = Some((self.held, complete));
        }
        while let Some(action) = self.reflector.poll_action() {
            match action {
                Action::Cancel(id) => {
                    self.note(|| format!("{id:?} cancelled"));
                    self.open.retain(|conn| conn.id != id);
                }
                Action::List(id, request) => {
                    self.note(|| format!("{id:?} list {:?}", request.query()));
                    if !request.version_only && request.continue_token.is_none() {
                        self.record_list_request(request.shard_selector.as_deref());
                    }
                    let conn = self.net.list(&self.server, &mut self.dice, self.now, id, &request);
                    self.open.push(conn);
                }
                Action::Watch(id, request) => {
                    self.note(|| format!("{id:?} watch {:?}", request.query()));
                    if matches!(request.start, WatchStart::InitialEvents(_)) {
                        self.record_list_request(request.shard_selector.as_deref());
                    }
                    let conn = self.net.watch(&self.server, &mut self.dice, self.now, id, &request);
                    self.open.push(conn);
                }
                Action::Report(report) => self.note(|| format!("reported: {report:?}")),
            }
            assert!(self.open.len() <= 2, "more than two streams: {:?}", self.open);
        }
    }

    /// Without faults, a range is listed once while it stays held.
    fn record_list_request(&mut self, selector: Option<&str>) {
        // Servers do not filter by owners.
        if self.by == ShardProperty::ControllerUid {
            return assert_eq!(selector, None);
        }
        let listed = selector.map_or(ALL, |selector| {
            let Selector { property, buckets } = Selector::parse(selector);
            assert_eq!(property, self.by);
            buckets
        });
        assert_eq!(listed & !self.held, 0, "listed, but not held");
        let repeated = listed & self.requested;
        assert!(!self.is_calm || repeated == 0, "{repeated:016b} is listed again");
        self.requested |= listed;
    }

    /// Takes a batch out of the queue and applies it.
    fn consume(&mut self) {
        let max_deltas = 1 + self.dice.index(8);
        let Some(mut batch) = self.fifo.pop(max_deltas) else { return };
        let deltas = std::mem::take(&mut batch.deltas);
        self.note(|| format!("apply {deltas:?}"));
        let released = match &deltas[..] {
            [Delta::Released(filter)] => Some(buckets(filter.ranges())),
            _ => None,
        };
        self.outcome.gained += u64::from(matches!(deltas[..], [Delta::Gained(_)]));
        self.outcome.released += u64::from(released.is_some());
        let mark = self.marks.drain(..deltas.len()).next_back().flatten();
        let applied = self.writer.apply(&Scope::All, deltas);
        self.fifo.record_applied(batch.end());
        for change in &applied.changes {
            self.note(|| format!("  changed {change:?}"));
        }
        assert!(!applied.server_rewound, "C1: rewound without a restore");
        assert_eq!(applied.drift, 0, "an audit found drift");
        self.mirror.fold(&self.server, self.by, &applied.changes, released);
        self.writer.check_invariants();
        let snapshot = self.reader.snapshot();
        self.mirror.check_equal(&snapshot);
        if let Some((held, complete)) = mark {
            check_held(&self.server, self.by, &snapshot, held);
            check_version(&self.server, self.by, &snapshot, complete);
        }
    }

    fn next_timer(&self) -> Moment {
        let ends = self.open.iter().filter_map(Conn::ends);
        ends.chain(self.reflector.next_deadline()).fold(self.next_bookmark, Moment::min)
    }

    fn pass_time(&mut self) {
        let wanted = match self.dice.below(4) {
            0 => Duration::from_millis(self.dice.below(500)),
            1 => Duration::from_millis(self.dice.below(20_000)),
            _ => Duration::from_secs(3600),
        };
        let wanted = if self.is_calm { wanted.min(MAX_CALM_DELAY) } else { wanted };
        self.pass_until((self.now + wanted).min(self.next_timer()));
        while self.is_calm {
            let limit = self.now;
            let is_late = |conn: &Conn| conn.is_pending() && conn.idle_since + MAX_CALM_DELAY <= limit;
            let Some(index) = self.open.iter().position(is_late) else { break };
            self.deliver(index);
        }
    }

    /// Advances the clock and fires due timers.
    fn pass_until(&mut self, until: Moment) {
        self.now = self.now.max(until);
        let now = self.now;
        if self.next_bookmark <= now {
            self.next_bookmark = now + Duration::from_millis(45_000 + self.dice.below(20_000));
            for conn in &mut self.open {
                self.net.bookmark(&self.server, &mut self.dice, conn);
            }
        }
        for conn in self.open.iter_mut().filter(|conn| conn.ends().is_some_and(|ends| ends <= now)) {
            Net::pump(&self.server, &mut self.dice, conn);
            conn.end = if conn.end == End::Open { End::Clean } else { conn.end };
        }
        self.reflector.handle_timeout(now);
        self.execute();
    }

    /// Checks invariants between two steps.
    fn check(&mut self) {
        self.reflector.check_invariants();
        self.fifo.check_invariants();
        if self.fifo.is_empty() {
            check_held(&self.server, self.by, &self.reader.snapshot(), self.held);
        }
        let relists = self.reflector.counters().relists;
        let repeated = relists.by_reason().iter().map(|(_, count)| count).sum::<u64>() - relists.initial;
        assert!(!self.is_calm || repeated == 0, "relists without faults: {relists:?}");
        let is_idle = self.open.is_empty() && self.reflector.next_deadline().is_none();
        assert!(self.held == 0 || !is_idle, "no open request and no deadline");
    }

    /// Ends all faults: the store must converge to the server, then follow its changes and those of the ranges.
    fn recover(&mut self) {
        self.note(|| "--- faults ended".to_owned());
        self.dice.is_quiet = true;
        let began = self.now;
        // No further ranges are expected.
        self.set_ranges(self.held);
        self.converge();
        self.outcome.recovery = self.now - began;
        self.server.heal();
        self.converge();
        for _ in 0..3 {
            (0..4).for_each(|_| self.write());
            let held = self.next_ranges();
            self.set_ranges(held);
            self.converge();
        }
    }

    fn converge(&mut self) {
        let deadline = self.now + RECOVERY_TIMEOUT;
        loop {
            let mut progresses = true;
            while progresses {
                progresses = (0..self.open.len()).any(|index| self.deliver(index));
                while !self.fifo.is_empty() {
                    self.consume();
                }
                self.check();
            }
            let snapshot = self.reader.snapshot();
            let difference = find_difference(&self.server, self.by, &snapshot, self.held);
            let complete = self.reflector.complete_ranges().map(|ranges| buckets(&ranges));
            let state = self.reflector.state();
            if difference.is_none() && complete == Some(self.held) && state == InformerState::Live
                || (self.held == 0 && snapshot.is_empty() && snapshot.has_synced())
            {
                return;
            }
            let held = self.held;
            assert!(
                self.now < deadline,
                "not recovered after {RECOVERY_TIMEOUT:?}: {difference:?}, {state}, {complete:?} of {held:016b}"
            );
            self.pass_until(self.next_timer());
        }
    }

    /// Checks that nothing follows a stop.
    fn stop(&mut self) {
        self.reflector.stop();
        while let Some(action) = self.reflector.poll_action() {
            assert!(matches!(action, Action::Cancel(_)), "{action:?} after the stop");
        }
        self.reflector.set_ranges(self.now, &ranges(ALL), true);
        assert!(self.reflector.deltas().is_empty() && self.reflector.poll_action().is_none());
        assert_eq!((self.reflector.state(), self.reflector.next_deadline()), (InformerState::Stopped, None));
    }
}
