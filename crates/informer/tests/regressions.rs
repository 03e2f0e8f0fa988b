//! Regression tests; each starts with a description of the bug.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, config_map, names, pod, until};
use futures::StreamExt as _;
use informer::metrics::{self, Collect};
use informer::source::{ListRequest, WatchListPolicy, WatchRequest};
use informer::source::{Response, ResponseFuture, Source};
use informer::status::{Diagnostic, InformerState};
use informer::{
    Index, InformerOptions, Object, ResourceVersion, Selection, SharedInformer, SharedInformerFactory,
};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::{ApiResource, PartialObjectMeta};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn c7_stopped_informer_is_not_synced_and_its_factory_creates_a_new_one() {
    // `synced` never becomes false, and only that was checked: waiting for an informer that was already shut
    // down succeeded and returned a cache that was never updated again.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let (one, kept) = (factory.informer::<Pod>(), factory.lister::<Pod>());
    one.wait_for_sync(TIMEOUT).await.unwrap();
    one.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(one.wait_for_sync(TIMEOUT).await.unwrap_err().informers[0].state, InformerState::Stopped);
    let other = factory.informer::<Pod>();
    other.wait_for_sync(TIMEOUT).await.unwrap();
    server.create(&pod("default", "a")).unwrap();
    until(|| other.lister().len() == 1).await;
    assert_eq!(kept.len(), 0, "a stopped informer is not updated");
}

#[tokio::test]
async fn c10_stopping_informer_is_replaced_and_awaited_by_the_factory_shutdown() {
    // An informer that was still delivering its last events looked alive, was returned by the factory, and
    // had stopped a moment later. Once replaced it was forgotten, and the factory's shutdown returned while
    // its handler was still being called.
    let server = ApiServer::new();
    for name in ["a", "b", "c"] {
        server.create(&pod("default", name)).unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let pods = factory.informer::<Pod>();
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Barrier::new(2)));
    let (count, at_gate) = (Arc::clone(&calls), Arc::clone(&gate));
    let _registration = pods.handler().blocking().on_event(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            at_gate.wait();
        }
    });
    until(|| calls.load(Ordering::SeqCst) == 1).await;
    let stopping = pods.clone();
    let stop = tokio::spawn(async move { stopping.shutdown(TIMEOUT).await });
    let fresh = || {
        let again = factory.informer::<Pod>();
        again.status().state != InformerState::Stopped && again.metrics().handlers.is_empty()
    };
    until(fresh).await;
    let again = factory.informer::<Pod>();
    again.wait_for_sync(TIMEOUT).await.unwrap();
    let ending = factory.clone();
    let end = tokio::spawn(async move { ending.shutdown(TIMEOUT).await });
    tokio::task::yield_now().await;
    assert!(!end.is_finished(), "a handler is still being called");
    gate.wait();
    end.await.unwrap().unwrap();
    stop.await.unwrap().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn c7_dropped_informer_does_not_fail_the_wait_for_sync() {
    let server = ApiServer::new();
    let kept = server.inject(informer_apiserver::faults::stall_request().for_resource("pods"));
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let (pods, nodes) = (factory.informer::<Pod>(), factory.informer::<Node>());
    let waiting = factory.clone();
    let wait = tokio::spawn(async move { waiting.wait_for_sync(TIMEOUT).await });
    until(|| nodes.status().synced).await;
    drop(nodes);
    until(|| server.open_watches() == 0).await;
    assert!(!wait.is_finished());
    drop(kept);
    wait.await.unwrap().unwrap();
    drop(pods);
}

#[tokio::test]
async fn stream_that_filters_everything_yields_to_other_tasks() {
    // One poll processed the whole backlog.
    let server = ApiServer::new();
    for number in 0..2000 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    let pods = SharedInformer::<Pod>::new(server.client());
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let mut stream = pods
        .handler()
        .filter(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            false
        })
        .event_stream();
    until(|| stream.pending_events() == 2000).await;
    let polled = tokio::spawn(async move { futures::poll!(std::pin::pin!(stream.next())).is_pending() });
    assert!(polled.await.unwrap());
    assert!(seen.load(Ordering::Relaxed) < 2000, "{} in one poll", seen.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn handler_removed_before_start_is_dropped() {
    // The handler waited in the queue of an informer that had not started and owned a lister of it: neither
    // was ever dropped.
    let server = ApiServer::new();
    let token = Arc::new(());
    let pods = SharedInformer::<Pod>::new(server.client());
    let (lister, kept) = (pods.lister(), Arc::clone(&token));
    let registration = pods.on_event(move |_| drop((lister.len(), Arc::clone(&kept))));
    registration.remove().await;
    assert_eq!(Arc::strong_count(&token), 1);

    let factory = SharedInformerFactory::new(server.client());
    let (lister, kept) = (factory.lister::<Pod>(), Arc::clone(&token));
    factory.informer::<Pod>().on_event(move |_| drop((lister.len(), Arc::clone(&kept)))).detach();
    drop(factory);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn event_stream_ends_with_its_runtime() {
    // A handler's task notices the end of its runtime; a stream has no task and waited forever.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let first = runtime();
    let (pods, mut stream) = first.block_on(async {
        let pods = SharedInformer::<Pod>::new(server.client());
        pods.start();
        pods.wait_for_sync(TIMEOUT).await.unwrap();
        let mut stream = pods.event_stream();
        assert!(stream.next().await.is_some());
        (pods, stream)
    });
    drop(first);
    assert_eq!(pods.status().state, InformerState::Stopped);
    let end = runtime().block_on(async { tokio::time::timeout(TIMEOUT, stream.next()).await });
    assert!(end.unwrap().is_none());
}

/// A server that ignores the request for metadata only.
struct FullObjectServer;

impl Source for FullObjectServer {
    fn list(&self, _: ListRequest) -> ResponseFuture {
        let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
            {"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"4"},"spec":{"hush":1}}]}"#;
        Box::pin(async move { Ok(Response::ok(list)) })
    }

    fn watch(&self, _: WatchRequest) -> ResponseFuture {
        let frame = r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",
            "metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"6"},"spec":{"hush":2}}}"#;
        let frames = futures::stream::iter([Ok(frame.into())]).chain(futures::stream::pending());
        Box::pin(async move { Ok(Response::new(200, frames).with_content_type("application/json")) })
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_is_extracted_from_a_server_that_sends_full_objects() {
    // List items have no kind, so full objects were cached as metadata; watch frames have one and were all
    // dropped as objects of another kind.
    for options in [
        InformerOptions::default(),
        InformerOptions::default().drop_fields(["metadata.annotations"]).unwrap(),
        InformerOptions::default().keep_fields(["spec", "metadata.annotations"]).unwrap(),
    ] {
        check_full_objects(options.watch_list(WatchListPolicy::Never)).await;
    }
}

async fn check_full_objects(options: InformerOptions) {
    let pods = SharedInformer::<PartialObjectMeta<Pod>>::with_source(FullObjectServer, options);
    pods.start();
    let version = || pods.lister().get("d", "a").map(|object| object.resource_version().to_string());
    until(|| version().as_deref() == Some("6")).await;
    let object = pods.lister().get("d", "a").unwrap();
    assert_eq!(object.typed().unwrap().metadata.name.as_deref(), Some("a"));
    assert!(!String::from_utf8_lossy(&object.raw_bytes()).contains("hush"));
}

#[tokio::test(start_paused = true)]
async fn dynamic_call_does_not_namespace_a_cluster_scoped_kind() {
    // The dynamic call fixed the kind to the factory's namespaces, and the typed call after it requested
    // nodes in a namespace.
    let server = ApiServer::new();
    let options = InformerOptions::default().namespace("default");
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let _dynamic = factory.dynamic_informer(&ApiResource::erase::<Node>(&()));
    let typed = factory.informer::<Node>();
    factory.start();
    typed.wait_for_sync(TIMEOUT).await.unwrap();
    // From then on the dynamic view is cluster-scoped too.
    factory.dynamic_informer(&ApiResource::erase::<Node>(&())).wait_for_sync(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn rejected_configuration_changes_nothing() {
    // The rejected options were stored in the view that had passed them, so correct ones were rejected from
    // then on.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<Pod>(InformerOptions::default().page_size(7)).unwrap();
    let other = factory.select(Selection::default().all_namespaces());
    other.configure::<Pod>(InformerOptions::default().page_size(9)).unwrap_err();
    other.configure::<Pod>(InformerOptions::default().page_size(7)).unwrap();
    let _nodes = factory.informer::<Node>();
    factory
        .configure::<Node>(InformerOptions::default().watch_list(WatchListPolicy::Auto))
        .expect("the default is no conflict");
}

#[tokio::test(start_paused = true)]
async fn transform_of_a_factory_ignores_other_kinds() {
    // A transform of pods decoded config maps as pods and encoded the result, which was empty.
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "1")).unwrap();
    server.create(&pod("default", "a")).unwrap();
    let options = InformerOptions::default().transform(|pod: &mut Pod| {
        pod.spec = None;
        Ok(())
    });
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let (maps, pods) = (factory.informer::<ConfigMap>(), factory.informer::<Pod>());
    let metadata = factory.metadata_informer::<Pod>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(metadata.metrics().reflector.transform_errors, 0);
    assert!(maps.lister().list()[0].typed().unwrap().data.is_some());
    assert!(pods.lister().list()[0].typed().unwrap().spec.is_none());
}

#[tokio::test(start_paused = true)]
async fn wait_for_version_ignores_other_namespaces() {
    // The wait used the smallest version of all namespaces, and that of an idle namespace advances once a
    // minute.
    let server = ApiServer::new();
    let options = InformerOptions::default().namespaces(["default", "kube-system"]);
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let written = server.create(&pod("default", "a")).unwrap();
    let version = ResourceVersion::new(written["metadata"]["resourceVersion"].as_str().unwrap());
    let before = tokio::time::Instant::now();
    pods.wait_for_resource_version_in("default", &version, TIMEOUT).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5));
    assert_eq!(names(&pods.lister().list()), ["a"]);
    let error = pods.wait_for_resource_version_in("elsewhere", &version, TIMEOUT).await.unwrap_err();
    assert!(error.to_string().ends_with("the informer does not watch this namespace"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn factory_works_from_any_thread_and_starts_again_inside_a_runtime() {
    // After the start a call from a plain thread panicked, and a start outside of a runtime panicked
    // half-way: the next start did nothing.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let outside = factory.clone();
    assert!(std::thread::spawn(move || outside.start()).join().is_err(), "start needs a runtime");
    factory.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let outside = factory.clone();
    let nodes = std::thread::spawn(move || outside.informer::<Node>()).join().unwrap();
    nodes.wait_for_sync(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_index_function_is_reported() {
    // Panics were counted only in the index handle.
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let diagnostics = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&diagnostics);
    let options = InformerOptions::default().on_diagnostic(move |_, diagnostic| {
        hook.fetch_add(
            usize::from(matches!(diagnostic, Diagnostic::IndexPanicked { .. })),
            Ordering::Relaxed,
        );
    });
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let broken = |_: &Object<Pod>| -> Vec<String> { panic!("intended panic") };
    let _index = pods.add_index(Index::from_fn("broken", broken)).unwrap();
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!((diagnostics.load(Ordering::Relaxed), pods.metrics().index_panics), (1, 1));
    // Panics of an index that is built later from cached objects are reported too.
    let _late = pods.add_index(Index::from_fn("late", broken)).unwrap();
    server.create(&config_map("default", "other", "1")).unwrap();
    server.create(&pod("default", "b")).unwrap();
    until(|| pods.metrics().index_panics == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_live_informer_has_its_list_in_the_cache() {
    // The reflector was live as soon as it had handed over the list; for a short time the informer was live
    // with an empty cache.
    let server = ApiServer::new();
    for number in 0..300 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    for _ in 0..50 {
        let pods = SharedInformer::<Pod>::new(server.client());
        let mut status = pods.subscribe_status();
        pods.start();
        let live = status.wait_for(|status| status.state == InformerState::Live);
        tokio::time::timeout(TIMEOUT, live).await.unwrap().unwrap();
        assert_eq!(pods.lister().len(), 300);
    }
}

#[tokio::test(start_paused = true)]
async fn handler_metrics_stay_separate_when_another_handler_is_removed() {
    // Handlers with the same name were distinguished by their position in a list, so the metrics of one
    // became those of another.
    let server = ApiServer::new();
    let pods = SharedInformer::<Pod>::new(server.client());
    let (one, two) = (pods.handler().name("same").on_event(drop), pods.handler().name("same").on_event(drop));
    pods.start();
    assert!(two.wait_for_sync().await);
    one.remove().await;
    until(|| pods.metrics().handlers.len() == 1).await;
    let text = metrics::encode([&pods as &dyn Collect]);
    assert!(text.contains(r#"handler="same",id="1"}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_start_and_shutdown_never_hang() {
    for _ in 0..30 {
        let server = ApiServer::new();
        server.create(&pod("default", "a")).unwrap();
        let factory = SharedInformerFactory::new(server.client());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let factory = factory.clone();
            tasks.spawn(async move {
                for round in 0..20 {
                    let pods = factory.informer::<Pod>();
                    let handler = pods.handler();
                    let registration = if round % 2 == 0 {
                        handler.blocking().on_event(drop)
                    } else {
                        handler.on_event(drop)
                    };
                    let _stream = pods.event_stream();
                    match round % 3 {
                        0 => registration.remove().await,
                        1 => drop(registration),
                        _ => registration.detach(),
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let (starting, ending) = (factory.clone(), factory.clone());
        tasks.spawn(async move { starting.start() });
        tasks.spawn(async move {
            tokio::task::yield_now().await;
            ending.shutdown(TIMEOUT).await.unwrap();
        });
        let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(TIMEOUT, all).await.expect("shutdown hangs");
        factory.shutdown(TIMEOUT).await.unwrap();
        assert_eq!(server.open_watches(), 0);
    }
}
