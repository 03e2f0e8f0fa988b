//! What is cached of an object: parts left out while reading, functions that change it, metadata alone.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{Heard, LONG, create_pods, gap, gap_without_change, live, names, notes, pod, until, with};
use informer::{
    Index, Object, OnTransformError, Options, Problem, Report, SharedInformer, SharedInformerFactory,
    WatchListPolicy,
};
use informer_apiserver::{ApiServer, Verb};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::core::ApiResource;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tower::ServiceExt as _;

/// A pod with something in every corner.
fn rich(name: &str) -> Value {
    let pod = with(pod("default", name), "/spec/nodeName", "node-1");
    let pod = with(pod, "/spec/containers/0/env", json!([{"name": "A", "value": "1"}]));
    with(pod, "/metadata/annotations", json!({"big": "x".repeat(100), "small": "y"}))
}

fn value<K>(object: &Object<K>) -> Value {
    serde_json::from_slice(&object.json().unwrap()).unwrap()
}

/// The pod `a` as it is cached with these options, having come by list, by watch-list and by watch: equal bytes each time.
async fn however_it_came(options: Options) -> Object<Pod> {
    let server = ApiServer::new();
    let watched = live::<Pod>(&server, options.clone()).await;
    server.create(&rich("a")).unwrap();
    until(|| watched.lister().len() == 1).await;
    let streamed = live::<Pod>(&server, options.clone()).await;
    let listed = live::<Pod>(&server, options.watch_list(WatchListPolicy::Never)).await;
    let objects = [&watched, &streamed, &listed].map(|pods| pods.lister().get("default", "a").unwrap());
    for object in &objects {
        assert_eq!(value(object), value(&objects[0]));
        assert_eq!(object.raw(), objects[0].raw(), "equal to the last byte, however it came");
    }
    // A relist that brings the same bytes is no change.
    gap_without_change(&server).await;
    until(|| [&watched, &streamed, &listed].iter().all(|pods| pods.status().counters.replaces == 2)).await;
    until(|| [&watched, &streamed, &listed].iter().all(|pods| pods.metrics().wire.relists.forgotten == 1))
        .await;
    assert_eq!((watched.metrics().updated, streamed.metrics().updated, listed.metrics().updated), (0, 0, 0));
    objects.into_iter().next().unwrap()
}

#[tokio::test(start_paused = true)]
async fn dropped_fields_are_gone_for_everybody() {
    let paths = ["status", "spec.containers[*].env", "metadata.annotations['big']"];
    let object = however_it_came(Options::default().drop_fields(paths).unwrap()).await;
    let raw = value(&object);
    assert_eq!((raw.get("status"), raw["spec"]["containers"][0].get("env")), (None, None));
    assert_eq!(raw["metadata"]["annotations"], json!({"small": "y"}));
    let typed = object.typed().unwrap();
    assert!(typed.status.is_none() && typed.spec.as_ref().unwrap().containers[0].env.is_none());
    assert_eq!(object.labels().get("app"), Some("web"));
}

#[tokio::test(start_paused = true)]
async fn kept_fields_are_all_there_is_beside_the_identity() {
    for (protobuf, spec) in [
        (false, json!({"nodeName": "node-1"})),
        // An empty list is none in protobuf, and Go's JSON says `null` for it.
        (true, json!({"nodeName": "node-1", "containers": null})),
    ] {
        let options = Options::default().keep_fields(["spec.nodeName"]).unwrap().protobuf(protobuf);
        let object = however_it_came(options).await;
        let raw = value(&object);
        assert_eq!(raw["spec"], spec);
        assert_eq!((raw.get("status"), raw["metadata"].get("annotations")), (None, None));
        assert_eq!((object.name(), object.labels().get("app")), ("a", Some("web")));
        assert!(!object.uid().is_empty() && object.created().is_some());
        let typed = object.typed().unwrap();
        let spec = typed.spec.as_ref().unwrap();
        assert_eq!((spec.node_name.as_deref(), spec.containers.len()), (Some("node-1"), 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_index_on_kept_fields_works_and_one_on_dropped_fields_is_empty() {
    let server = ApiServer::new();
    server.create(&rich("a")).unwrap();
    let options = Options::default().keep_fields(["spec.nodeName"]).unwrap();
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    let by_phase = pods.add_index(Index::field("status.phase")).unwrap();
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    assert_eq!(names(&pods.lister().by(&by_node, "node-1")), ["a"]);
    assert!(pods.lister().by(&by_phase, "Pending").is_empty());
    server.plant(&with(rich("a"), "/spec/nodeName", "node-2")).unwrap();
    until(|| names(&pods.lister().by(&by_node, "node-2")) == ["a"]).await;
    assert!(pods.lister().by(&by_node, "node-1").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_was_dropped_does_not_come_back_with_an_update() {
    // The version differs, so it is told, although all that changed is what was dropped.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = live::<Pod>(&server, Options::default().drop_fields(["status"]).unwrap()).await;
    let (_on, mut told) = notes(&pods);
    server.update_status(&with(pod("default", "a"), "/status", json!({"phase": "Running"}))).unwrap();
    told.expect(&["+a initial", "~a"]).await;
    assert_eq!(value(&pods.lister().get("default", "a").unwrap()).get("status"), None);
}

#[tokio::test(start_paused = true)]
async fn a_transform_changes_what_is_cached_and_told() {
    let object = however_it_came(Options::default().transform(|pod: &mut Pod| {
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
async fn a_transform_sees_what_is_left_after_dropping() {
    let options = Options::default().drop_fields(["status"]).unwrap().transform(|pod: &mut Pod| {
        let had = if pod.status.is_some() { "status" } else { "none" };
        pod.metadata.labels.get_or_insert_default().insert("had".to_owned(), had.to_owned());
        Ok(())
    });
    assert_eq!(however_it_came(options).await.labels().get("had"), Some("none"));
}

#[tokio::test(start_paused = true)]
async fn a_transform_is_called_once_for_each_object_received() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    let options = Options::default().transform(move |_: &mut Pod| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(())
    });
    let pods = live::<Pod>(&server, options).await;
    // Reading, handlers, indexes and snapshots call it no more.
    let (_one, mut one) = notes(&pods);
    let (_two, mut two) = notes(&pods);
    pods.add_index(Index::label("app")).unwrap();
    assert!(pods.lister().snapshot().list().iter().all(|pod| pod.typed().is_ok()));
    let initial = ["+a initial", "+b initial", "+c initial"];
    one.expect(&initial).await;
    two.expect(&initial).await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    server.plant(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    one.expect(&["~a"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 4);
    server.delete("v1", "pods", Some("default"), "a").unwrap();
    one.expect(&["-a"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 6, "the deletion of a pod is told to be near, then done");
    gap(&server, "pods", || create_pods(&server, &["d"])).await;
    one.expect(&["+d"]).await;
    assert_eq!(calls.load(Ordering::SeqCst), 9, "b, c and d were received");
}

/// A pod through a transform, the reports, and how often it failed.
async fn through(options: Options) -> (Object<Pod>, Vec<String>) {
    let server = ApiServer::new();
    let heard = Heard::default();
    server.create(&rich("a")).unwrap();
    create_pods(&server, &["b"]);
    let pods = live::<Pod>(&server, heard.hook(options)).await;
    assert_eq!(names(&pods.lister().list()), ["a", "b"], "nothing else is hurt (C9)");
    let failed = |problem: &Problem| matches!(problem, Problem::Server(Report::TransformFailed { .. }));
    assert_eq!(heard.any(failed), pods.metrics().wire.transform_errors > 0);
    (pods.lister().get("default", "a").unwrap(), heard.texts())
}

#[tokio::test(start_paused = true)]
async fn c9_an_object_whose_transform_fails_is_kept_as_received() {
    let fails = |pod: &mut Pod| {
        pod.status = None;
        if pod.metadata.name.as_deref() == Some("a") { Err("no".into()) } else { Ok(()) }
    };
    let (object, told) = through(Options::default().transform(fails)).await;
    assert_eq!(told, ["object default/a is not transformed: no"]);
    assert_eq!(value(&object)["status"]["phase"], "Pending", "also what the transform had done by then");
    assert_eq!(object.typed().unwrap().spec.as_ref().unwrap().node_name.as_deref(), Some("node-1"));

    let cautious = Options::default().transform(fails).on_transform_error(OnTransformError::MetadataOnly);
    let (object, _) = through(cautious).await;
    let raw = value(&object);
    assert_eq!((raw.get("spec"), raw.get("status"), raw["metadata"].get("annotations")), (None, None, None));
    assert_eq!((raw["kind"].as_str(), object.labels().get("app")), (Some("Pod"), Some("web")));
}

#[tokio::test(start_paused = true)]
async fn c9_a_transform_that_panics_is_caught() {
    let (object, told) = through(Options::default().transform(|pod: &mut Pod| {
        assert_ne!(pod.metadata.name.as_deref(), Some("a"), "on purpose");
        Ok(())
    }))
    .await;
    assert_eq!(told, ["object default/a is not transformed: the transform panicked"]);
    assert_eq!(value(&object)["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn a_transform_that_changes_an_identity_is_refused() {
    type Change = (&'static str, fn(&mut Pod));
    let changes: [Change; 4] = [
        ("key", |pod| pod.metadata.name = Some("other".to_owned())),
        ("key", |pod| pod.metadata.namespace = Some("kube-system".to_owned())),
        ("uid", |pod| pod.metadata.uid = Some("mine".to_owned())),
        ("version", |pod| pod.metadata.resource_version = Some("1".to_owned())),
    ];
    for (what, change) in changes {
        let (object, told) = through(Options::default().transform(move |pod: &mut Pod| {
            if pod.metadata.name.as_deref() == Some("a") {
                change(pod);
            }
            Ok(())
        }))
        .await;
        assert_eq!(
            told,
            [format!("object default/a is not transformed: the transform changed the object's {what}")]
        );
        assert_eq!((object.name(), object.namespace()), ("a", Some("default")));
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_secret_whose_transform_fails_only_the_metadata_is_kept() {
    let server = ApiServer::new();
    let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"k\":\"aHVzaA==\"}}"});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"k": "aHVzaA=="}, "metadata":
        {"name": "s", "namespace": "default", "labels": {"app": "web"}, "annotations": copy}});
    server.create(&secret).unwrap();
    let heard = Heard::default();
    let fails = Options::default().transform(|_: &mut Secret| Err("no".into()));
    let secrets = live::<Secret>(&server, heard.hook(fails)).await;
    server.update(&with(secret, "/metadata/labels/app", "db")).unwrap();
    until(|| secrets.metrics().updated == 1).await;
    let kept = secrets.lister().get("default", "s").unwrap();
    let raw = kept.raw();
    let text = String::from_utf8_lossy(&raw);
    assert!(!text.contains("aHVzaA"), "{text}");
    assert_eq!((kept.labels().get("app"), secrets.metrics().wire.transform_errors), (Some("db"), 2));
    assert!(kept.typed().unwrap().data.is_none());
    assert!(!heard.texts().concat().contains("aHVzaA"));
    // Who wants it otherwise says so.
    let fails = Options::default().transform(|_: &mut Secret| Err("no".into()));
    let secrets = live::<Secret>(&server, fails.on_transform_error(OnTransformError::AsReceived)).await;
    assert!(secrets.lister().get("default", "s").unwrap().typed().unwrap().data.is_some());
}

/// Whether a request is a watch, and its `Accept` header.
type Form = (bool, String);

/// A client that writes down in which forms objects are asked for.
fn noting(server: &ApiServer) -> (kube::Client, Arc<Mutex<Vec<Form>>>) {
    let forms = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&forms);
    let service = server.service().map_request(move |request: http::Request<kube::client::Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch=");
        let accept = request.headers()["accept"].to_str().unwrap().to_owned();
        notes.lock().unwrap().push((watch, accept));
        request
    });
    (kube::Client::new(service, "default"), forms)
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_asked_for_and_cached() {
    for policy in [WatchListPolicy::Auto, WatchListPolicy::Never] {
        let server = ApiServer::new();
        server.create(&rich("a")).unwrap();
        let (client, forms) = noting(&server);
        let factory = SharedInformerFactory::with_options(client, Options::default().watch_list(policy));
        let pods = factory.metadata::<Pod>();
        factory.start();
        factory.wait_for_sync(LONG).await.unwrap();
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
        until(|| forms.lock().unwrap().iter().any(|(watch, _)| *watch)).await;
        for (watch, accept) in &*forms.lock().unwrap() {
            let form = if *watch { "PartialObjectMetadata" } else { "PartialObjectMetadataList" };
            let forms = ["application/vnd.kubernetes.protobuf", "application/json"];
            assert_eq!(*accept, forms.map(|name| format!("{name};as={form};g=meta.k8s.io;v=v1")).join(","));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn typed_and_dynamic_metadata_share_a_cache_and_whole_objects_have_another() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let factory = SharedInformerFactory::new(server.client());
    let resource = ApiResource::erase::<Pod>(&());
    let (typed, dynamic) = (factory.metadata::<Pod>(), factory.dynamic_metadata(&resource));
    let whole = factory.informer::<Pod>();
    factory.start();
    factory.wait_for_sync(LONG).await.unwrap();
    assert_eq!(cluster::asked(&server, Verb::Watch, "pods").len(), 2);
    let (one, other) =
        (typed.lister().get("default", "a").unwrap(), dynamic.lister().get("default", "a").unwrap());
    assert!(Arc::ptr_eq(one.entry(), other.entry()), "one cache");
    assert_eq!(other.typed().unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!(value(&whole.lister().get("default", "a").unwrap())["spec"]["containers"][0]["name"], "main");
    assert_eq!(
        (typed.resource(), whole.resource()),
        ("pods (metadata) in all namespaces", "pods in all namespaces")
    );
    let (_on, mut told) = notes(&dynamic);
    told.expect(&["+a initial"]).await;
    server.delete("v1", "pods", Some("default"), "a").unwrap();
    told.expect(&["-a"]).await;
}
