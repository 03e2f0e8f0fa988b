//! [`Reflector`]: list and watch, for a sink of the program.
//!
//! It drives the same state machine as an informer, with the program's sink in the place of the pump.

use super::delta::Delta;
use crate::clock::Clock;
use crate::delta_queue::DeltaQueue;
use crate::discovery::DynamicResource;
use crate::error::SyncError;
use crate::reflector::ReflectorDriver;
use crate::resource::ResourceType;
use crate::shared::{InformerOptions, SyncWaiter};
use crate::source::Source;
use crate::status::{InformerStatus, StatusCell};
use informer_core::reflector::ShardedReflector as Machine;
use informer_core::{self as core, Batch, ResourceVersion, Retention};
use kube::Resource;
use kube::core::DynamicObject;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};
use tracing::Instrument as _;

/// Upper bound on the deltas that a sink receives together.
const MAX_BATCH_DELTAS: usize = 256;

/// Lists and watches the objects of a kind, and passes what the server reports to a sink; client-go's
/// `NewReflector`.
///
/// Use it to keep objects somewhere else than in the cache of an informer: in a database, in a data structure of
/// your own, or in a [`Store`](super::Store):
///
/// ```
/// use informer::cache::{Reflector, Store};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = informer_apiserver::ApiServer::new();
/// # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
/// #     "metadata": {"name": "settings", "namespace": "default"}}))?;
/// # let client = server.client();
/// let (reflector, store) = (Reflector::<ConfigMap>::new(client), Store::new());
/// let running = reflector.run(|deltas| {
///     for event in store.apply(deltas) {
///         println!("{event:?}");
///     }
///     async { Ok::<_, std::convert::Infallible>(()) } // a sink may wait, for example for a database
/// });
/// tokio::select! {
///     stopped = running => stopped?, // the sink failed
///     synced = reflector.wait_for_sync(Duration::from_secs(10)) => synced?,
/// } // dropping the future has stopped the reflector
/// assert!(store.lister().get("default", "settings").is_some());
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - The sink receives the deltas of each namespace in the order in which the server sent them (C1), beginning
///   with a complete list. The reflector keeps no objects, so it does not compare states; a server or proxy that
///   repeats an old state is noticed by [`Store::apply`](super::Store::apply), not by the reflector.
/// - After a gap in the watch, the sink receives another complete list, so that no deletion is lost (C2).
/// - The reflector is always in a named [state](Self::status), and [`wait_for_sync`](Self::wait_for_sync) ends
///   with a reason (C7).
/// - While the sink is busy, up to 4096 deltas or 16 MiB are queued per namespace; then nothing more is read from
///   the server (C8).
/// - It treats the server as an informer does (C11): backoff, `Retry-After`, detection of dead connections.
///
/// All options of an informer apply, except the resync period and the retention, which belong to the cache: the
/// objects are kept as with [`Retention::Bytes`](super::Retention::Bytes).
pub struct Reflector<K> {
    client: Option<kube::Client>,
    resource: ResourceType,
    options: InformerOptions,
    description: Arc<str>,
    status: Arc<StatusCell>,
    clock: Clock,
    /// Held while the reflector runs.
    running: Mutex<()>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Reflector<K> {
    /// Creates a reflector for all objects of the kind, with default options.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, InformerOptions::default())
    }

    /// Creates a reflector with these options.
    pub fn with_options(client: kube::Client, options: InformerOptions) -> Self {
        Self::create(Some(client), ResourceType::of::<K>(&()), options)
    }

    /// Creates a reflector that lists and watches through `source` instead of an API server, such as a
    /// [`ListWatch`](crate::source::ListWatch).
    pub fn with_source(source: impl Source, options: InformerOptions) -> Self {
        Self::create(None, ResourceType::of::<K>(&()), options.source(source))
    }
}

impl Reflector<DynamicObject> {
    /// Creates a reflector for a kind that is known only at run time.
    pub fn dynamic(client: kube::Client, resource: &impl DynamicResource, options: InformerOptions) -> Self {
        let options = if resource.is_cluster_scoped() { options.all_namespaces() } else { options };
        Self::create(Some(client), ResourceType::of::<DynamicObject>(&resource.to_api_resource()), options)
    }
}

impl<K> Reflector<K> {
    fn create(client: Option<kube::Client>, resource: ResourceType, options: InformerOptions) -> Self {
        let description = format!("{} {}", resource.name(), options.describe_selection()).into();
        let (status, running) = (Arc::new(StatusCell::new(&options.scopes())), Mutex::new(()));
        let (clock, kind) = (Clock::new(), PhantomData);
        Self { client, resource, options, description, status, clock, running, kind }
    }

    /// Lists and watches until the sink returns an error, and returns that error. To stop the reflector, drop the
    /// future.
    ///
    /// The sink is called with some deltas at a time, at least one, and not again until its future has completed;
    /// a list is passed alone. After an error, `run` may be called again: it begins with a new list, and with the
    /// [status](Self::status) of a reflector that was not started. A second call waits until the first one has
    /// ended.
    ///
    /// # Errors
    ///
    /// The error of the sink. Failures of the server are retried and never end `run`; see
    /// [`status`](Self::status) and [`InformerOptions::on_diagnostic`].
    pub fn run<Done, E>(&self, sink: impl FnMut(Vec<Delta<K>>) -> Done) -> impl Future<Output = Result<(), E>>
    where
        Done: Future<Output = Result<(), E>>,
    {
        // Already now, so that a wait for this run does not see the end of the last one, even if it is polled
        // before the returned future.
        if let Ok(_not_running) = self.running.try_lock() {
            self.status.reset();
        }
        self.run_alone(sink)
    }

    async fn run_alone<Done, E>(&self, sink: impl FnMut(Vec<Delta<K>>) -> Done) -> Result<(), E>
    where
        Done: Future<Output = Result<(), E>>,
    {
        let _running = self.running.lock().await;
        self.status.reset(); // if this run has waited, the status is that of the last one
        let queue = Arc::new(DeltaQueue::new(self.options.scopes().len()));
        let drivers = futures::future::join_all(self.drivers(&queue).into_iter().map(ReflectorDriver::run));
        let span = tracing::info_span!("reflector", resource = &*self.description);
        let run = async {
            tokio::select! {
                delivered = self.deliver(&queue, sink) => delivered,
                _ended = drivers => Ok(()),
            }
        };
        run.instrument(span).await
    }

    async fn deliver<Done, E>(
        &self,
        queue: &DeltaQueue,
        mut sink: impl FnMut(Vec<Delta<K>>) -> Done,
    ) -> Result<(), E>
    where
        Done: Future<Output = Result<(), E>>,
    {
        let mut synced = false;
        while let Some((scope_index, batch)) = queue.pop(MAX_BATCH_DELTAS).await {
            let (end, version) = (batch.end(), last_version(&batch));
            sink(batch.deltas.into_iter().filter_map(Delta::from_core).collect()).await?;
            let now = self.clock.now();
            if let Some(version) = version {
                self.status.record_version(scope_index, version, now);
            }
            if queue.applied(scope_index, end) && !synced {
                synced = true;
                self.status.set_synced(now);
            }
        }
        Ok(())
    }

    fn drivers(&self, queue: &Arc<DeltaQueue>) -> Vec<ReflectorDriver> {
        let options = &self.options;
        let (parameters, throughput) = (options.build_parameters(), options.throughput());
        let (diagnostics, stop) = (options.diagnostic_sink(&self.description), watch::Sender::new(false));
        let driver = |(scope_index, scope): (usize, core::Scope)| {
            let mut config = options.config(&self.resource, scope.clone());
            // The reflector has no cache that could limit the memory of decoded objects.
            config.retention = Retention::Bytes;
            let seed = options.seed_of(&self.description, scope_index);
            let (client, resource) = (self.client.as_ref(), &self.resource);
            Some(ReflectorDriver {
                machine: Machine::new(config, seed, None),
                source: options.source_of(client, resource, &scope, &parameters, &throughput)?,
                throughput: throughput.clone(),
                sample: None,
                queue: Arc::clone(queue),
                status: Arc::clone(&self.status),
                diagnostics: diagnostics.clone(),
                scope_index,
                saved: None,
                shard: None,
                clock: self.clock,
                stop: stop.clone(),
            })
        };
        options.scopes().into_iter().enumerate().filter_map(driver).collect()
    }

    /// Returns the description of the reflector that messages contain, such as `pods in all namespaces`.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Returns the current status. The counters of the cache are zero.
    ///
    /// `synced` means that the sink has processed a complete list of each namespace, and `resource_version` is
    /// the version up to which it has processed the changes.
    pub fn status(&self) -> InformerStatus {
        self.status.get(self.clock.now())
    }

    /// Waits until the sink has processed a complete list of each namespace (C7). The reflector must be running,
    /// in this task or another one.
    ///
    /// What counts is the last call of [`run`](Self::run), from the moment of the call. If `run` is called again in
    /// another task, the reflector is stopped until that task has called it.
    ///
    /// # Errors
    ///
    /// Returns an error immediately if the reflector is forbidden, not served or stopped, and after `timeout` if
    /// it has not synced, also if it was not started. The error contains the state of the reflector.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        let (description, status) = (Arc::clone(&self.description), Arc::clone(&self.status));
        SyncWaiter::without_engine(description, status, self.clock).wait_for_sync(timeout).await
    }
}

/// Returns the version that the last delta with a version leads to.
fn last_version(batch: &Batch) -> Option<ResourceVersion> {
    batch.deltas.iter().rev().find_map(|delta| match delta {
        core::Delta::Added(entry) | core::Delta::Updated(entry) => Some(entry.head().version.clone()),
        core::Delta::Deleted(deleted) => deleted.version.clone(),
        core::Delta::Replaced(replaced) => Some(replaced.version.clone()),
        core::Delta::Bookmark(version) => Some(version.clone()),
        core::Delta::Unreadable(unreadable) => unreadable.version.clone(),
        // Only with sharding.
        core::Delta::Gained(_) | core::Delta::Released(_) => None,
    })
}

impl<K> fmt::Debug for Reflector<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reflector for {}: {}", self.description, self.status().state)
    }
}
