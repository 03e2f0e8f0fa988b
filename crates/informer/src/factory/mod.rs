//! One client, informers for many kinds, each shared by everybody who asks for it.
//!
//! A factory hands out views of engines. Calls that agree in kind, form, namespaces and selectors get the same engine: one watch, one
//! cache. Which options a kind has is settled by the first call that touches it, and never changes after that. Before the start the factory
//! keeps its informers alive; afterwards their handles do. It does not know how an informer works.

#[cfg(feature = "accessors")]
pub mod accessors;
mod registry;
mod wait;

use crate::error::ConfigError;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use crate::metrics::{Collect, Encoder, InformerMetrics};
use crate::resource::{ResourceType, is_cluster_scoped};
use crate::shared::{Engine, InformerOptions, is_synced};
use kube::Resource;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use registry::{FactoryView, Registry};
use std::fmt;
use std::sync::Arc;

/// Hands out informers, one for each kind however often it is asked for.
///
/// Cheap to clone; all clones are the same factory.
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
/// let _watching = pods.on_event(|event| println!("{event:?}"));
///
/// factory.start();
/// factory.wait_for_sync(Duration::from_secs(30)).await?; // synced, or each kind's state and reason
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
    /// A factory for everything in all namespaces.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, InformerOptions::default())
    }

    /// A factory whose informers have these settings, each kind unless it is configured otherwise.
    pub fn with_options(client: kube::Client, options: InformerOptions) -> Self {
        let (registry, view) =
            (Arc::new(Registry::new(client)), Arc::new(FactoryView::new(options.for_all_kinds())));
        Self { registry, view }
    }

    /// The same factory with another choice of objects: the namespaces and selectors of `options` that are set, and no other setting.
    /// In everything else a kind is what it is here, also what it was configured to be. Kinds that are asked for here and there with the
    /// same choice still share one watch.
    ///
    /// ```no_run
    /// # use informer::{InformerOptions, SharedInformerFactory};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # fn example(factory: &SharedInformerFactory) -> Result<(), Box<dyn std::error::Error>> {
    /// let unassigned = factory.select(InformerOptions::default().field_selector("spec.nodeName=".parse()?));
    /// let pods = unassigned.informer::<Pod>();
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn select(&self, options: InformerOptions) -> Self {
        let view = FactoryView::choosing(Arc::clone(&self.view), options);
        Self { registry: Arc::clone(&self.registry), view: Arc::new(view) }
    }

    /// Fixes the options of a kind for every later call, accessors and listers included. What they leave open is the factory's.
    ///
    /// The first word counts: if the kind has been asked for, or configured, with options that differ, that is an error naming the
    /// option, and nothing changes.
    pub fn configure<K>(&self, options: InformerOptions) -> Result<(), ConfigError>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        let resource = ResourceType::of::<K>(&());
        self.registry.configure(&self.view, &resource, options, is_cluster_scoped::<K>())
    }

    /// The same for a kind that is known only at run time.
    pub fn configure_dynamic(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<(), ConfigError> {
        let resource = ResourceType::of::<DynamicObject>(resource);
        self.registry.configure(&self.view, &resource, options, false)
    }

    /// The same for the metadata of a kind that is known only at run time. For one known before, configure `PartialObjectMeta<K>`.
    pub fn configure_dynamic_metadata(
        &self,
        resource: &ApiResource,
        options: InformerOptions,
    ) -> Result<(), ConfigError> {
        let resource = ResourceType::of::<PartialObjectMeta<DynamicObject>>(resource);
        self.registry.configure(&self.view, &resource, options, false)
    }

    /// The informer for a kind. After the start it starts at once.
    ///
    /// Namespaces of the factory do not concern cluster-scoped kinds.
    pub fn informer<K: Resource<DynamicType = ()> + 'static>(&self) -> SharedInformer<K> {
        SharedInformer::view(self.engine(&ResourceType::of::<K>(&()), is_cluster_scoped::<K>()))
    }

    /// Reads the cache of the informer for a kind.
    pub fn lister<K: Resource<DynamicType = ()> + 'static>(&self) -> Lister<K> {
        self.informer().lister()
    }

    /// The informer for a kind that is known only at run time: another view of the same cache. A cluster-scoped kind of a factory with
    /// namespaces is to be configured with [`InformerOptions::all_namespaces`].
    pub fn dynamic_informer(&self, resource: &ApiResource) -> SharedInformer<DynamicObject> {
        SharedInformer::view(self.engine(&ResourceType::of::<DynamicObject>(resource), false))
    }

    /// An informer for the metadata of a kind: the server sends nothing else.
    pub fn metadata_informer<K>(&self) -> SharedInformer<PartialObjectMeta<K>>
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        self.informer()
    }

    /// The same for a kind that is known only at run time.
    pub fn dynamic_metadata_informer(
        &self,
        resource: &ApiResource,
    ) -> SharedInformer<PartialObjectMeta<DynamicObject>> {
        let resource = ResourceType::of::<PartialObjectMeta<DynamicObject>>(resource);
        SharedInformer::view(self.engine(&resource, false))
    }

    /// Starts every informer that was asked for; those that are asked for later start at once, on the runtime of this call. Later calls do
    /// nothing, also after a shutdown.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self) {
        self.registry.start();
    }

    /// The figures of all living informers, ordered by what they are about.
    pub fn metrics(&self) -> Vec<InformerMetrics> {
        self.registry.engines().iter().map(|engine| engine.metrics()).collect()
    }

    /// Whether both hand out the same informers.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.registry, &other.registry)
    }

    /// Whether somebody has started it.
    pub(crate) fn is_started(&self) -> bool {
        self.registry.is_started()
    }

    /// The informers that are not synced, and why.
    pub(crate) fn not_synced(&self) -> Vec<(Arc<Engine>, String)> {
        let told = |engine: Arc<Engine>| {
            let status = engine.status();
            let reason = format!("{}: {}", engine.resource, status.state.display_at(status.now));
            (!is_synced(&status)).then_some((engine, reason))
        };
        self.registry.engines().into_iter().filter_map(told).collect()
    }

    fn engine(&self, resource: &ResourceType, cluster_scoped: bool) -> Arc<Engine> {
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
            self.registry.engines().iter().map(|engine| engine.resource.to_string()).collect();
        write!(f, "factory of informers: {names:?}")
    }
}
