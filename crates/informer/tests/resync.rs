//! Resync (C12): what is cached is told again, per handler, spread over its period, and the server hears nothing of it.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{
    LONG, Notes, create_pods, cut, describe, gap_without_change, live, notes_of, pass, pod, until, with,
};
use informer::{Cause, Event, Options, SharedInformer, SharedInformerFactory};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server with so many pods, named in order.
fn server_with(pods: usize) -> ApiServer {
    let server = ApiServer::new();
    for number in 0..pods {
        create_pods(&server, &[&format!("pod-{number:03}")]);
    }
    server
}

/// How many resyncs were told since this was last asked; nothing else was.
#[track_caller]
fn resyncs(told: &mut Notes) -> usize {
    let told = told.take();
    assert!(told.iter().all(|note| note.starts_with('=')), "{told:?}");
    told.len()
}

/// A handler with this period that has been told the initial set.
async fn resynced(pods: &SharedInformer<Pod>, period: u64) -> (informer::Registration, Notes) {
    let (on, mut told) = notes_of(pods.handler().resync(seconds(period)));
    assert!(tokio::time::timeout(LONG, on.synced()).await.unwrap());
    assert!(told.take().iter().all(|note| note.ends_with("initial")));
    (on, told)
}

#[tokio::test(start_paused = true)]
async fn c12_each_handler_has_its_own_period() {
    let server = server_with(2);
    let pods = live::<Pod>(&server, Options::default()).await;
    let (_often, mut often) = resynced(&pods, 20).await;
    let (_seldom, mut seldom) = resynced(&pods, 50).await;
    let (_never, mut never) = resynced(&pods, 0).await;
    pass(seconds(101)).await;
    assert_eq!((resyncs(&mut often), resyncs(&mut seldom), resyncs(&mut never)), (10, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn c12_the_shortest_period_is_a_second() {
    let server = server_with(1);
    let pods = live::<Pod>(&server, Options::default()).await;
    let (on, mut told) = notes_of(pods.handler().resync(Duration::from_nanos(1)));
    assert!(tokio::time::timeout(LONG, on.synced()).await.unwrap());
    told.expect(&["+pod-000 initial"]).await;
    pass(Duration::from_millis(10_500)).await;
    assert_eq!(resyncs(&mut told), 10);
}

#[tokio::test(start_paused = true)]
async fn c12_a_resync_is_an_update_that_says_so() {
    let server = server_with(1);
    let pods = live::<Pod>(&server, Options::default()).await;
    let mut events = pods.handler().resync(seconds(10)).events();
    assert_eq!(describe(&events.next().await.unwrap()), "+pod-000 initial");
    let event = tokio::time::timeout(seconds(11), events.next()).await.expect("no resync").unwrap();
    let Event::Updated { old, new, cause: Cause::Resync, .. } = event else { unreachable!("{event:?}") };
    assert!(std::sync::Arc::ptr_eq(old.entry(), new.entry()), "old and new are the same");
    assert_eq!(pods.metrics().updated, 0, "the cache did not change");
}

#[tokio::test(start_paused = true)]
async fn c12_a_round_is_spread_over_its_period() {
    let server = server_with(100);
    let pods = live::<Pod>(&server, Options::default()).await;
    let (_on, mut told) = resynced(&pods, 100).await;
    let mut all = Vec::new();
    for step in 1..=100 {
        pass(seconds(1)).await;
        let now = told.take();
        assert!(now.len() <= 3, "{} at once after {step} s", now.len());
        all.extend(now);
    }
    pass(seconds(1)).await;
    all.extend(told.take());
    let expected: Vec<_> = (0..100).map(|number| format!("=pod-{number:03}")).collect();
    assert_eq!(all, expected, "each once, in key order");
}

#[tokio::test(start_paused = true)]
async fn c12_objects_that_come_late_in_a_round_make_no_burst() {
    // What is due was counted as a share of all objects that are there: a set that came when most of the period was over, because
    // the informer was started later than its handlers were registered or the server was away, was due almost whole at once.
    let server = server_with(100);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (on, mut told) = notes_of(pods.handler().resync(seconds(100)));
    pass(seconds(90)).await;
    pods.start();
    assert!(tokio::time::timeout(LONG, on.synced()).await.unwrap());
    assert_eq!(told.take().len(), 100);
    pass(seconds(1)).await;
    let burst = resyncs(&mut told);
    assert!(burst <= 20, "{burst} of 100 objects told again within a second of their addition");
}

#[tokio::test(start_paused = true)]
async fn c12_a_cut_watch_and_a_relist_do_not_disturb_the_rhythm() {
    let server = server_with(10);
    let pods = live::<Pod>(&server, Options::default()).await;
    let (_on, mut told) = resynced(&pods, 100).await;
    pass(seconds(30)).await;
    cut(&server);
    pass(seconds(30)).await;
    assert_eq!(pods.status().counters.watches, 1, "watched anew");
    gap_without_change(&server).await;
    until(|| pods.status().counters.replaces == 2).await;
    pass(seconds(25)).await;
    assert_eq!(resyncs(&mut told), 8, "after 85 s of 100");
    pass(seconds(17)).await;
    assert_eq!(resyncs(&mut told), 2);
    pass(seconds(100)).await;
    assert_eq!(resyncs(&mut told), 10);
}

#[tokio::test(start_paused = true)]
async fn c12_the_server_hears_nothing_of_it() {
    let server = server_with(5);
    let pods = live::<Pod>(&server, Options::default()).await;
    let (_on, mut told) = resynced(&pods, 60).await;
    let before = server.requests();
    pass(seconds(121)).await;
    assert_eq!(resyncs(&mut told), 10);
    assert_eq!(server.requests(), before);
}

#[tokio::test(start_paused = true)]
async fn c12_the_period_is_the_handlers_or_the_kinds_or_the_factorys() {
    let server = server_with(1);
    server.create(&cluster::config_map("default", "map", "1")).unwrap();
    let factory =
        SharedInformerFactory::with_options(server.client(), Options::default().resync(seconds(20)));
    factory.configure::<ConfigMap>(Options::default().resync(seconds(50))).unwrap();
    let (pods, maps) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
    let (_a, mut by_factory) = notes_of(pods.handler());
    let (_b, mut by_kind) = notes_of(maps.handler());
    let (_c, mut by_handler) = notes_of(maps.handler().resync(seconds(10)));
    let (_d, mut off) = notes_of(pods.handler().resync(Duration::ZERO));
    factory.start();
    factory.wait_for_sync(LONG).await.unwrap();
    pass(seconds(101)).await;
    by_factory.expect(&["+pod-000 initial"]).await;
    by_kind.expect(&["+map initial"]).await;
    by_handler.expect(&["+map initial"]).await;
    off.expect(&["+pod-000 initial"]).await;
    let told = [&mut by_factory, &mut by_kind, &mut by_handler, &mut off].map(resyncs);
    assert_eq!(told, [5, 2, 10, 0]);
}

#[tokio::test(start_paused = true)]
async fn c12_zero_switches_it_off_for_a_kind() {
    let server = server_with(1);
    let factory =
        SharedInformerFactory::with_options(server.client(), Options::default().resync(seconds(20)));
    factory.configure::<Pod>(Options::default().resync(Duration::ZERO)).unwrap();
    let pods = factory.informer::<Pod>();
    let (_on, mut told) = notes_of(pods.handler());
    factory.start();
    told.expect(&["+pod-000 initial"]).await;
    pass(seconds(100)).await;
    assert!(told.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c12_what_is_pending_is_not_told_twice() {
    let server = server_with(2);
    let pods = live::<Pod>(&server, Options::default()).await;
    let mut events = pods.handler().resync(seconds(10)).events();
    let mut next = async || describe(&tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap());
    // Six rounds go by before anybody takes the initial set.
    pass(seconds(61)).await;
    assert_eq!(next().await, "+pod-000 initial");
    assert_eq!(next().await, "+pod-001 initial");
    // And another six while nobody looks: one resync is pending for each, and a change takes its place.
    pass(seconds(60)).await;
    server.plant(&with(pod("default", "pod-000"), "/spec/nodeName", "node-1")).unwrap();
    until(|| pods.metrics().updated == 1).await;
    assert_eq!((next().await.as_str(), next().await.as_str()), ("~pod-000", "=pod-001"));
    // A deletion too.
    pass(seconds(60)).await;
    server.delete("v1", "pods", Some("default"), "pod-000").unwrap();
    until(|| pods.lister().len() == 1).await;
    assert_eq!((next().await.as_str(), next().await.as_str()), ("-pod-000", "=pod-001"));
    drop(events);
    until(|| pods.metrics().handlers.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn c12_a_handler_that_wants_every_state_gets_resyncs_too() {
    let server = server_with(2);
    let pods = live::<Pod>(&server, Options::default()).await;
    let mut events = pods.handler().resync(seconds(10)).every_state().events();
    pass(seconds(61)).await;
    let mut told = Vec::new();
    while events.pending() > 0 {
        told.extend(events.next().await.unwrap().into_event().map(|event| describe(&event)));
    }
    assert_eq!(told[..2], ["+pod-000 initial", "+pod-001 initial"]);
    let unseen = told[2..].iter().filter(|note| note.starts_with('=')).count();
    assert!(unseen <= 12, "{told:?}");
    let next = tokio::time::timeout(seconds(11), events.next()).await.expect("no resync").unwrap();
    assert!(describe(&next.into_event().unwrap()).starts_with('='));
}

#[tokio::test(start_paused = true)]
async fn c12_a_late_handler_has_its_own_rhythm() {
    let server = server_with(4);
    let pods = live::<Pod>(&server, Options::default().resync(seconds(100))).await;
    let (_early, mut early) = resynced(&pods, 100).await;
    pass(seconds(60)).await;
    let (_late, mut late) = resynced(&pods, 100).await;
    pass(seconds(41)).await;
    assert_eq!((resyncs(&mut early), resyncs(&mut late)), (4, 1), "after 101 s and 41 s");
    pass(seconds(60)).await;
    assert_eq!((resyncs(&mut early), resyncs(&mut late)), (2, 3), "after 161 s and 101 s");
}

#[tokio::test(start_paused = true)]
async fn c12_a_filtered_handler_gets_resyncs_of_what_matches() {
    let server = server_with(3);
    server.create(&with(pod("default", "other"), "/metadata/labels/app", "db")).unwrap();
    let pods = live::<Pod>(&server, Options::default()).await;
    let db = pods.handler().resync(seconds(10)).filter(|pod| pod.labels().get("app") == Some("db"));
    let (_on, mut told) = notes_of(db);
    told.expect(&["+other initial"]).await;
    pass(seconds(31)).await;
    assert_eq!(told.take(), ["=other", "=other", "=other"]);
    server.update(&pod("default", "other")).unwrap();
    told.expect(&["-other"]).await;
    pass(seconds(30)).await;
    assert!(told.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c12_objects_of_all_namespaces_are_told_again() {
    let server = server_with(2);
    server.create(&pod("kube-system", "far")).unwrap();
    let pods = live::<Pod>(&server, Options::default().namespaces(["default", "kube-system"])).await;
    let (_on, mut told) = resynced(&pods, 30).await;
    pass(seconds(31)).await;
    assert_eq!(told.take(), ["=pod-000", "=pod-001", "=far"]);
}
