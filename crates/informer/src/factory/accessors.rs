//! Accessors for the built-in kinds by name, as in client-go: `factory.core().v1().pods()`.
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
//! Accessors return the same informers and listers as `factory.informer::<Pod>()` and
//! `factory.lister::<Deployment>()`, and can be found by code completion. Groups are named as in client-go,
//! kinds in snake case: `config_maps`, `network_policies`, `csi_drivers`.
//!
//! The available kinds depend on the version of the Kubernetes types, which the application selects as a
//! feature of `k8s-openapi`; the documentation of a kind states its versions if not all of them have it.
//! Custom resources have no accessors; use [`SharedInformerFactory::informer`] with their type.
//!
//! An accessor holds only a reference to the factory. The kinds are in the generated file.

/// Expands to the method of the factory for a group, and the type that it returns.
macro_rules! group {
    ($title:literal, $versions:literal, $method:ident: $name:ident) => {
        impl SharedInformerFactory {
            #[doc = concat!("Accesses the ", $title, $versions, ".")]
            pub fn $method(&self) -> $name<'_> {
                $name(self)
            }
        }

        #[doc = concat!("Accessors of the ", $title, $versions, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $name<'a>(&'a SharedInformerFactory);
    };
}

/// Expands to the method of a group for a version, and the type that it returns.
macro_rules! version {
    ($title:literal, $versions:literal, $group:ident.$method:ident: $name:ident) => {
        impl<'a> $group<'a> {
            #[doc = concat!("Accesses ", $title, $versions, ".")]
            pub fn $method(&self) -> $name<'a> {
                $name(self.0)
            }
        }

        #[doc = concat!("Accessors of ", $title, $versions, ".")]
        #[derive(Debug, Clone, Copy)]
        pub struct $name<'a>(&'a SharedInformerFactory);
    };
}

/// Expands to the methods of a version for kinds, whose types are in one module.
macro_rules! kinds {
    ($scope:literal, $versions:literal, $name:ident, ($($module:tt)*), $($method:ident: $kind:ident,)*) => {
        const _: () = {
            use $($module)* as types;

            impl<'a> $name<'a> {
                $(
                    #[doc = concat!("Accesses the ", $scope, " kind `", stringify!($kind), "`", $versions, ".")]
                    pub fn $method(&self) -> Accessor<'a, types::$kind> {
                        Accessor::new(self.0)
                    }
                )*
            }
        };
    };
}

mod generated;

// Do not import names of API groups here, such as `kube::Resource`: they would hide the generated types of
// the same name.
pub use generated::*;

use super::SharedInformerFactory;
use crate::informer::SharedInformer;
use crate::lister::Lister;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;

/// The accessor of one kind, returned by calls such as `factory.core().v1().pods()`.
pub struct Accessor<'a, K> {
    factory: &'a SharedInformerFactory,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K> Accessor<'a, K> {
    fn new(factory: &'a SharedInformerFactory) -> Self {
        Self { factory, kind: PhantomData }
    }
}

impl<K> Accessor<'_, K>
where
    K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    /// Returns the factory's informer for the kind.
    pub fn informer(&self) -> SharedInformer<K> {
        self.factory.informer()
    }

    /// Returns a lister of the factory's informer for the kind.
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
