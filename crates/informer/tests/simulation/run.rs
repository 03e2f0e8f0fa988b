//! One seed: a server, informers, a writer and the weather, on one thread in virtual time.
//!
//! Chance comes from the seed and nothing else, and one task does everything that is not the library's own: so a seed is a run.

use std::collections::BTreeMap;
use std::time::Duration;

use informer::{Options, SharedInformerFactory, State as Standing, WatchListPolicy};
use informer_apiserver::ApiServer;
use informer_core::reflector::Random;
use k8s_openapi::api::core::v1::Pod;

use crate::checks::{self, Sampled};
use crate::crew::{Informer, Kind, Member, Place, RESYNC, recruit};
use crate::log::{Log, Network, Trace};
use crate::truth::{State, Truth, View};
use crate::weather::Weather;

/// A server that went back is noticed by its silence: twice the longest watch, and some.
const RECOVERY: Duration = Duration::from_mins(50);
/// No request that was under way when a server went back is still under way so much later.
const OUTLIVED: Duration = Duration::from_secs(150);

/// What a run came to.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) trace: String,
    pub(crate) told: u64,
    pub(crate) rewinds: u64,
    pub(crate) hits: BTreeMap<String, u64>,
    /// How long it took from the end of all faults until everything was as it should be.
    pub(crate) recovery: Duration,
    /// The most requests of one reflector in a minute.
    pub(crate) busiest: usize,
    /// How often a check looked at something.
    pub(crate) looks: u64,
}

pub(crate) fn run(seed: u64, trace: Trace) -> Done {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    let done = runtime.block_on(async {
        let mut run = Run::new(seed, trace);
        run.trouble().await;
        run.calm().await;
        run.end().await
    });
    // C10: nothing of it is left.
    assert_eq!(runtime.metrics().num_alive_tasks(), 0, "C10: tasks were left behind");
    done
}

/// What is the same all through a run.
struct Plan {
    /// Nothing goes wrong.
    fair: bool,
    /// Frames may be lost without a word, and audits are to find out.
    drops: bool,
    restores: bool,
    ticks: u64,
}

struct Run {
    plan: Plan,
    random: Random,
    log: Log,
    truth: Truth,
    weather: Weather,
    factory: Option<SharedInformerFactory>,
    informers: Vec<Informer>,
    members: Vec<Member>,
    sampled: Sampled,
    /// The server went back, and nobody writes before everybody has noticed: not even a real informer could tell the same versions of
    /// two histories apart.
    went_back: Option<Duration>,
    done: Done,
}

impl Run {
    fn new(seed: u64, trace: Trace) -> Self {
        let mut random = Random::new(seed ^ 0x1f0a_11fe);
        let (random, log) = (&mut random, Log::new(trace));
        let fair = seed.is_multiple_of(10);
        let plan = Plan {
            fair,
            drops: !fair && random.below(8) == 0,
            restores: !fair && random.below(4) == 0,
            ticks: 15 + random.below(45),
        };
        let server = ApiServer::builder().seed(seed);
        let small = !fair && random.below(3) == 0;
        let server =
            if small { server.history(3 + usize::try_from(random.below(30)).unwrap()) } else { server };
        let server = server.build();
        let network = Network { server: server.service(), log: log.clone() };
        let factory = SharedInformerFactory::with_options(
            kube::Client::new(network, "default"),
            options(seed, &plan, random),
        );
        let mut run = Self {
            weather: Weather::new(seed, fair, plan.drops, random),
            truth: Truth::new(server, log.clone()),
            informers: informers(&factory, random),
            factory: Some(factory),
            members: Vec::new(),
            sampled: Sampled::default(),
            went_back: None,
            done: Done::default(),
            random: random.clone(),
            plan,
            log,
        };
        for _ in 0..run.random.below(12) {
            run.truth.write(&mut run.random);
        }
        for informer in 0..run.informers.len() {
            for _ in 0..=run.random.below(3) {
                run.add_member(informer);
            }
        }
        run
    }

    /// Faults, writes, and handlers that come and go.
    async fn trouble(&mut self) {
        let factory = self.factory.clone().unwrap();
        // The first set may come in fair weather, or in the middle of trouble.
        let start = if self.random.below(3) == 0 { 0 } else { self.random.below(10) };
        let mut waiting = None;
        for tick in 0..self.plan.ticks {
            if tick == start {
                self.log.note("start");
                factory.start();
                let factory = factory.clone();
                let wait = async move { factory.wait_for_sync(Duration::from_mins(1)).await };
                waiting = Some(tokio::spawn(wait));
            }
            let pause = if self.random.below(4) == 0 { 0 } else { self.random.below(3_000) };
            super::pass(Duration::from_millis(pause)).await;
            self.weather.tick(&self.truth.server, &self.log, &mut self.random);
            self.tick().await;
        }
        let waiting = waiting.unwrap();
        self.weather.end(&self.log);
        if !waiting.is_finished() {
            super::pass(Duration::from_mins(1)).await;
        }
        checks::c7_sync::waited(waiting.await.unwrap(), self.plan.fair);
    }

    async fn tick(&mut self) {
        match self.random.below(40) {
            0 if self.members.len() < 12 => {
                let informer = self.pick(self.informers.len());
                self.add_member(informer);
            }
            1 => self.remove_member().await,
            2 if !self.plan.fair => {
                self.log.note("server: compacted");
                self.truth.server.compact();
            }
            3 if !self.plan.fair => {
                self.log.note("server: restarted");
                self.truth.server.restart();
            }
            4 | 5 if self.plan.restores => self.truth.back_up(),
            6 if self.plan.restores && self.may_write() && self.truth.restore() => {
                self.went_back = Some(self.log.now());
            }
            7..=11 => self.sample(),
            _ if self.may_write() => self.truth.write(&mut self.random),
            _ => {}
        }
    }

    /// Whether a write can be told apart from one of an earlier history, by everybody.
    fn may_write(&mut self) -> bool {
        let Some(since) = self.went_back else { return true };
        if self.log.now() > since + OUTLIVED && self.all_noticed() {
            self.went_back = None;
        }
        self.went_back.is_none()
    }

    /// Whether no informer is further than the server is.
    fn all_noticed(&self) -> bool {
        let now = self.truth.server.version();
        let number = |version: &informer::ResourceVersion| version.as_str().parse::<u64>().unwrap();
        let behind = |informer: &Informer| {
            (informer.status)()
                .scopes
                .iter()
                .filter_map(|scope| scope.version.as_ref())
                .all(|v| number(v) <= now)
        };
        self.informers.iter().all(behind)
    }

    fn sample(&mut self) {
        let exact = !self.plan.drops;
        self.sampled.look(&self.truth, &self.informers, &self.members, exact);
        if self.random.below(4) == 0 {
            let informer = self.pick(self.informers.len());
            self.sampled.hold(&self.informers[informer]);
        }
    }

    /// No faults, no writes: everything becomes as it should be, and stays so.
    async fn calm(&mut self) {
        self.log.note("calm");
        // What was written last and cancels itself out is still on its way.
        super::pass(Duration::from_secs(5)).await;
        self.done.recovery = self.recover("the last fault").await;
        self.sample();
        self.log.note("all is well");
        self.went_back = None;
        let before: Vec<usize> = self.members.iter().map(|member| member.notes().told.len()).collect();
        super::pass(2 * RESYNC + Duration::from_secs(2)).await;
        checks::c12_resync::quiet(&self.members, &before);
        self.check_late_handlers().await;
        for _ in 0..5 {
            self.truth.write(&mut self.random);
        }
        // A connection may be dead all the while, and is only now missed.
        self.recover("the last write").await;
    }

    /// Waits until everything is as it should be; how long that took.
    async fn recover(&self, since: &str) -> Duration {
        let began = self.log.now();
        while !self.is_as_it_should_be() {
            if self.log.now() > began + RECOVERY {
                self.explain();
                panic!("C2: {RECOVERY:?} after {since} not everything is as it should be");
            }
            super::pass(Duration::from_secs(2)).await;
        }
        self.log.now().saturating_sub(began)
    }

    /// C6, without anything in between: a handler gets what is there and nothing else; once removed, nothing at all.
    async fn check_late_handlers(&mut self) {
        for number in 0..self.informers.len() {
            self.add_member(number);
            let mut member = self.members.pop().unwrap();
            super::pass(Duration::from_secs(30)).await;
            let informer = &self.informers[number];
            checks::c6_late::initial(&member, &(informer.list)());
            member.remove().await;
            self.members.push(member);
        }
    }

    /// Ends everything, then looks at all that was told.
    async fn end(mut self) -> Done {
        let factory = self.factory.take().unwrap();
        factory.shutdown(Duration::from_mins(1)).await.expect("C10: nothing is slow here");
        assert_eq!(self.truth.server.open_watches(), 0, "C10: watches were left open");
        let told: Vec<usize> = self.members.iter().map(|member| member.notes().told.len()).collect();
        self.truth.write(&mut self.random);
        super::pass(Duration::from_mins(5)).await;
        for (member, before) in self.members.iter_mut().zip(told) {
            match &member.place {
                // A stream still gives what was received before the end, then it ends.
                Place::Stream { task, .. } => {
                    assert!(task.is_finished(), "C10: {} has not ended", member.name);
                }
                _ => assert_eq!(member.told(), before, "C10: {} was called after the end", member.name),
            }
            member.place = Place::Gone;
        }
        self.sampled.check_held();
        let asked = self.log.asked();
        self.done.busiest = checks::c11_citizen::pace(&asked);
        checks::c11_citizen::retry_after(&asked);
        for member in &self.members {
            let informer = &self.informers[member.informer];
            checks::all(&self.truth, informer, member, self.plan.fair);
            self.done.told += member.notes().told.len() as u64;
        }
        let rewinds = self.informers.iter().map(|informer| (informer.status)().changes.rewinds);
        self.done.rewinds = rewinds.sum();
        self.done.looks = self.sampled.looks;
        self.done.hits = std::mem::take(&mut self.weather.hits);
        self.done.trace = self.log.take_text();
        // Handles go first, then their tasks have a moment to notice.
        let Self { done, members, informers, truth, .. } = self;
        drop((members, informers, factory, truth));
        super::pass(Duration::from_secs(1)).await;
        done
    }

    fn is_as_it_should_be(&self) -> bool {
        let live = |informer: &Informer| {
            (informer.status)().state == Standing::Live
                && (informer.list)() == self.truth.seen_by(&informer.view)
        };
        self.all_noticed()
            && self.informers.iter().all(live)
            && self.members.iter().all(|member| self.knows_everything(member))
    }

    fn knows_everything(&self, member: &Member) -> bool {
        let mut expected = self.truth.seen_by(&self.informers[member.informer].view);
        expected.retain(|state| member.hears_of(state));
        matches!(member.place, Place::Gone) || (member.is_synced() && member.believes() == expected)
    }

    /// Says what is not as it should be.
    fn explain(&self) {
        println!("the server is at {}", self.truth.server.version());
        let show = |states: Vec<State>| -> Vec<String> { states.iter().map(ToString::to_string).collect() };
        for informer in &self.informers {
            let status = (informer.status)();
            println!("{}: {}", informer.name, status.state);
            for scope in &status.scopes {
                println!("  {:?}: {} at {:?}", scope.scope, scope.state, scope.version);
            }
            println!("  has    {:?}", show((informer.list)()));
            println!("  should {:?}", show(self.truth.seen_by(&informer.view)));
        }
        for member in self.members.iter().filter(|member| !self.knows_everything(member)) {
            let (synced, pending) = (member.is_synced(), member.pending());
            println!("{}: synced {synced}, {pending} pending: {:?}", member.name, show(member.believes()));
        }
    }

    fn add_member(&mut self, informer: usize) {
        const KINDS: [Kind; 6] =
            [Kind::Merged, Kind::EveryState, Kind::Filtered, Kind::Resynced, Kind::Panicking, Kind::Slow];
        let kind = KINDS[self.pick(KINDS.len())];
        let name = format!("{}-{}-{kind:?}", self.informers[informer].name, self.members.len());
        self.log.note(format_args!("{name} comes"));
        let member = (self.informers[informer].add)(&name, kind, &self.log);
        self.members.push(Member { informer, ..member });
    }

    async fn remove_member(&mut self) {
        let place = self.pick(self.members.len());
        let Some(member) = self.members.get_mut(place) else { return };
        if member.remove().await {
            self.log.note(format_args!("{} is gone", member.name));
        }
    }

    fn pick(&mut self, among: usize) -> usize {
        usize::try_from(self.random.below(among as u64)).unwrap()
    }
}

fn options(seed: u64, plan: &Plan, random: &mut Random) -> Options {
    let mut options = Options::default().seed(seed).protobuf(seed.is_multiple_of(2));
    if random.below(3) == 0 {
        options = options.watch_list(WatchListPolicy::Never);
    }
    if random.below(3) == 0 {
        options = options.page_size(1 + u32::try_from(random.below(6)).unwrap());
    }
    if plan.drops {
        options = options.relist_every(Duration::from_mins(1));
    }
    options
}

fn informers(factory: &SharedInformerFactory, random: &mut Random) -> Vec<Informer> {
    let mut informers = vec![recruit("all", &factory.informer::<Pod>(), View::default())];
    if random.below(2) == 0 {
        let web = factory.select(Options::default().labels("app=web".parse().unwrap()));
        let view = View { app: Some("web"), ..View::default() };
        informers.push(recruit("web", &web.informer::<Pod>(), view));
    }
    if random.below(2) == 0 {
        let some = factory.select(Options::default().namespaces(["a", "b"]));
        let view = View { namespaces: vec!["a", "b"], ..View::default() };
        informers.push(recruit("some", &some.informer::<Pod>(), view));
    }
    if random.below(4) == 0 {
        informers.push(recruit("meta", &factory.metadata::<Pod>(), View::default()));
    }
    informers
}
