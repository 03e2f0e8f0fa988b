//! The factory's kinds by name, as people from client-go know them: `factory.core().v1().pods()`.
//!
//! ```no_run
//! use informer::SharedInformerFactory;
//!
//! # fn example(factory: &SharedInformerFactory) {
//! let pods = factory.core().v1().pods().informer();
//! let deployments = factory.apps().v1().deployments().lister();
//! # }
//! ```
//!
//! The same as `factory.informer::<Pod>()` and `factory.lister::<Deployment>()`, for whoever would rather be led by completion
//! than by types. Groups are called as in client-go, and kinds by their words: `config_maps`, `network_policies`, `csi_drivers`.
//!
//! Which kinds there are follows from the version of the Kubernetes types, which the application chooses as a feature of
//! `k8s-openapi`. Where only some versions have a kind, its documentation says so. Custom kinds have no accessor; they have
//! types.
//!
//! Accessors keep nothing but a reference to the factory. This file does not know any kind.

mod generated;

// A group is called `Resource`: an import of that name, as of any other group's, would hide it from the outside.
pub use generated::*;

use super::SharedInformerFactory;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use std::fmt;
use std::marker::PhantomData;

/// One kind of a factory: the end of a path such as `factory.core().v1().pods()`.
pub struct Accessor<'a, K> {
    factory: &'a SharedInformerFactory,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K> Accessor<'a, K> {
    fn new(factory: &'a SharedInformerFactory) -> Self {
        Self { factory, kind: PhantomData }
    }
}

impl<K: kube::Resource<DynamicType = ()> + 'static> Accessor<'_, K> {
    /// The factory's informer for the kind.
    pub fn informer(&self) -> SharedInformer<K> {
        self.factory.informer()
    }

    /// Reads the cache of the factory's informer for the kind.
    pub fn lister(&self) -> Lister<K> {
        self.factory.lister()
    }
}

impl<K> Clone for Accessor<'_, K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Accessor<'_, K> {}

impl<K: kube::Resource<DynamicType = ()>> fmt::Debug for Accessor<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "accessor of {} in {}", K::plural(&()), K::api_version(&()))
    }
}
