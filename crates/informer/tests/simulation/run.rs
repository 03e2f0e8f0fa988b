//! One seed: a server, informers, a writer and a fault schedule, on one thread in virtual time.
//!
//! All randomness comes from the seed, and one task does everything outside of the library, so a run is
//! reproducible.

use std::collections::BTreeMap;
use std::time::Duration;

use informer::source::WatchListPolicy;
use informer::status::InformerState;
use informer::{InformerOptions, Selection, SharedInformerFactory};
use informer_apiserver::ApiServer;
use informer_core::random::Random;
use k8s_openapi::api::core::v1::Pod;

use crate::checks::{self, Sampled};
use crate::fault_schedule::FaultSchedule;
use crate::handlers::{Attachment, Informer, Kind, RESYNC_PERIOD, TestHandler, test_informer};
use crate::log::{Log, Network, Trace};
use crate::oracle::{Oracle, State, View};

/// A rewind may be detected only by the missing bookmarks: after twice the longest watch, with a margin.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(3000);
/// Requests that were active during a rewind have ended after this time.
const MAX_REQUEST_AGE: Duration = Duration::from_secs(150);

/// Result of a run.
#[derive(Default)]
pub(crate) struct RunResult {
    pub(crate) trace: String,
    pub(crate) delivered: u64,
    pub(crate) rewinds: u64,
    pub(crate) hits: BTreeMap<String, u64>,
    /// Time from the end of all faults until all caches had converged.
    pub(crate) recovery: Duration,
    /// Highest number of requests of one reflector per minute.
    pub(crate) busiest: usize,
    /// Number of samples that were checked.
    pub(crate) samples: u64,
}

pub(crate) fn run(seed: u64, trace: Trace) -> RunResult {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let done = runtime.block_on(async {
        let mut run = Run::new(seed, trace);
        run.run_with_faults().await;
        run.run_without_faults().await;
        run.end().await
    });
    // C10: no task is left.
    assert_eq!(runtime.metrics().num_alive_tasks(), 0, "C10: tasks were left behind");
    done
}

/// Settings of a run.
struct Plan {
    /// No faults.
    fault_free: bool,
    /// Frames may be dropped silently, and audits must find that.
    drops: bool,
    restores: bool,
    ticks: u64,
}

struct Run {
    plan: Plan,
    random: Random,
    log: Log,
    oracle: Oracle,
    fault_schedule: FaultSchedule,
    factory: Option<SharedInformerFactory>,
    informers: Vec<Informer>,
    handlers: Vec<TestHandler>,
    sampled: Sampled,
    /// Time of a rewind. Nothing is written until all informers have detected it: no informer could
    /// distinguish the same versions of two histories.
    rewound_at: Option<Duration>,
    done: RunResult,
}

impl Run {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut random = Random::new(seed ^ 0x1f0a_11fe);
        let (random, log) = (&mut random, Log::new(trace));
        let fault_free = seed.is_multiple_of(10);
        let plan = Plan {
            fault_free,
            drops: !fault_free && random.below(8) == 0,
            restores: !fault_free && random.below(4) == 0,
            ticks: 15 + random.below(45),
        };
        let server = ApiServer::builder().seed(seed);
        let small = !fault_free && random.below(3) == 0;
        let server =
            if small { server.history_limit(3 + usize::try_from(random.below(30)).unwrap()) } else { server };
        let server = server.build();
        let network = Network { server: server.service(), log: log.clone() };
        let factory = SharedInformerFactory::with_options(
            kube::Client::new(network, "default"),
            options(seed, &plan, random),
        );
        let mut run = Self {
            fault_schedule: FaultSchedule::new(seed, fault_free, plan.drops, random),
            oracle: Oracle::new(server, log.clone()),
            informers: informers(&factory, random),
            factory: Some(factory),
            handlers: Vec::new(),
            sampled: Sampled::default(),
            rewound_at: None,
            done: RunResult::default(),
            random: random.clone(),
            plan,
            log,
        };
        for _ in 0..run.random.below(12) {
            run.oracle.write(&mut run.random);
        }
        for informer in 0..run.informers.len() {
            for _ in 0..=run.random.below(3) {
                run.add_handler(informer);
            }
        }
        run
    }

    /// Runs with faults, writes, and handlers that are added and removed.
    async fn run_with_faults(&mut self) {
        let factory = self.factory.clone().unwrap();
        // The initial list may be requested with or without active faults.
        let start = if self.random.below(3) == 0 { 0 } else { self.random.below(10) };
        let mut waiting = None;
        for tick in 0..self.plan.ticks {
            if tick == start {
                self.log.note("start");
                factory.start();
                let factory = factory.clone();
                let wait = async move { factory.wait_for_sync(Duration::from_secs(60)).await };
                waiting = Some(tokio::spawn(wait));
            }
            let pause = if self.random.below(4) == 0 { 0 } else { self.random.below(3_000) };
            super::advance_time(Duration::from_millis(pause)).await;
            self.fault_schedule.tick(&self.oracle.server, &self.log, &mut self.random);
            self.tick().await;
        }
        let waiting = waiting.unwrap();
        self.fault_schedule.end(&self.log);
        if !waiting.is_finished() {
            super::advance_time(Duration::from_secs(60)).await;
        }
        checks::c7_sync::waited(waiting.await.unwrap(), self.plan.fault_free);
    }

    async fn tick(&mut self) {
        match self.random.below(40) {
            0 if self.handlers.len() < 12 => {
                let informer = self.pick(self.informers.len());
                self.add_handler(informer);
            }
            1 => self.remove_handler().await,
            2 if !self.plan.fault_free => {
                self.log.note("server: compacted");
                self.oracle.server.compact();
            }
            3 if !self.plan.fault_free => {
                self.log.note("server: restarted");
                self.oracle.server.restart();
            }
            4 | 5 if self.plan.restores => self.oracle.back_up(),
            6 if self.plan.restores && self.may_write() && self.oracle.restore() => {
                self.rewound_at = Some(self.log.now());
            }
            7..=11 => self.sample(),
            _ if self.may_write() => self.oracle.write(&mut self.random),
            _ => {}
        }
    }

    /// Whether all informers can distinguish a write from one of an earlier history.
    fn may_write(&mut self) -> bool {
        let Some(since) = self.rewound_at else { return true };
        if self.log.now() > since + MAX_REQUEST_AGE && self.no_informer_is_ahead() {
            self.rewound_at = None;
        }
        self.rewound_at.is_none()
    }

    /// Whether no informer is ahead of the server.
    fn no_informer_is_ahead(&self) -> bool {
        let now = self.oracle.server.resource_version();
        let number = |version: &informer::ResourceVersion| version.as_str().parse::<u64>().unwrap();
        let behind = |informer: &Informer| {
            (informer.status)()
                .scopes
                .iter()
                .filter_map(|scope| scope.resource_version.as_ref())
                .all(|v| number(v) <= now)
        };
        self.informers.iter().all(behind)
    }

    fn sample(&mut self) {
        let exact = !self.plan.drops;
        self.sampled.sample(&self.oracle, &self.informers, &self.handlers, exact);
        if self.random.below(4) == 0 {
            let informer = self.pick(self.informers.len());
            self.sampled.snapshot(&self.informers[informer]);
        }
    }

    /// Runs without faults and writes: all caches must converge and stay converged.
    async fn run_without_faults(&mut self) {
        self.log.note("faults ended");
        // Writes that cancel each other out may not have been received yet.
        super::advance_time(Duration::from_secs(5)).await;
        self.done.recovery = self.recover("the last fault").await;
        self.sample();
        self.log.note("converged");
        self.rewound_at = None;
        let before: Vec<usize> =
            self.handlers.iter().map(|handler| handler.record().delivered.len()).collect();
        super::advance_time(2 * RESYNC_PERIOD + Duration::from_secs(2)).await;
        checks::c12_resync::idle_periods(&self.handlers, &before);
        self.check_late_handlers().await;
        for _ in 0..5 {
            self.oracle.write(&mut self.random);
        }
        // A connection may have been dead all the time, which shows only now.
        self.recover("the last write").await;
    }

    /// Waits until all caches have converged and returns the time it took.
    async fn recover(&self, since: &str) -> Duration {
        let began = self.log.now();
        while !self.is_converged() {
            if self.log.now() > began + RECOVERY_TIMEOUT {
                self.explain();
                panic!("C2: not converged {RECOVERY_TIMEOUT:?} after {since}");
            }
            super::advance_time(Duration::from_secs(2)).await;
        }
        self.log.now().saturating_sub(began)
    }

    /// C6: without changes, a new handler receives the initial list and nothing else; after its removal,
    /// nothing.
    async fn check_late_handlers(&mut self) {
        for number in 0..self.informers.len() {
            self.add_handler(number);
            let mut handler = self.handlers.pop().unwrap();
            super::advance_time(Duration::from_secs(30)).await;
            let informer = &self.informers[number];
            checks::c6_late::initial(&handler, &(informer.list)());
            handler.remove().await;
            self.handlers.push(handler);
        }
    }

    /// Shuts everything down and checks all delivered events.
    async fn end(mut self) -> RunResult {
        let factory = self.factory.take().unwrap();
        factory.shutdown(Duration::from_secs(60)).await.expect("C10: shutdown must not time out");
        assert_eq!(self.oracle.server.open_watches(), 0, "C10: watches were left open");
        let delivered: Vec<usize> =
            self.handlers.iter().map(|handler| handler.record().delivered.len()).collect();
        self.oracle.write(&mut self.random);
        super::advance_time(Duration::from_secs(300)).await;
        for (handler, before) in self.handlers.iter_mut().zip(delivered) {
            match &handler.attachment {
                // A stream still returns events received before the shutdown, then it ends.
                Attachment::Stream { task, .. } => {
                    assert!(task.is_finished(), "C10: {} has not ended", handler.name);
                }
                _ => {
                    assert_eq!(handler.delivered(), before, "C10: {} was called after the end", handler.name);
                }
            }
            handler.attachment = Attachment::Removed;
        }
        self.sampled.check_snapshots();
        let requests = self.log.requests();
        self.done.busiest = checks::c11_citizen::request_rate(&requests);
        checks::c11_citizen::retry_after(&requests);
        for handler in &self.handlers {
            let informer = &self.informers[handler.informer];
            checks::all(&self.oracle, informer, handler, self.plan.fault_free);
            self.done.delivered += handler.record().delivered.len() as u64;
        }
        let rewinds = self.informers.iter().map(|informer| (informer.status)().cache.rewinds);
        self.done.rewinds = rewinds.sum();
        self.done.samples = self.sampled.samples;
        self.done.hits = std::mem::take(&mut self.fault_schedule.hits);
        self.done.trace = self.log.take_text();
        // Handles are dropped first, then their tasks have time to end.
        let Self { done, handlers, informers, oracle, .. } = self;
        drop((handlers, informers, factory, oracle));
        super::advance_time(Duration::from_secs(1)).await;
        done
    }

    fn is_converged(&self) -> bool {
        let live = |informer: &Informer| {
            (informer.status)().state == InformerState::Live
                && (informer.list)() == self.oracle.objects_in(&informer.view)
        };
        self.no_informer_is_ahead()
            && self.informers.iter().all(live)
            && self.handlers.iter().all(|handler| self.is_up_to_date(handler))
    }

    fn is_up_to_date(&self, handler: &TestHandler) -> bool {
        let mut expected = self.oracle.objects_in(&self.informers[handler.informer].view);
        expected.retain(|state| handler.selects(state));
        matches!(handler.attachment, Attachment::Removed)
            || (handler.is_synced() && handler.known_objects() == expected)
    }

    /// Prints what has not converged.
    fn explain(&self) {
        println!("the server is at {}", self.oracle.server.resource_version());
        let show = |states: Vec<State>| -> Vec<String> { states.iter().map(ToString::to_string).collect() };
        for informer in &self.informers {
            let status = (informer.status)();
            println!("{}: {}", informer.name, status.state);
            for scope in &status.scopes {
                println!("  {:?}: {} at {:?}", scope.scope, scope.state, scope.resource_version);
            }
            println!("  has    {:?}", show((informer.list)()));
            println!("  expected {:?}", show(self.oracle.objects_in(&informer.view)));
        }
        for handler in self.handlers.iter().filter(|handler| !self.is_up_to_date(handler)) {
            let (synced, pending) = (handler.is_synced(), handler.pending());
            println!(
                "{}: synced {synced}, {pending} pending: {:?}",
                handler.name,
                show(handler.known_objects())
            );
        }
    }

    fn add_handler(&mut self, informer: usize) {
        const KINDS: [Kind; 6] =
            [Kind::Coalesced, Kind::Uncoalesced, Kind::Filtered, Kind::Resynced, Kind::Panicking, Kind::Slow];
        let kind = KINDS[self.pick(KINDS.len())];
        let name = format!("{}-{}-{kind:?}", self.informers[informer].name, self.handlers.len());
        self.log.note(format_args!("{name} added"));
        let handler = (self.informers[informer].add)(&name, kind, &self.log);
        self.handlers.push(TestHandler { informer, ..handler });
    }

    async fn remove_handler(&mut self) {
        let index = self.pick(self.handlers.len());
        let Some(handler) = self.handlers.get_mut(index) else { return };
        if handler.remove().await {
            self.log.note(format_args!("{} removed", handler.name));
        }
    }

    fn pick(&mut self, among: usize) -> usize {
        usize::try_from(self.random.below(among as u64)).unwrap()
    }
}

fn options(seed: u64, plan: &Plan, random: &mut Random) -> InformerOptions {
    let mut options = InformerOptions::default().jitter_seed(seed).prefer_protobuf(seed.is_multiple_of(2));
    if random.below(3) == 0 {
        options = options.watch_list(WatchListPolicy::Never);
    }
    if random.below(3) == 0 {
        options = options.page_size(1 + u32::try_from(random.below(6)).unwrap());
    }
    if plan.drops {
        options = options.audit_period(Duration::from_secs(60));
    }
    options
}

fn informers(factory: &SharedInformerFactory, random: &mut Random) -> Vec<Informer> {
    let mut informers = vec![test_informer("all", &factory.informer::<Pod>(), View::default())];
    if random.below(2) == 0 {
        let web = factory.select(Selection::default().label_selector("app=web".parse().unwrap()));
        let view = View { app: Some("web"), ..View::default() };
        informers.push(test_informer("web", &web.informer::<Pod>(), view));
    }
    if random.below(2) == 0 {
        let some = factory.select(Selection::default().namespaces(["a", "b"]));
        let view = View { namespaces: vec!["a", "b"], ..View::default() };
        informers.push(test_informer("some", &some.informer::<Pod>(), view));
    }
    if random.below(4) == 0 {
        informers.push(test_informer("meta", &factory.metadata_informer::<Pod>(), View::default()));
    }
    informers
}
