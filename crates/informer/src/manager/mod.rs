//! A whole program: informers, controllers, leader election and the pages that say how they are, begun in order and ended in reverse.
//!
//! It decides nothing about any of them. Whatever goes wrong for good in one of them ends the rest gently, and is what [`Manager::run`] returns.

mod health;
mod serve;
mod signals;

use crate::controller::RunnableController;
use crate::election::{LeaderElector, Term};
use crate::error::{ControllerError, ManagerError, ShutdownError};
use crate::factory::SharedInformerFactory;
use crate::metrics::Collect;
use crate::recorder::EventRecorder;
use futures::future::{FutureExt as _, join_all};
use health::{Check, Health};
use informer_core::election::FencingToken;
use std::fmt;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// When the caches of a program that elects a leader are filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheStart {
    /// From the beginning, so that a new leader can act at once.
    #[default]
    Immediate,
    /// When the program leads for the first time: whoever only stands by costs the server nothing. They stay from then on.
    OnceLeading,
}

/// Runs a program: its informers, its controllers, the election of a leader, and pages that say how it is.
///
/// ```no_run
/// use informer::SharedInformerFactory;
/// use informer::controller::{Controller, Outcome};
/// use informer::election::LeaderElector;
/// use informer::manager::Manager;
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::new(client.clone());
/// let controller = Controller::new::<Deployment>(&factory)
///     .reconcile(|_key, _ctx| async { Ok::<_, kube::Error>(Outcome::Done) });
///
/// Manager::new()
///     .controller(controller)
///     .leader_election(LeaderElector::new(client, "kube-system", "my-operator"))
///     .serve(8080)   // /healthz, /readyz and /metrics, on loopback; serve_on(([0, 0, 0, 0], 8080)) for a kubelet's probes
///     .run()         // until SIGINT or SIGTERM; a second one ends the process at once
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// It begins with the pages, then the informers, then the election, and when it leads, or without an election at once, the controllers; it ends the
/// other way round, so that a lease is given back after the last turn, and the informers stop when nobody reads them any more.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    factories: Vec<SharedInformerFactory>,
    controllers: Vec<RunnableController>,
    elector: Option<LeaderElector>,
    cache_start: CacheStart,
    address: Option<SocketAddr>,
    shutdown_timeout: Duration,
    recorders: Vec<EventRecorder>,
    checks: Vec<Check>,
    collectors: Vec<Box<dyn Collect + Send + Sync>>,
    shared: Arc<Shared>,
}

/// What a manager and its handles share.
struct Shared {
    stop: watch::Sender<bool>,
    life: Mutex<RunState>,
    bound: watch::Sender<Bound>,
}

/// Where a manager is in its life.
enum RunState {
    NotStarted,
    Runs(Arc<Health>),
    Ended,
}

/// Whether the pages are served, and where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    NotYet,
    At(SocketAddr),
    Nowhere,
}

/// A manager from outside, while it runs. Cheap to clone.
#[derive(Clone)]
pub struct ManagerHandle(Arc<Shared>);

impl Manager {
    /// A manager of nothing.
    pub fn new() -> Self {
        let (stop, bound) = (watch::Sender::new(false), watch::Sender::new(Bound::NotYet));
        Self {
            factories: Vec::new(),
            controllers: Vec::new(),
            elector: None,
            cache_start: CacheStart::default(),
            address: None,
            shutdown_timeout: Duration::from_secs(10),
            recorders: Vec::new(),
            checks: Vec::new(),
            collectors: Vec::new(),
            shared: Arc::new(Shared { stop, bound, life: Mutex::new(RunState::NotStarted) }),
        }
    }

    /// With these informers too. The factories of its controllers it knows; informers that a controller was given from elsewhere are their maker's.
    pub fn factory(mut self, factory: &SharedInformerFactory) -> Self {
        if !self.factories.iter().any(|known| known.is_same(factory)) {
            self.factories.push(factory.clone());
        }
        self
    }

    /// With this controller, and its informers. Its name must be its own.
    pub fn controller(self, controller: RunnableController) -> Self {
        let mut manager = self.factory(controller.factory());
        manager.controllers.push(controller);
        manager
    }

    /// Controllers run only while this candidate leads.
    pub fn leader_election(mut self, elector: LeaderElector) -> Self {
        self.elector = Some(elector);
        self
    }

    /// When the caches are filled, if a leader is elected.
    pub fn cache_start(mut self, caches: CacheStart) -> Self {
        self.cache_start = caches;
        self
    }

    /// With this recorder of events: its figures are among the others, and what waits to be written at the end is written after the last turn.
    pub fn recorder(mut self, recorder: EventRecorder) -> Self {
        self.recorders.push(recorder);
        self
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this port of the loopback address. Port 0 is any free one; see
    /// [`ManagerHandle::address`].
    pub fn serve(self, port: u16) -> Self {
        self.serve_on((Ipv4Addr::LOCALHOST, port))
    }

    /// The same on another address. Whoever reaches it can read them: they hold names of kinds and reasons of failures, and no contents.
    pub fn serve_on(mut self, address: impl Into<SocketAddr>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// One more condition of `/readyz`: an error is the reason why it is not ready. It must not block.
    pub fn add_readyz_check(
        mut self,
        name: impl Into<Box<str>>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check::new(name.into(), false, check));
        self
    }

    /// One more condition of `/healthz`: an error says that only a restart can help. It must not block.
    pub fn add_healthz_check(
        mut self,
        name: impl Into<Box<str>>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.checks.push(Check::new(name.into(), true, check));
        self
    }

    /// Adds a collector to the metrics that are served at `/metrics`.
    pub fn add_collector(mut self, collector: impl Collect + Send + Sync + 'static) -> Self {
        self.collectors.push(Box::new(collector));
        self
    }

    /// How long informers have to tell what they have received, at the end, and recorders to write their events; 10 seconds, unless set. Turns of controllers have
    /// [their own](crate::controller::Controller::shutdown_timeout).
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = limit;
        self
    }

    /// The manager as it looks from outside, before, while and after it runs.
    pub fn handle(&self) -> ManagerHandle {
        ManagerHandle(Arc::clone(&self.shared))
    }

    /// Runs everything until SIGINT or SIGTERM, or until something ends that must not. A second signal ends the process at once,
    /// with the code of a process that was killed by it; so does any signal when no manager of the process runs any more.
    pub async fn run(self) -> Result<(), ManagerError> {
        let mut signals = signals::Listener::new().map_err(ManagerError::Signals)?;
        let stop = async {
            let signal = signals.first().await;
            tracing::info!(signal, "stopping; another signal ends the process at once");
        };
        self.run_until(stop).await
    }

    /// Runs everything until `stop`, or until something ends that must not. Signals are left alone.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let mut names: Vec<&str> = self.controllers.iter().map(RunnableController::name).collect();
        names.sort_unstable();
        if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(ManagerError::DuplicateController(two[0].into()));
        }
        let health = Arc::new(self.health());
        self.shared.set_life(RunState::Runs(Arc::clone(&health)));
        let pages = match self.address {
            Some(address) => Some(
                serve::Pages::serve(address, Arc::clone(&health))
                    .await
                    .map_err(|source| ManagerError::Bind { address, source })?,
            ),
            None => None,
        };
        if let Some(pages) = &pages {
            tracing::info!(address = %pages.address, "serving /healthz, /readyz and /metrics");
        }
        let bound = pages.as_ref().map_or(Bound::Nowhere, |pages| Bound::At(pages.address));
        self.shared.bound.send_replace(bound);
        if self.elector.is_none() || self.cache_start == CacheStart::Immediate {
            self.factories.iter().for_each(SharedInformerFactory::start);
        }
        let asked = stopping(self.shared.stop.subscribe());
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = asked => {}
            }
            health.stops();
        };
        let ended = self.work(stop).await;
        health.stops();
        self.shared.stop.send_replace(true);
        for late in
            join_all(self.recorders.iter().map(|recorder| recorder.shutdown(self.shutdown_timeout))).await
        {
            if let Err(error) = late {
                tracing::warn!(%error, "events are lost");
            }
        }
        let informers =
            join_all(self.factories.iter().map(|factory| factory.shutdown(self.shutdown_timeout))).await;
        if let Some(pages) = pages {
            pages.end().await;
        }
        ended.and(ShutdownError::collect(self.shutdown_timeout, informers).map_err(ManagerError::Shutdown))
    }

    fn health(&mut self) -> Health {
        Health {
            factories: self.factories.clone(),
            controllers: self.controllers.clone(),
            election: self.elector.as_ref().map(|elector| (elector.lease_name(), elector.leadership())),
            delayed_caches: self.elector.is_some() && self.cache_start == CacheStart::OnceLeading,
            recorders: self.recorders.clone(),
            checks: std::mem::take(&mut self.checks),
            collectors: std::mem::take(&mut self.collectors),
            stopping: AtomicBool::new(false),
        }
    }

    /// Elects, if that is asked for, and runs the controllers, until `stop` or one of them fails.
    async fn work(&mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        // Whoever says first that it is to end.
        let ending = watch::Sender::new(false);
        let work = async {
            let Some(elector) = self.elector.take() else {
                return self.control(None, &ending).await;
            };
            let failed: Mutex<Result<(), ManagerError>> = Mutex::new(Ok(()));
            let stuck = Notify::new();
            let lead = |term: Term| {
                let (ending, failed, stuck, manager) = (&ending, &failed, &stuck, &*self);
                async move {
                    manager.factories.iter().for_each(SharedInformerFactory::start);
                    let ended = manager.control(Some(term.fencing_token().clone()), ending).await;
                    let is_stuck =
                        matches!(&ended, Err(ManagerError::Controller(error)) if error.is_blocked());
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = ended;
                    if is_stuck {
                        stuck.notify_one();
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                ended = elector.run(lead, stopping(ending.subscribe())) => {
                    let _how = ended?;
                }
                // A turn still acts. What is not given back runs out by itself; until then nobody else acts.
                () = stuck.notified() => tracing::error!("the lease is not given back, because a turn has not ended"),
            }
            failed.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let mut work = std::pin::pin!(work.fuse());
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            ended = &mut work => return ended,
            () = &mut stop => ending.send_replace(true),
        };
        work.await
    }

    /// Runs the controllers until all have ended: when it is said, or when one has failed.
    async fn control(
        &self,
        fence: Option<FencingToken>,
        ending: &watch::Sender<bool>,
    ) -> Result<(), ManagerError> {
        let runs = self.controllers.iter().map(|controller| {
            let (fence, stop) = (fence.clone(), stopping(ending.subscribe()));
            async move {
                let ended = controller.run_in(fence, stop).await;
                if let Err(error) = &ended {
                    tracing::error!(%error, "a controller has ended; so does everything else");
                    ending.send_replace(true);
                }
                ended
            }
        });
        let ended = join_all(runs).await;
        if self.controllers.is_empty() {
            stopping(ending.subscribe()).await;
        }
        // Of several errors the one counts after which least is certain.
        let mut errors: Vec<ControllerError> = ended.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| !error.is_blocked());
        errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Whoever holds a handle learns that it is over, however it ended, and keeps nothing alive.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.set_life(RunState::Ended);
        self.shared.bound.send_replace(Bound::Nowhere);
    }
}

impl Shared {
    fn set_life(&self, life: RunState) {
        let before = std::mem::replace(&mut *self.life(), life);
        // What it holds may be anything, so no lock is held.
        drop(before);
    }

    fn life(&self) -> std::sync::MutexGuard<'_, RunState> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
}

impl ManagerHandle {
    /// Stops the manager gently, as a first signal does.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }

    /// Where its pages are served, as soon as they are; nothing if they are not, or not any more.
    pub async fn address(&self) -> Option<SocketAddr> {
        let mut bound = self.0.bound.subscribe();
        let bound = bound.wait_for(|bound| *bound != Bound::NotYet).await.map(|bound| *bound);
        match bound {
            Ok(Bound::At(address)) => Some(address),
            _ => None,
        }
    }

    /// Why it is not ready; nothing if it is. The same that `/readyz` says.
    pub fn readiness_failures(&self) -> Vec<String> {
        match self.health() {
            Ok(health) => health.readiness_failures(),
            Err(reason) => vec![reason.to_owned()],
        }
    }

    /// Why only a restart can help; nothing if all is well. The same that `/healthz` says.
    pub fn health_failures(&self) -> Vec<String> {
        self.health().map(|health| health.health_failures()).unwrap_or_default()
    }

    fn health(&self) -> Result<Arc<Health>, &'static str> {
        match &*self.0.life() {
            RunState::NotStarted => Err("not started"),
            RunState::Runs(health) => Ok(Arc::clone(health)),
            RunState::Ended => Err("ended"),
        }
    }
}

/// Returns when it is said.
async fn stopping(mut said: watch::Receiver<bool>) {
    // Whoever could say it is there until everything has ended.
    let _gone = said.wait_for(|said| *said).await.is_err();
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("controllers", &self.controllers)
            .field("elector", &self.elector)
            .field("caches", &self.cache_start)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manager, not ready because of {:?}", self.readiness_failures())
    }
}
