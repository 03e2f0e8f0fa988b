//! Resync (C12): cached objects are delivered again to each handler, spread over its resync period, without
//! requests.
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    EventLog, TIMEOUT, advance_time, break_watches, create_pods, describe, gap_without_change,
    log_events_with, pod, synced_informer, until, with,
};
use informer::{Event, InformerOptions, SharedInformer, SharedInformerFactory, UpdateCause};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Creates a server with this many pods, named in order.
fn server_with(pods: usize) -> ApiServer {
    let server = ApiServer::new();
    for number in 0..pods {
        create_pods(&server, &[&format!("pod-{number:03}")]);
    }
    server
}

/// Number of resyncs delivered since the last call; fails if any other event was delivered.
#[track_caller]
fn resyncs(log: &mut EventLog) -> usize {
    let log = log.take();
    assert!(log.iter().all(|note| note.starts_with('=')), "{log:?}");
    log.len()
}

/// Adds a handler with this resync period and waits until it has received the initial list.
async fn resynced(pods: &SharedInformer<Pod>, period: u64) -> (informer::Registration, EventLog) {
    let (registration, mut log) = log_events_with(pods.handler().resync_period(seconds(period)));
    assert!(tokio::time::timeout(TIMEOUT, registration.wait_for_sync()).await.unwrap());
    assert!(log.take().iter().all(|note| note.ends_with("initial")));
    (registration, log)
}

#[tokio::test(start_paused = true)]
async fn c12_each_handler_has_its_own_period() {
    let server = server_with(2);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (_frequent, mut frequent) = resynced(&pods, 20).await;
    let (_rare, mut rare) = resynced(&pods, 50).await;
    let (_never, mut never) = resynced(&pods, 0).await;
    advance_time(seconds(101)).await;
    assert_eq!((resyncs(&mut frequent), resyncs(&mut rare), resyncs(&mut never)), (10, 4, 0));
}

#[tokio::test(start_paused = true)]
async fn c12_resync_period_is_at_least_one_second() {
    let server = server_with(1);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (registration, mut log) = log_events_with(pods.handler().resync_period(Duration::from_nanos(1)));
    assert!(tokio::time::timeout(TIMEOUT, registration.wait_for_sync()).await.unwrap());
    log.expect(&["+pod-000 initial"]).await;
    advance_time(Duration::from_millis(10_500)).await;
    assert_eq!(resyncs(&mut log), 10);
}

#[tokio::test(start_paused = true)]
async fn c12_resync_is_delivered_as_update_with_cause_resync() {
    let server = server_with(1);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let mut events = pods.handler().resync_period(seconds(10)).event_stream();
    assert_eq!(describe(&events.next().await.unwrap()), "+pod-000 initial");
    let event = tokio::time::timeout(seconds(11), events.next()).await.expect("no resync").unwrap();
    let Event::Updated { old, new, cause: UpdateCause::Resync, .. } = event else {
        unreachable!("{event:?}")
    };
    assert!(std::sync::Arc::ptr_eq(old.entry(), new.entry()), "old and new are the same");
    assert_eq!(pods.metrics().updated, 0, "the cache did not change");
}

#[tokio::test(start_paused = true)]
async fn c12_resync_round_is_spread_over_the_period() {
    let server = server_with(100);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (_registration, mut log) = resynced(&pods, 100).await;
    let mut all = Vec::new();
    for step in 1..=100 {
        advance_time(seconds(1)).await;
        let now = log.take();
        assert!(now.len() <= 3, "{} resyncs in second {step}", now.len());
        all.extend(now);
    }
    advance_time(seconds(1)).await;
    all.extend(log.take());
    let expected: Vec<_> = (0..100).map(|number| format!("=pod-{number:03}")).collect();
    assert_eq!(all, expected, "each object once, in key order");
}

#[tokio::test(start_paused = true)]
async fn c12_list_arriving_late_in_a_round_causes_no_burst() {
    // Regression: the number of due objects was a fraction of all cached objects. A list that arrived late in
    // the period (the informer was started after its handlers were added, or the server was down) was
    // therefore due almost completely at once.
    let server = server_with(100);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (registration, mut log) = log_events_with(pods.handler().resync_period(seconds(100)));
    advance_time(seconds(90)).await;
    pods.start();
    assert!(tokio::time::timeout(TIMEOUT, registration.wait_for_sync()).await.unwrap());
    assert_eq!(log.take().len(), 100);
    advance_time(seconds(1)).await;
    let burst = resyncs(&mut log);
    assert!(burst <= 20, "{burst} of 100 objects resynced within a second of being added");
}

#[tokio::test(start_paused = true)]
async fn c12_broken_watch_and_relist_do_not_shift_resyncs() {
    let server = server_with(10);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (_registration, mut log) = resynced(&pods, 100).await;
    advance_time(seconds(30)).await;
    break_watches(&server);
    advance_time(seconds(30)).await;
    assert_eq!(pods.status().reflector.watches, 1, "the watch was reopened");
    gap_without_change(&server).await;
    until(|| pods.status().reflector.full_lists == 2).await;
    advance_time(seconds(25)).await;
    assert_eq!(resyncs(&mut log), 8, "after 85 s of 100");
    advance_time(seconds(17)).await;
    assert_eq!(resyncs(&mut log), 2);
    advance_time(seconds(100)).await;
    assert_eq!(resyncs(&mut log), 10);
}

#[tokio::test(start_paused = true)]
async fn c12_resync_sends_no_request() {
    let server = server_with(5);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (_registration, mut log) = resynced(&pods, 60).await;
    let before = server.recorded_requests();
    advance_time(seconds(121)).await;
    assert_eq!(resyncs(&mut log), 10);
    assert_eq!(server.recorded_requests(), before);
}

#[tokio::test(start_paused = true)]
async fn c12_resync_period_of_handler_overrides_kind_and_factory() {
    let server = server_with(1);
    server.create(&crate::cluster::config_map("default", "map", "1")).unwrap();
    let factory = SharedInformerFactory::with_options(
        server.client(),
        InformerOptions::default().resync_period(seconds(20)),
    );
    factory.configure::<ConfigMap>(InformerOptions::default().resync_period(seconds(50))).unwrap();
    let (pods, maps) = (factory.informer::<Pod>(), factory.informer::<ConfigMap>());
    let (_a, mut by_factory) = log_events_with(pods.handler());
    let (_b, mut by_kind) = log_events_with(maps.handler());
    let (_c, mut by_handler) = log_events_with(maps.handler().resync_period(seconds(10)));
    let (_d, mut off) = log_events_with(pods.handler().resync_period(Duration::ZERO));
    factory.start();
    factory.wait_for_sync(TIMEOUT).await.unwrap();
    advance_time(seconds(101)).await;
    by_factory.expect(&["+pod-000 initial"]).await;
    by_kind.expect(&["+map initial"]).await;
    by_handler.expect(&["+map initial"]).await;
    off.expect(&["+pod-000 initial"]).await;
    let counts = [&mut by_factory, &mut by_kind, &mut by_handler, &mut off].map(resyncs);
    assert_eq!(counts, [5, 2, 10, 0]);
}

#[tokio::test(start_paused = true)]
async fn c12_period_zero_disables_resync_for_a_kind() {
    let server = server_with(1);
    let factory = SharedInformerFactory::with_options(
        server.client(),
        InformerOptions::default().resync_period(seconds(20)),
    );
    factory.configure::<Pod>(InformerOptions::default().resync_period(Duration::ZERO)).unwrap();
    let pods = factory.informer::<Pod>();
    let (_registration, mut log) = log_events_with(pods.handler());
    factory.start();
    log.expect(&["+pod-000 initial"]).await;
    advance_time(seconds(100)).await;
    assert!(log.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c12_pending_object_is_not_resynced_twice() {
    let server = server_with(2);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let mut events = pods.handler().resync_period(seconds(10)).event_stream();
    let mut next = async || describe(&tokio::time::timeout(TIMEOUT, events.next()).await.unwrap().unwrap());
    // Six rounds pass before the stream is read for the first time.
    advance_time(seconds(61)).await;
    assert_eq!(next().await, "+pod-000 initial");
    assert_eq!(next().await, "+pod-001 initial");
    // Another six rounds pass unread: one resync is pending for each object, and a change replaces it.
    advance_time(seconds(60)).await;
    server.insert_unchecked(&with(pod("default", "pod-000"), "/spec/nodeName", "node-1")).unwrap();
    until(|| pods.metrics().updated == 1).await;
    assert_eq!((next().await.as_str(), next().await.as_str()), ("~pod-000", "=pod-001"));
    // A deletion replaces a pending resync too.
    advance_time(seconds(60)).await;
    server.delete("v1", "pods", Some("default"), "pod-000").unwrap();
    until(|| pods.lister().len() == 1).await;
    assert_eq!((next().await.as_str(), next().await.as_str()), ("-pod-000", "=pod-001"));
    drop(events);
    until(|| pods.metrics().handlers.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn c12_uncoalesced_handler_receives_resyncs() {
    let server = server_with(2);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let mut events = pods.handler().resync_period(seconds(10)).uncoalesced().event_stream();
    advance_time(seconds(61)).await;
    let mut log = Vec::new();
    while events.pending_events() > 0 {
        log.extend(events.next().await.unwrap().into_event().map(|event| describe(&event)));
    }
    assert_eq!(log[..2], ["+pod-000 initial", "+pod-001 initial"]);
    let resyncs = log[2..].iter().filter(|note| note.starts_with('=')).count();
    assert!(resyncs <= 12, "{log:?}");
    let next = tokio::time::timeout(seconds(11), events.next()).await.expect("no resync").unwrap();
    assert!(describe(&next.into_event().unwrap()).starts_with('='));
}

#[tokio::test(start_paused = true)]
async fn c12_late_handler_has_its_own_resync_schedule() {
    let server = server_with(4);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default().resync_period(seconds(100))).await;
    let (_early, mut early) = resynced(&pods, 100).await;
    advance_time(seconds(60)).await;
    let (_late, mut late) = resynced(&pods, 100).await;
    advance_time(seconds(41)).await;
    assert_eq!((resyncs(&mut early), resyncs(&mut late)), (4, 1), "after 101 s and 41 s");
    advance_time(seconds(60)).await;
    assert_eq!((resyncs(&mut early), resyncs(&mut late)), (2, 3), "after 161 s and 101 s");
}

#[tokio::test(start_paused = true)]
async fn c12_filtered_handler_receives_resyncs_of_matching_objects() {
    let server = server_with(3);
    server.create(&with(pod("default", "other"), "/metadata/labels/app", "db")).unwrap();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let db = pods.handler().resync_period(seconds(10)).filter(|pod| pod.labels().get("app") == Some("db"));
    let (_registration, mut log) = log_events_with(db);
    log.expect(&["+other initial"]).await;
    advance_time(seconds(31)).await;
    assert_eq!(log.take(), ["=other", "=other", "=other"]);
    server.update(&pod("default", "other")).unwrap();
    log.expect(&["-other"]).await;
    advance_time(seconds(30)).await;
    assert!(log.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c12_objects_of_all_namespaces_are_resynced() {
    let server = server_with(2);
    server.create(&pod("kube-system", "far")).unwrap();
    let pods =
        synced_informer::<Pod>(&server, InformerOptions::default().namespaces(["default", "kube-system"]))
            .await;
    let (_registration, mut log) = resynced(&pods, 30).await;
    advance_time(seconds(31)).await;
    assert_eq!(log.take(), ["=pod-000", "=pod-001", "=far"]);
}
