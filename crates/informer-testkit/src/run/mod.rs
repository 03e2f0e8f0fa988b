//! One run: a server, actors, a scenario and the instances of a program, on one thread in virtual time.
//!
//! The server, the actors and the scenario have no runtime of their own. An instance has one, which runs only up to
//! the time of the next event that could concern it, and stops as soon as it sends something. A message takes at
//! least a millisecond, so nothing arrives before it was sent.

mod activity;
mod connection;
mod events;
mod finish;
mod injection;
mod programs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_actors::Actors;
use informer_apiserver::{ApiServer, Change, ManualClock};
use jiff::Timestamp;

use crate::check::{Check, Knowledge};
use crate::coverage::Coverage;
use crate::definition::Definition;
use crate::executor::Executor;
use crate::external::External;
use crate::fault::{Extent, Fault};
use crate::normal::NormalState;
use crate::panics;
use crate::random::Random;
use crate::request::{Operation, is_background};
use crate::state::{State, StoredObject};
use crate::trace::{Trace, TraceEntry, TraceKind};
use crate::world::{Progress, World, WorldShared};
pub(crate) use activity::Activity;
use connection::Connections;
use events::{Event, EventQueue};
use finish::evaluate;
use injection::Injection;
use programs::{FIRST_BACKOFF, MAX_STEP, Running};

/// The time of day at the start of every run, in seconds since 1970: 1 January 2026.
pub(crate) const START: i64 = 1_767_225_600;

/// The input of a run: equal plans give equal runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) faults: Vec<Fault>,
    /// Steps of the scenario that are left out.
    pub(crate) skipped: BTreeSet<usize>,
    /// Whether the trace contains the frames of watches.
    pub(crate) is_detailed: bool,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct RunResult {
    pub(crate) failure: Option<Failure>,
    pub(crate) trace: Vec<TraceEntry>,
    pub(crate) extent: Extent,
    pub(crate) final_state: NormalState,
    pub(crate) coverage: Coverage,
    /// Whether the scenario depends on the seed.
    pub(crate) used_random: bool,
    /// The steps of the scenario.
    pub(crate) steps: Vec<String>,
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) check: String,
    pub(crate) message: String,
}

pub(crate) struct Run<'a> {
    pub(crate) definition: &'a Definition,
    pub(crate) plan: Plan,
    expected: Option<&'a NormalState>,
    activity: &'a Activity,
    pub(crate) random: Random,
    clock: ManualClock,
    pub(crate) server: ApiServer,
    pub(crate) trace: Trace,
    pub(crate) executor: Executor,
    pub(crate) events: EventQueue,
    pub(crate) connections: Connections,
    pub(crate) injection: Injection,
    pub(crate) running: BTreeMap<u32, Running>,
    instances: u32,
    /// The number of instances that are about to start.
    pub(crate) starting: usize,
    /// How long the program waits before it starts again after it has ended by itself.
    backoff: Duration,
    actors: Actors,
    actors_due: Option<Duration>,
    state: Arc<Mutex<State>>,
    /// The version of the server when its changes were last read.
    observed_version: u64,
    external: External,
    pub(crate) knowledge: Knowledge,
    world: Arc<WorldShared>,
    scenario: Arc<Mutex<Option<Result<(), String>>>>,
    scenario_end: Option<Duration>,
    /// When the program was last started.
    last_start: Duration,
    pub(crate) now: Duration,
    /// Time of the last change of an object other than leases and events, and of the last write of the program.
    last_change: Duration,
    pub(crate) last_write: Duration,
    step: Duration,
    pub(crate) result: RunResult,
}

/// Runs a simulation on this thread, which must be new.
pub(crate) fn run(
    definition: &Definition,
    plan: Plan,
    expected: Option<&NormalState>,
    activity: &Activity,
) -> RunResult {
    panics::record();
    fastrand::seed(plan.seed);
    let wall = Duration::from_secs(START.unsigned_abs());
    let _simulated = informer_virtual::enter(plan.seed, wall);
    let mut run = Run::new(definition, plan, expected, activity);
    run.run();
    run.into_result()
}

impl<'a> Run<'a> {
    fn new(
        definition: &'a Definition,
        plan: Plan,
        expected: Option<&'a NormalState>,
        activity: &'a Activity,
    ) -> Self {
        let clock = ManualClock::new(Timestamp::from_second(START).unwrap_or_default());
        let server = ApiServer::builder().clock(clock.clone()).seed(plan.seed).build();
        definition.setup.iter().for_each(|setup| setup(&server));
        let mut actors = Actors::new(server.clone(), plan.seed);
        if let Some(configure) = &definition.configure_actors {
            actors = configure(actors);
        }
        for kind in &definition.without_actors {
            actors = actors.without(*kind);
        }
        definition.actors.iter().for_each(|new| actors.add(new()));
        let trace = Trace::new(clock.clone());
        activity.set_trace(&trace);
        let external = External::default();
        let state = Arc::new(Mutex::new(State::new(server.clone(), external.clone())));
        let world = Arc::new(WorldShared {
            server: server.clone(),
            clock: clock.clone(),
            trace: trace.clone(),
            state: state.clone(),
            changed: tokio::sync::Notify::new(),
            progress: Mutex::new(Progress::new(plan.seed, plan.skipped.clone())),
        });
        Run {
            definition,
            expected,
            activity,
            random: Random::new(plan.seed, "network"),
            connections: Connections::default(),
            injection: Injection::new(&plan.faults),
            clock,
            server,
            trace,
            executor: Executor::default(),
            events: EventQueue::default(),
            running: BTreeMap::new(),
            instances: 0,
            starting: 0,
            backoff: FIRST_BACKOFF,
            actors,
            actors_due: Some(Duration::ZERO),
            state,
            observed_version: 0,
            external,
            knowledge: Knowledge::default(),
            world,
            scenario: Arc::default(),
            scenario_end: None,
            last_start: Duration::ZERO,
            now: Duration::ZERO,
            last_change: Duration::ZERO,
            last_write: Duration::ZERO,
            step: MAX_STEP,
            result: RunResult::default(),
            plan,
        }
    }

    fn run(&mut self) {
        self.observe();
        self.start_scenario();
        self.start_after(Duration::ZERO);
        self.schedule_faults();
        while self.result.failure.is_none() {
            self.work();
            if self.result.failure.is_some() || self.is_finished() {
                break;
            }
            let next = self.next_time();
            self.run_programs(next);
            self.clock.advance_to(self.now);
            informer_virtual::set_elapsed(self.now);
            self.check_limits();
        }
    }

    fn into_result(mut self) -> RunResult {
        // Instances are dropped before the end of the simulated clock, and before the last panics are taken.
        self.running.clear();
        self.check_panics();
        // Only a run without faults is compared with others.
        let is_compared = self.plan.faults.is_empty();
        let state = is_compared.then(|| NormalState::of(&lock(&self.state), &self.definition.ignored_fields));
        let progress = self.world.progress.lock().unwrap_or_else(PoisonError::into_inner);
        RunResult {
            trace: self.trace.take(),
            final_state: state.unwrap_or_default(),
            used_random: progress.used_random,
            steps: progress.steps.clone(),
            ..self.result
        }
    }

    fn start_scenario(&mut self) {
        let Some(scenario) = self.definition.scenario.clone() else {
            *lock(&self.scenario) = Some(Ok(()));
            return;
        };
        let (world, done) = (World::new(self.world.clone()), self.scenario.clone());
        self.executor.start(async move {
            let result = scenario(world).await;
            *lock(&done) = Some(result);
        });
    }

    /// Does everything that is due now, apart from running the program.
    fn work(&mut self) {
        loop {
            let mut any = false;
            while let Some(event) = self.events.pop_due(self.now) {
                self.handle(event);
                any = true;
                if self.result.failure.is_some() {
                    return;
                }
            }
            any |= self.run_server_tasks();
            any |= self.observe();
            any |= self.run_actors();
            if !any || self.result.failure.is_some() {
                return;
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connection(received) => self.handle_connection(received),
            Event::Start => {
                self.starting = self.starting.saturating_sub(1);
                self.start_program();
            }
            Event::StartWithLag(index, version) => {
                self.starting = self.starting.saturating_sub(1);
                self.start_with_lag(index, version);
            }
            Event::Kill(number, restart) => self.kill(number, restart),
            Event::FaultBegins(index) => self.begin_fault(index),
            Event::FaultEnds(index) => self.end_fault(index),
        }
    }

    fn run_server_tasks(&mut self) -> bool {
        // A panic of the server or of the scenario is recorded by the hook.
        self.activity.set(0, self.now);
        let executor = &mut self.executor;
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| executor.run()));
        self.check_panics();
        let sent = self.forward_responses();
        ran.unwrap_or(false) || sent
    }

    /// Reads the changes on the server and checks them. Returns whether there were any.
    fn observe(&mut self) -> bool {
        let version = self.server.resource_version();
        if std::mem::replace(&mut self.observed_version, version) == version {
            return false;
        }
        let state = self.state.clone();
        let mut state = lock(&state);
        let changes = state.refresh();
        if changes.is_empty() {
            return false;
        }
        for change in &changes {
            if let Change::Written(object) | Change::Deleted(object) = change
                && !is_background(&object.resource().group, &object.resource().plural)
            {
                self.last_change = self.now;
            }
            if let Some(problem) = self.knowledge.record(change) {
                self.fail_check(Check::VersionHistory, problem);
            }
        }
        for (name, condition) in &self.definition.always {
            if let Some(problem) = evaluate(condition.as_ref(), &state) {
                self.fail(name.clone(), problem);
                break;
            }
        }
        self.check_queues();
        self.world.changed.notify_waiters();
        self.actors_due = Some(self.now);
        true
    }

    fn run_actors(&mut self) -> bool {
        if self.actors_due.is_none_or(|due| due > self.now) {
            return false;
        }
        self.activity.set(1, self.now);
        let now = self.clock.now();
        let actors = &mut self.actors;
        let stepped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| actors.step(now)));
        let mut any = false;
        for action in self.actors.take_actions() {
            any = true;
            let text = action.to_string();
            let text = text.strip_prefix(&format!("{}: ", action.actor)).unwrap_or(&text);
            self.trace.push(TraceKind::Write, &*action.actor, text);
        }
        self.actors_due = match stepped {
            Ok(Ok(due)) => due.map(|due| {
                let wait = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                self.now + wait.max(Duration::from_millis(1))
            }),
            Ok(Err(error)) => {
                self.fail("actors".to_owned(), error.to_string());
                None
            }
            Err(_) => {
                let panics = panics::take().join("; ");
                let actor = self.actors.current().unwrap_or("unknown");
                self.fail("actors".to_owned(), format!("the actor `{actor}` panicked: {panics}"));
                None
            }
        };
        any
    }

    /// Returns the time of the next event, apart from those of the program.
    fn next_time(&self) -> Duration {
        let times =
            [self.events.next_time(), self.clock.next_timer(), self.actors_due, Some(self.deadline())];
        let resumed = self.running.values().filter_map(|running| running.suspended_until);
        let next = times.into_iter().flatten().chain(resumed).filter(|time| *time > self.now).min();
        next.unwrap_or(self.now + self.definition.limits.quiet)
    }

    /// Returns the uids of the owners of the object that a request is about.
    fn stored_owners(&self, operation: &Operation) -> Vec<String> {
        let Operation { group, plural, namespace, name, .. } = operation;
        lock(&self.state).stored(group, plural, namespace, name).map(StoredObject::owners).unwrap_or_default()
    }

    pub(crate) fn latency(&mut self) -> Duration {
        Duration::from_millis(self.random.between(1, 4))
    }

    pub(crate) fn fail_check(&mut self, check: Check, message: String) {
        if !self.definition.without_checks.contains(&check) {
            self.fail(check.name().to_owned(), message);
        }
    }

    pub(crate) fn fail(&mut self, check: String, message: String) {
        if self.result.failure.is_none() {
            let text = if message.is_empty() { check.clone() } else { format!("{check}: {message}") };
            self.trace.push(TraceKind::Violation, "check", text);
            self.result.failure = Some(Failure { check, message });
        }
    }
}

pub(crate) fn program_name(number: u32) -> String {
    format!("program {number}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
