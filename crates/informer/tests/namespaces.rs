//! What an informer selects: several namespaces in one cache, selectors, query parameters.
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    TIMEOUT, advance_time, break_watches_with, config_map, create_namespace, create_pods, gap_for,
    log_events, names, pod, requests_for, synced_informer, until, with,
};
use informer::selector::{FieldSelector, LabelSelector};
use informer::source::WatchListPolicy;
use informer::status::{InformerState, Scope};
use informer::{InformerOptions, ResourceVersion, Selection, SharedInformer, SharedInformerFactory};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod};
use serde_json::json;
use std::time::Duration;

/// A server with the namespaces `a`, `b` and `c`, and a pod in each.
fn three_namespaces() -> ApiServer {
    let server = ApiServer::new();
    for name in ["a", "b", "c"] {
        create_namespace(&server, name);
        server.create(&pod(name, &format!("in-{name}"))).unwrap();
    }
    server
}

fn in_namespace(namespace: &str) -> faults::FaultRule {
    faults::stall_request().for_resource("pods").in_namespace(namespace)
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_one_watch_and_all_have_one_cache() {
    let server = three_namespaces();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["b", "a", "b"])).await;
    assert_eq!(pods.description(), "pods in namespaces a, b");
    assert_eq!(names(&pods.lister().list()), ["in-a", "in-b"]);
    let mut watched: Vec<_> =
        requests_for(&server, Verb::Watch, "pods").into_iter().filter_map(|seen| seen.namespace).collect();
    watched.sort();
    assert_eq!((watched, server.open_watches()), (vec!["a".to_owned(), "b".to_owned()], 2));
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+in-a initial", "+in-b initial"]).await;
    server.create(&pod("c", "elsewhere")).unwrap();
    server.create(&pod("b", "new")).unwrap();
    log.expect(&["+new"]).await;
    assert_eq!(names(&pods.lister().namespace("b").list()), ["in-b", "new"]);
    assert_eq!(pods.status().scopes.len(), 2);
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(server.open_watches(), 0);
}

#[tokio::test(start_paused = true)]
async fn c5_version_is_none_until_all_namespaces_have_synced() {
    let server = three_namespaces();
    let pods = SharedInformer::<Pod>::with_options(
        server.client(),
        InformerOptions::default().namespaces(["a", "b"]),
    );
    let (registration, mut log) = log_events(&pods);
    let stalled = server.inject(in_namespace("b"));
    pods.start();
    log.expect(&["+in-a initial"]).await;
    assert_eq!((pods.resource_version(), pods.lister().has_synced()), (None, false));
    assert_eq!(names(&pods.lister().list()), ["in-a"], "synced namespaces can be read");
    server.create(&pod("a", "later")).unwrap();
    log.expect(&["+later"]).await;
    assert_eq!(
        (pods.resource_version(), pods.status().resource_version, pods.status().synced),
        (None, None, false)
    );
    drop(stalled);
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    log.expect(&["+in-b initial"]).await;
    assert!(registration.wait_for_sync().await && pods.lister().has_synced());
    assert!(pods.resource_version().is_some());
}

#[tokio::test(start_paused = true)]
async fn c5_version_is_the_smallest_of_all_namespaces() {
    let server = three_namespaces();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["a", "b"])).await;
    let before = pods.resource_version().unwrap();
    assert_eq!(before.as_str(), server.resource_version().to_string());
    let written = server.create(&pod("a", "new")).unwrap();
    let written = ResourceVersion::new(written["metadata"]["resourceVersion"].as_str().unwrap());
    until(|| pods.lister().len() == 3).await;
    assert_eq!(pods.resource_version().unwrap(), before, "b has not advanced yet");
    // A bookmark advances the version of b.
    pods.wait_for_resource_version(&written, Duration::from_secs(70)).await.unwrap();
    assert!(!pods.resource_version().unwrap().is_before(&written));
}

#[tokio::test(start_paused = true)]
async fn c5_a_relist_of_one_namespace_does_not_touch_another() {
    let server = three_namespaces();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["a", "b"])).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+in-a initial", "+in-b initial"]).await;
    gap_for(&server, in_namespace("a").for_verb(Verb::Watch), || {
        server.delete("v1", "pods", Some("a"), "in-a").unwrap();
        server.create(&pod("a", "next")).unwrap();
    })
    .await;
    log.expect(&["-in-a inferred", "+next"]).await;
    let status = pods.status();
    let replaces: Vec<_> = status.scopes.iter().map(|scope| scope.reflector.full_lists).collect();
    assert_eq!((replaces, status.reflector.full_lists), (vec![2, 1], 3));
    assert_eq!(names(&pods.lister().list()), ["next", "in-b"]);
    assert!(log.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c7_forbidden_namespace_is_named_and_others_are_live() {
    let server = three_namespaces();
    let forbidden = server.inject(faults::forbid("pods").in_namespace("b"));
    let pods = SharedInformer::<Pod>::with_options(
        server.client(),
        InformerOptions::default().namespaces(["a", "b", "c"]),
    );
    let (_registration, mut log) = log_events(&pods);
    pods.start();
    let begun = tokio::time::Instant::now();
    let error = pods.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "immediately: {:?}", begun.elapsed());
    assert!(error.to_string().contains("namespace \"b\""), "{error}");
    let status = pods.status();
    assert!(
        matches!(status.state, InformerState::Forbidden { .. }),
        "the worst state is reported: {:?}",
        status.state
    );
    let of = |name: &str| {
        let scope = Scope::namespace(name);
        pods.status().scopes.into_iter().find(|status| status.scope == scope).unwrap().state
    };
    assert!(matches!(of("b"), InformerState::Forbidden { .. }));
    until(|| of("a") == InformerState::Live && of("c") == InformerState::Live).await;
    log.expect(&["+in-a initial", "+in-c initial"]).await;
    server.create(&pod("c", "new")).unwrap();
    log.expect(&["+new"]).await;
    assert_eq!(
        (names(&pods.lister().list()), pods.resource_version()),
        (vec!["in-a".into(), "in-c".into(), "new".into()], None)
    );
    drop(forbidden);
    until(|| pods.status().synced && pods.status().state == InformerState::Live).await;
    log.expect(&["+in-b initial"]).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn c7_namespace_forbidden_later_is_reported_and_its_objects_stay() {
    let server = three_namespaces();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["a", "b"])).await;
    let _forbidden = break_watches_with(&server, faults::forbid("pods").in_namespace("b"));
    until(|| matches!(pods.status().state, InformerState::Forbidden { .. })).await;
    assert_eq!(names(&pods.lister().list()), ["in-a", "in-b"]);
    server.create(&pod("a", "new")).unwrap();
    until(|| pods.lister().len() == 3).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn staleness_is_that_of_the_namespace_furthest_behind() {
    // Regression: of two states of equal severity the last one was reported, whichever had lasted longer.
    for (first, second) in [("a", "b"), ("b", "a")] {
        let server = three_namespaces();
        let pods = synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["a", "b"])).await;
        advance_time(Duration::from_secs(15)).await;
        let _held = break_watches_with(&server, in_namespace(first));
        advance_time(Duration::from_secs(20)).await;
        server.create(&pod(second, "heartbeat")).unwrap();
        until(|| pods.lister().get(second, "heartbeat").is_some()).await;
        let _also = break_watches_with(&server, in_namespace(second));
        advance_time(Duration::from_secs(1)).await;
        let status = pods.status();
        assert!(
            status.scopes.iter().all(|scope| matches!(scope.state, InformerState::Stale { .. })),
            "{status:?}"
        );
        let staleness = status.staleness().unwrap();
        assert!(
            staleness >= Duration::from_secs(20),
            "{first} is 21 s behind, but the staleness is {staleness:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_kinds_ignore_the_factorys_namespaces() {
    let server = three_namespaces();
    server.create(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})).unwrap();
    let factory = SharedInformerFactory::with_options(
        server.client(),
        InformerOptions::default().namespaces(["a", "b"]),
    );
    let (nodes, spaces, pods) =
        (factory.informer::<Node>(), factory.metadata_informer::<Namespace>(), factory.informer::<Pod>());
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(names(&nodes.lister().list()), ["node-1"]);
    assert!(spaces.lister().get("", "c").is_some());
    assert_eq!(names(&pods.lister().list()), ["in-a", "in-b"]);
    let all = factory.select(Selection::default().all_namespaces()).informer::<Pod>();
    all.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(names(&all.lister().list()), ["in-a", "in-b", "in-c"]);
    for plural in ["nodes", "namespaces"] {
        let watches = requests_for(&server, Verb::Watch, plural);
        assert_eq!((watches.len(), &watches[0].namespace), (1, &None));
    }
}

#[tokio::test(start_paused = true)]
async fn the_server_selects_by_labels_and_fields() {
    let server = ApiServer::new();
    create_pods(&server, &["web-1", "web-2"]);
    server.create(&with(pod("default", "db"), "/metadata/labels/app", "db")).unwrap();
    server.create(&with(pod("default", "placed"), "/spec/nodeName", "node-1")).unwrap();
    let (web, placed): (LabelSelector, FieldSelector) =
        ("app in (web),tier!=cache".parse().unwrap(), "spec.nodeName=node-1".parse().unwrap());
    for policy in [WatchListPolicy::Auto, WatchListPolicy::Never] {
        let options = InformerOptions::default().watch_list(policy);
        let by_label = synced_informer::<Pod>(&server, options.clone().label_selector(web.clone())).await;
        assert_eq!(names(&by_label.lister().list()), ["placed", "web-1", "web-2"]);
        let by_field = synced_informer::<Pod>(&server, options.clone().field_selector(placed.clone())).await;
        assert_eq!(names(&by_field.lister().list()), ["placed"]);
        let by_both = synced_informer::<Pod>(
            &server,
            options.label_selector("app=db".parse().unwrap()).field_selector(placed.clone()),
        )
        .await;
        assert!(by_both.lister().is_empty());
    }
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().label_selector(web)).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+placed initial", "+web-1 initial", "+web-2 initial"]).await;
    // An object that starts to match is added, one that stops matching is deleted.
    server.update(&with(pod("default", "web-1"), "/metadata/labels/tier", "cache")).unwrap();
    server.update(&pod("default", "db")).unwrap();
    log.expect(&["-web-1", "+db"]).await;
}

#[tokio::test(start_paused = true)]
async fn parameters_can_be_added_and_selectors_changed() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let options = InformerOptions::default()
        .label_selector("app=db".parse().unwrap())
        .watch_list(WatchListPolicy::Never)
        .query_parameters(|parameters| {
            assert_eq!(parameters.get("labelSelector"), Some("app=db"));
            parameters.set("labelSelector", "app=web");
            parameters.set("fieldSelector", "metadata.name!=b");
            parameters.set("extra", "a b&c");
        });
    let pods = synced_informer::<Pod>(&server, options).await;
    until(|| server.open_watches() == 1).await;
    assert_eq!(names(&pods.lister().list()), ["a"]);
    let requests = server.recorded_requests();
    assert_eq!(requests.len(), 2);
    for seen in requests {
        assert_eq!(seen.parameter("extra").as_deref(), Some("a b&c"));
        assert_eq!(seen.parameter("labelSelector").as_deref(), Some("app=web"));
        assert_eq!(seen.query.matches("labelSelector").count(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn required_query_parameters_cannot_be_overridden() {
    let reserved = [
        "allowWatchBookmarks",
        "continue",
        "limit",
        "resourceVersion",
        "resourceVersionMatch",
        "sendInitialEvents",
        "timeoutSeconds",
        "watch",
    ];
    for policy in [WatchListPolicy::Auto, WatchListPolicy::Never] {
        let server = ApiServer::new();
        create_pods(&server, &["a"]);
        let options = InformerOptions::default().watch_list(policy);
        let _plain = synced_informer::<Pod>(&server, options.clone()).await;
        let plain = server.recorded_requests();
        let _forged = synced_informer::<Pod>(
            &server,
            options.query_parameters(move |parameters| {
                for name in reserved {
                    parameters.set(name, "forged");
                    assert_eq!(parameters.get(name), Some("forged"));
                }
                parameters.remove("watch");
            }),
        )
        .await;
        until(|| server.open_watches() == 2).await;
        let all = server.recorded_requests();
        let queries = |seen: &[informer_apiserver::RecordedRequest]| -> Vec<Vec<Option<String>>> {
            let but_timeout = || reserved.iter().filter(|name| **name != "timeoutSeconds");
            seen.iter().map(|seen| but_timeout().map(|name| seen.parameter(name)).collect()).collect()
        };
        assert!(!all.iter().any(|seen| seen.query.contains("forged")));
        assert_eq!(queries(&all[plain.len()..])[..1], queries(&plain)[..1]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_name_means_all_namespaces() {
    let server = three_namespaces();
    server.create(&config_map("b", "map", "1")).unwrap();
    let maps = synced_informer::<ConfigMap>(&server, InformerOptions::default().namespaces(["a", ""])).await;
    assert_eq!(
        (names(&maps.lister().list()), maps.description()),
        (vec!["map".into()], "configmaps in all namespaces")
    );
    assert_eq!(requests_for(&server, Verb::Watch, "configmaps")[0].namespace, None);
    advance_time(Duration::from_secs(1)).await;
    assert_eq!(server.open_watches(), 1);
}
