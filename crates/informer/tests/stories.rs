//! Bugs that were found, each with its story.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{LONG, config_map, names, pod, until};
use futures::StreamExt as _;
use informer::source::{Answer, Response, Source};
use informer::{
    Index, ListRequest, Metrics, Object, Options, Problem, ResourceVersion, SharedInformer,
    SharedInformerFactory, State, WatchListPolicy, WatchRequest,
};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::core::{ApiResource, PartialObjectMeta};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn c7_a_stopped_informer_is_not_synced_and_its_factory_makes_a_new_one() {
    // `synced` never goes back, and it alone was asked: whoever waited for an informer that somebody else had shut down was told that all
    // was well, and got a cache that nobody ever brought up to date.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let (one, held) = (factory.informer::<Pod>(), factory.lister::<Pod>());
    one.wait_for_sync(LONG).await.unwrap();
    one.shutdown(LONG).await.unwrap();
    assert_eq!(one.wait_for_sync(LONG).await.unwrap_err().state, State::Stopped);
    let other = factory.informer::<Pod>();
    other.wait_for_sync(LONG).await.unwrap();
    server.create(&pod("default", "a")).unwrap();
    until(|| other.lister().len() == 1).await;
    assert_eq!(held.len(), 0, "what was stopped stays so");
}

#[tokio::test]
async fn c10_what_somebody_is_stopping_is_replaced_and_still_waited_for_at_the_end() {
    // While it told what it still had it looked alive, was handed out, and was dead a moment later; once replaced it was forgotten, and
    // the factory's shutdown returned while its handler was still being called.
    let server = ApiServer::new();
    for name in ["a", "b", "c"] {
        server.create(&pod("default", name)).unwrap();
    }
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let pods = factory.informer::<Pod>();
    let (calls, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(std::sync::Barrier::new(2)));
    let (count, at_gate) = (Arc::clone(&calls), Arc::clone(&gate));
    let _on = pods.handler().blocking().on(move |_| {
        if count.fetch_add(1, Ordering::SeqCst) == 0 {
            at_gate.wait();
        }
    });
    until(|| calls.load(Ordering::SeqCst) == 1).await;
    let stopping = pods.clone();
    let stop = tokio::spawn(async move { stopping.shutdown(LONG).await });
    let fresh = || {
        let again = factory.informer::<Pod>();
        again.status().state != State::Stopped && again.metrics().handlers.is_empty()
    };
    until(fresh).await;
    let again = factory.informer::<Pod>();
    again.wait_for_sync(LONG).await.unwrap();
    let ending = factory.clone();
    let end = tokio::spawn(async move { ending.shutdown(LONG).await });
    tokio::task::yield_now().await;
    assert!(!end.is_finished(), "a handler is still being called");
    gate.wait();
    end.await.unwrap().unwrap();
    stop.await.unwrap().unwrap();
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn c7_an_informer_that_nobody_wants_any_more_spoils_no_wait() {
    let server = ApiServer::new();
    let held = server.fault(informer_apiserver::faults::hold().of("pods"));
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    let (pods, nodes) = (factory.informer::<Pod>(), factory.informer::<Node>());
    let waiting = factory.clone();
    let wait = tokio::spawn(async move { waiting.wait_for_sync(LONG).await });
    until(|| nodes.status().synced).await;
    drop(nodes);
    until(|| server.open_watches() == 0).await;
    assert!(!wait.is_finished());
    drop(held);
    wait.await.unwrap().unwrap();
    drop(pods);
}

#[tokio::test]
async fn a_stream_of_which_nothing_passes_lets_others_run() {
    // One poll took the whole backlog.
    let server = ApiServer::new();
    for number in 0..2000 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    let pods = SharedInformer::<Pod>::new(server.client());
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    let seen = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&seen);
    let mut stream = pods
        .handler()
        .filter(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            false
        })
        .events();
    until(|| stream.pending() == 2000).await;
    let polled = tokio::spawn(async move { futures::poll!(std::pin::pin!(stream.next())).is_pending() });
    assert!(polled.await.unwrap());
    assert!(seen.load(Ordering::Relaxed) < 2000, "{} in one poll", seen.load(Ordering::Relaxed));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_removed_before_the_start_is_let_go() {
    // The handler waited in the queue of an informer that had not started, and held a lister of it: each kept the other for ever.
    let server = ApiServer::new();
    let token = Arc::new(());
    let pods = SharedInformer::<Pod>::new(server.client());
    let (lister, held) = (pods.lister(), Arc::clone(&token));
    let on = pods.on(move |_| drop((lister.len(), Arc::clone(&held))));
    on.remove().await;
    assert_eq!(Arc::strong_count(&token), 1);

    let factory = SharedInformerFactory::new(server.client());
    let (lister, held) = (factory.lister::<Pod>(), Arc::clone(&token));
    factory.informer::<Pod>().on(move |_| drop((lister.len(), Arc::clone(&held)))).detach();
    drop(factory);
    assert_eq!(Arc::strong_count(&token), 1);
}

#[test]
fn an_event_stream_ends_when_its_runtime_does() {
    // A handler's task says that it ends; a stream has none, and waited for ever.
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let first = runtime();
    let (pods, mut stream) = first.block_on(async {
        let pods = SharedInformer::<Pod>::new(server.client());
        pods.start();
        pods.wait_for_sync(LONG).await.unwrap();
        let mut stream = pods.events();
        assert!(stream.next().await.is_some());
        (pods, stream)
    });
    drop(first);
    assert_eq!(pods.status().state, State::Stopped);
    let end = runtime().block_on(async { tokio::time::timeout(LONG, stream.next()).await });
    assert!(end.unwrap().is_none());
}

/// A server that has never heard of metadata-only forms.
struct Deaf;

impl Source for Deaf {
    fn list(&self, _: ListRequest) -> Answer {
        let list = r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
            {"metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"4"},"spec":{"hush":1}}]}"#;
        Box::pin(async move { Ok(Response::ok(list)) })
    }

    fn watch(&self, _: WatchRequest) -> Answer {
        let frame = r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",
            "metadata":{"namespace":"d","name":"a","uid":"u","resourceVersion":"6"},"spec":{"hush":2}}}"#;
        let frames = futures::stream::iter([Ok(frame.into())]).chain(futures::stream::pending());
        Box::pin(async move { Ok(Response::new(200, frames).with_content_type("application/json")) })
    }
}

#[tokio::test(start_paused = true)]
async fn metadata_from_a_server_that_sends_whole_objects_is_still_metadata_and_current() {
    // List items carry no kind, so whole objects were kept as metadata; watch frames do, and were all thrown away as another kind's.
    for options in [
        Options::default(),
        Options::default().drop_fields(["metadata.annotations"]).unwrap(),
        Options::default().keep_fields(["spec", "metadata.annotations"]).unwrap(),
    ] {
        check_deaf(options.watch_list(WatchListPolicy::Never)).await;
    }
}

async fn check_deaf(options: Options) {
    let pods = SharedInformer::<PartialObjectMeta<Pod>>::with_source(Deaf, options);
    pods.start();
    let version = || pods.lister().get("d", "a").map(|object| object.version().to_string());
    until(|| version().as_deref() == Some("6")).await;
    let object = pods.lister().get("d", "a").unwrap();
    assert_eq!(object.typed().unwrap().metadata.name.as_deref(), Some("a"));
    assert!(!String::from_utf8_lossy(&object.raw()).contains("hush"));
}

#[tokio::test(start_paused = true)]
async fn a_dynamic_call_does_not_spoil_a_cluster_scoped_kind() {
    // It settled the kind with the factory's namespaces, and the typed call after it looked for nodes in a namespace.
    let server = ApiServer::new();
    let options = Options::default().namespace("default");
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let _dynamic = factory.dynamic(&ApiResource::erase::<Node>(&()));
    let typed = factory.informer::<Node>();
    factory.start();
    typed.wait_for_sync(LONG).await.unwrap();
    // From then on the dynamic view knows better too.
    factory.dynamic(&ApiResource::erase::<Node>(&())).wait_for_sync(LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refused_configuration_changes_nothing() {
    // The refused options were kept by the view that had asked, so the right ones were refused from then on.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<Pod>(Options::default().page_size(7)).unwrap();
    let other = factory.select(Options::default().all_namespaces());
    other.configure::<Pod>(Options::default().page_size(9)).unwrap_err();
    other.configure::<Pod>(Options::default().page_size(7)).unwrap();
    let _nodes = factory.informer::<Node>();
    factory
        .configure::<Node>(Options::default().watch_list(WatchListPolicy::Auto))
        .expect("it is the default");
}

#[tokio::test(start_paused = true)]
async fn a_factorys_transform_leaves_other_kinds_alone() {
    // A transform of pods decoded config maps as pods, and encoded what it had understood: nothing.
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "1")).unwrap();
    server.create(&pod("default", "a")).unwrap();
    let options = Options::default().transform(|pod: &mut Pod| {
        pod.spec = None;
        Ok(())
    });
    let factory = SharedInformerFactory::with_options(server.client(), options);
    let (maps, pods) = (factory.informer::<ConfigMap>(), factory.informer::<Pod>());
    let metadata = factory.metadata::<Pod>();
    factory.start();
    factory.wait_for_sync(LONG).await.unwrap();
    assert_eq!(metadata.metrics().wire.transform_errors, 0);
    assert!(maps.lister().list()[0].typed().unwrap().data.is_some());
    assert!(pods.lister().list()[0].typed().unwrap().spec.is_none());
}

#[tokio::test(start_paused = true)]
async fn reading_your_own_write_does_not_wait_for_another_namespace() {
    // The smallest version of all namespaces was waited for: that of a quiet one moves once a minute.
    let server = ApiServer::new();
    let options = Options::default().namespaces(["default", "kube-system"]);
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    let written = server.create(&pod("default", "a")).unwrap();
    let version = ResourceVersion::new(written["metadata"]["resourceVersion"].as_str().unwrap());
    let before = tokio::time::Instant::now();
    pods.wait_for_version_in("default", &version, LONG).await.unwrap();
    assert!(before.elapsed() < Duration::from_secs(5));
    assert_eq!(names(&pods.lister().list()), ["a"]);
    let error = pods.wait_for_version_in("elsewhere", &version, LONG).await.unwrap_err();
    assert!(error.to_string().ends_with("the informer does not watch this namespace"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_factory_may_be_asked_from_any_thread_and_started_again_where_there_is_a_runtime() {
    // After the start a call from a plain thread panicked, and a start outside a runtime panicked half-way: the next one did nothing.
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let outside = factory.clone();
    assert!(std::thread::spawn(move || outside.start()).join().is_err(), "there is no runtime");
    factory.start();
    pods.wait_for_sync(LONG).await.unwrap();
    let outside = factory.clone();
    let nodes = std::thread::spawn(move || outside.informer::<Node>()).join().unwrap();
    nodes.wait_for_sync(LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c9_an_index_function_that_panics_is_reported() {
    // It was counted in its handle, where nobody looks.
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&heard);
    let options = Options::default().on_error(move |_, problem| {
        hook.fetch_add(usize::from(matches!(problem, Problem::IndexPanicked { .. })), Ordering::Relaxed);
    });
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let broken = |_: &Object<Pod>| -> Vec<String> { panic!("on purpose") };
    let _index = pods.add_index(Index::by("broken", broken)).unwrap();
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    assert_eq!((heard.load(Ordering::Relaxed), pods.metrics().index_panics), (1, 1));
    // Also those of an index that is built later, from what is there.
    let _late = pods.add_index(Index::by("late", broken)).unwrap();
    server.create(&config_map("default", "other", "1")).unwrap();
    server.create(&pod("default", "b")).unwrap();
    until(|| pods.metrics().index_panics == 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c7_live_means_that_the_set_is_in_the_cache() {
    // The reflector was live as soon as it had handed the set on; for a moment an informer said so over an empty cache.
    let server = ApiServer::new();
    for number in 0..300 {
        server.create(&pod("default", &format!("pod-{number}"))).unwrap();
    }
    for _ in 0..50 {
        let pods = SharedInformer::<Pod>::new(server.client());
        let mut status = pods.watch_status();
        pods.start();
        let live = status.wait_for(|status| status.state == State::Live);
        tokio::time::timeout(LONG, live).await.unwrap().unwrap();
        assert_eq!(pods.lister().len(), 300);
    }
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_a_handler_stay_its_own_when_another_goes() {
    // Handlers of one name were told apart by their place in a list, so the figures of one became those of another.
    let server = ApiServer::new();
    let pods = SharedInformer::<Pod>::new(server.client());
    let (one, two) = (pods.handler().name("same").on(drop), pods.handler().name("same").on(drop));
    pods.start();
    assert!(two.synced().await);
    one.remove().await;
    until(|| pods.metrics().handlers.len() == 1).await;
    let text = Metrics::prometheus(&[pods.metrics()]);
    assert!(text.contains(r#"handler="same",number="1"}"#), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn asking_starting_and_ending_at_once_never_hangs() {
    for _ in 0..30 {
        let server = ApiServer::new();
        server.create(&pod("default", "a")).unwrap();
        let factory = SharedInformerFactory::new(server.client());
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let factory = factory.clone();
            tasks.spawn(async move {
                for turn in 0..20 {
                    let pods = factory.informer::<Pod>();
                    let handler = pods.handler();
                    let on = if turn % 2 == 0 { handler.blocking().on(drop) } else { handler.on(drop) };
                    let _stream = pods.events();
                    match turn % 3 {
                        0 => on.remove().await,
                        1 => drop(on),
                        _ => on.detach(),
                    }
                    tokio::task::yield_now().await;
                }
            });
        }
        let (starting, ending) = (factory.clone(), factory.clone());
        tasks.spawn(async move { starting.start() });
        tasks.spawn(async move {
            tokio::task::yield_now().await;
            ending.shutdown(LONG).await.unwrap();
        });
        let all = async { while tasks.join_next().await.transpose().unwrap().is_some() {} };
        tokio::time::timeout(LONG, all).await.expect("it hangs");
        factory.shutdown(LONG).await.unwrap();
        assert_eq!(server.open_watches(), 0);
    }
}
