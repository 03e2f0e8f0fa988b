//! Constructors of controllers.

use super::Controller;
use super::sharding::SourceRole;
use super::source::{KeyMapper, OwnerKind, SourceInformer, TypedSource};
use super::spec::{ControllerSpec, Settings};
use crate::discovery::DynamicResource;
use crate::factory::SharedInformerFactory;
use crate::informer::SharedInformer;
use crate::resource::{ResourceType, is_cluster_scoped};
use kube::Resource;
use kube::core::DynamicObject;
use serde::de::DeserializeOwned;
use std::sync::Arc;

impl Controller {
    /// Creates a controller for a kind, with informers of `factory`.
    ///
    /// A factory from [`SharedInformerFactory::select`] restricts the objects of all sources; to restrict one
    /// kind only, [configure](SharedInformerFactory::configure) it.
    pub fn new<K>(factory: &SharedInformerFactory) -> Controller<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let resource = ResourceType::of::<K>(&());
        Controller::from_kind(factory, &resource, is_cluster_scoped::<K>(), SourceInformer::of_kind())
    }

    /// Creates a controller for a kind that is known only at run time, as in
    /// `Controller::dynamic(&factory, &resource, &resource.scope())` for a
    /// [`ServedResource`](crate::discovery::ServedResource).
    pub fn dynamic(
        factory: &SharedInformerFactory,
        resource: &impl DynamicResource,
        scope: &kube::discovery::Scope,
    ) -> Controller<DynamicObject> {
        let cluster_scoped = matches!(scope, kube::discovery::Scope::Cluster);
        let resource = ResourceType::of::<DynamicObject>(&resource.to_api_resource());
        let kind = resource.clone();
        let create = Box::new(move |factory: &SharedInformerFactory| {
            SharedInformer::from_engine(factory.engine(&resource, cluster_scoped))
        });
        let informer = SourceInformer::OfKind { cluster_scoped, create };
        Controller::from_kind(factory, &kind, cluster_scoped, informer)
    }
}

impl<K: 'static> Controller<K> {
    fn from_kind(
        factory: &SharedInformerFactory,
        kind: &ResourceType,
        cluster_scoped: bool,
        informer: SourceInformer<K>,
    ) -> Self {
        let spec = ControllerSpec {
            factory: factory.clone(),
            name: kind.name().into(),
            owner_kind: OwnerKind { group: kind.group.clone(), kind: kind.kind.clone(), cluster_scoped },
            sources: Vec::new(),
            streams: Vec::new(),
            settings: Settings::default(),
            sharding: None,
            deleted_keys: Arc::default(),
        };
        let last = TypedSource::new(informer, SourceRole::Own, KeyMapper::own_key());
        Self { spec, state: (), last }
    }
}
