//! [`Manager`]: starts and stops the parts of a program in order: informers, controllers, leader election and
//! the endpoints for health and metrics.
//!
//! The manager does not know how any of the parts works. If a controller fails permanently, the other parts
//! are stopped in order, and [`Manager::run`] returns the error.

mod health;
mod serve;
mod signals;

use crate::controller::RunnableController;
use crate::election::{LeaderElector, Term};
use crate::error::{ControllerError, ManagerError, ShutdownError};
use crate::factory::SharedInformerFactory;
use crate::metrics::{self, Collect};
use crate::recorder::EventRecorder;
use crate::workqueue::WorkQueue;
use futures::future::{FutureExt as _, join_all};
use health::{Check, Health};
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// When a program with leader election starts its informers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheStart {
    /// At the start of the program, so that a new leader can reconcile without waiting for caches.
    #[default]
    Immediate,
    /// When this process becomes the leader for the first time; a standby puts no load on the server. The
    /// informers keep running when leadership is lost.
    OnceLeading,
}

/// The parts of a program, started and stopped together: its informers, its controllers, leader election, and
/// endpoints for health and metrics.
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
///     .serve(8080) // on loopback; the probes of a kubelet need serve_on(([0, 0, 0, 0], 8080))
///     .run()       // until SIGINT or SIGTERM; a second signal exits the process immediately
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// The start order is: endpoints, informers (unless [`CacheStart::OnceLeading`] delays them), leader
/// election, controllers. With leader election, controllers run only while this process is the leader. The
/// stop order is the reverse: the lease is released after the last reconcile, and the informers stop when no
/// controller reads them any more.
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

/// The state shared by a manager and its handles.
struct Shared {
    stop: watch::Sender<bool>,
    run_state: Mutex<RunState>,
    served_address: watch::Sender<ServedAddress>,
}

/// Whether a manager is running.
enum RunState {
    NotStarted,
    Running(Arc<Health>),
    Ended,
}

/// The address of the endpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServedAddress {
    /// Not known yet.
    Pending,
    At(SocketAddr),
    /// The endpoints are not served, or the manager has ended.
    NotServed,
}

/// A handle to stop and inspect a [`Manager`]. Clones are cheap.
#[derive(Clone)]
pub struct ManagerHandle(Arc<Shared>);

impl Manager {
    /// Creates a manager without informers, controllers and endpoints.
    pub fn new() -> Self {
        let stop = watch::Sender::new(false);
        let served_address = watch::Sender::new(ServedAddress::Pending);
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
            shared: Arc::new(Shared { stop, served_address, run_state: Mutex::new(RunState::NotStarted) }),
        }
    }

    /// Adds the informers of a factory.
    ///
    /// The factories of controllers are added by [`controller`](Self::controller). Informers of other
    /// factories that a controller uses as sources are not managed: their creator has to stop them.
    pub fn factory(mut self, factory: &SharedInformerFactory) -> Self {
        if !self.factories.iter().any(|known| known.shares_informers_with(factory)) {
            self.factories.push(factory.clone());
        }
        self
    }

    /// Adds a controller and the informers of its factory. The names of controllers must be unique.
    pub fn controller(self, controller: RunnableController) -> Self {
        let mut manager = self.factory(controller.factory());
        manager.controllers.push(controller);
        manager
    }

    /// Runs the controllers only while this process is the leader.
    pub fn leader_election(mut self, elector: LeaderElector) -> Self {
        self.elector = Some(elector);
        self
    }

    /// Sets when the informers start, if there is leader election. Defaults to [`CacheStart::Immediate`].
    pub fn cache_start(mut self, cache_start: CacheStart) -> Self {
        self.cache_start = cache_start;
        self
    }

    /// Adds an event recorder: its metrics are served, and its pending events are written after the last
    /// reconcile.
    pub fn recorder(mut self, recorder: EventRecorder) -> Self {
        self.recorders.push(recorder);
        self
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this port of the loopback address.
    ///
    /// Port 0 selects a free port; see [`ManagerHandle::address`].
    pub fn serve(self, port: u16) -> Self {
        self.serve_on((Ipv4Addr::LOCALHOST, port))
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this address.
    ///
    /// The endpoints have no authentication. They show names of kinds and reasons of failures, but no
    /// contents of objects.
    pub fn serve_on(mut self, address: impl Into<SocketAddr>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// Adds a check to `/readyz`; its error is the reason why the program is not ready. It must not block.
    pub fn add_readyz_check(
        mut self,
        name: impl Into<Box<str>>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let affects_liveness = false;
        self.checks.push(Check::new(name.into(), affects_liveness, check));
        self
    }

    /// Adds a check to `/healthz`; its error is the reason why the process must be restarted. It must not
    /// block.
    pub fn add_healthz_check(
        mut self,
        name: impl Into<Box<str>>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let affects_liveness = true;
        self.checks.push(Check::new(name.into(), affects_liveness, check));
        self
    }

    /// Serves the metrics of a work queue at `/metrics`, labelled `name`. Controllers' own queues are served
    /// without this call, under the names of the controllers.
    pub fn queue<T>(self, name: impl Into<String>, queue: &WorkQueue<T>) -> Self
    where
        T: Eq + Hash + Clone + Send + 'static,
    {
        self.add_collector(metrics::named(name, queue.clone()))
    }

    /// Adds a collector to the metrics that are served at `/metrics`; see [`queue`](Self::queue) for work
    /// queues and [`metrics::named`] for other collectors without a name of their own.
    pub fn add_collector(mut self, collector: impl Collect + Send + Sync + 'static) -> Self {
        self.collectors.push(Box::new(collector));
        self
    }

    /// Sets how long, when stopping, informers may deliver pending events and recorders may write theirs.
    /// Defaults to 10 s.
    ///
    /// Controllers have their own [timeout](crate::controller::Controller::shutdown_timeout) for running
    /// reconciles.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Returns a handle, which can be used before, during and after the run.
    pub fn handle(&self) -> ManagerHandle {
        ManagerHandle(Arc::clone(&self.shared))
    }

    /// Runs everything until SIGINT, SIGTERM, a call of [`ManagerHandle::stop`], or a permanent failure of a
    /// controller.
    ///
    /// A second signal exits the process immediately, with the exit code of a process killed by that signal.
    /// So does any signal after all managers of the process have ended.
    pub async fn run(self) -> Result<(), ManagerError> {
        let mut signals = signals::Listener::new().map_err(ManagerError::Signals)?;
        let stop = async {
            let signal = signals.first_signal().await;
            tracing::info!(signal, "stopping; another signal exits the process immediately");
        };
        self.run_until(stop).await
    }

    /// Runs everything until `stop` completes, [`ManagerHandle::stop`] is called, or a controller fails
    /// permanently. Does not handle signals.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        let mut names: Vec<&str> = self.controllers.iter().map(RunnableController::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ManagerError::DuplicateController(pair[0].into()));
        }
        let health = Arc::new(self.health());
        self.shared.set_run_state(RunState::Running(Arc::clone(&health)));
        let endpoints = match self.address {
            Some(address) => Some(
                serve::Endpoints::serve(address, Arc::clone(&health))
                    .await
                    .map_err(|source| ManagerError::Bind { address, source })?,
            ),
            None => None,
        };
        if let Some(endpoints) = &endpoints {
            tracing::info!(address = %endpoints.address, "serving /healthz, /readyz and /metrics");
        }
        let served_address = endpoints
            .as_ref()
            .map_or(ServedAddress::NotServed, |endpoints| ServedAddress::At(endpoints.address));
        self.shared.served_address.send_replace(served_address);
        if self.elector.is_none() || self.cache_start == CacheStart::Immediate {
            self.factories.iter().for_each(SharedInformerFactory::start);
        }
        let handle_stop = wait_until_true(self.shared.stop.subscribe());
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = handle_stop => {}
            }
            health.set_stopping();
        };
        let result = self.run_controllers(stop).await;
        health.set_stopping();
        self.shared.stop.send_replace(true);
        for recorder_result in
            join_all(self.recorders.iter().map(|recorder| recorder.shutdown(self.shutdown_timeout))).await
        {
            if let Err(error) = recorder_result {
                tracing::warn!(%error, "recorded events are lost");
            }
        }
        let informer_results =
            join_all(self.factories.iter().map(|factory| factory.shutdown(self.shutdown_timeout))).await;
        if let Some(endpoints) = endpoints {
            endpoints.shutdown().await;
        }
        result.and(
            ShutdownError::collect(self.shutdown_timeout, informer_results).map_err(ManagerError::Shutdown),
        )
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

    /// Runs the controllers, with leader election if configured, until `stop` completes or a controller
    /// fails.
    async fn run_controllers(&mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        // Set by `stop` or by the first controller that fails.
        let ending = watch::Sender::new(false);
        let run = async {
            let Some(elector) = self.elector.take() else {
                return self.run_term(None, &ending).await;
            };
            let term_result: Mutex<Result<(), ManagerError>> = Mutex::new(Ok(()));
            let stuck = Notify::new();
            let lead = |term: Term| {
                let (ending, term_result, stuck, manager) = (&ending, &term_result, &stuck, &*self);
                async move {
                    manager.factories.iter().for_each(SharedInformerFactory::start);
                    let ended = manager.run_term(Some(term), ending).await;
                    let is_stuck =
                        matches!(&ended, Err(ManagerError::Controller(error)) if error.is_blocked());
                    *term_result.lock().unwrap_or_else(PoisonError::into_inner) = ended;
                    if is_stuck {
                        stuck.notify_one();
                        // If the work completed, the elector would release the lease.
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                ended = elector.run(lead, wait_until_true(ending.subscribe())) => {
                    let _outcome = ended?;
                }
                // A reconcile is still running and may write. The lease is not released but expires, so that
                // no other process becomes the leader immediately.
                () = stuck.notified() => tracing::error!("the lease is not released because a reconcile has not ended"),
            }
            term_result.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let mut run = std::pin::pin!(run.fuse());
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            ended = &mut run => return ended,
            () = &mut stop => ending.send_replace(true),
        };
        run.await
    }

    /// Runs the controllers until all have ended, after `ending` was set or one of them has failed.
    async fn run_term(&self, term: Option<Term>, ending: &watch::Sender<bool>) -> Result<(), ManagerError> {
        let runs = self.controllers.iter().map(|controller| {
            let (term, stop) = (term.clone(), wait_until_true(ending.subscribe()));
            async move {
                let ended = controller.run_in(term, stop).await;
                if let Err(error) = &ended {
                    tracing::error!(%error, "a controller has failed; stopping everything else");
                    ending.send_replace(true);
                }
                ended
            }
        });
        let ended = join_all(runs).await;
        if self.controllers.is_empty() {
            wait_until_true(ending.subscribe()).await;
        }
        // An error with stuck reconciles takes precedence: after it, writes may still happen.
        let mut errors: Vec<ControllerError> = ended.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| !error.is_blocked());
        errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Marks the manager as ended for its handles, also if the run was cancelled; handles keep nothing alive
/// after that.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.set_run_state(RunState::Ended);
        self.shared.served_address.send_replace(ServedAddress::NotServed);
    }
}

impl Shared {
    fn set_run_state(&self, run_state: RunState) {
        let previous = std::mem::replace(&mut *self.run_state(), run_state);
        // Dropped without the lock: it may drop closures of the application.
        drop(previous);
    }

    fn run_state(&self) -> std::sync::MutexGuard<'_, RunState> {
        self.run_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
}

impl ManagerHandle {
    /// Stops the manager in order, as the first signal does.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }

    /// Waits until the endpoints are served and returns their address; `None` if they are not served, or the
    /// manager has ended.
    pub async fn address(&self) -> Option<SocketAddr> {
        let mut served_address = self.0.served_address.subscribe();
        let known = served_address.wait_for(|address| *address != ServedAddress::Pending).await;
        match known.map(|address| *address) {
            Ok(ServedAddress::At(address)) => Some(address),
            _ => None,
        }
    }

    /// Returns the reasons why the program is not ready, as served at `/readyz`; empty if it is ready.
    pub fn readiness_failures(&self) -> Vec<String> {
        match self.health() {
            Ok(health) => health.readiness_failures(),
            Err(reason) => vec![reason.to_owned()],
        }
    }

    /// Returns the reasons why the process must be restarted, as served at `/healthz`; empty if it is
    /// healthy.
    pub fn health_failures(&self) -> Vec<String> {
        self.health().map(|health| health.health_failures()).unwrap_or_default()
    }

    fn health(&self) -> Result<Arc<Health>, &'static str> {
        match &*self.0.run_state() {
            RunState::NotStarted => Err("not started"),
            RunState::Running(health) => Ok(Arc::clone(health)),
            RunState::Ended => Err("ended"),
        }
    }
}

/// Waits until the value is true.
async fn wait_until_true(mut flag: watch::Receiver<bool>) {
    // Cannot fail: the senders live until everything has ended.
    let _closed = flag.wait_for(|flag| *flag).await.is_err();
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("controllers", &self.controllers)
            .field("elector", &self.elector)
            .field("cache_start", &self.cache_start)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manager, readiness failures: {:?}", self.readiness_failures())
    }
}
