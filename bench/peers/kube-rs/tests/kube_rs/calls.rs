//! The calls of `kube::Api`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, ListParams, PatchParams, PostParams,
    Preconditions,
};
use kube::core::GroupVersionKind;
use serde_json::json;

use crate::site::{Site, define, site};
use crate::world::{World, config_map, deployment, merge, object, pod};

#[tokio::test]
async fn object_is_created_read_replaced_and_deleted() {
    let world = World::new().await;
    let maps = world.maps();
    let created = maps.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(created.namespace().as_deref(), Some(world.namespace.as_str()));
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());
    let owner = &created.managed_fields()[0];
    assert_eq!((owner.operation.as_deref(), owner.manager.as_deref()), (Some("Update"), Some("unknown")));
    assert_eq!(maps.get("a").await.unwrap(), created);

    let mut changed = created.clone();
    changed.data.as_mut().unwrap().insert("more".to_owned(), "2".to_owned());
    let replaced = maps.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert_eq!((replaced.data.as_ref(), replaced.uid()), (changed.data.as_ref(), created.uid()));
    assert_ne!(replaced.resource_version(), created.resource_version());

    let gone = maps.delete("a", &DeleteParams::default()).await.unwrap();
    let status = gone.right().expect("must be removed immediately");
    assert!(status.is_success());
    assert_eq!(status.details.map(|details| details.uid), created.uid());
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn dry_run_changes_nothing() {
    let world = World::new().await;
    let (maps, dry) = (world.maps(), PostParams { dry_run: true, ..PostParams::default() });
    let shown = maps.create(&dry, &config_map("a", "1")).await.unwrap();
    assert!(shown.uid().is_some() && shown.resource_version().is_none());
    assert!(maps.get_opt("a").await.unwrap().is_none());

    world.create_maps(&["a"]).await;
    assert_eq!(maps.replace("a", &dry, &config_map("a", "2")).await.unwrap().data.unwrap()["k"], "2");
    maps.delete("a", &DeleteParams::default().dry_run()).await.unwrap();
    assert_eq!(maps.get("a").await.unwrap().data.unwrap()["k"], "1");
}

#[tokio::test]
async fn names_are_generated_from_prefix() {
    let world = World::new().await;
    let map: ConfigMap = object(json!({"metadata": {"generateName": "made-"}}));
    let name = world.maps().create(&PostParams::default(), &map).await.unwrap().name_any();
    assert!(name.starts_with("made-") && name.len() == 10, "{name}");
}

#[tokio::test]
async fn list_is_paginated() {
    let world = World::new().await;
    world.create_maps(&["a", "b", "c", "d", "e"]).await;
    let mut page = ListParams::default().limit(2);
    let mut pages = Vec::new();
    loop {
        let list = world.maps().list(&page).await.unwrap();
        let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
        pages.push((names.join(""), list.metadata.remaining_item_count));
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => break,
        }
    }
    let expected = [("ab", Some(3)), ("cd", Some(1)), ("e", None)];
    assert_eq!(pages, expected.map(|(names, left)| (names.to_owned(), left)));
}

#[tokio::test]
async fn lists_are_selected_by_labels_and_fields() {
    let world = World::new().await;
    for (name, app) in [("a", "web"), ("b", "db"), ("c", "web")] {
        let mut pod = pod(name);
        pod.labels_mut().insert("app".to_owned(), app.to_owned());
        world.pods().create(&PostParams::default(), &pod).await.unwrap();
    }
    let check = async |parameters: ListParams, expected: &str| {
        let list = world.pods().list(&parameters).await.unwrap();
        assert_eq!(
            list.items.iter().map(ResourceExt::name_any).collect::<String>(),
            expected,
            "{parameters:?}"
        );
    };
    check(ListParams::default().labels("app=web"), "ac").await;
    check(ListParams::default().labels("app notin (web)"), "b").await;
    check(ListParams::default().labels("app,missing"), "").await;
    check(ListParams::default().fields("metadata.name=b"), "b").await;
    check(ListParams::default().fields("status.phase=Pending").labels("app!=db"), "ac").await;
    check(ListParams::default().match_any(), "abc").await;
}

#[tokio::test]
async fn metadata_is_read_without_spec() {
    let world = World::new().await;
    world.pods().create(&PostParams::default(), &pod("a")).await.unwrap();
    let meta = world.pods().get_metadata("a").await.unwrap();
    let whole = world.pods().get("a").await.unwrap();
    assert_eq!(
        (&meta.metadata, meta.types.as_ref().unwrap().kind.as_str()),
        (&whole.metadata, "PartialObjectMetadata")
    );
    let list = world.pods().list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].metadata.name.as_deref(), Some("a"));
    let patch = merge(json!({"metadata": {"labels": {"x": "y"}}}));
    let patched = world.pods().patch_metadata("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.labels()["x"], "y");
}

#[tokio::test]
async fn defaults_are_filled_in() {
    let world = World::new().await;
    let pod = world.pods().create(&PostParams::default(), &pod("a")).await.unwrap();
    let spec = pod.spec.unwrap();
    assert_eq!(spec.restart_policy.as_deref(), Some("Always"));
    assert_eq!(spec.termination_grace_period_seconds, Some(30));
    assert_eq!(spec.containers[0].image_pull_policy.as_deref(), Some("IfNotPresent"));
    assert_eq!(pod.status.unwrap().phase.as_deref(), Some("Pending"));
    let service: Service = object(json!({
        "metadata": {"name": "a"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
    }));
    let spec = world.api::<Service>().create(&PostParams::default(), &service).await.unwrap().spec.unwrap();
    assert_eq!(spec.type_.as_deref(), Some("ClusterIP"));
    assert!(spec.cluster_ip.is_some_and(|ip| ip.starts_with("10.0.0.")));
    assert_eq!(spec.ports.unwrap()[0].protocol.as_deref(), Some("TCP"));
}

#[tokio::test]
async fn collection_is_deleted_by_selector() {
    let world = World::new().await;
    world.create_maps(&["a", "b", "c"]).await;
    let only = ListParams::default().fields("metadata.name!=b");
    let deleted = world.maps().delete_collection(&DeleteParams::default(), &only).await.unwrap();
    let list = deleted.left().expect("must return the deleted objects as a list");
    assert_eq!(list.items.iter().map(ResourceExt::name_any).collect::<String>(), "ac");
    let left = world.maps().list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.iter().map(ResourceExt::name_any).collect::<String>(), "b");
}

#[tokio::test]
async fn object_with_finalizers_stays_until_they_are_removed() {
    let world = World::new().await;
    let map: ConfigMap = object(json!({"metadata": {"name": "a", "finalizers": ["peer.example.com/f"]}}));
    let created = world.maps().create(&PostParams::default(), &map).await.unwrap();
    let marked = world.maps().delete("a", &DeleteParams::default()).await.unwrap();
    let marked = marked.left().expect("must not be removed immediately");
    assert!(marked.metadata.deletion_timestamp.is_some());
    assert_eq!((marked.uid(), marked.metadata.deletion_grace_period_seconds), (created.uid(), Some(0)));
    let free = merge(json!({"metadata": {"finalizers": null}}));
    world.maps().patch("a", &PatchParams::default(), &free).await.unwrap();
    assert!(world.maps().get_opt("a").await.unwrap().is_none());
}

#[tokio::test]
async fn delete_checks_preconditions() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let version = world.maps().get("a").await.unwrap().resource_version();
    let at_version = |resource_version| DeleteParams {
        preconditions: Some(Preconditions { resource_version, uid: None }),
        ..DeleteParams::default()
    };
    let error = world.maps().delete("a", &at_version(Some("1".to_owned()))).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.is_conflict()), "{error}");
    world.maps().delete("a", &at_version(version)).await.unwrap();
}

#[tokio::test]
async fn status_is_replaced_separately() {
    let world = World::new().await;
    let deployments: Api<Deployment> = world.api();
    let mut given = deployments.create(&PostParams::default(), &deployment("a")).await.unwrap();
    given.spec.replicas = Some(7);
    given.status = object(json!({"observedGeneration": 1, "replicas": 2}));
    let replaced = deployments.replace_status("a", &PostParams::default(), &given).await.unwrap();
    assert_eq!((replaced.spec.replicas, replaced.status.unwrap().replicas), (Some(2), Some(2)));
    assert_eq!(replaced.metadata.generation, Some(1));
    assert_eq!(deployments.get_status("a").await.unwrap().status.unwrap().observed_generation, Some(1));

    let patch = merge(json!({"spec": {"replicas": 9}, "status": {"readyReplicas": 1}}));
    let patched = deployments.patch_status("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((patched.spec.replicas, patched.status.unwrap().ready_replicas), (Some(2), Some(1)));
}

#[tokio::test]
async fn scale_is_read_patched_and_replaced() {
    let world = World::new().await;
    let deployments: Api<Deployment> = world.api();
    deployments.create(&PostParams::default(), &deployment("a")).await.unwrap();
    let mut scale = deployments.get_scale("a").await.unwrap();
    assert_eq!((scale.spec.as_ref().unwrap().replicas, scale.name_any()), (Some(2), "a".to_owned()));
    assert_eq!(scale.status.as_ref().unwrap().selector.as_deref(), Some("app=a"));

    let patch = merge(json!({"spec": {"replicas": 3}}));
    let patched = deployments.patch_scale("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.spec.unwrap().replicas, Some(3));
    assert_eq!(deployments.get("a").await.unwrap().spec.replicas, Some(3));

    // The previous version.
    scale.spec.as_mut().unwrap().replicas = Some(4);
    let error = deployments.replace_scale("a", &PostParams::default(), &scale).await.unwrap_err();
    assert!(matches!(&error, kube::Error::Api(status) if status.is_conflict()), "{error}");
    scale.metadata.resource_version = None;
    deployments.replace_scale("a", &PostParams::default(), &scale).await.unwrap();
    let scaled = deployments.get("a").await.unwrap();
    assert_eq!((scaled.spec.replicas, scaled.metadata.generation), (Some(4), Some(3)));
}

#[tokio::test]
async fn custom_resource_has_a_scale() {
    let world = World::new().await;
    define(&world.client).await;
    let sites: Api<Site> = world.api();
    sites.create(&PostParams::default(), &object(site("a", 2))).await.unwrap();
    assert_eq!(sites.get_scale("a").await.unwrap().spec.unwrap().replicas, Some(2));
    let patch = merge(json!({"spec": {"replicas": 5}}));
    sites.patch_scale("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(sites.get("a").await.unwrap().spec.pages, 5);
}

#[tokio::test]
async fn eviction_respects_disruption_budget() {
    let world = World::new().await;
    let pods: Api<Pod> = world.api();
    for name in ["free", "kept"] {
        let mut pod = pod(name);
        pod.labels_mut().insert("budget".to_owned(), name.to_owned());
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let status = pods.evict("free", &EvictParams::default()).await.unwrap();
    assert!(status.is_success(), "{status:?}");
    // An unscheduled pod is removed immediately.
    assert!(pods.get_opt("free").await.unwrap().is_none());

    let budget: PodDisruptionBudget = object(json!({
        "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"budget": "kept"}}},
    }));
    let budgets: Api<PodDisruptionBudget> = world.api();
    budgets.create(&PostParams::default(), &budget).await.unwrap();
    // The budget ignores pods that do not run yet; this one runs.
    let running = merge(json!({"status": {
        "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
    }}));
    pods.patch_status("kept", &PatchParams::default(), &running).await.unwrap();
    let settled = merge(json!({"status": {
        "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
    }}));
    budgets.patch_status("b", &PatchParams::default(), &settled).await.unwrap();
    let error = pods.evict("kept", &EvictParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert_eq!((status.code, status.reason.as_str()), (429, "TooManyRequests"), "{status:?}");
    assert_eq!(status.message, "Cannot evict pod as it would violate the pod's disruption budget.");
}

#[tokio::test]
async fn dynamic_kind_is_created_and_read() {
    let world = World::new().await;
    define(&world.client).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("peer.example.com", "v1", "Site"));
    let sites: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &kind);
    let mut given = DynamicObject::new("a", &kind);
    given.data = json!({"spec": {"pages": 1}});
    let created = sites.create(&PostParams::default(), &given).await.unwrap();
    assert_eq!(created.types.as_ref().unwrap().kind, "Site");
    // Defaults of the schema are set.
    assert_eq!(created.data["spec"], json!({"pages": 1, "title": "index"}));
    assert_eq!(created.metadata.generation, Some(1));
    assert_eq!(sites.get("a").await.unwrap(), created);
}

#[tokio::test]
async fn entry_api_creates_and_then_updates() {
    let world = World::new().await;
    let maps = world.maps();
    for expected in ["1", "11"] {
        let entry = maps.entry("a").await.unwrap();
        let mut entry = entry.or_insert(|| config_map("a", "")).and_modify(|map| {
            map.data.as_mut().unwrap().get_mut("k").unwrap().push('1');
        });
        entry.commit(&PostParams::default()).await.unwrap();
        assert_eq!(maps.get("a").await.unwrap().data.unwrap()["k"], expected);
    }
}
