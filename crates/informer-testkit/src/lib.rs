//! Deterministic simulation of Kubernetes controllers: restarts, races, stale caches and an unreliable API server,
//! chosen by a seed, checked, and reduced to the smallest schedule that fails.
//!
//! A test of a controller on a healthy cluster shows that it works once. Operators fail in another way: they act on
//! old state after a restart, crash between two writes, or never see a state that lasted for a moment. A
//! [`Simulation`] provokes these on purpose. The program under test is any future that uses a `kube::Client`. It runs
//! against the embedded API server (`informer-apiserver`) and the usual controllers of a cluster (`informer-actors`),
//! in virtual time, on one thread. An hour takes milliseconds, so a test runs hundreds of schedules.
//!
//! ```
//! use informer_testkit::Simulation;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kube::api::{Api, ListParams, PostParams};
//! use std::time::Duration;
//!
//! /// Creates a config map `NAME-copy` for each config map `NAME` with the label `copy`.
//! async fn copy_maps(client: kube::Client) -> Result<(), kube::Error> {
//!     let maps: Api<ConfigMap> = Api::default_namespaced(client);
//!     loop {
//!         for map in maps.list(&ListParams::default().labels("copy")).await? {
//!             let name = format!("{}-copy", map.metadata.name.unwrap_or_default());
//!             let copy = ConfigMap { data: map.data, ..new_map(&name, false) };
//!             match maps.create(&PostParams::default(), &copy).await {
//!                 Err(kube::Error::Api(status)) if status.is_already_exists() => {}
//!                 result => drop(result?),
//!             }
//!         }
//!         tokio::time::sleep(Duration::from_secs(10)).await;
//!     }
//! }
//!
//! fn new_map(name: &str, is_copied: bool) -> ConfigMap {
//!     let mut map = ConfigMap::default();
//!     map.metadata.name = Some(name.to_owned());
//!     map.metadata.labels = is_copied.then(|| [("copy".to_owned(), String::new())].into());
//!     map
//! }
//!
//! Simulation::new(|program| copy_maps(program.client()))
//!     .scenario(|world| async move { world.create(&new_map("a", true)).await })
//!     .eventually("the copy exists", |state| state.get::<ConfigMap>("default", "a-copy").is_some())
//!     .seeds(0..50)
//!     .run(); // panics with the smallest failing schedule
//! ```
//!
//! # What happens in a run
//!
//! 1. The functions of [`Simulation::setup`] prepare the server.
//! 2. The program and the scenario start. The seed chooses one to four faults ([`FaultKind`]), when they happen, how
//!    long messages take, and the pauses of the scenario.
//! 3. The conditions of [`Simulation::always`] are checked after each request or step that has changed something.
//! 4. When the scenario and the faults are over, and nothing has changed for a minute, the conditions of
//!    [`Simulation::eventually`] and the final checks ([`Check`]) must hold. The program has up to 30 minutes for
//!    this. All these times are virtual.
//!
//! First of all there is a run without faults. Its final state is what every other run must reach.
//!
//! # What may differ at the end
//!
//! [`Check::FinalState`] compares all objects except leases, events, nodes and endpoints. It leaves out uids, resource
//! versions, generations, managed fields, times, and what is assigned (`clusterIP`, `nodePort`, `podIP`, `hostIP`,
//! `nodeName`), and the history of deployments (revisions, replica sets without replicas). Objects with generated names
//! are compared without the generated part. Annotations that start with `simulation.informer/` belong to the
//! simulation. [`Simulation::ignore_field`] leaves out more.
//!
//! # Reproducing a failure
//!
//! A failure prints the command that runs its seed again. A run depends on its seed only, if the program does not use
//! threads or a source of randomness that cannot be seeded. On Linux, the clocks of std, the keys of hash maps and the
//! crate `getrandom` are simulated (see `informer-virtual` for what is not). `tokio::select!` without `biased` and
//! `futures::select!` choose their branches with a counter of the process, which is not. A `Regex` that threads share
//! belongs in a `thread_local!`. [`Simulation::check_determinism`] finds programs that depend on more than the seed.
//!
//! | environment variable | meaning |
//! |---|---|
//! | `INFORMER_SIM_SEED=7` | run only this seed, and print its timeline |
//! | `INFORMER_SIM_SEEDS=0..100000` | run these seeds |
//! | `INFORMER_SIM_MINUTES=30` | go on with further seeds for this long |
//! | `INFORMER_SIM_COVERAGE=1` | print what was tried: faults, requests, and pairs that were never tried |
//! | `INFORMER_SIM_HTML=DIR` | write the timeline of a failure as an HTML page |
//!
//! # What is not simulated
//!
//! Blocking threads (`spawn_blocking`) run in real time, so the program must not depend on them. Real I/O, such as
//! sockets, is not possible: the runtime of a program has timers only. A program that needs other services gets them
//! as values that survive its restarts, see [`ProgramContext::external`].

mod check;
mod coverage;
mod definition;
mod executor;
mod external;
mod fault;
mod instance;
mod network;
mod normal;
mod panics;
mod random;
mod report;
mod request;
mod run;
mod runner;
mod shrink;
mod simulation;
mod state;
mod trace;
mod world;

pub use check::Check;
pub use coverage::Coverage;
pub use definition::{ProgramContext, ScenarioResult};
pub use fault::{Fault, FaultKind, FaultTime};
pub use informer_actors::{Actor, ActorKind, Actors, Cluster, OUTCOME_ANNOTATION, PodOutcome};
pub use informer_apiserver::{ApiServer, Status};
pub use report::{ScenarioStep, SimulationFailure};
pub use simulation::{Simulation, Summary};
pub use state::{State, Verdict};
pub use trace::{TraceEntry, TraceKind};
pub use world::World;

/// A page of the book as a documentation test, so that its programs compile and run. The book is outside of the crate
/// and not part of a published one.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/book/src/how-to/test-controller.md")]
mod page {}

/// The README as a documentation test, so that its program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
