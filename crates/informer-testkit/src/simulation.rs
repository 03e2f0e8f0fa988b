//! The definition of a simulation by its user, and its runs: seeds, time budget, and what comes from the environment.

use std::fmt::Debug;
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use informer_actors::{Actor, ActorKind, Actors};
use informer_apiserver::ApiServer;

use crate::check::Check;
use crate::coverage::Coverage;
use crate::definition::{Definition, Limits, ProgramContext, ScenarioResult};
use crate::fault::FaultKind;
use crate::report::SimulationFailure;
use crate::run::Plan;
use crate::runner::{self, Reference};
use crate::shrink;
use crate::state::{State, Verdict};
use crate::world::World;

/// A simulation of a program that talks to a Kubernetes API server. See the documentation of the crate.
#[must_use = "a simulation does nothing until `run` is called"]
pub struct Simulation {
    definition: Definition,
    seeds: Range<u64>,
    budget: Option<Duration>,
    threads: Option<usize>,
    check_determinism: bool,
}

/// The result of a simulation without failures.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// The number of seeds.
    pub seeds: u64,
    /// The faults and requests that were tried.
    pub coverage: Coverage,
}

impl Simulation {
    /// Defines the simulation of a program.
    ///
    /// The program is started at the beginning, and again after each time that it was killed. It is any future that
    /// uses the client of its context. It runs in a tokio runtime of its own, with one thread and a paused clock. If it
    /// ends by itself, it is started again, as the kubelet does.
    pub fn new<P, F>(program: P) -> Self
    where
        P: Fn(ProgramContext) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: Debug,
    {
        let program = Arc::new(move |context: ProgramContext| {
            let future = program(context);
            let future: crate::instance::ProgramFuture = Box::pin(async move {
                let output = future.await;
                format!("ended: {output:?}")
            });
            future
        });
        Simulation {
            definition: Definition {
                program,
                scenario: None,
                setup: Vec::new(),
                always: Vec::new(),
                eventually: Vec::new(),
                without_actors: std::collections::BTreeSet::new(),
                actors: Vec::new(),
                configure_actors: None,
                ignored_fields: std::collections::BTreeSet::new(),
                faults: FaultKind::ALL.to_vec(),
                without_checks: std::collections::BTreeSet::new(),
                limits: Limits::default(),
            },
            seeds: 0..100,
            budget: None,
            threads: None,
            check_determinism: false,
        }
    }

    /// Prepares the server of each run, for example with the definitions of custom resources. Called before anything
    /// else happens.
    pub fn setup(mut self, setup: impl Fn(&ApiServer) + Send + Sync + 'static) -> Self {
        self.definition.setup.push(Arc::new(setup));
        self
    }

    /// Sets what the users of the cluster do. The scenario starts together with the program.
    pub fn scenario<S, F>(mut self, scenario: S) -> Self
    where
        S: Fn(World) -> F + Send + Sync + 'static,
        F: Future + Send + 'static,
        F::Output: ScenarioResult,
    {
        self.definition.scenario = Some(Arc::new(move |world| {
            let future = scenario(world);
            Box::pin(async move { future.await.error().map_or(Ok(()), Err) })
        }));
        self
    }

    /// Adds a condition that must hold at all times. It is checked after each request of the program, each step
    /// of the scenario and each step of the actors that has changed something.
    pub fn always<V: Verdict>(
        mut self,
        name: impl Into<String>,
        condition: impl Fn(&State) -> V + Send + Sync + 'static,
    ) -> Self {
        self.definition.always.push((name.into(), Arc::new(move |state| condition(state).problem())));
        self
    }

    /// Adds a condition that must hold at the end: when the scenario and all faults are over, and the program has had
    /// time to settle.
    pub fn eventually<V: Verdict>(
        mut self,
        name: impl Into<String>,
        condition: impl Fn(&State) -> V + Send + Sync + 'static,
    ) -> Self {
        self.definition.eventually.push((name.into(), Arc::new(move |state| condition(state).problem())));
        self
    }

    /// Sets the seeds; each is one run. Defaults to `0..100`. The environment variable `INFORMER_SIM_SEEDS` overrides
    /// it: `INFORMER_SIM_SEEDS=0..100000`.
    pub fn seeds(mut self, seeds: Range<u64>) -> Self {
        self.seeds = seeds;
        self
    }

    /// Goes on with further seeds after the given ones until this much time has passed. The environment variable
    /// `INFORMER_SIM_MINUTES` overrides it.
    pub fn time_budget(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Sets the number of runs at the same time. Defaults to the number of CPUs.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads.max(1));
        self
    }

    /// Switches a kind of fault off.
    pub fn without_fault(mut self, kind: FaultKind) -> Self {
        self.definition.faults.retain(|enabled| *enabled != kind);
        self
    }

    /// Injects only these kinds of faults.
    pub fn only_faults(mut self, kinds: &[FaultKind]) -> Self {
        self.definition.faults = kinds.to_vec();
        self
    }

    /// Switches a check off.
    pub fn without_check(mut self, check: Check) -> Self {
        self.definition.without_checks.insert(check);
        self
    }

    /// Switches an actor of the cluster off, for example because the program under test takes its place.
    pub fn without_actor(mut self, kind: ActorKind) -> Self {
        self.definition.without_actors.insert(kind);
        self
    }

    /// Adds an actor to the cluster. It is created for each run.
    pub fn actor<A: Actor + Send + 'static>(mut self, new: impl Fn() -> A + Send + Sync + 'static) -> Self {
        self.definition.actors.push(Arc::new(move || Box::new(new())));
        self
    }

    /// Sets options of the actors, such as the number of nodes and how many pods fail. Replaces earlier options.
    ///
    /// ```
    /// # use informer_testkit::{ProgramContext, Simulation};
    /// # let simulation = Simulation::new(|_: ProgramContext| std::future::pending::<()>());
    /// simulation.configure_actors(|actors| actors.nodes(5).failure_percent(10)).seeds(0..2).run();
    /// ```
    pub fn configure_actors(mut self, configure: impl Fn(Actors) -> Actors + Send + Sync + 'static) -> Self {
        self.definition.configure_actors = Some(Arc::new(configure));
        self
    }

    /// Leaves a field out of the comparison with the run without faults ([`Check::FinalState`]), at any depth: for
    /// example a counter in a status.
    pub fn ignore_field(mut self, name: impl Into<String>) -> Self {
        self.definition.ignored_fields.insert(name.into());
        self
    }

    /// Sets how long nothing must change until a run counts as settled, in virtual time. Defaults to a minute. A
    /// program that waits longer before it retries needs more.
    pub fn quiet_period(mut self, period: Duration) -> Self {
        self.definition.limits.quiet = period;
        self
    }

    /// Sets how long the program may take to settle after the scenario and the last fault, in virtual time. Defaults
    /// to 30 minutes.
    pub fn settle_timeout(mut self, timeout: Duration) -> Self {
        self.definition.limits.settle = timeout;
        self
    }

    /// Sets how long the scenario and the faults may take, in virtual time. Defaults to an hour.
    pub fn scenario_timeout(mut self, timeout: Duration) -> Self {
        self.definition.limits.scenario = timeout;
        self
    }

    /// Sets how many events may wait for a handler of a registered factory. Defaults to 1,000.
    pub fn queue_limit(mut self, events: usize) -> Self {
        self.definition.limits.queue = events;
        self
    }

    /// Sets how many requests the program may send in one run. Defaults to 25,000; more are a sign of a program that never
    /// waits.
    pub fn request_limit(mut self, requests: u64) -> Self {
        self.definition.limits.requests = requests;
        self
    }

    /// Sets how long one run may take, in real time. Defaults to a minute. A run that takes longer fails: the program,
    /// an actor or the scenario blocks its thread or never waits.
    pub fn run_timeout(mut self, timeout: Duration) -> Self {
        self.definition.limits.real = timeout;
        self
    }

    /// Runs each seed twice and fails if the runs differ. Such a program uses its own randomness, the time of the
    /// system, or threads.
    pub fn check_determinism(mut self) -> Self {
        self.check_determinism = true;
        self
    }

    /// Runs the simulation.
    ///
    /// # Panics
    ///
    /// Panics if a check fails, with the smallest schedule of faults and the timeline of the run.
    #[track_caller]
    pub fn run(self) -> Summary {
        match self.try_run() {
            Ok(summary) => summary,
            Err(failure) => panic!("{failure}"),
        }
    }

    /// Runs the simulation, and returns the failure instead of panicking.
    ///
    /// # Errors
    ///
    /// The first check that failed, reduced to the smallest schedule.
    pub fn try_run(mut self) -> Result<Summary, Box<SimulationFailure>> {
        let environment = Environment::read();
        if let Some(seed) = environment.seed {
            self.seeds = seed..seed.saturating_add(1);
        } else if let Some(seeds) = environment.seeds.clone() {
            self.seeds = seeds;
        }
        self.budget = if environment.seed.is_some() { None } else { environment.budget.or(self.budget) };
        assert!(!self.seeds.is_empty(), "there are no seeds in {:?}", self.seeds);
        let definition = Arc::new(self.definition.clone());
        let reference = runner::reference(&definition);
        let reference = match reference {
            Ok(reference) => Arc::new(reference),
            Err(failure) => {
                environment.write_page(&failure);
                return Err(failure);
            }
        };
        let result = self.run_seeds(&definition, &reference);
        match &result {
            Ok(summary) if environment.prints_coverage => {
                eprintln!("{} seeds\n{}", summary.seeds, summary.coverage);
            }
            Ok(_) => {}
            Err(failure) => environment.write_page(failure),
        }
        if let Some(seed) = environment.seed
            && result.is_ok()
        {
            runner::print_run(&definition, &reference, seed);
        }
        result
    }

    fn run_seeds(
        &self,
        definition: &Arc<Definition>,
        reference: &Arc<Reference>,
    ) -> Result<Summary, Box<SimulationFailure>> {
        let started = Instant::now();
        let available = std::thread::available_parallelism().map_or(1, usize::from);
        let next = AtomicU64::new(self.seeds.start);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let total = Mutex::new((Coverage::default(), None::<(Plan, runner::Failed)>));
        let is_due =
            |seed: u64| seed < self.seeds.end || self.budget.is_some_and(|budget| started.elapsed() < budget);
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if !is_due(seed) {
                    return;
                }
                let result = runner::run_seed(definition, reference, seed, self.check_determinism);
                done.fetch_add(1, Ordering::Relaxed);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                match result {
                    Ok(coverage) => total.0.add(coverage),
                    Err(failed) => {
                        stop.store(true, Ordering::Relaxed);
                        // The smallest failing seed of those that were running.
                        if total.1.as_ref().is_none_or(|(plan, _)| plan.seed > seed) {
                            total.1 = Some(*failed);
                        }
                    }
                }
            }
        };
        let count = self.threads.unwrap_or(available);
        std::thread::scope(|scope| {
            for _ in 1..count {
                scope.spawn(work);
            }
            work();
        });
        let (coverage, failed) = total.into_inner().unwrap_or_else(PoisonError::into_inner);
        match failed {
            None => Ok(Summary { seeds: done.into_inner(), coverage }),
            Some((plan, failed)) => Err(shrink::shrink(definition, reference, plan, failed)),
        }
    }
}

/// The settings of the environment.
struct Environment {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    budget: Option<Duration>,
    prints_coverage: bool,
    pages: Option<PathBuf>,
}

impl Environment {
    fn read() -> Self {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let seeds = text("INFORMER_SIM_SEEDS").map(|text| {
            let range =
                text.split_once("..").and_then(|(start, end)| Some(start.parse().ok()?..end.parse().ok()?));
            range.unwrap_or_else(|| panic!("INFORMER_SIM_SEEDS must be a range such as 0..1000, not {text}"))
        });
        let number = |name: &str| {
            text(name).map(|text| {
                text.parse::<u64>().unwrap_or_else(|_| panic!("{name} must be a number, not {text}"))
            })
        };
        Environment {
            seed: number("INFORMER_SIM_SEED"),
            seeds,
            budget: number("INFORMER_SIM_MINUTES").map(|minutes| Duration::from_secs(60 * minutes)),
            prints_coverage: text("INFORMER_SIM_COVERAGE").is_some(),
            pages: text("INFORMER_SIM_HTML").map(PathBuf::from),
        }
    }

    fn write_page(&self, failure: &SimulationFailure) {
        if let Some(folder) = &self.pages {
            match failure.write_html(folder) {
                Ok(path) => eprintln!("timeline: {}", path.display()),
                Err(error) => eprintln!("the timeline could not be written to {}: {error}", folder.display()),
            }
        }
    }
}
