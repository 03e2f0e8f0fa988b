//! Starts with a saved cache.

use super::{Disk, contents, is_warm, persistence, save, saved_on, start, synced};
use crate::cluster::{
    TIMEOUT, advance_time, config_map, create_namespace, log_events, log_events_with, until,
};
use informer::persistence::RestoredReads;
use informer::status::InformerState;
use informer::{InformerOptions, SharedInformer};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::ConfigMap;
use std::time::Duration;

/// A server with the objects `a`, `b` and `c`, and a disk with the saved cache.
async fn saved_server(options: impl Fn(&Disk) -> InformerOptions) -> (ApiServer, Disk) {
    let (server, disk) = (ApiServer::new(), Disk::default());
    for name in ["a", "b", "c"] {
        server.create(&config_map("default", name, "1")).unwrap();
    }
    save(&server, options(&disk)).await;
    (server, disk)
}

/// Changes `a`, deletes `b` and creates `d`.
fn change(server: &ApiServer) {
    server.insert_unchecked(&config_map("default", "a", "2")).unwrap();
    server.delete("v1", "configmaps", Some("default"), "b").unwrap();
    server.create(&config_map("default", "d", "1")).unwrap();
}

/// Returns the queries of the requests for config maps since `before` requests.
fn queries(server: &ApiServer, before: usize) -> Vec<String> {
    let requests = server.recorded_requests();
    let own = requests[before..].iter().filter(|request| request.plural == "configmaps");
    own.map(|request| request.query.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn second_process_watches_from_the_saved_version() {
    let (server, disk) = saved_server(saved_on).await;
    change(&server);
    let before = server.recorded_requests().len();
    let second = SharedInformer::<ConfigMap>::with_options(server.client(), saved_on(&disk));
    let (_registration, mut log) = log_events(&second);
    second.start();
    second.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(is_warm(&second), "{:?}", second.status().persistence);
    assert_eq!(contents(&second), ["a=2", "c=1", "d=1"]);
    log.expect(&["+a initial", "+c initial", "+d initial"]).await;
    let counters = second.status().reflector;
    assert_eq!((counters.warm_starts, counters.full_lists, counters.lists), (1, 0, 1));
    let queries = queries(&server, before);
    assert_eq!(queries[0], "limit=1", "the version of the server: {queries:?}");
    assert!(queries[1..].iter().all(|query| query.contains("watch=1")), "no list: {queries:?}");
    // The informer follows the server.
    server.insert_unchecked(&config_map("default", "c", "3")).unwrap();
    log.expect(&["~c"]).await;
    assert!(log.is_empty());
    assert_eq!(second.status().state, InformerState::Live);
}

#[tokio::test(start_paused = true)]
async fn c7_loaded_cache_is_not_synced_before_the_server_confirms_it() {
    let (server, disk) = saved_server(saved_on).await;
    for reads in [RestoredReads::Withhold, RestoredReads::Serve] {
        let stalled = server.inject(faults::stall_request().for_verb(Verb::List));
        let options = InformerOptions::default().persist(persistence(&disk).restored_reads(reads));
        let second = SharedInformer::<ConfigMap>::with_options(server.client(), options);
        let (_early, mut early_log) = log_events(&second);
        second.start();
        until(|| stalled.hits() > 0).await;
        let (_late, mut late_log) = log_events(&second);
        assert!(matches!(second.status().state, InformerState::Restored { .. }), "{:?}", second.status());
        assert!(!second.status().synced && second.status().resource_version.is_none());
        let expected: &[&str] = if reads == RestoredReads::Serve { &["a=1", "b=1", "c=1"] } else { &[] };
        assert_eq!(contents(&second), expected);
        assert!(second.wait_for_sync(Duration::from_secs(5)).await.is_err());
        assert!(early_log.is_empty() && late_log.is_empty(), "no handler runs");
        drop(stalled);
        second.wait_for_sync(TIMEOUT).await.unwrap();
        for log in [&mut early_log, &mut late_log] {
            log.expect(&["+a initial", "+b initial", "+c initial"]).await;
            assert!(log.is_empty());
        }
        second.shutdown(TIMEOUT).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn expired_version_is_followed_by_a_list() {
    let (server, disk) = saved_server(saved_on).await;
    change(&server);
    server.compact();
    let second = synced(&server, saved_on(&disk)).await;
    assert!(is_warm(&second));
    assert_eq!(contents(&second), ["a=2", "c=1", "d=1"]);
    let counters = second.status().reflector;
    assert_eq!((counters.warm_starts, counters.full_lists, counters.relists.expired), (0, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn c1_restored_server_is_detected_and_counted() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    let backup = server.backup();
    change_and_save(&server, &disk).await;
    server.restore(&backup);
    let second = synced(&server, saved_on(&disk)).await;
    assert_eq!(contents(&second), ["a=1"]);
    assert_eq!(second.status().reflector.rewinds, 1);
    assert_eq!(second.status().reflector.warm_starts, 0);
}

async fn change_and_save(server: &ApiServer, disk: &Disk) {
    server.insert_unchecked(&config_map("default", "a", "2")).unwrap();
    server.create(&config_map("default", "b", "1")).unwrap();
    save(server, saved_on(disk)).await;
}

#[tokio::test(start_paused = true)]
async fn audit_corrects_the_cache_of_a_restored_server_that_has_passed_the_saved_version() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    server.create(&config_map("default", "a", "1")).unwrap();
    let backup = server.backup();
    change_and_save(&server, &disk).await;
    server.restore(&backup);
    for number in 0..20 {
        server.create(&config_map("default", &format!("n{number}"), "1")).unwrap();
    }
    let second = synced(&server, saved_on(&disk)).await;
    assert_ne!(contents(&second).len(), 21, "the server accepts the saved version");
    advance_time(Duration::from_secs(3700)).await;
    assert!(second.status().cache.drift > 0, "an audit follows within the first hour");
    assert_eq!(contents(&second).len(), 21);
    assert!(contents(&second).contains(&"a=1".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn each_namespace_has_its_own_version() {
    let (server, disk) = (ApiServer::new(), Disk::default());
    create_namespace(&server, "one");
    create_namespace(&server, "two");
    let options = |disk: &Disk| saved_on(disk).namespaces(["one", "two"]);
    server.create(&config_map("one", "a", "1")).unwrap();
    server.create(&config_map("two", "b", "1")).unwrap();
    save(&server, options(&disk)).await;
    server.create(&config_map("two", "c", "1")).unwrap();
    server.delete("v1", "configmaps", Some("one"), "a").unwrap();
    let second = synced(&server, options(&disk)).await;
    assert_eq!(contents(&second), ["b=1", "c=1"]);
    assert_eq!(second.status().reflector.warm_starts, 2);
}

#[tokio::test(start_paused = true)]
async fn many_restarts_never_list_again() {
    let (server, disk) = saved_server(saved_on).await;
    for round in 0..20 {
        let name = format!("r{round}");
        server.create(&config_map("default", &name, "1")).unwrap();
        if round > 0 {
            server.delete("v1", "configmaps", Some("default"), &format!("r{}", round - 1)).unwrap();
        }
        let informer = synced(&server, saved_on(&disk)).await;
        let last = format!("{name}=1");
        assert_eq!(contents(&informer), ["a=1", "b=1", "c=1", &last]);
        assert_eq!(informer.status().reflector.full_lists, 0, "round {round}");
        informer.shutdown(TIMEOUT).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn state_is_saved_at_shutdown() {
    let (server, disk) = saved_server(saved_on).await;
    let second = synced(&server, saved_on(&disk)).await;
    server.create(&config_map("default", "d", "1")).unwrap();
    until(|| contents(&second).len() == 4).await;
    second.shutdown(TIMEOUT).await.unwrap();
    let stalled = server.inject(faults::stall_request());
    let reads = persistence(&disk).restored_reads(RestoredReads::Serve);
    let third = start(&server, InformerOptions::default().persist(reads));
    until(|| stalled.hits() > 0).await;
    assert_eq!(contents(&third), ["a=1", "b=1", "c=1", "d=1"]);
}

#[cfg(feature = "compression")]
#[tokio::test(start_paused = true)]
async fn compressed_cache_is_saved_compressed_and_loaded_with_its_dictionary() {
    use informer::cache::Retention;
    let (server, disk) = (ApiServer::new(), Disk::default());
    let text = |number: usize| format!("{number} {}", "a text that all objects have in common ".repeat(30));
    for number in 0..200 {
        server.create(&config_map("default", &format!("m{number:03}"), &text(number))).unwrap();
    }
    let options = || saved_on(&disk).retention(Retention::Compressed);
    let first = synced(&server, options()).await;
    until(|| first.metrics().memory_bytes < 200 * 900).await;
    // Recompression is no change, so nothing was written again: this change is.
    server.insert_unchecked(&config_map("default", "m000", &text(1000))).unwrap();
    super::wait_for_save(&first).await;
    first.shutdown(TIMEOUT).await.unwrap();
    let second = synced(&server, options()).await;
    assert!(is_warm(&second));
    let lister = second.lister();
    assert_eq!(lister.get("default", "m000").unwrap().field("data.v"), Some(text(1000)));
    assert_eq!(lister.get("default", "m199").unwrap().field("data.v"), Some(text(199)));
    // The same file serves a cache that is not compressed.
    second.shutdown(TIMEOUT).await.unwrap();
    let third = synced(&server, saved_on(&disk)).await;
    assert!(is_warm(&third));
    assert_eq!(third.lister().get("default", "m000").unwrap().field("data.v"), Some(text(1000)));
}

/// The definition of a kind is created again with another schema while no process runs: nothing is left of the objects
/// of the first one, and a durable handler receives their deletion.
#[tokio::test(start_paused = true)]
async fn definition_that_was_created_again_leaves_no_object_of_the_first() {
    let definition = |schema: serde_json::Value| {
        serde_json::json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "websites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "websites", "singular": "website", "kind": "Website", "listKind": "WebsiteList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    };
    let website = |name: &str| {
        serde_json::json!({"apiVersion": "example.com/v1", "kind": "Website",
            "metadata": {"namespace": "default", "name": name}})
    };
    let (server, disk) = (ApiServer::new(), Disk::default());
    let gvk = kube::core::GroupVersionKind::gvk("example.com", "v1", "Website");
    let resource = kube::core::ApiResource::from_gvk(&gvk);
    let run = async |events: &[&str]| {
        let factory = informer::SharedInformerFactory::with_options(server.client(), saved_on(&disk));
        let (registration, mut log) =
            log_events_with(factory.dynamic_informer(&resource).handler().durable("test"));
        factory.start();
        let informer = factory.dynamic_informer(&resource);
        informer.wait_for_sync(TIMEOUT).await.unwrap();
        log.expect(events).await;
        advance_time(Duration::from_secs(3)).await;
        assert_eq!(log.take(), [""; 0]);
        drop(registration);
        factory.shutdown(TIMEOUT).await.unwrap();
    };
    let open = serde_json::json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    server.create(&definition(open)).unwrap();
    server.create(&website("a")).unwrap();
    server.create(&website("b")).unwrap();
    run(&["+a initial", "+b initial"]).await;
    server
        .delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, "websites.example.com")
        .unwrap();
    let spec = serde_json::json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let closed = serde_json::json!({"type": "object", "properties": {"spec": spec}});
    server.create(&definition(closed)).unwrap();
    server.create(&website("b")).unwrap();
    run(&["-a inferred", "-b inferred", "+b initial"]).await;
}
