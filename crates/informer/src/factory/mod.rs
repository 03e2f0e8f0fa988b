//! The factory: one client, and one shared informer per kind and selection.
//!
//! Calls with the same kind, representation (complete objects or metadata), namespaces and selectors return
//! handles of the same engine, with one watch and one cache. The first call for a kind fixes its options.
//! Before `start` the factory keeps its informers alive; after `start` only their handles and detached
//! handlers do. The factory does not know how an informer works.

#[cfg(feature = "accessors")]
pub mod accessors;
mod registry;
mod sharded;
mod wait;

use crate::access::RequiredAccess;
use crate::discovery::DynamicResource;
use crate::error::ConfigError;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use crate::metrics::{Collect, Encoder, InformerMetrics};
use crate::resource::{ResourceType, is_cluster_scoped};
use crate::shared::{Engine, InformerOptions, Selection, is_synced};
use kube::Resource;
use kube::core::{DynamicObject, PartialObjectMeta};
use registry::{FactoryView, Registry};
use serde::de::DeserializeOwned;
use std::fmt;
use std::sync::Arc;

/// A factory of informers that creates one informer per kind and selection, and shares it between all
/// callers.
///
/// A factory is cheap to clone; all clones are the same factory. Before [`start`](Self::start) the factory
/// keeps its informers alive. From then on an informer runs as long as one of its handles (informer,
/// lister, registration or event stream) or a detached handler exists.
///
/// ```no_run
/// use informer::{Event, Index, SharedInformerFactory};
/// use k8s_openapi::api::core::v1::{Node, Pod};
/// use std::time::Duration;
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let factory = SharedInformerFactory::new(client);
/// let pods = factory.informer::<Pod>();
/// let nodes = factory.lister::<Node>();
/// let _registration = pods.on_event(|event| println!("{event:?}"));
///
/// factory.start();
/// factory.wait_for_sync(Duration::from_secs(30)).await?; // on failure: the state of each informer
/// println!("{} pods on {} nodes", pods.lister().len(), nodes.len());
///
/// factory.shutdown(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SharedInformerFactory {
    registry: Arc<Registry>,
    view: Arc<FactoryView>,
}

impl SharedInformerFactory {
    /// Creates a factory with default options, whose informers select all objects in all namespaces.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, InformerOptions::default())
    }

    /// Creates a factory with these options for all kinds.
    ///
    /// [`configure`](Self::configure) overrides them for one kind. A [`source`](InformerOptions::source) in
    /// these options is ignored.
    pub fn with_options(client: kube::Client, options: InformerOptions) -> Self {
        let (registry, view) =
            (Arc::new(Registry::new(client)), Arc::new(FactoryView::new(options.for_all_kinds())));
        Self { registry, view }
    }

    /// Returns a view of this factory with other namespaces and selectors.
    ///
    /// The view takes everything else from this factory: the parts of the selection that are not set, and all
    /// other options of a kind, including those given to [`configure`](Self::configure). The view and this
    /// factory share informers with the same selection.
    ///
    /// ```no_run
    /// # use informer::{Selection, SharedInformerFactory};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(factory: &SharedInformerFactory) -> Result<(), informer::Error> {
    /// let unassigned = factory.select(Selection::default().field_selector("spec.nodeName=".parse()?));
    /// let pods = unassigned.informer::<Pod>();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn select(&self, selection: Selection) -> Self {
        let view = FactoryView::with_selection(Arc::clone(&self.view), selection);
        Self { registry: Arc::clone(&self.registry), view: Arc::new(view) }
    }

    /// Fixes the options of a kind for all later calls, including listers and accessors.
    ///
    /// Options that are not set are taken from the factory. Call this before the kind is used for the first
    /// time.
    ///
    /// # Errors
    ///
    /// Returns an error that names the option, and changes nothing, if the kind was already used or
    /// configured with different options.
    pub fn configure<K>(&self, options: InformerOptions) -> Result<(), ConfigError>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let resource = ResourceType::of::<K>(&());
        self.registry.configure(&self.view, &resource, options, is_cluster_scoped::<K>())
    }

    /// Fixes the options of a kind that is known only at run time; see [`configure`](Self::configure).
    ///
    /// # Errors
    ///
    /// Returns an error if the kind was already used or configured with different options.
    pub fn configure_dynamic(
        &self,
        resource: &impl DynamicResource,
        options: InformerOptions,
    ) -> Result<(), ConfigError> {
        let cluster_scoped = resource.is_cluster_scoped();
        let resource = ResourceType::of::<DynamicObject>(&resource.to_api_resource());
        self.registry.configure(&self.view, &resource, options, cluster_scoped)
    }

    /// Fixes the options of the metadata of a kind that is known only at run time; see
    /// [`configure`](Self::configure).
    ///
    /// For the metadata of a kind `K` that is known at compile time, configure `PartialObjectMeta<K>`.
    ///
    /// # Errors
    ///
    /// Returns an error if the metadata of the kind was already used or configured with different options.
    pub fn configure_dynamic_metadata(
        &self,
        resource: &impl DynamicResource,
        options: InformerOptions,
    ) -> Result<(), ConfigError> {
        let cluster_scoped = resource.is_cluster_scoped();
        let resource = ResourceType::of::<PartialObjectMeta<DynamicObject>>(&resource.to_api_resource());
        self.registry.configure(&self.view, &resource, options, cluster_scoped)
    }

    /// Returns the informer for a kind, and starts it if the factory is started.
    ///
    /// The namespaces of the factory's options do not apply to cluster-scoped kinds.
    pub fn informer<K>(&self) -> SharedInformer<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        SharedInformer::from_engine(self.engine_of::<K>())
    }

    pub(crate) fn engine_of<K: Resource<DynamicType = ()> + 'static>(&self) -> Arc<Engine> {
        self.engine(&ResourceType::of::<K>(&()), is_cluster_scoped::<K>())
    }

    /// Returns a lister of the informer for a kind.
    pub fn lister<K: Resource<DynamicType = ()> + 'static>(&self) -> Lister<K> {
        Lister::new(self.engine_of::<K>())
    }

    /// Returns the informer for a kind that is known only at run time.
    ///
    /// It shares the cache of the typed informer for the same kind. The namespaces of the factory's options do
    /// not apply to a cluster-scoped [`ServedResource`](crate::discovery::ServedResource), which
    /// [`resolve`](crate::resolve) returns. The scope of an [`ApiResource`](kube::core::ApiResource) is unknown:
    /// if it is cluster-scoped and the factory selects namespaces, call
    /// `select(Selection::default().all_namespaces())` first.
    pub fn dynamic_informer(&self, resource: &impl DynamicResource) -> SharedInformer<DynamicObject> {
        self.dynamic_informer_in_scope(resource, resource.is_cluster_scoped())
    }

    pub(crate) fn dynamic_informer_in_scope(
        &self,
        resource: &impl DynamicResource,
        cluster_scoped: bool,
    ) -> SharedInformer<DynamicObject> {
        let resource = ResourceType::of::<DynamicObject>(&resource.to_api_resource());
        SharedInformer::from_engine(self.engine(&resource, cluster_scoped))
    }

    /// Returns an informer for the metadata of a kind; the server sends only metadata.
    pub fn metadata_informer<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        self.informer()
    }

    /// Returns an informer for the metadata of a kind that is known only at run time.
    pub fn dynamic_metadata_informer(
        &self,
        resource: &impl DynamicResource,
    ) -> SharedInformer<PartialObjectMeta<DynamicObject>> {
        let cluster_scoped = resource.is_cluster_scoped();
        let resource = ResourceType::of::<PartialObjectMeta<DynamicObject>>(&resource.to_api_resource());
        SharedInformer::from_engine(self.engine(&resource, cluster_scoped))
    }

    /// Starts every informer that was requested so far.
    ///
    /// Informers that are requested later start immediately, on the runtime of this call. Later calls have
    /// no effect. A factory that was shut down cannot be started again.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    pub fn start(&self) {
        self.registry.start();
    }

    /// Adds the permissions that the existing informers need.
    pub(crate) fn add_required_access(&self, access: &mut RequiredAccess) {
        self.registry.engines().iter().for_each(|engine| engine.add_required_access(access));
    }

    /// Returns the metrics of all existing informers, ordered by kind and selection.
    pub fn metrics(&self) -> Vec<InformerMetrics> {
        self.registry.engines().iter().map(|engine| engine.metrics()).collect()
    }

    pub(crate) fn client(&self) -> &kube::Client {
        self.registry.client()
    }

    /// Returns whether this factory and `other` are clones or views of the same factory.
    pub(crate) fn shares_informers_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.registry, &other.registry)
    }

    /// Returns whether the factory is started or shut down.
    pub(crate) fn is_started(&self) -> bool {
        self.registry.is_started()
    }

    /// Returns the informers that are not synced, each with its state for messages.
    pub(crate) fn not_synced(&self) -> Vec<(Arc<Engine>, String)> {
        let describe = |engine: Arc<Engine>| {
            let status = engine.status();
            let reason = format!("{}: {}", engine.description, status.state.display_at(status.now));
            (!is_synced(&status)).then_some((engine, reason))
        };
        self.registry.engines().into_iter().filter_map(describe).collect()
    }

    pub(crate) fn engine(&self, resource: &ResourceType, cluster_scoped: bool) -> Arc<Engine> {
        self.registry.engine(&self.view, resource, cluster_scoped)
    }
}

impl Collect for SharedInformerFactory {
    fn collect(&self, encoder: &mut Encoder) {
        for metrics in self.metrics() {
            metrics.collect(encoder);
        }
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> =
            self.registry.engines().iter().map(|engine| engine.description.to_string()).collect();
        write!(f, "factory of informers: {names:?}")
    }
}
