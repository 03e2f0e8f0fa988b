//! The option that keeps `metadata.managedFields`.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, pod, synced_informer, with};
use informer::source::WatchListPolicy;
use informer::{InformerOptions, Key, SharedInformer, SharedInformerFactory, Snapshot};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use kube::core::PartialObjectMeta;
use serde_json::Value;

fn key() -> Key {
    Key::new("default", "a")
}

fn keeping() -> InformerOptions {
    InformerOptions::default().keep_managed_fields(true)
}

/// The managed fields on the server.
fn on_server(server: &ApiServer) -> Value {
    let fields = server.get("v1", "pods", Some("default"), "a").unwrap()["metadata"]["managedFields"].clone();
    assert!(fields[0]["fieldsV1"].is_object(), "{fields}");
    fields
}

/// The managed fields in the cache.
fn cached(pods: &SharedInformer<Pod>) -> Value {
    let pod = pods.lister().get_by_key(&key()).unwrap();
    serde_json::to_value(&pod.typed().unwrap().metadata.managed_fields).unwrap()
}

#[tokio::test(start_paused = true)]
async fn managed_fields_of_lists_and_watches_are_kept() {
    for protobuf in [false, true] {
        for policy in [WatchListPolicy::Never, WatchListPolicy::Always] {
            let case = format!("protobuf: {protobuf}, {policy:?}");
            let server = ApiServer::new();
            server.create(&pod("default", "a")).unwrap();
            let options = keeping().prefer_protobuf(protobuf).watch_list(policy);
            let pods = synced_informer::<Pod>(&server, options).await;
            assert_eq!(cached(&pods), on_server(&server), "{case}, initial list");

            let changed =
                with(server.get("v1", "pods", Some("default"), "a").unwrap(), "/metadata/labels/new", "x");
            server.update(&changed).unwrap();
            let has_label = |pods: &Snapshot<Pod>| pods.get(&key())?.labels().get("new").map(drop);
            pods.wait_for("the label", has_label, TIMEOUT).await.unwrap();
            assert_eq!(cached(&pods), on_server(&server), "{case}, watch");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn managed_fields_are_dropped_by_default() {
    for protobuf in [false, true] {
        let server = ApiServer::new();
        server.create(&pod("default", "a")).unwrap();
        let options =
            InformerOptions::default().prefer_protobuf(protobuf).keep_fields(["metadata", "spec"]).unwrap();
        let pods = synced_informer::<Pod>(&server, options).await;
        assert_eq!(cached(&pods), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn field_filters_apply_to_managed_fields() {
    for protobuf in [false, true] {
        let server = ApiServer::new();
        server.create(&pod("default", "a")).unwrap();
        let options = || keeping().prefer_protobuf(protobuf);
        let whole = synced_informer::<Pod>(&server, options().keep_fields(["status.phase"]).unwrap()).await;
        assert_eq!(cached(&whole), on_server(&server), "kept besides the paths");
        assert!(whole.lister().get_by_key(&key()).unwrap().field("spec.containers[*].name").is_none());

        let paths = ["metadata.managedFields.fieldsV1"];
        let names = synced_informer::<Pod>(&server, options().drop_fields(paths).unwrap()).await;
        let fields = cached(&names);
        assert_eq!(fields[0]["manager"], on_server(&server)[0]["manager"]);
        assert_eq!(fields[0]["fieldsV1"], Value::Null);

        let none =
            synced_informer::<Pod>(&server, options().drop_fields(["metadata.managedFields"]).unwrap()).await;
        assert_eq!(cached(&none), Value::Null);
    }
}

#[tokio::test(start_paused = true)]
async fn managed_fields_of_metadata_and_transformed_objects_are_kept() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let metadata = synced_informer::<PartialObjectMeta<Pod>>(&server, keeping()).await;
    let object = metadata.lister().get_by_key(&key()).unwrap();
    let fields = serde_json::to_value(&object.typed().unwrap().metadata.managed_fields).unwrap();
    assert_eq!(fields, on_server(&server));

    let options = keeping().transform(|pod: &mut Pod| {
        pod.status = None;
        Ok(())
    });
    let transformed = synced_informer::<Pod>(&server, options).await;
    assert_eq!(cached(&transformed), on_server(&server));
}

#[tokio::test(start_paused = true)]
async fn informers_of_one_kind_must_agree() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<Pod>(keeping()).unwrap();
    let error = factory.configure::<Pod>(InformerOptions::default()).unwrap_err();
    assert!(error.to_string().contains("keep_managed_fields"), "{error}");
    factory.configure::<Pod>(keeping()).unwrap();
}
