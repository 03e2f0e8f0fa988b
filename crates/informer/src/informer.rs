//! The typed handle of one informer.
//!
//! The handle only adds the Rust type of the objects; the [`Engine`] behind it does the work and is not
//! generic.

use crate::discovery::DynamicResource;
use crate::error::{ConditionWaitError, ParseError, ShutdownError, SyncError, VersionWaitError};
use crate::event::Event;
use crate::handler::{EventStream, Handler, HandlerBuilder};
use crate::lister::{IndexHandle, Lister, Snapshot};
use crate::metrics::{Collect, Encoder, InformerMetrics};
use crate::resource::ResourceType;
use crate::shared::{Engine, InformerOptions, Registration};
use crate::source::Source;
use crate::status::InformerStatus;
use informer_core::{DecodeAhead, Index, Projection, ResourceVersion};
use kube::Resource;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The default limit of the estimated memory of a projection's values, in bytes.
const DEFAULT_PROJECTION_LIMIT: usize = 1 << 30;

/// An informer for one kind: a cache that is kept up to date by list and watch, and delivers changes to
/// handlers.
///
/// A `SharedInformer` is a handle: it is cheap to clone, and all clones are the same informer. The informer
/// lives as long as one of its handles, listers, registrations or event streams; a factory also keeps it alive
/// before `start`, and for detached handlers. Then the watch ends and the memory is freed.
pub struct SharedInformer<K> {
    engine: Arc<Engine>,
    /// Decodes objects as a `K` when they arrive, if the retention is `Decoded`.
    decode_ahead: Option<DecodeAhead>,
    kind: PhantomData<fn() -> K>,
}

impl<K> SharedInformer<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    /// Creates an informer for all objects of the kind, with default options.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, InformerOptions::default())
    }

    /// Creates an informer with these options.
    pub fn with_options(client: kube::Client, options: InformerOptions) -> Self {
        Self::from_engine(Engine::new(Some(client), &ResourceType::of::<K>(&()), options))
    }

    /// Creates an informer that lists and watches through `source` instead of an API server.
    ///
    /// The source decides which objects it returns; see [`InformerOptions::source`].
    pub fn with_source(source: impl Source, options: InformerOptions) -> Self {
        Self::from_engine(Engine::new(None, &ResourceType::of::<K>(&()), options.source(source)))
    }
}

impl SharedInformer<DynamicObject> {
    /// Creates an informer for a kind that is known only at run time.
    ///
    /// The options decide about the namespaces; a cluster-scoped kind has none.
    pub fn dynamic(client: kube::Client, resource: &impl DynamicResource, options: InformerOptions) -> Self {
        let options = if resource.is_cluster_scoped() { options.all_namespaces() } else { options };
        let resource = ResourceType::of::<DynamicObject>(&resource.to_api_resource());
        Self::from_engine(Engine::new(Some(client), &resource, options))
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> SharedInformer<K> {
    /// Creates a handle of an engine.
    pub(crate) fn from_engine(engine: Arc<Engine>) -> Self {
        Self { decode_ahead: engine.decode_ahead::<K>(), engine, kind: PhantomData }
    }
}

impl<K> SharedInformer<K> {
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns what makes the cache decode objects as a `K` when they arrive, while it is held.
    pub(crate) fn decode_ahead(&self) -> Option<DecodeAhead> {
        self.decode_ahead.clone()
    }

    /// Returns the description of the informer that messages contain, such as `pods in all namespaces`.
    pub fn description(&self) -> &str {
        &self.engine.description
    }

    /// Starts the informer; later calls have no effect. After a shutdown it cannot be started again.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn start(&self) {
        self.engine.start(&tokio::runtime::Handle::current());
    }

    /// Adds an index, before or after the start.
    ///
    /// The index is built on the calling thread, from a snapshot. Look-ups through the handle are correct
    /// immediately, and fast once the informer has installed the index. Adding an index by the same field
    /// or label again shares the existing index.
    ///
    /// # Errors
    ///
    /// Returns an error if the field path of the index cannot be parsed.
    pub fn add_index(&self, index: Index) -> Result<IndexHandle<K>, ParseError> {
        let handle = index.build()?;
        self.engine.add_index(handle.clone());
        Ok(IndexHandle::new(handle))
    }

    /// Adds a projection: a part of each object, decoded once per object state and read by reference with
    /// [`Object::projected`](crate::Object::projected).
    ///
    /// `P` is any type that deserializes from the object, with only the fields you need. A read returns a
    /// reference and takes some nanoseconds, where [`Object::typed`](crate::Object::typed) decodes the whole
    /// object. The values take memory besides the cached bytes, at most about 1 GiB; see
    /// [`add_projection_with_limit`](Self::add_projection_with_limit).
    ///
    /// ```
    /// use informer::SharedInformer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct PodLite {
    ///     spec: Option<SpecLite>,
    /// }
    ///
    /// #[derive(serde::Deserialize)]
    /// #[serde(rename_all = "camelCase")]
    /// struct SpecLite {
    ///     node_name: Option<String>,
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use informer::{Key, SharedInformerFactory};
    /// # let server = informer_apiserver::ApiServer::new();
    /// # server.create(&serde_json::json!({"apiVersion": "v1", "kind": "Pod",
    /// #     "metadata": {"name": "web", "namespace": "default"},
    /// #     "spec": {"nodeName": "node-1", "containers": [{"name": "web", "image": "nginx"}]}}))?;
    /// # let factory = SharedInformerFactory::new(server.client());
    /// let pods: SharedInformer<Pod> = factory.informer();
    /// let lite = pods.add_projection::<PodLite>();
    /// factory.start();
    /// factory.wait_for_sync(std::time::Duration::from_secs(10)).await?;
    ///
    /// let on_node = |node: &str| -> usize {
    ///     let snapshot = pods.snapshot();
    ///     let nodes = snapshot.iter().filter_map(|pod| pod.projected(&lite).ok()?.spec.as_ref());
    ///     nodes.filter(|spec| spec.node_name.as_deref() == Some(node)).count()
    /// };
    /// assert_eq!(on_node("node-1"), 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A projection can be added before or after the start. Objects read after that are decoded as they
    /// arrive, before handlers are called (C4); objects read before are decoded on their first read. When the
    /// last handle is dropped, nothing new is decoded, and the values are freed in the background. Adding a
    /// projection of the same type again returns another handle to it.
    ///
    /// An object that does not fit `P` has an error in this projection, which is counted, and reported once
    /// as [`Diagnostic::ProjectionFailed`](crate::status::Diagnostic::ProjectionFailed); other objects are
    /// not affected. A type whose `Deserialize` panics for ten objects is not decoded any more.
    ///
    /// An index can use a projection: `Index::from_fn("node", move |pod: &Object<Pod>| …)` with a clone of the
    /// handle in the closure.
    pub fn add_projection<P: DeserializeOwned + Send + Sync + 'static>(&self) -> Projection<P> {
        self.add_projection_with_limit(DEFAULT_PROJECTION_LIMIT)
    }

    /// Adds a projection whose values take at most about `memory_limit` bytes.
    ///
    /// The memory is estimated from the strings, lists and maps of each value. Once the limit is reached,
    /// [`Object::projected`](crate::Object::projected) returns an error for objects that have no value yet. While
    /// another handle to a projection of this type exists, its limit stays.
    pub fn add_projection_with_limit<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        memory_limit: usize,
    ) -> Projection<P> {
        self.engine.add_projection(memory_limit)
    }

    /// Returns a lister, the live view of the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.engine))
    }

    /// Returns a snapshot of the newest published state of the cache, which lends its objects without copying
    /// them.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::new(self.engine.reader.snapshot())
    }

    /// Returns the current status.
    pub fn status(&self) -> InformerStatus {
        self.engine.status()
    }

    /// Returns a receiver of status changes: every new state, and every change and new resource version of the
    /// cache.
    ///
    /// `now` in a received status is the time of the last change; call [`status`](Self::status) to compute
    /// how long a state has lasted. Do not keep a `borrow` of the receiver: the informer waits until the
    /// borrow is dropped.
    pub fn subscribe_status(&self) -> watch::Receiver<InformerStatus> {
        self.engine.subscribe_status()
    }

    /// Returns the resource version of the cache; with several namespaces, the lowest of their
    /// versions.
    ///
    /// `None` until the initial list is complete, and if the versions of several namespaces cannot be
    /// compared.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.engine.reader.snapshot().resource_version().cloned()
    }

    /// Returns the metrics: counters, memory and handlers.
    pub fn metrics(&self) -> InformerMetrics {
        self.engine.metrics()
    }

    /// Waits until the initial list is in the cache (C7).
    ///
    /// The result does not affect the informer: it retries failures during and after the wait. To wait for an
    /// absent server without a limit, use [`Duration::MAX`].
    ///
    /// # Errors
    ///
    /// Returns an error immediately if the informer is forbidden, not served or stopped, and after
    /// `timeout` if it has not synced. The error contains the state of the informer.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for_sync(&self, timeout: Duration) -> Result<(), SyncError> {
        self.engine.sync_waiter().wait_for_sync(timeout).await
    }

    /// Waits until `condition` returns a value for the cache, and returns that value.
    ///
    /// The condition is checked once the informer has synced, and then whenever the cache has changed; several
    /// changes in quick succession may be checked together. It runs on the task of the caller and should be
    /// quick. `description` completes the sentence "wait for …" in the error.
    ///
    /// ```
    /// use informer::Key;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let create = |name: &str| server.create(&serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
    /// #     "metadata": {"name": name, "namespace": "default"}, "data": {"color": "blue"}}));
    /// # create("settings")?;
    /// # let factory = informer::SharedInformerFactory::new(server.client());
    /// let maps = factory.informer::<ConfigMap>();
    /// factory.start();
    ///
    /// let key = Key::new("default", "settings");
    /// let find = |maps: &informer::Snapshot<ConfigMap>| maps.get(&key)?.field("data.color");
    /// let color = maps.wait_for("a color in the settings", find, Duration::from_secs(10)).await?;
    /// assert_eq!(color, "blue");
    ///
    /// // A condition without a value.
    /// maps.wait_for("a config map", |maps| (!maps.is_empty()).then_some(()), Duration::from_secs(10)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error immediately if the informer has stopped, or is forbidden or not served and has never
    /// synced, and after `timeout` if the condition did not hold. The error contains the state of the informer
    /// (C7).
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for<R>(
        &self,
        description: &str,
        mut condition: impl FnMut(&Snapshot<K>) -> Option<R>,
        timeout: Duration,
    ) -> Result<R, ConditionWaitError> {
        let check = |state| condition(&Snapshot::new(state));
        self.engine.wait_for(description, check, timeout).await
    }

    /// Waits until the cache has reached a resource version, for example that of one's own write.
    ///
    /// Pass the `resourceVersion` that the server returned for a write to an object of this kind. If
    /// selectors hide the object, the cache reaches the version only with the next bookmark, about a minute
    /// later. If the informer watches several namespaces, use
    /// [`wait_for_resource_version_in`](Self::wait_for_resource_version_in).
    ///
    /// # Errors
    ///
    /// Returns an error immediately if the server is rewound during the wait (C1), if the versions cannot be
    /// compared, or if the informer has stopped, and after `timeout` if the version was not reached.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for_resource_version(
        &self,
        version: &ResourceVersion,
        timeout: Duration,
    ) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(None, version, timeout).await
    }

    /// Waits until the cache of one namespace has reached a resource version.
    ///
    /// If an informer watches several namespaces, each has its own version, and a quiet namespace may reach
    /// the version late; [`wait_for_resource_version`](Self::wait_for_resource_version) waits for all of
    /// them.
    ///
    /// # Errors
    ///
    /// Returns an error immediately if the informer does not watch the namespace, and in the cases of
    /// [`wait_for_resource_version`](Self::wait_for_resource_version).
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe.
    pub async fn wait_for_resource_version_in(
        &self,
        namespace: &str,
        version: &ResourceVersion,
        timeout: Duration,
    ) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(Some(namespace), version, timeout).await
    }

    /// Stops the informer for all its users (C10).
    ///
    /// The informer sends no more requests. It applies and delivers what it has already received; events not
    /// delivered after `timeout` are dropped. When this returns without an error, all tasks have ended and no
    /// handler is called any more. This can be called several times, also concurrently.
    ///
    /// If the kind is requested again, a factory that was not shut down creates a new informer; detached
    /// handlers do not move to it.
    ///
    /// # Errors
    ///
    /// Returns an error if a task has not ended after `timeout` and another 100 ms for handler calls in
    /// progress.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.engine.shutdown(timeout).await
    }
}

impl<K: 'static> SharedInformer<K> {
    /// Adds a closure as a handler; dropping the registration removes it.
    ///
    /// The handler receives the cached objects as its initial list, then every change. It is called for one
    /// event at a time, on the runtime's threads, and must not block: decode what you need, put keys into a
    /// queue, and return. If it is slower than the changes, the changes of an object are coalesced into one
    /// event. [`handler`](Self::handler) offers other options.
    pub fn on_event(&self, handler: impl FnMut(Event<K>) + Send + 'static) -> Registration {
        self.handler().on_event(handler)
    }

    /// Adds a [`Handler`] with default options.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Registration {
        self.handler().add(handler)
    }

    /// Returns a stream of the cached objects, as initial list, and then of every change.
    pub fn event_stream(&self) -> EventStream<K> {
        self.handler().event_stream()
    }

    /// Returns a builder for a handler with options: name, resync period, filter, blocking or inline,
    /// coalesced or not.
    pub fn handler(&self) -> HandlerBuilder<K> {
        HandlerBuilder::new(Arc::clone(&self.engine))
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        let (engine, decode_ahead) = (Arc::clone(&self.engine), self.decode_ahead.clone());
        Self { engine, decode_ahead, kind: PhantomData }
    }
}

impl<K> Collect for SharedInformer<K> {
    fn collect(&self, encoder: &mut Encoder) {
        self.engine.metrics().collect(encoder);
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "informer for {}: {}", self.engine.description, self.status().state)
    }
}
