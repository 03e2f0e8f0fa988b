//! The four patch types and the field ownership that results.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams, ValidationDirective};
use serde_json::{Value, json};

use crate::site::{Site, define, site};
use crate::world::{World, deployment, json_patch, merge, object};

fn data(map: &ConfigMap) -> Value {
    json!(map.data)
}

fn applied(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}))
}

fn status(error: kube::Error) -> Box<kube::core::Status> {
    let kube::Error::Api(status) = error else { panic!("{error}") };
    status
}

#[tokio::test]
async fn merge_patch_removes_with_null() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let patch = merge(json!({"data": {"k": null, "x": "y"}, "metadata": {"labels": {"l": "m"}}}));
    let patched = world.maps().patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!((data(&patched), patched.labels()["l"].as_str()), (json!({"x": "y"}), "m"));
}

#[tokio::test]
async fn json_patch_with_failed_test_is_rejected() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let maps = world.maps();
    let patch = json_patch(json!([
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "add", "path": "/metadata/labels", "value": {"a~b": "c"}},
        {"op": "copy", "from": "/data/k", "path": "/data/copy"},
        {"op": "move", "from": "/data/copy", "path": "/data/moved"},
    ]));
    // A label with a tilde is invalid, whatever the patch type.
    let rejected = status(maps.patch("a", &PatchParams::default(), &patch).await.unwrap_err());
    assert_eq!((rejected.code, rejected.reason.as_str()), (422, "Invalid"));

    let patch = json_patch(json!([
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "2"},
        {"op": "copy", "from": "/data/k", "path": "/data/copy"},
        {"op": "move", "from": "/data/copy", "path": "/data/moved"},
    ]));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(data(&patched), json!({"k": "2", "moved": "2"}));
    let rejected = status(maps.patch("a", &PatchParams::default(), &patch).await.unwrap_err());
    assert_eq!((rejected.code, rejected.reason.as_str()), (422, "Invalid"));

    // A missing value equals null in a `test` operation: the finalizer helper of kube-rs relies on it.
    let patch = json_patch(json!([
        {"op": "test", "path": "/metadata/finalizers", "value": null},
        {"op": "add", "path": "/metadata/finalizers", "value": ["peer.example.com/f"]},
    ]));
    let patched = maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(patched.finalizers(), ["peer.example.com/f"]);
}

#[tokio::test]
async fn strategic_patch_merges_lists_by_their_keys() {
    let world = World::new().await;
    let deployments: Api<Deployment> = world.api();
    deployments.create(&PostParams::default(), &deployment("a")).await.unwrap();
    let containers = json!([
        {"name": "app", "image": "registry.example/app:2"},
        {"name": "side", "$patch": "delete"},
        {"name": "new", "image": "registry.example/new:1"},
    ]);
    let patch = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": containers}}}}));
    let patched = deployments.patch("a", &PatchParams::default(), &patch).await.unwrap();
    let containers = patched.spec.template.spec.unwrap().containers;
    let images: Vec<(&str, &str)> =
        containers.iter().map(|one| (one.name.as_str(), one.image.as_deref().unwrap_or_default())).collect();
    assert_eq!(images, [("app", "registry.example/app:2"), ("new", "registry.example/new:1")]);
    assert_eq!(patched.metadata.generation, Some(2));
}

#[tokio::test]
async fn apply_creates_then_owns_and_releases_omitted_fields() {
    let world = World::new().await;
    let maps = world.maps();
    let mine = PatchParams::apply("mine");
    let created = maps.patch("a", &mine, &applied(&json!({"x": "1", "y": "1"}))).await.unwrap();
    let owner = &created.managed_fields()[0];
    assert_eq!((owner.manager.as_deref(), owner.operation.as_deref()), (Some("mine"), Some("Apply")));
    let version = created.resource_version();
    let again = maps.patch("a", &mine, &applied(&json!({"x": "1", "y": "1"}))).await.unwrap();
    assert_eq!(again.resource_version(), version, "an apply without changes must not write");

    let rejected =
        maps.patch("a", &PatchParams::apply("theirs"), &applied(&json!({"x": "2", "z": "1"}))).await;
    let rejected = status(rejected.unwrap_err());
    assert_eq!((rejected.code, rejected.reason.as_str()), (409, "Conflict"));
    assert_eq!(rejected.message, "Apply failed with 1 conflict: conflict with \"mine\": .data.x");
    let causes = &rejected.details.unwrap().causes;
    assert_eq!((causes[0].reason.as_str(), causes[0].field.as_str()), ("FieldManagerConflict", ".data.x"));

    let theirs = PatchParams::apply("theirs").force();
    maps.patch("a", &theirs, &applied(&json!({"x": "2", "z": "1"}))).await.unwrap();
    let left = maps.patch("a", &mine, &applied(&json!({}))).await.unwrap();
    assert_eq!(data(&left), json!({"x": "2", "z": "1"}));
}

#[tokio::test]
async fn status_is_applied_by_another_manager() {
    let world = World::new().await;
    define(&world.client).await;
    let sites: Api<Site> = world.api();
    let params = PatchParams::apply("spec-owner");
    let applied = sites.patch("a", &params, &Patch::Apply(site("a", 2))).await.unwrap();
    assert_eq!(
        (applied.spec.pages, applied.spec.title.as_str(), applied.status.is_none()),
        (2, "index", true)
    );

    let mut config = site("a", 7);
    config["status"] = json!({"pages": 2});
    let with_status =
        sites.patch_status("a", &PatchParams::apply("status-owner"), &Patch::Apply(config)).await;
    let with_status = with_status.unwrap();
    assert_eq!((with_status.spec.pages, with_status.status.unwrap().pages), (2, Some(2)));
    let owners: Vec<(&str, &str)> = with_status
        .metadata
        .managed_fields
        .iter()
        .flatten()
        .map(|entry| (entry.manager.as_deref().unwrap_or(""), entry.subresource.as_deref().unwrap_or("")))
        .collect();
    assert_eq!(owners, [("spec-owner", ""), ("status-owner", "status")]);
    assert_eq!(with_status.metadata.generation, Some(1));
}

#[tokio::test]
async fn apply_to_existing_object_needs_no_name() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}});
    let applied = world.maps().patch("a", &PatchParams::apply("mine"), &Patch::Apply(config)).await.unwrap();
    assert_eq!(data(&applied), json!({"k": "1", "x": "1"}));
}

#[tokio::test]
async fn unknown_fields_are_rejected_with_strict_validation() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::apply("mine").force()
    };
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "dat": {}});
    let rejected = world.maps().patch("a", &strict, &Patch::Apply(config)).await;
    let rejected = status(rejected.unwrap_err());
    assert_eq!(
        (rejected.code, rejected.message.contains(".dat: field not declared in schema")),
        (500, true),
        "{rejected:?}"
    );
}

#[tokio::test]
async fn patch_with_old_version_conflicts() {
    let world = World::new().await;
    world.create_maps(&["a"]).await;
    let version = world.maps().get("a").await.unwrap().resource_version().unwrap();
    let patch = |value: &str| merge(json!({"metadata": {"resourceVersion": version}, "data": {"k": value}}));
    world.maps().patch("a", &PatchParams::default(), &patch("2")).await.unwrap();
    let rejected = status(world.maps().patch("a", &PatchParams::default(), &patch("3")).await.unwrap_err());
    assert_eq!((rejected.code, rejected.reason.as_str()), (409, "Conflict"));
}

#[tokio::test]
async fn invalid_custom_object_is_rejected_with_causes() {
    let world = World::new().await;
    define(&world.client).await;
    let sites: Api<Site> = world.api();
    let rejected = sites.create(&PostParams::default(), &object(site("a", 10))).await;
    let rejected = status(rejected.unwrap_err());
    assert_eq!((rejected.code, rejected.reason.as_str()), (422, "Invalid"));
    let details = rejected.details.unwrap();
    assert_eq!((details.kind.as_str(), details.group.as_str()), ("Site", "peer.example.com"));
    assert_eq!(details.causes[0].field, "spec.pages");
}
