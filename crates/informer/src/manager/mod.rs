//! [`Manager`]: starts and stops the parts of a program in order: informers, controllers, leader election and
//! the endpoints for health and metrics.
//!
//! The manager does not know how any of the parts works. If a controller fails permanently, the other parts
//! are stopped in order, and [`Manager::run`] returns the error.

mod handle;
mod health;
mod run;
mod serve;
mod signals;

pub use handle::ManagerHandle;

use crate::controller::RunnableController;
use crate::election::LeaderElector;
use crate::factory::SharedInformerFactory;
use crate::metrics::{self, Collect};
use crate::recorder::EventRecorder;
use crate::workqueue::WorkQueue;
use handle::{RunState, ServedAddress, Shared};
use health::Check;
use std::fmt;
use std::hash::Hash;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

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
}

/// Marks the manager as ended for its handles, also if the run was cancelled; handles keep nothing alive
/// after that.
impl Drop for Manager {
    fn drop(&mut self) {
        self.shared.set_run_state(RunState::Ended);
        self.shared.served_address.send_replace(ServedAddress::NotServed);
    }
}

impl Default for Manager {
    fn default() -> Self {
        Self::new()
    }
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
