//! What is cached of an object: dropped fields, kept fields, transforms, metadata only.
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    Diagnostics, TIMEOUT, create_pods, gap, gap_without_change, log_events, names, pod, synced_informer,
    until, with,
};
use informer::cache::TransformFallback;
use informer::source::WatchListPolicy;
use informer::status::Diagnostic;
use informer::{Index, InformerOptions, Object, SharedInformer, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::ApiResource;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

/// A pod with a value in every section.
fn rich(name: &str) -> Value {
    let pod = with(pod("default", name), "/spec/nodeName", "node-1");
    let pod = with(pod, "/spec/containers/0/env", json!([{"name": "A", "value": "1"}]));
    with(pod, "/metadata/annotations", json!({"big": "x".repeat(100), "small": "y"}))
}

fn value<K>(object: &Object<K>) -> Value {
    serde_json::from_slice(&object.to_json().unwrap()).unwrap()
}

/// The pod `a` as cached with these options after a list, a watch-list and a watch: the bytes are equal each
/// time.
async fn cached_by_every_request_type(options: InformerOptions) -> Object<Pod> {
    let server = ApiServer::new();
    let watched = synced_informer::<Pod>(&server, options.clone()).await;
    server.create(&rich("a")).unwrap();
    until(|| watched.lister().len() == 1).await;
    let streamed = synced_informer::<Pod>(&server, options.clone()).await;
    let listed = synced_informer::<Pod>(&server, options.watch_list(WatchListPolicy::Never)).await;
    let objects = [&watched, &streamed, &listed].map(|pods| pods.lister().get("default", "a").unwrap());
    for object in &objects {
        assert_eq!(value(object), value(&objects[0]));
        assert_eq!(object.raw_bytes(), objects[0].raw_bytes(), "equal bytes whichever request returned it");
    }
    // A relist with the same bytes causes no change.
    gap_without_change(&server).await;
    until(|| [&watched, &streamed, &listed].iter().all(|pods| pods.status().reflector.full_lists == 2)).await;
    until(|| [&watched, &streamed, &listed].iter().all(|pods| pods.metrics().reflector.relists.expired == 1))
        .await;
    assert_eq!((watched.metrics().updated, streamed.metrics().updated, listed.metrics().updated), (0, 0, 0));
    objects.into_iter().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_missing_everywhere() {
    let paths = ["status", "spec.containers[*].env", "metadata.annotations['big']"];
    let object = cached_by_every_request_type(InformerOptions::default().drop_fields(paths).unwrap()).await;
    let raw = value(&object);
    assert_eq!((raw.get("status"), raw["spec"]["containers"][0].get("env")), (None, None));
    assert_eq!(raw["metadata"]["annotations"], json!({"small": "y"}));
    let typed = object.typed().unwrap();
    assert!(typed.status.is_none() && typed.spec.as_ref().unwrap().containers[0].env.is_none());
    assert_eq!(object.labels().get("app"), Some("web"));
}

#[tokio::test(start_paused = true)]
async fn only_kept_fields_and_identity_are_cached() {
    for (protobuf, spec) in [
        (false, json!({"nodeName": "node-1"})),
        // Protobuf has no empty lists; Go encodes them in JSON as `null`.
        (true, json!({"nodeName": "node-1", "containers": null})),
    ] {
        let options =
            InformerOptions::default().keep_fields(["spec.nodeName"]).unwrap().prefer_protobuf(protobuf);
        let object = cached_by_every_request_type(options).await;
        let raw = value(&object);
        assert_eq!(raw["spec"], spec);
        assert_eq!((raw.get("status"), raw["metadata"].get("annotations")), (None, None));
        assert_eq!((object.name(), object.labels().get("app")), ("a", Some("web")));
        assert!(!object.uid().is_empty() && object.creation_timestamp().is_some());
        let typed = object.typed().unwrap();
        let spec = typed.spec.as_ref().unwrap();
        assert_eq!((spec.node_name.as_deref(), spec.containers.len()), (Some("node-1"), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_on_kept_fields_works_and_one_on_dropped_fields_is_empty() {
    let server = ApiServer::new();
    server.create(&rich("a")).unwrap();
    let options = InformerOptions::default().keep_fields(["spec.nodeName"]).unwrap();
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    let by_phase = pods.add_index(Index::field("status.phase")).unwrap();
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(names(&pods.lister().by_index(&by_node, "node-1")), ["a"]);
    assert!(pods.lister().by_index(&by_phase, "Pending").is_empty());
    server.insert_unchecked(&with(rich("a"), "/spec/nodeName", "node-2")).unwrap();
    until(|| names(&pods.lister().by_index(&by_node, "node-2")) == ["a"]).await;
    assert!(pods.lister().by_index(&by_node, "node-1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_stay_dropped_after_an_update() {
    // The version differs, so an update is delivered although only dropped fields changed.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods =
        synced_informer::<Pod>(&server, InformerOptions::default().drop_fields(["status"]).unwrap()).await;
    let (_registration, mut log) = log_events(&pods);
    server.update_status(&with(pod("default", "a"), "/status", json!({"phase": "Running"}))).unwrap();
    log.expect(&["+a initial", "~a"]).await;
    assert_eq!(value(&pods.lister().get("default", "a").unwrap()).get("status"), None);
}

#[tokio::test(start_paused = true)]
async fn transform_changes_cached_and_delivered_objects() {
    let object = cached_by_every_request_type(InformerOptions::default().transform(|pod: &mut Pod| {
        pod.status = None;
        pod.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "yes".to_owned());
        Ok(())
    }))
    .await;
    assert_eq!(value(&object).get("status"), None);
    assert_eq!((object.labels().get("seen"), object.labels().get("app")), (Some("yes"), Some("web")));
    assert_eq!(object.typed().unwrap().metadata.labels.as_ref().unwrap()["seen"], "yes");
}

#[tokio::test(start_paused = true)]
async fn transform_runs_after_fields_are_dropped() {
    let options = InformerOptions::default().drop_fields(["status"]).unwrap().transform(|pod: &mut Pod| {
        let had = if pod.status.is_some() { "status" } else { "none" };
        pod.metadata.labels.get_or_insert_default().insert("had".to_owned(), had.to_owned());
        Ok(())
    });
    assert_eq!(cached_by_every_request_type(options).await.labels().get("had"), Some("none"));
}

#[tokio::test(start_paused = true)]
async fn a_transform_is_called_once_for_each_object_received() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let options = InformerOptions::default().transform(move |_: &mut Pod| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let pods = synced_informer::<Pod>(&server, options).await;
    // Reads, handlers, indexes and snapshots do not call it again.
    let (_one, mut one) = log_events(&pods);
    let (_two, mut two) = log_events(&pods);
    pods.add_index(Index::label("app")).unwrap();
    assert!(pods.snapshot().iter().all(|pod| pod.typed().is_ok()));
    let initial = ["+a initial", "+b initial", "+c initial"];
    one.expect(&initial).await;
    two.expect(&initial).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    server.insert_unchecked(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    one.expect(&["~a"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    server.delete("v1", "pods", Some("default"), "a").unwrap();
    one.expect(&["-a"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 6, "a pod is first marked as deleted, then deleted");
    gap(&server, "pods", || create_pods(&server, &["d"])).await;
    one.expect(&["+d"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 9, "b, c and d were received");
}

/// A pod that passed through a transform, and the reported diagnostics.
async fn through_transform(options: InformerOptions) -> (Object<Pod>, Vec<String>) {
    let server = ApiServer::new();
    let diagnostics = Diagnostics::default();
    server.create(&rich("a")).unwrap();
    create_pods(&server, &["b"]);
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(options)).await;
    assert_eq!(names(&pods.lister().list()), ["a", "b"], "other objects are unaffected (C9)");
    let failed = |diagnostic: &Diagnostic| matches!(diagnostic, Diagnostic::TransformFailed { .. });
    assert_eq!(diagnostics.any(failed), pods.metrics().reflector.transform_errors > 0);
    (pods.lister().get("default", "a").unwrap(), diagnostics.texts())
}

#[tokio::test(start_paused = true)]
async fn c9_object_with_failing_transform_is_cached_unmodified() {
    let fails = |pod: &mut Pod| {
        pod.status = None;
        if pod.metadata.name.as_deref() == Some("a") { Err("no".into()) } else { Ok(()) }
    };
    let (object, reported) = through_transform(InformerOptions::default().transform(fails)).await;
    assert_eq!(reported, ["transform of default/a failed: no"]);
    assert_eq!(
        value(&object)["status"]["phase"],
        "Pending",
        "partial changes of the transform are discarded"
    );
    assert_eq!(object.typed().unwrap().spec.as_ref().unwrap().node_name.as_deref(), Some("node-1"));

    let metadata_only =
        InformerOptions::default().transform(fails).transform_fallback(TransformFallback::MetadataOnly);
    let (object, _) = through_transform(metadata_only).await;
    let raw = value(&object);
    assert_eq!((raw.get("spec"), raw.get("status"), raw["metadata"].get("annotations")), (None, None, None));
    assert_eq!((raw["kind"].as_str(), object.labels().get("app")), (Some("Pod"), Some("web")));
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_transform_is_caught() {
    let (object, reported) = through_transform(InformerOptions::default().transform(|pod: &mut Pod| {
        assert_ne!(pod.metadata.name.as_deref(), Some("a"), "intended panic");
        Ok(())
    }))
    .await;
    assert_eq!(reported, ["transform of default/a failed: the transform panicked"]);
    assert_eq!(value(&object)["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn transform_that_changes_the_identity_is_rejected() {
    type Change = (&'static str, fn(&mut Pod));
    let changes: [Change; 4] = [
        ("key", |pod| pod.metadata.name = Some("other".to_owned())),
        ("key", |pod| pod.metadata.namespace = Some("kube-system".to_owned())),
        ("uid", |pod| pod.metadata.uid = Some("mine".to_owned())),
        ("version", |pod| pod.metadata.resource_version = Some("1".to_owned())),
    ];
    for (what, change) in changes {
        let (object, reported) =
            through_transform(InformerOptions::default().transform(move |pod: &mut Pod| {
                if pod.metadata.name.as_deref() == Some("a") {
                    change(pod);
                }
                Ok(())
            }))
            .await;
        assert_eq!(
            reported,
            [format!("transform of default/a failed: the transform changed the object's {what}")]
        );
        assert_eq!((object.name(), object.namespace()), ("a", Some("default")));
    }
}

#[tokio::test(start_paused = true)]
async fn secret_with_failing_transform_is_cached_as_metadata_only() {
    let server = ApiServer::new();
    let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"k\":\"aHVzaA==\"}}"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "aHVzaA=="}, "metadata":
        {"name": "s", "namespace": "default", "labels": {"app": "web"}, "annotations": copy}});
    server.create(&secret).unwrap();
    let diagnostics = Diagnostics::default();
    let fails = InformerOptions::default().transform(|_: &mut Secret| Err("no".into()));
    let secrets = synced_informer::<Secret>(&server, diagnostics.hook(fails)).await;
    server.update(&with(secret, "/metadata/labels/app", "db")).unwrap();
    until(|| secrets.metrics().updated == 1).await;
    let cached = secrets.lister().get("default", "s").unwrap();
    let raw = cached.raw_bytes();
    let text = String::from_utf8_lossy(&raw);
    assert!(!text.contains("aHVzaA"), "{text}");
    assert_eq!((cached.labels().get("app"), secrets.metrics().reflector.transform_errors), (Some("db"), 2));
    assert!(cached.typed().unwrap().data.is_none());
    assert!(!diagnostics.texts().concat().contains("aHVzaA"));
    // Secrets can be cached unmodified if configured explicitly.
    let fails = InformerOptions::default().transform(|_: &mut Secret| Err("no".into()));
    let secrets =
        synced_informer::<Secret>(&server, fails.transform_fallback(TransformFallback::KeepOriginal)).await;
    assert!(secrets.lister().get("default", "s").unwrap().typed().unwrap().data.is_some());
}

/// Whether a request is a watch, and its `Accept` header.
type AcceptHeader = (bool, String);

/// A client that records the `Accept` header of each request.
fn recording_client(server: &ApiServer) -> (kube::Client, Arc<Mutex<Vec<AcceptHeader>>>) {
    let headers = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&headers);
    let service = server.service().map_request(move |request: http::Request<kube::client::Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch=");
        let accept = request.headers()["accept"].to_str().unwrap().to_owned();
        recorded.lock().unwrap().push((watch, accept));
        request
    });
    (kube::Client::new(service, "default"), headers)
}

#[tokio::test(start_paused = true)]
async fn metadata_informer_requests_and_caches_metadata_only() {
    for policy in [WatchListPolicy::Auto, WatchListPolicy::Never] {
        let server = ApiServer::new();
        server.create(&rich("a")).unwrap();
        let (client, headers) = recording_client(&server);
        let factory =
            SharedInformerFactory::with_options(client, InformerOptions::default().watch_list(policy));
        let pods = factory.metadata_informer::<Pod>();
        factory.start();
        factory.wait_for_sync(TIMEOUT).await.unwrap();
        server.create(&rich("b")).unwrap();
        until(|| pods.lister().len() == 2).await;
        for object in pods.lister().list() {
            let raw = value(&object);
            assert_eq!(
                (raw["kind"].as_str(), raw["apiVersion"].as_str()),
                (Some("PartialObjectMetadata"), Some("meta.k8s.io/v1"))
            );
            assert_eq!((raw.get("spec"), raw.get("status")), (None, None));
            let typed = object.typed().unwrap();
            assert_eq!(typed.metadata.annotations.as_ref().unwrap()["small"], "y");
            assert_eq!(
                (object.name(), object.labels().get("app")),
                (typed.metadata.name.as_deref().unwrap(), Some("web"))
            );
        }
        until(|| headers.lock().unwrap().iter().any(|(watch, _)| *watch)).await;
        for (watch, accept) in &*headers.lock().unwrap() {
            let form = if *watch { "PartialObjectMetadata" } else { "PartialObjectMetadataList" };
            let headers = ["application/vnd.kubernetes.protobuf", "application/json"];
            assert_eq!(*accept, headers.map(|name| format!("{name};as={form};g=meta.k8s.io;v=v1")).join(","));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn typed_and_dynamic_metadata_share_a_cache_apart_from_full_objects() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let resource = ApiResource::erase::<Pod>(&());
    let (typed, dynamic) = (factory.metadata_informer::<Pod>(), factory.dynamic_metadata_informer(&resource));
    let whole = factory.informer::<Pod>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(crate::cluster::requests_for(&server, Verb::Watch, "pods").len(), 2);
    let (one, other) =
        (typed.lister().get("default", "a").unwrap(), dynamic.lister().get("default", "a").unwrap());
    assert!(Arc::ptr_eq(one.entry(), other.entry()), "one cache");
    assert_eq!(other.typed().unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!(value(&whole.lister().get("default", "a").unwrap())["spec"]["containers"][0]["name"], "main");
    assert_eq!(
        (typed.description(), whole.description()),
        ("pods (metadata) in all namespaces", "pods in all namespaces")
    );
    let (_registration, mut log) = log_events(&dynamic);
    log.expect(&["+a initial"]).await;
    server.delete("v1", "pods", Some("default"), "a").unwrap();
    log.expect(&["-a"]).await;
}
