//! Discovery through kube-rs.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::{GroupVersion, GroupVersionKind};
use kube::discovery::{self, Discovery, Scope, verbs};
use serde_json::json;

use crate::site::define;
use crate::world::{World, object, with_timeout};

/// Waits until discovery lists sites, which kube-apiserver does with a delay, and returns it.
async fn discovery_with_sites(client: &kube::Client) -> Discovery {
    let sites = GroupVersionKind::gvk("peer.example.com", "v1", "Site");
    with_timeout(async {
        loop {
            let found = Discovery::new(client.clone()).run().await.unwrap();
            if found.resolve_gvk(&sites).is_some() {
                return found;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
}

#[tokio::test]
async fn discovery_lists_every_group_and_its_verbs() {
    let world = World::new().await;
    define(&world.client).await;
    let legacy = discovery_with_sites(&world.client).await;
    let aggregated = Discovery::new(world.client.clone()).run_aggregated().await.unwrap();
    for found in [legacy, aggregated] {
        for group in
            ["", "apps", "batch", "coordination.k8s.io", "events.k8s.io", "peer.example.com", "policy"]
        {
            assert!(found.has_group(group), "{group}");
        }
        let (deployments, can) =
            found.resolve_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment")).unwrap();
        assert_eq!((deployments.plural.as_str(), &can.scope), ("deployments", &Scope::Namespaced));
        assert!(can.supports_operation(verbs::DELETE_COLLECTION) && can.supports_operation(verbs::WATCH));
        let mut parts: Vec<&str> = can.subresources.iter().map(|(part, _)| part.plural.as_str()).collect();
        parts.sort_unstable();
        assert_eq!(parts, ["scale", "status"]);
        let (nodes, can) = found.resolve_gvk(&GroupVersionKind::gvk("", "v1", "Node")).unwrap();
        assert_eq!((nodes.api_version.as_str(), &can.scope), ("v1", &Scope::Cluster));
        let (sites, _) = found.resolve_gvk(&GroupVersionKind::gvk("peer.example.com", "v1", "Site")).unwrap();
        assert_eq!(sites.plural, "sites");
        // Every resource that discovery declares listable can be listed.
        let recommended = found.groups().flat_map(discovery::ApiGroup::recommended_resources);
        for (resource, can) in recommended.filter(|(_, can)| can.supports_operation(verbs::LIST)) {
            let all: Api<kube::api::DynamicObject> = Api::all_with(world.client.clone(), &resource);
            let listed = all.list(&ListParams::default().limit(1)).await;
            assert!(listed.is_ok(), "{}/{} {can:?}: {listed:?}", resource.api_version, resource.plural);
        }
    }
}

#[tokio::test]
async fn single_group_or_kind_is_discovered() {
    let world = World::new().await;
    let apps = discovery::group(&world.client, "apps").await.unwrap();
    assert_eq!((apps.name(), apps.preferred_version()), ("apps", Some("v1")));
    let pinned = GroupVersion::gv("autoscaling", "v2");
    let group = discovery::pinned_group(&world.client, &pinned).await.unwrap();
    let (resource, _) = group.recommended_kind("HorizontalPodAutoscaler").unwrap();
    assert_eq!(resource.plural, "horizontalpodautoscalers");
    let lease = GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease");
    let (resource, can) = discovery::pinned_kind(&world.client, &lease).await.unwrap();
    assert_eq!((resource.plural.as_str(), can.scope), ("leases", Scope::Namespaced));
    let missing = discovery::group(&world.client, "nowhere.example.com").await;
    assert!(missing.is_err());
}

#[tokio::test]
async fn version_and_groups_are_served() {
    let world = World::new().await;
    let version = world.client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    let groups = world.client.list_api_groups().await.unwrap();
    let apps = groups.groups.iter().find(|group| group.name == "apps").unwrap();
    assert_eq!(apps.preferred_version.as_ref().unwrap().group_version, "apps/v1");
    let core = world.client.list_core_api_versions().await.unwrap();
    assert_eq!(core.versions, ["v1"]);
    let batch = world.client.list_api_group_resources("batch/v1").await.unwrap();
    assert!(batch.resources.iter().any(|resource| resource.name == "cronjobs/status"));
}

#[tokio::test]
async fn cluster_scoped_kind_needs_no_namespace() {
    let world = World::new().await;
    let nodes: Api<Node> = Api::all(world.client.clone());
    let name = format!("node-of-{}", world.namespace);
    let node: Node = object(json!({"metadata": {"name": name}}));
    let created = nodes.create(&PostParams::default(), &node).await.unwrap();
    assert_eq!((created.metadata.namespace, created.metadata.name), (None, Some(name.clone())));
    nodes.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
}
