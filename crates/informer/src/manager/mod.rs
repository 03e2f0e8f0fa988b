//! [`Manager`]: starts and stops the parts of a program in order: informers, controllers, tasks, leader election
//! and the endpoints for health and metrics.
//!
//! The manager does not know how any of the parts works. If a controller or a task fails permanently, the other
//! parts are stopped in order, and [`Manager::run`] returns the error.

mod handle;
mod health;
mod run;
mod serve;
mod shards;
mod signals;
mod tasks;

pub use handle::ManagerHandle;

use crate::access::RequiredAccess;
use crate::controller::RunnableController;
use crate::election::LeaderElector;
use crate::factory::SharedInformerFactory;
use crate::metrics::{self, Collect};
use crate::recorder::EventRecorder;
use crate::shard::ShardGroup;
use crate::workqueue::WorkQueue;
use futures::future::BoxFuture;
use handle::{RunState, ServedAddress, Shared};
use health::Check;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tasks::Task;
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

/// The parts of a program, started and stopped together: its informers, its controllers, its tasks, leader
/// election, and endpoints for health and metrics.
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
///     .serve_on_all_addresses(8080) // for the probes of a kubelet; serve(8080) is for loopback only
///     .run() // until SIGINT or SIGTERM; a second signal exits the process immediately
///     .await?;
/// # Ok(())
/// # }
/// ```
///
/// # Order
///
/// The manager starts the endpoints, the memberships in shard groups, the informers (unless
/// [`CacheStart::OnceLeading`] delays them), the [tasks](Self::add_task), and the controllers. If the endpoints cannot be served, nothing else starts, and no
/// request is sent. When the manager is stopped, or a controller or task fails, controllers and tasks are asked
/// to end at the same time; then the memberships in shard groups end, the recorders write their events, and the
/// informers and the endpoints stop.
///
/// # Leader election
///
/// With [`leader_election`](Self::leader_election), controllers run only while this process is the leader. If
/// leadership is lost, their reconciles are aborted, and the manager continues as a candidate: it starts them
/// again, with every object, when it becomes the leader again. Everything else runs in every process. When the
/// manager is stopped, the lease is released after the last reconcile.
///
/// # Health and readiness
///
/// The endpoints are served by [`serve_on_all_addresses`](Self::serve_on_all_addresses) for a kubelet,
/// [`serve`](Self::serve) for the same host, or [`serve_on`](Self::serve_on).
///
/// `/healthz` fails if a [check](Self::add_healthz_check) fails, or if this process did not notice the end of its
/// leadership for 20 s.
///
/// `/readyz` fails until all informers of the factories have synced and the controllers have started, while a
/// membership does not take part in its [shard group](Self::add_shard_group), if a
/// [check](Self::add_readyz_check) fails, and as soon as the manager stops. The response lists the reasons,
/// and has a line for each shard group. A standby is ready: its controllers need not run, nor its informers with
/// [`CacheStart::OnceLeading`].
///
/// A kind that is forbidden or not served is not an error of [`run`](Self::run): the manager runs, is not ready
/// for this reason, and continues when the kind becomes available. The kinds of
/// [optional](crate::controller::Controller::optional) sources are not required. A program that should end
/// instead adds a [task](Self::add_task) that waits until the informers have synced.
#[must_use = "a manager does nothing until it runs"]
pub struct Manager {
    factories: Vec<SharedInformerFactory>,
    controllers: Vec<RunnableController>,
    tasks: Vec<Task>,
    elector: Option<LeaderElector>,
    cache_start: CacheStart,
    address: Option<SocketAddr>,
    shutdown_timeout: Duration,
    shard_groups: Vec<ShardGroup>,
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
            tasks: Vec::new(),
            elector: None,
            cache_start: CacheStart::default(),
            address: None,
            shutdown_timeout: Duration::from_secs(10),
            shard_groups: Vec::new(),
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

    /// Adds a task of the program, such as the workers of a queue or a server. The name is used in log lines and
    /// errors.
    ///
    /// The function is called after the start of the informers, unless [`CacheStart::OnceLeading`] delays them.
    /// Its future runs as a task of the tokio runtime, on the leader and on every standby. Its argument is a
    /// future that completes when the task has to end, together with the controllers. The task may then take as
    /// long as the [shutdown timeout](Self::shutdown_timeout); informers, recorders and endpoints stop after it.
    /// A task that takes longer is aborted, and [`run`](Self::run) returns an error. If the task returns an error
    /// or panics, the manager stops and returns [`ManagerError::Task`](crate::error::ManagerError::Task). If it
    /// returns `Ok`, the manager continues without it.
    ///
    /// ```
    /// use informer::manager::Manager;
    /// use informer::workqueue::WorkQueue;
    /// use informer::{Key, SharedInformerFactory};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = informer_apiserver::ApiServer::new();
    /// # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
    /// #     "metadata": {"name": "a", "namespace": "default"}}))?;
    /// # let client = server.client();
    /// let factory = SharedInformerFactory::new(client);
    /// let queue = WorkQueue::<Key>::new();
    /// let (maps, keys) = (factory.informer::<ConfigMap>(), queue.clone());
    /// let _registration = maps.on_event(move |event| keys.add(event.object().key().clone()));
    ///
    /// let work = queue.clone();
    /// let manager = Manager::new().factory(&factory).queue("maps", &queue).add_task("worker", |stop| async move {
    ///     let take_keys = async {
    ///         while let Some(item) = work.get().await {
    ///             println!("{}", item.key());
    ///             item.done();
    /// #             work.shutdown();
    ///         }
    ///     };
    ///     let end = async {
    ///         stop.await;
    ///         work.shutdown(); // `get` returns the keys that are queued, then `None`
    ///     };
    ///     tokio::join!(take_keys, end);
    ///     Ok::<_, informer::Error>(())
    /// });
    /// # let handle = manager.handle();
    /// # let stop = async move { handle.wait_until_ready(std::time::Duration::from_secs(30)).await.unwrap() };
    /// # manager.run_until(stop).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A task that ends the program if the informers do not sync. It waits for `stop` too, because the informers
    /// stop after the tasks. Not for [`CacheStart::OnceLeading`]: the informers of a standby do not sync. The wait
    /// fails for a forbidden kind even if it is [optional](crate::controller::Controller::optional).
    ///
    /// ```
    /// # use informer::{SharedInformerFactory, manager::Manager};
    /// # use std::time::Duration;
    /// # fn example(manager: Manager, factory: &SharedInformerFactory) -> Manager {
    /// let factory = factory.clone();
    /// manager.add_task("sync", |stop| async move {
    ///     tokio::select! {
    ///         result = factory.wait_for_sync(Duration::from_secs(60)) => result.map_err(informer::Error::from),
    ///         () = stop => Ok(()),
    ///     }
    /// })
    /// # }
    /// ```
    ///
    /// A task that only one process may run uses a lease of its own, with the same `stop`:
    ///
    /// ```
    /// # use informer::{election::LeaderElector, manager::Manager};
    /// # fn example(manager: Manager, client: kube::Client) -> Manager {
    /// let elector = LeaderElector::new(client, "kube-system", "my-operator-report");
    /// manager.add_task("report", |stop| async move {
    ///     let work = |term: informer::election::Term| async move {
    ///         term.stop_requested().await; // do the work until then
    ///     };
    ///     elector.run(work, stop).await.map(drop)
    /// })
    /// # }
    /// ```
    pub fn add_task<F, R, E>(mut self, name: impl Into<Arc<str>>, task: F) -> Self
    where
        F: FnOnce(BoxFuture<'static, ()>) -> R + Send + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>> + 'static,
    {
        self.tasks.push(Task::new(name.into(), task));
        self
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

    /// Adds a membership in a shard group: it runs with the manager, its metrics are served, and `/readyz` fails while it
    /// does not take part in the group.
    ///
    /// It joins before the controllers start. When the manager stops, it begins to leave: a range moves to another member as
    /// soon as no reconcile of it runs, without waiting for the Lease to expire. If the membership has not ended when the
    /// [shutdown timeout](Self::shutdown_timeout) has passed after the end of the controllers and tasks, the Lease expires.
    ///
    /// A manager with a shard group or a sharded controller cannot have [leader election](Self::leader_election), and
    /// fails when it runs.
    pub fn add_shard_group(mut self, group: &ShardGroup) -> Self {
        if !self.shard_groups.iter().any(|known| known.is_same(group)) {
            self.shard_groups.push(group.clone());
        }
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
    /// In a pod, neither the kubelet nor Prometheus can reach this address: use
    /// [`serve_on_all_addresses`](Self::serve_on_all_addresses). The page "Metrics" of the book lists the names,
    /// labels and meanings of all metrics. Port 0 selects a free port; see [`ManagerHandle::address`].
    pub fn serve(self, port: u16) -> Self {
        self.serve_on((Ipv4Addr::LOCALHOST, port))
    }

    /// Serves `/healthz`, `/readyz` and `/metrics` on this port of all addresses, IPv4 and IPv6, so that a
    /// kubelet reaches them in a pod.
    ///
    /// On a host without IPv6, all IPv4 addresses are served; on one that separates the two, such as Linux with
    /// `net.ipv6.bindv6only=1`, both have a socket of their own. Like those of [`serve_on`](Self::serve_on), the
    /// endpoints have no authentication. The probes of the container:
    ///
    /// ```yaml
    /// ports: [{name: health, containerPort: 8080}]
    /// livenessProbe: {httpGet: {path: /healthz, port: health}}
    /// readinessProbe: {httpGet: {path: /readyz, port: health}}
    /// ```
    ///
    /// The page "Probes of a pod" of the book shows the whole pod and explains what the probes check.
    pub fn serve_on_all_addresses(self, port: u16) -> Self {
        self.serve_on((Ipv6Addr::UNSPECIFIED, port))
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

    /// Sets how long, when stopping, tasks may take to end, recorders to write their events, and informers to
    /// deliver pending ones. Each of these steps may take this long. Defaults to 10 s.
    ///
    /// Controllers have their own [timeout](crate::controller::Controller::shutdown_timeout) for running
    /// reconciles.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// Returns the permissions that informers, leader election, shard groups and event recorders need, for the roles of the
    /// program.
    ///
    /// They include `list` and `watch` of all sources of the controllers and of all existing informers of the
    /// factories. A [finalizer](crate::finalizer::Finalizer::required_access) belongs to a reconcile function, and
    /// is added with [`RequiredAccess::merge`]. What reconcile functions write is unknown: add it with
    /// [`RequiredAccess::add`], or from the requests that the embedded API server has recorded in a test.
    pub fn required_access(&self) -> RequiredAccess {
        let mut access = RequiredAccess::default();
        self.factories.iter().for_each(|factory| factory.add_required_access(&mut access));
        self.controllers.iter().for_each(|controller| controller.add_required_access(&mut access));
        if let Some(elector) = &self.elector {
            elector.add_required_access(&mut access);
        }
        self.shard_groups.iter().for_each(|group| access.merge(group.required_access()));
        if !self.recorders.is_empty() {
            EventRecorder::add_required_access(&mut access);
        }
        access
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
