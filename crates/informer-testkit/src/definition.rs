//! The parts of a simulation, as plain data that every run reads.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use informer::SharedInformerFactory;
use informer_actors::{Actor, ActorKind, Actors};
use informer_apiserver::ApiServer;

use crate::check::Check;
use crate::external::External;
use crate::fault::FaultKind;
use crate::instance::ProgramFuture;
use crate::state::State;
use crate::world::World;

pub(crate) type Program = dyn Fn(ProgramContext) -> ProgramFuture + Send + Sync;
pub(crate) type Scenario =
    dyn Fn(World) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send>> + Send + Sync;
pub(crate) type Setup = dyn Fn(&ApiServer) + Send + Sync;
pub(crate) type Condition = dyn Fn(&State) -> Option<String> + Send + Sync;
pub(crate) type ConfigureActors = dyn Fn(Actors) -> Actors + Send + Sync;
pub(crate) type NewActor = dyn Fn() -> Box<dyn Actor + Send> + Send + Sync;

/// A simulation, without its seeds.
#[derive(Clone)]
pub(crate) struct Definition {
    pub(crate) program: Arc<Program>,
    pub(crate) scenario: Option<Arc<Scenario>>,
    pub(crate) setup: Vec<Arc<Setup>>,
    pub(crate) always: Vec<(String, Arc<Condition>)>,
    pub(crate) eventually: Vec<(String, Arc<Condition>)>,
    pub(crate) without_actors: BTreeSet<ActorKind>,
    pub(crate) actors: Vec<Arc<NewActor>>,
    pub(crate) configure_actors: Option<Arc<ConfigureActors>>,
    /// Names of fields that are not compared with the run without faults.
    pub(crate) ignored_fields: BTreeSet<String>,
    pub(crate) faults: Vec<FaultKind>,
    pub(crate) without_checks: BTreeSet<Check>,
    pub(crate) limits: Limits,
}

/// Times of a simulation. All but the last are virtual.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// The longest scenario, from the start.
    pub(crate) scenario: Duration,
    /// How long nothing must change until the run is over.
    pub(crate) quiet: Duration,
    /// The longest time from the end of the scenario and of all faults until the program has settled.
    pub(crate) settle: Duration,
    /// The number of objects that may wait in a queue.
    pub(crate) queue: usize,
    /// The most requests of a run.
    pub(crate) requests: u64,
    /// The longest run, in real time.
    pub(crate) real: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            scenario: Duration::from_secs(3600),
            quiet: Duration::from_secs(60),
            settle: Duration::from_secs(1800),
            queue: 1_000,
            requests: 25_000,
            real: Duration::from_secs(60),
        }
    }
}

/// The context of an instance of the program: its client, its number, and state outside of the cluster.
pub struct ProgramContext {
    pub(crate) client: kube::Client,
    pub(crate) instance: u32,
    pub(crate) factories: Factories,
    pub(crate) external: External,
}

/// The factories that an instance has registered.
#[derive(Clone, Default)]
pub(crate) struct Factories(Arc<Mutex<Vec<SharedInformerFactory>>>);

impl Factories {
    /// Returns the longest queue with the name of its handler, if there is any.
    pub(crate) fn longest_queue(&self) -> Option<(usize, String)> {
        let factories = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let informers = factories.iter().flat_map(SharedInformerFactory::metrics);
        let queues = informers.flat_map(|informer| {
            let name = informer.informer;
            informer
                .handlers
                .into_iter()
                .map(move |handler| (handler.pending, format!("{name}, {}", handler.name)))
        });
        queues.max_by_key(|(pending, _)| *pending)
    }
}

impl ProgramContext {
    /// Returns the client of the program. All its requests go through the simulation.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the number of this instance: 1 for the first start, 2 after the first restart, and so on. Suitable as
    /// an identity for leader election.
    pub fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns a value of this type that survives restarts of the program, as a database does. There is one for each
    /// run; checks read it with [`State::external`].
    pub fn external<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.external.get()
    }

    /// Registers a factory whose queues are to be checked: [`Check::Queues`].
    pub fn register(&self, factory: &SharedInformerFactory) {
        self.factories.0.lock().unwrap_or_else(PoisonError::into_inner).push(factory.clone());
    }
}

/// The output of a scenario: nothing, or a `Result`.
pub trait ScenarioResult {
    /// Returns the error, if there is one.
    fn error(self) -> Option<String>;
}

impl ScenarioResult for () {
    fn error(self) -> Option<String> {
        None
    }
}

impl<T, E: std::fmt::Display> ScenarioResult for Result<T, E> {
    fn error(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}
