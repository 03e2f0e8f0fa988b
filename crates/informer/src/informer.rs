//! The handle of one informer, with the Rust type of its objects.
//!
//! It only looks: everything is done by the [`Engine`] behind it, which is not generic.

use crate::error::{ParseError, ShutdownError, SyncError, VersionWaitError};
use crate::event::Event;
use crate::handler::{EventStream, Handler, HandlerBuilder};
use crate::lister::{Lister, Snapshot};
use crate::metrics::{Collect, Encoder, InformerMetrics};
use crate::resource::ResourceType;
use crate::shared::{Engine, InformerOptions, Registration};
use crate::source::Source;
use crate::status::InformerStatus;
use informer_core::{Index, IndexHandle, ResourceVersion};
use kube::Resource;
use kube::core::{ApiResource, DynamicObject};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// An informer for one kind: a cache that follows the server, and handlers that are told what changes.
///
/// Cheap to clone; all clones are the same informer. Informers, listers, registrations and event streams each keep it alive; when the
/// last of them goes, the watch ends and the memory is freed.
pub struct SharedInformer<K> {
    engine: Arc<Engine>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> SharedInformer<K> {
    /// An informer for all objects of the kind.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, InformerOptions::default())
    }

    /// An informer with these settings.
    pub fn with_options(client: kube::Client, options: InformerOptions) -> Self {
        Self::view(Engine::new(Some(client), &ResourceType::of::<K>(&()), options))
    }

    /// An informer that gets its lists and watches from elsewhere. What it selects is then the source's business.
    pub fn with_source(source: impl Source, options: InformerOptions) -> Self {
        Self::view(Engine::new(None, &ResourceType::of::<K>(&()), options.source(source)))
    }
}

impl SharedInformer<DynamicObject> {
    /// An informer for a kind that is known only at run time.
    pub fn dynamic(client: kube::Client, resource: &ApiResource, options: InformerOptions) -> Self {
        Self::view(Engine::new(Some(client), &ResourceType::of::<DynamicObject>(resource), options))
    }
}

impl<K> SharedInformer<K> {
    /// A view of an engine.
    pub(crate) fn view(engine: Arc<Engine>) -> Self {
        Self { engine, kind: PhantomData }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// What it informs about, as in messages: `pods in all namespaces`.
    pub fn description(&self) -> &str {
        &self.engine.resource
    }

    /// Starts it; later calls do nothing, also after a shutdown.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.engine.start(&tokio::runtime::Handle::current());
    }

    /// Adds an index, before or after the start. It is built here, from a snapshot; look-ups through the handle are right from the first
    /// moment, and fast once the informer has taken it over. An index by a field or label that is there already serves both handles.
    pub fn add_index(&self, index: Index) -> Result<IndexHandle, ParseError> {
        let handle = index.build()?;
        self.engine.add_index(handle.clone());
        Ok(handle)
    }

    /// Reads the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(Arc::clone(&self.engine))
    }

    /// Returns the newest published state of the cache, which lends its objects without copying them.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::new(self.engine.reader.snapshot())
    }

    /// Where it stands.
    pub fn status(&self) -> InformerStatus {
        self.engine.status()
    }

    /// The status as it changes: with every state, and with every version of the cache. `now` is the time of the last change, so ask
    /// [`SharedInformer::status`] for how long something has lasted. Do not hold on to a `borrow`: the informer waits for it.
    pub fn subscribe_status(&self) -> watch::Receiver<InformerStatus> {
        self.engine.subscribe_status()
    }

    /// The version that the cache stands for; `None` until it is synced.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.engine.reader.snapshot().resource_version().cloned()
    }

    /// What it has done and what it costs.
    pub fn metrics(&self) -> InformerMetrics {
        self.engine.metrics()
    }

    /// Waits until the first complete set is in the cache (C7). Fails at once where waiting is useless (forbidden, not served,
    /// stopped), waits through anything that may pass, and at the deadline says what the state is. The informer goes on regardless.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), SyncError> {
        self.engine.sync_waiter().wait_for_sync(deadline).await
    }

    /// Waits until the cache has reached a version: read your own writes.
    ///
    /// Give it the `resourceVersion` that the server answered to a write of this kind. What selectors hide shows only with the next
    /// bookmark, about a minute later; with several namespaces, see [`SharedInformer::wait_for_resource_version_in`]. Fails at once if the server goes back meanwhile (C1), if versions cannot be compared, and if the
    /// informer has stopped.
    pub async fn wait_for_resource_version(
        &self,
        version: &ResourceVersion,
        deadline: Duration,
    ) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(None, version, deadline).await
    }

    /// The same for one namespace of several, each of which has a position of its own: a quiet one would keep the others waiting.
    pub async fn wait_for_resource_version_in(
        &self,
        namespace: &str,
        version: &ResourceVersion,
        deadline: Duration,
    ) -> Result<(), VersionWaitError> {
        self.engine.wait_for_resource_version(Some(namespace), version, deadline).await
    }

    /// Stops it, for everybody who shares it (C10): no more requests; what is queued is applied and told until the deadline, then the rest is dropped. When this returns
    /// without an error, all its tasks have ended and no handler is called any more. May be called again, by anybody. Its factory makes a new
    /// one when the kind is asked for again, unless it was shut down itself; detached handlers do not move there.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        self.engine.shutdown(deadline).await
    }
}

impl<K: 'static> SharedInformer<K> {
    /// Registers a closure. It is told about everything that is there, then about every change; dropping the registration removes it.
    ///
    /// Handlers are called one event at a time, on the runtime's threads: they must not block. Decode what you need, put keys into a
    /// queue, and return. A handler that is slower than the changes sees fewer, larger steps. For anything else, see
    /// [`SharedInformer::handler`].
    pub fn on_event(&self, handler: impl FnMut(Event<K>) + Send + 'static) -> Registration {
        self.handler().on_event(handler)
    }

    /// Registers a handler with default options.
    pub fn add_handler(&self, handler: impl Handler<K>) -> Registration {
        self.handler().add(handler)
    }

    /// Everything that is there, then every change, as a stream.
    pub fn event_stream(&self) -> EventStream<K> {
        self.handler().event_stream()
    }

    /// Registers a handler with options: name, resync, filter, where it runs, every state or merged ones.
    pub fn handler(&self) -> HandlerBuilder<K> {
        HandlerBuilder::new(Arc::clone(&self.engine))
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self::view(Arc::clone(&self.engine))
    }
}

impl<K> Collect for SharedInformer<K> {
    fn collect(&self, encoder: &mut Encoder) {
        self.engine.metrics().collect(encoder);
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "informer for {}: {}", self.engine.resource, self.status().state)
    }
}
