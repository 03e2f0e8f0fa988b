//! Factories: sharing, configuration, lifetime of informers, kinds that appear and disappear.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, config_map, log_events, names, pod, until, with};
use informer::cache::{Encoding, Retention};
use informer::error::ConfigError;
use informer::source::WatchListPolicy;
use informer::status::InformerState;
use informer::{InformerOptions, Selection, SharedInformer, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn watches(server: &ApiServer, plural: &str) -> usize {
    server.recorded_requests().iter().filter(|seen| seen.verb == Verb::Watch && seen.plural == plural).count()
}

fn started(server: &ApiServer) -> SharedInformerFactory {
    let factory = SharedInformerFactory::new(server.client());
    factory.start();
    factory
}

fn is_live<K>(informer: &SharedInformer<K>) -> bool {
    informer.status().state == InformerState::Live
}

// Sharing.

#[tokio::test(start_paused = true)]
async fn c11_typed_dynamic_and_lister_views_share_one_watch_and_one_cache() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let typed = factory.informer::<Pod>();
    let dynamic = factory.dynamic_informer(&ApiResource::erase::<Pod>(&()));
    let lister = factory.lister::<Pod>();
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();

    let (one, other) = (typed.lister().list(), dynamic.lister().list());
    assert_eq!((names(&one), names(&other)), (vec!["a".to_owned()], vec!["a".to_owned()]));
    assert!(Arc::ptr_eq(one[0].entry(), other[0].entry()), "one cache");
    assert_eq!(other[0].typed().unwrap().data["spec"]["containers"][0]["name"], "main");
    assert_eq!(lister.get("default", "a").unwrap().typed().unwrap().metadata.name.as_deref(), Some("a"));
    assert_eq!((watches(&server, "pods"), server.open_watches()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn another_selection_opens_another_watch_and_an_equal_one_does_not() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    server.create(&pod("kube-system", "b")).unwrap();
    let factory = started(&server);
    let system = factory.select(Selection::default().namespace("kube-system"));
    let everywhere = system.select(Selection::default().all_namespaces());
    let (all, some, again) =
        (factory.informer::<Pod>(), system.informer::<Pod>(), everywhere.informer::<Pod>());
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(names(&all.lister().list()), ["a", "b"]);
    assert_eq!(names(&some.lister().list()), ["b"]);
    assert_eq!(names(&again.lister().list()), ["a", "b"]);
    assert_eq!(server.open_watches(), 2);
}

#[tokio::test(start_paused = true)]
async fn configuration_of_a_kind_applies_to_every_selection() {
    // Regression: the data of a kind configured to drop it was cached in a selected view, because the
    // configuration was looked up in one view only.
    let server = ApiServer::new();
    server.create(&config_map("default", "a", "secret")).unwrap();
    let factory = started(&server);
    factory.configure::<ConfigMap>(InformerOptions::default().drop_fields(["data"]).unwrap()).unwrap();
    let here = factory.select(Selection::default().namespace("default"));
    let maps = here.informer::<ConfigMap>();
    maps.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(maps.lister().list()[0].typed().unwrap().data, None);
    assert_eq!(maps.description(), "configmaps in namespace default");
}

#[tokio::test(start_paused = true)]
async fn informer_descriptions_are_distinct() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let web = factory
        .select(Selection::default().label_selector("app=web".parse().unwrap()).namespaces(["b", "a"]));
    let (all, some) = (factory.informer::<Pod>(), web.informer::<Pod>());
    assert_eq!(all.description(), "pods in all namespaces");
    assert_eq!(some.description(), "pods in namespaces a, b with app=web");
}

// Configuration.

#[tokio::test(start_paused = true)]
async fn configure_applies_to_every_later_call() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    server.create(&pod("kube-system", "b")).unwrap();
    let factory = SharedInformerFactory::new(server.client());
    let paged =
        InformerOptions::default().namespace("default").watch_list(WatchListPolicy::Never).page_size(7);
    factory.configure::<Pod>(paged.clone()).unwrap();
    factory.configure::<Pod>(paged).expect("equal options are no conflict");
    let lister = factory.lister::<Pod>();
    let accessed = factory.dynamic_informer(&ApiResource::erase::<Pod>(&()));
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(
        (names(&lister.list()), names(&accessed.lister().list())),
        (vec!["a".into()], vec!["a".into()])
    );
    let lists: Vec<_> =
        server.recorded_requests().into_iter().filter(|seen| seen.verb == Verb::List).collect();
    assert_eq!(lists.len(), 1);
    assert!(format!("{:?}", lists[0]).contains('7'), "{:?}", lists[0]);
}

/// Returns the option that is in use with another value.
#[track_caller]
fn conflict(result: Result<(), ConfigError>) -> &'static str {
    match result.unwrap_err() {
        ConfigError::AlreadyConfigured { option, .. } => option,
        other => panic!("{other}"),
    }
}

#[tokio::test(start_paused = true)]
async fn conflict_names_the_option_and_opens_no_second_watch() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.configure::<Pod>(InformerOptions::default().page_size(7)).unwrap();
    let error = factory.configure::<Pod>(InformerOptions::default().page_size(8)).unwrap_err();
    assert_eq!(conflict(Err(error.clone())), "page_size");
    assert_eq!(
        error.to_string(),
        "configure pods: `page_size` is already in use with another value (configure a kind before its first use)"
    );
    let nodes = factory.informer::<Node>();
    let late = factory.configure::<Node>(InformerOptions::default().retention(Retention::Decoded));
    assert_eq!(conflict(late), "retention", "the informer exists with the defaults");
    // Another view that selects the same objects reports the conflict too.
    let other = factory.select(Selection::default().all_namespaces());
    assert_eq!(conflict(other.configure::<Pod>(InformerOptions::default().page_size(9))), "page_size");
    let transform = || InformerOptions::default().transform(|_: &mut ConfigMap| Ok(()));
    factory.configure::<ConfigMap>(transform()).unwrap();
    assert_eq!(conflict(factory.configure::<ConfigMap>(transform())), "transform");
    drop(nodes);
}

#[tokio::test(start_paused = true)]
async fn unset_options_are_inherited_from_the_factory() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    server.create(&pod("kube-system", "b")).unwrap();
    let factory =
        SharedInformerFactory::with_options(server.client(), InformerOptions::default().namespace("default"));
    factory.configure::<Pod>(InformerOptions::default().retention(Retention::Decoded)).unwrap();
    factory.configure::<ConfigMap>(InformerOptions::default().all_namespaces()).unwrap();
    server.create(&config_map("kube-system", "c", "1")).unwrap();
    let (pods, maps, nodes) =
        (factory.lister::<Pod>(), factory.lister::<ConfigMap>(), factory.lister::<Namespace>());
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(names(&pods.list()), ["a"], "the namespace of the factory applies");
    assert_eq!(names(&maps.list()), ["c"]);
    assert_eq!(nodes.len(), 4, "a cluster-scoped kind is not listed in a namespace");
}

// Lifetime of informers.

#[tokio::test(start_paused = true)]
async fn factory_keeps_informers_until_start_then_each_handle_does() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    factory.informer::<Pod>().on_event(|_| {}).detach();
    let (lister, maps, stream) = (
        factory.lister::<Secret>(),
        factory.informer::<ConfigMap>(),
        factory.informer::<Service>().event_stream(),
    );
    let registration = factory.informer::<Node>().on_event(|_| {});
    drop(factory.informer::<Namespace>()); // unused, but kept by the factory until the start
    factory.start();
    factory.start();
    until(|| server.open_watches() == 5).await;
    drop(lister);
    until(|| server.open_watches() == 4).await;
    drop(maps);
    until(|| server.open_watches() == 3).await;
    drop(stream);
    until(|| server.open_watches() == 2).await;
    drop(registration);
    until(|| server.open_watches() == 1).await;
    drop(factory);
    until(|| server.open_watches() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn informer_requested_after_start_starts_immediately_and_again_after_its_end() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let factory = started(&server);
    for round in 1..=3 {
        let pods = factory.informer::<Pod>();
        pods.wait_for_sync(TIMEOUT).await.unwrap();
        assert_eq!(names(&pods.lister().list()), ["a"]);
        assert_eq!(watches(&server, "pods"), round);
        drop(pods);
        until(|| server.open_watches() == 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn detached_handler_owning_its_lister_ends_with_the_factory() {
    // The handler owns a handle of its own informer, and the informer owns the handler: unless the factory
    // ends the informer, neither is ever dropped.
    let server = ApiServer::new();
    let factory = started(&server);
    let dropped = Arc::new(());
    let (lister, owned) = (factory.lister::<Pod>(), Arc::clone(&dropped));
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    factory
        .informer::<Pod>()
        .on_event(move |_| {
            let _ = (&owned, lister.len());
            count.fetch_add(1, Ordering::Relaxed);
        })
        .detach();
    server.create(&pod("default", "a")).unwrap();
    until(|| calls.load(Ordering::Relaxed) == 1).await;
    drop(factory);
    until(|| server.open_watches() == 0).await;
    until(|| Arc::strong_count(&dropped) == 1).await;
}

// Kinds that are forbidden or not served, and kinds that appear and disappear.

#[tokio::test(start_paused = true)]
async fn c7_c9_one_forbidden_kind_among_ten_never_delays_the_other_nine() {
    let server = ApiServer::new();
    let fault = server.inject(faults::forbid("secrets"));
    let factory = SharedInformerFactory::new(server.client());
    let secrets = factory.informer::<Secret>();
    let others = (
        (factory.informer::<Pod>(), factory.informer::<ConfigMap>(), factory.informer::<Service>()),
        (factory.informer::<Node>(), factory.informer::<Namespace>(), factory.informer::<Event>()),
        (
            factory.informer::<Deployment>(),
            factory.informer::<ServiceAccount>(),
            factory.metadata_informer::<Pod>(),
        ),
    );
    factory.start();
    let before = tokio::time::Instant::now();
    let error = factory.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(before.elapsed() < Duration::from_secs(5), "it failed immediately");
    assert_eq!(error.informers.len(), 10);
    let failed: Vec<_> =
        error.failed().filter(|error| matches!(error.state, InformerState::Forbidden { .. })).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(&*failed[0].informer, "secrets in all namespaces");
    assert!(error.to_string().contains("secrets in all namespaces: forbidden: "), "{error}");

    others.0.0.wait_for_sync(TIMEOUT).await.unwrap();
    others.2.2.wait_for_sync(TIMEOUT).await.unwrap();
    until(|| server.open_watches() == 9 && is_live(&others.2.0)).await;
    assert!(!is_live(&secrets));
    drop(fault);
    secrets.wait_for_sync(Duration::ZERO).await.unwrap_err();
    until(|| is_live(&secrets)).await;
    factory.wait_for_sync(TIMEOUT).await.unwrap();
}

fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "websites", "singular": "website", "kind": "Website", "listKind": "WebsiteList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
        },
    })
}

fn website(name: &str) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"namespace": "default", "name": name}})
}

#[tokio::test(start_paused = true)]
async fn c7_kind_follows_its_definition_and_others_are_unaffected() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let gvk = GroupVersionKind::gvk("example.com", "v1", "Website");
    let websites = factory.dynamic_informer(&ApiResource::from_gvk(&gvk));
    let pods = factory.informer::<Pod>();
    let (_registration, mut log) = log_events(&websites);
    factory.start();
    let error = websites.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(matches!(error.informers[0].state, InformerState::NotServed { .. }), "{error}");
    pods.wait_for_sync(TIMEOUT).await.unwrap();

    server.create(&definition()).unwrap();
    server.create(&website("a")).unwrap();
    log.expect(&["+a initial"]).await;
    until(|| is_live(&websites)).await;

    server
        .delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, "websites.example.com")
        .unwrap();
    log.expect(&["-a"]).await;
    until(|| matches!(websites.status().state, InformerState::NotServed { .. })).await;

    server.create(&definition()).unwrap();
    server.create(&website("b")).unwrap();
    log.expect(&["+b"]).await;
    until(|| is_live(&websites)).await;
    assert_eq!(watches(&server, "pods"), 1, "the other kind is unaffected");
    assert!(is_live(&pods));
}

/// The server knows the definition, but the message table does not contain the kind: full objects are sent as
/// JSON, metadata as protobuf.
#[tokio::test(start_paused = true)]
async fn metadata_of_a_custom_kind_is_sent_as_protobuf() {
    let server = ApiServer::new();
    server.create(&definition()).unwrap();
    server.create(&with(website("a"), "/metadata/labels", json!({"app": "web"}))).unwrap();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Website"));
    for policy in [WatchListPolicy::Always, WatchListPolicy::Never] {
        let options = InformerOptions::default().watch_list(policy);
        let factory = SharedInformerFactory::with_options(server.client(), options);
        let (whole, websites) = (factory.dynamic_informer(&kind), factory.dynamic_metadata_informer(&kind));
        factory.start();
        factory.wait_for_sync(TIMEOUT).await.unwrap();
        let encoding =
            |name: &str| websites.lister().get("default", name).map(|object| object.entry().encoding());
        assert!(matches!(encoding("a"), Some(Encoding::Protobuf)), "{:?}", encoding("a"));
        let found = websites.lister().get("default", "a").unwrap();
        assert_eq!(found.labels().get("app"), Some("web"));
        assert_eq!(found.typed().unwrap().metadata.name.as_deref(), Some("a"));
        assert_eq!(whole.lister().get("default", "a").unwrap().entry().encoding(), Encoding::Json);
        // Objects of the watch too.
        server.create(&website("b")).unwrap();
        until(|| matches!(encoding("b"), Some(Encoding::Protobuf))).await;
        factory.shutdown(TIMEOUT).await.unwrap();
        server.delete("example.com/v1", "websites", Some("default"), "b").unwrap();
    }
}

// Shutdown.

#[tokio::test(start_paused = true)]
async fn c10_shutdown_delivers_received_events_and_is_final() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let (registration, mut log) = log_events(&pods);
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    server.create(&pod("default", "a")).unwrap();
    until(|| pods.lister().len() == 1).await;
    factory.shutdown(TIMEOUT).await.unwrap();
    log.expect(&["+a"]).await;
    assert_eq!(server.open_watches(), 0);
    assert_eq!(pods.status().state, InformerState::Stopped);
    assert_eq!(names(&pods.lister().list()), ["a"], "the last state stays readable");

    // Starting after the shutdown does nothing, and new informers are stopped from the beginning, so nothing
    // hangs.
    factory.start();
    pods.start();
    let late = factory.informer::<Node>();
    assert_eq!(late.wait_for_sync(TIMEOUT).await.unwrap_err().informers[0].state, InformerState::Stopped);
    assert!(!late.on_event(|_| {}).wait_for_sync().await);
    assert!(late.event_stream().next().await.is_none());
    factory.wait_for_sync(TIMEOUT).await.unwrap_err();
    factory.shutdown(TIMEOUT).await.unwrap();
    assert!(log.is_empty());
    registration.remove().await;
}

#[tokio::test(start_paused = true)]
async fn factory_never_started_shuts_down_immediately() {
    let server = ApiServer::new();
    let factory = SharedInformerFactory::new(server.client());
    let pods = factory.informer::<Pod>();
    let registration = pods.on_event(|_| {});
    assert_eq!(
        pods.wait_for_sync(Duration::from_secs(1)).await.unwrap_err().informers[0].state,
        InformerState::NotStarted
    );
    factory.shutdown(TIMEOUT).await.unwrap();
    assert!(!registration.wait_for_sync().await);
    assert_eq!(pods.wait_for_sync(TIMEOUT).await.unwrap_err().informers[0].state, InformerState::Stopped);
}

#[tokio::test(start_paused = true)]
async fn c6_handlers_of_two_views_see_the_same_events() {
    let server = ApiServer::new();
    let factory = started(&server);
    let typed = factory.informer::<Pod>();
    let dynamic: SharedInformer<DynamicObject> = factory.dynamic_informer(&ApiResource::erase::<Pod>(&()));
    let (_one, mut one) = log_events(&typed);
    let (_two, mut two) = log_events(&dynamic);
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    server.create(&pod("default", "a")).unwrap();
    one.expect(&["+a"]).await;
    two.expect(&["+a"]).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let late = Arc::clone(&seen);
    let registration =
        dynamic.on_event(move |event| late.lock().unwrap().push(crate::cluster::describe(&event)));
    assert!(registration.wait_for_sync().await);
    assert_eq!(*seen.lock().unwrap(), ["+a initial"]);
}
