//! The accessors named as in client-go lead to the right kinds. Most of the test is that this compiles.
#![cfg(feature = "accessors")]

use informer::accessors::Accessor;
use informer::{Lister, SharedInformer, SharedInformerFactory};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;

/// A factory whose server does not exist; no request is sent.
fn factory() -> SharedInformerFactory {
    let config = kube::Config::new("http://127.0.0.1:1".parse().expect("a URL"));
    SharedInformerFactory::new(informer::client(config).expect("a client"))
}

#[tokio::test]
async fn accessor_returns_informer_and_lister_of_its_kind() {
    let factory = factory();
    let pods: SharedInformer<Pod> = factory.core().v1().pods().informer();
    assert!(format!("{pods:?}").starts_with("informer for pods in all namespaces"));
    let deployments: Lister<Deployment> = factory.apps().v1().deployments().lister();
    assert!(deployments.is_empty());
}

#[tokio::test]
async fn group_version_accessor_can_be_stored() {
    let factory = factory();
    let apps = factory.apps().v1();
    let (one, other) = (apps.replica_sets(), apps.stateful_sets());
    assert_eq!(
        format!("{one:?}, {other:?}"),
        "accessor of replicasets in apps/v1, accessor of statefulsets in apps/v1"
    );
}

#[tokio::test]
async fn accessor_names_match_the_kinds() {
    fn check<K: kube::Resource<DynamicType = ()> + 'static>(accessor: Accessor<'_, K>, expected: &str) {
        assert_eq!(format!("{}/{}", K::group(&()), K::plural(&())), expected);
        assert!(format!("{accessor:?}").contains(&*K::plural(&())));
    }
    let factory = factory();
    check(factory.core().v1().config_maps(), "/configmaps");
    check(factory.core().v1().endpoints(), "/endpoints");
    check(factory.discovery().v1().endpoint_slices(), "discovery.k8s.io/endpointslices");
    check(factory.networking().v1().network_policies(), "networking.k8s.io/networkpolicies");
    check(factory.networking().v1().ip_addresses(), "networking.k8s.io/ipaddresses");
    check(factory.storage().v1().csi_drivers(), "storage.k8s.io/csidrivers");
    check(factory.rbac().v1().cluster_role_bindings(), "rbac.authorization.k8s.io/clusterrolebindings");
    check(factory.internal().v1alpha1().storage_versions(), "internal.apiserver.k8s.io/storageversions");
    check(factory.apiregistration().v1().api_services(), "apiregistration.k8s.io/apiservices");
    let definitions = factory.apiextensions().v1().custom_resource_definitions();
    check(definitions, "apiextensions.k8s.io/customresourcedefinitions");
}

k8s_openapi::k8s_if_ge_1_34! {
    #[tokio::test]
    async fn kinds_of_newer_versions_have_accessors() {
        let factory = factory();
        let claims = factory.resource().v1().resource_claims();
        assert_eq!(format!("{claims:?}"), "accessor of resourceclaims in resource.k8s.io/v1");
    }
}
