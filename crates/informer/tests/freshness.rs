//! Freshness of a cache: waiting for versions, status, diagnostics, audits, metrics.
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    Diagnostics, TIMEOUT, advance_time, break_watches_with, config_map, create_pods, frame, gap,
    gap_without_change, inject_from_first_frame, log_events, log_events_with, pod, requests_for,
    synced_informer, until, with,
};
use informer::error::VersionWaitReason;
use informer::source::WatchListPolicy;
use informer::status::{Diagnostic, FailureKind, InformerState, InformerStatus};
use informer::{InformerOptions, ResourceVersion, SharedInformer};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use serde_json::Value;
use std::time::Duration;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn listing() -> InformerOptions {
    InformerOptions::default().watch_list(WatchListPolicy::Never)
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion::new(&number.to_string())
}

fn version_of(object: &Value) -> ResourceVersion {
    ResourceVersion::new(object["metadata"]["resourceVersion"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn wait_for_version_makes_own_writes_visible() {
    let server = ApiServer::new();
    let maps = synced_informer::<ConfigMap>(&server, InformerOptions::default()).await;
    let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for round in 0..20 {
        let map = serde_json::from_value(config_map("default", &format!("map-{round}"), "1")).unwrap();
        let mut created = api.create(&kube::api::PostParams::default(), &map).await.unwrap();
        let written = ResourceVersion::new(created.metadata.resource_version.as_deref().unwrap());
        maps.wait_for_resource_version(&written, TIMEOUT).await.unwrap();
        assert!(maps.lister().get("default", &format!("map-{round}")).is_some());
        assert!(!maps.resource_version().unwrap().is_before(&written));

        created.data.as_mut().unwrap().insert("v".to_owned(), "2".to_owned());
        let name = created.metadata.name.clone().unwrap();
        let updated = api.replace(&name, &kube::api::PostParams::default(), &created).await.unwrap();
        let written = ResourceVersion::new(updated.metadata.resource_version.as_deref().unwrap());
        maps.wait_for_resource_version(&written, TIMEOUT).await.unwrap();
        let cached = maps.lister().get("default", &name).unwrap();
        assert_eq!(cached.typed().unwrap().data.as_ref().unwrap()["v"], "2");
    }
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_reached_version_returns_immediately() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let now = pods.resource_version().unwrap();
    assert_eq!(now, version(server.resource_version()));
    pods.wait_for_resource_version(&now, Duration::ZERO).await.unwrap();
    pods.wait_for_resource_version(&version(1), Duration::ZERO).await.unwrap();
    pods.shutdown(TIMEOUT).await.unwrap();
    pods.wait_for_resource_version(&now, Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn wait_for_version_may_begin_before_start() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    assert_eq!(pods.resource_version(), None);
    let wanted = version(server.resource_version());
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_resource_version(&wanted, TIMEOUT).await }
    });
    advance_time(seconds(5)).await;
    assert!(!waiting.is_finished());
    pods.start();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn c1_rewind_fails_pending_version_waits() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let backup = server.backup();
    create_pods(&server, &["b", "c"]);
    let diagnostics = Diagnostics::default();
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(InformerOptions::default())).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+a initial", "+b initial", "+c initial"]).await;
    let wanted = version(server.resource_version() + 100);
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_resource_version(&wanted, Duration::from_secs(86_400)).await }
    });
    advance_time(seconds(1)).await;
    server.restore(&backup);
    let error = tokio::time::timeout(Duration::from_secs(7200), waiting)
        .await
        .expect("the rewind was not detected")
        .unwrap();
    let error = error.unwrap_err();
    assert_eq!(error.reason, VersionWaitReason::Rewound, "{error}");
    log.expect(&["-b inferred", "-c inferred"]).await;
    let status = pods.status();
    assert_eq!((status.reflector.rewinds, status.cache.rewinds), (1, 1));
    assert_eq!(
        pods.resource_version().unwrap(),
        version(server.resource_version()),
        "the server's version, although smaller"
    );
    assert!(diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::ServerRewound { .. })));
    // A wait that begins after the rewind is unaffected.
    let written = version_of(&server.create(&pod("default", "new")).unwrap());
    pods.wait_for_resource_version(&written, TIMEOUT).await.unwrap();
    log.expect(&["+new"]).await;
}

#[tokio::test(start_paused = true)]
async fn incomparable_versions_are_rejected_immediately() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    for text in ["abc", "0", "", "12a"] {
        let error = pods.wait_for_resource_version(&ResourceVersion::new(text), TIMEOUT).await.unwrap_err();
        assert_eq!(error.reason, VersionWaitReason::NotComparable, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_error_contains_the_version_of_the_cache() {
    let server = ApiServer::new();
    let pods = SharedInformer::<Pod>::new(server.client());
    let error = pods.wait_for_resource_version(&version(77), seconds(3)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "wait for version 77: pods in all namespaces: timed out after 3s at no version: not started (call start)"
    );
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let before = tokio::time::Instant::now();
    let error = pods.wait_for_resource_version(&version(9_999), seconds(5)).await.unwrap_err();
    assert_eq!(before.elapsed(), seconds(5));
    let at = server.resource_version();
    assert_eq!(
        error.to_string(),
        format!("wait for version 9999: pods in all namespaces: timed out after 5s at version {at}: live")
    );
}

#[tokio::test(start_paused = true)]
async fn c10_shutdown_ends_version_waits() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let waiting = tokio::spawn({
        let pods = pods.clone();
        async move { pods.wait_for_resource_version(&version(9_999), TIMEOUT).await }
    });
    advance_time(seconds(1)).await;
    pods.shutdown(TIMEOUT).await.unwrap();
    let error = tokio::time::timeout(seconds(1), waiting).await.expect("still waiting").unwrap().unwrap_err();
    assert_eq!(error.reason, VersionWaitReason::Stopped);
    let again = pods.wait_for_resource_version(&version(9_999), TIMEOUT).await.unwrap_err();
    assert_eq!(again.reason, VersionWaitReason::Stopped);
}

#[tokio::test(start_paused = true)]
async fn version_of_unselected_object_is_reached_with_the_next_bookmark() {
    let server = ApiServer::new();
    let options = InformerOptions::default().label_selector("app=db".parse().unwrap());
    let pods = synced_informer::<Pod>(&server, options).await;
    // Shortly after the initial events a stream sends another bookmark.
    advance_time(seconds(2)).await;
    let hidden = version_of(&server.create(&pod("default", "web")).unwrap());
    assert!(pods.wait_for_resource_version(&hidden, seconds(50)).await.is_err());
    pods.wait_for_resource_version(&hidden, seconds(30)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn contact_age_grows_while_a_watch_is_stalled_and_staleness_after_it_is_cancelled() {
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    advance_time(seconds(130)).await;
    assert_eq!(pods.status().staleness(), Some(Duration::ZERO));
    assert!(pods.status().contact_age().unwrap() <= seconds(60), "bookmarks count as contact");
    // The watch becomes silent, and new requests get no response.
    let stalled = inject_from_first_frame(&server, faults::stall_watch()).await;
    until(|| stalled.hits() == 1).await;
    let _stalled = server.inject(faults::stall_request());
    let before = pods.status().contact_age().unwrap();
    advance_time(seconds(60)).await;
    let status = pods.status();
    assert_eq!((&status.state, status.staleness()), (&InformerState::Live, Some(Duration::ZERO)));
    assert_eq!(status.contact_age().unwrap(), before + seconds(60));
    // A bookmark is overdue: the watch is replaced by a probe, which gets no response (C11).
    until(|| pods.status().reflector.silence_timeouts == 1).await;
    let status = pods.status();
    assert!(matches!(status.state, InformerState::BackingOff { .. }), "{:?}", status.state);
    let staleness = status.staleness().unwrap();
    assert!((seconds(100)..=seconds(120)).contains(&staleness), "{staleness:?}");
    // The last frame came before the headers of the silent watch.
    assert!(staleness >= status.contact_age().unwrap(), "{status:?}");
    assert_eq!(pods.metrics().staleness, pods.status().staleness());
}

#[tokio::test(start_paused = true)]
async fn staleness_grows_while_the_server_responds_with_errors() {
    // Regression: an error response is contact with the server but says nothing about the objects. A cache
    // that was disconnected ten minutes ago is ten minutes stale, however recently the server responded with
    // 500 or 403.
    for code in [500, 403] {
        let server = ApiServer::new();
        create_pods(&server, &["a"]);
        let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
        let _broken = break_watches_with(&server, faults::respond(code));
        advance_time(TIMEOUT).await;
        let status = pods.status();
        assert_ne!(status.state, InformerState::Live);
        let staleness = status.staleness().unwrap();
        assert!(staleness >= seconds(590), "after ten minutes of {code}: {staleness:?} ({})", status.state);
    }
}

#[tokio::test(start_paused = true)]
async fn status_changes_can_be_subscribed() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let mut statuses = pods.subscribe_status();
    assert_eq!(statuses.borrow_and_update().state, InformerState::NotStarted);
    pods.start();
    let live = statuses.wait_for(|status| status.synced && status.state == InformerState::Live);
    let first = tokio::time::timeout(TIMEOUT, live).await.unwrap().unwrap().resource_version.clone().unwrap();
    create_pods(&server, &["b"]);
    let moved = statuses.wait_for(|status| status.resource_version.as_ref() != Some(&first));
    let second =
        tokio::time::timeout(TIMEOUT, moved).await.unwrap().unwrap().resource_version.clone().unwrap();
    assert!(first.is_before(&second));
    let _stalled = break_watches_with(&server, faults::stall_request());
    let stale = statuses.wait_for(|status| status.state != InformerState::Live);
    assert!(tokio::time::timeout(TIMEOUT, stale).await.unwrap().unwrap().synced, "synced stays true");
    pods.shutdown(TIMEOUT).await.unwrap();
    let stopped = statuses.wait_for(|status| status.state == InformerState::Stopped);
    assert!(tokio::time::timeout(TIMEOUT, stopped).await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn c9_hook_receives_rejected_requests() {
    let server = ApiServer::new();
    let diagnostics = Diagnostics::default();
    let forbidden = server.inject(faults::forbid("pods"));
    let pods = SharedInformer::<Pod>::with_options(server.client(), diagnostics.hook(listing()));
    pods.start();
    let error = pods.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(
        matches!(&error.informers[0].state, InformerState::Forbidden { failure } if failure.message().contains("cannot list")),
        "{error}"
    );
    assert!(diagnostics.any(|diagnostic| {
        diagnostic.failure().is_some_and(|failure| failure.kind() == FailureKind::Forbidden)
    }));
    drop(forbidden);

    let error_frame = server.inject(faults::error_frame(500).max_hits(1));
    until(|| pods.status().state == InformerState::Live && error_frame.hits() == 1).await;
    assert!(
        diagnostics.any(|diagnostic| diagnostic
            .failure()
            .is_some_and(|failure| failure.kind() == FailureKind::ServerError)
            && diagnostic.to_string().starts_with("watch: ")),
        "{:?}",
        diagnostics.texts()
    );

    gap(&server, "pods", || create_pods(&server, &["a"])).await;
    until(|| pods.lister().len() == 1).await;
    assert!(diagnostics.any(|diagnostic| {
        diagnostic.failure().is_some_and(|failure| failure.kind() == FailureKind::Expired)
    }));
}

#[tokio::test(start_paused = true)]
async fn c9_hook_receives_local_failures() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let diagnostics = Diagnostics::default();
    let pods =
        synced_informer::<Pod>(&server, diagnostics.hook(InformerOptions::default().prefer_protobuf(false)))
            .await;
    let registration = pods.handler().name("shaky").on_event(|_| panic!("intended panic"));
    until(|| registration.panics() == 1).await;
    let by_name = |diagnostic: &Diagnostic| matches!(diagnostic, Diagnostic::HandlerPanicked { handler, .. } if &**handler == "shaky");
    assert!(diagnostics.any(by_name));
    let nameless =
        serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": {"secret": "hush"}}});
    let _forged =
        inject_from_first_frame(&server, faults::raw_frame(frame("ADDED", &nameless)).max_hits(1)).await;
    until(|| diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::ObjectSkipped(_)))).await;
    assert!(!diagnostics.texts().concat().contains("hush"), "contents are never reported");
    assert_eq!(pods.metrics().reflector.unreadable, 1);
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_hook_affects_nothing_else() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let _refused = server.inject(faults::respond(500).max_hits(2));
    let options = InformerOptions::default().on_diagnostic(|_, _| panic!("intended panic"));
    let pods = synced_informer::<Pod>(&server, options).await;
    assert_eq!(pods.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn audit_finds_no_drift_in_a_healthy_cache() {
    for options in [InformerOptions::default(), listing().page_size(2)] {
        let server = ApiServer::new();
        create_pods(&server, &["a", "b", "c"]);
        let diagnostics = Diagnostics::default();
        let pods = synced_informer::<Pod>(&server, diagnostics.hook(options.audit_period(seconds(60)))).await;
        let (_registration, mut log) = log_events(&pods);
        log.expect(&["+a initial", "+b initial", "+c initial"]).await;
        for round in 0..7 {
            advance_time(seconds(30)).await;
            server.update(&with(pod("default", "b"), "/metadata/labels/round", round.to_string())).unwrap();
        }
        let status = pods.status();
        assert_eq!((status.reflector.relists.audit, status.cache.drift), (3, 0));
        assert_eq!(log.take(), ["~b"; 6], "only the changed object");
        assert!(!diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::CacheDrift { .. })));
        let exact = requests_for(&server, Verb::List, "pods")
            .iter()
            .filter(|seen| seen.parameter("resourceVersionMatch").as_deref() == Some("Exact"))
            .count();
        assert!(exact >= 3, "compared at the exact version of the cache");
    }
}

#[tokio::test(start_paused = true)]
async fn audit_delivers_counts_and_repairs_drift() {
    let server = ApiServer::new();
    create_pods(&server, &["changed", "lost"]);
    let newest = server.create(&pod("default", "same")).unwrap();
    let diagnostics = Diagnostics::default();
    let pods = synced_informer::<Pod>(
        &server,
        diagnostics.hook(InformerOptions::default().prefer_protobuf(false).audit_period(seconds(60))),
    )
    .await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+changed initial", "+lost initial", "+same initial"]).await;

    // Frames that no server sends: a deletion, a change and an addition that never happened, at the current
    // version.
    let at = &newest["metadata"]["resourceVersion"];
    let get = |name: &str| server.get("v1", "pods", Some("default"), name).unwrap();
    let lost = with(get("lost"), "/metadata/resourceVersion", at.clone());
    let changed = with(get("changed"), "/metadata/resourceVersion", at.clone());
    let changed = with(changed, "/metadata/labels/app", "forged");
    let ghost = with(with(get("same"), "/metadata/name", "ghost"), "/metadata/uid", "ghost");
    let forged = frame("DELETED", &lost) + &frame("MODIFIED", &changed) + &frame("ADDED", &ghost);
    let _forged = inject_from_first_frame(&server, faults::raw_frame(forged).max_hits(1)).await;
    log.expect(&["-lost", "~changed", "+ghost"]).await;

    log.expect(&["-ghost inferred", "~changed", "+lost"]).await;
    assert_eq!((pods.status().cache.drift, pods.metrics().drift), (3, 3));
    assert!(
        diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::CacheDrift { changes: 3, .. })),
        "{:?}",
        diagnostics.texts()
    );
    assert_eq!(pods.lister().get("default", "changed").unwrap().labels().get("app"), Some("web"));
    advance_time(seconds(135)).await;
    assert_eq!(
        (pods.status().reflector.relists.audit, pods.status().cache.drift),
        (3, 3),
        "no further drift"
    );
    create_pods(&server, &["next"]);
    log.expect(&["+next"]).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_follow_events_and_relists() {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let pods = SharedInformer::<Pod>::with_options(
        server.client(),
        InformerOptions::default().prefer_protobuf(false),
    );
    let before = pods.metrics();
    assert_eq!(
        (before.state, before.synced, before.objects, before.memory_bytes),
        (InformerState::NotStarted, false, 0, 0)
    );
    assert_eq!((before.staleness, before.contact_age), (None, None));
    let (_registration, mut log) = log_events_with(pods.handler().name("notes"));
    pods.start();
    log.expect(&["+a initial", "+b initial"]).await;
    server.insert_unchecked(&with(pod("default", "a"), "/spec/containers", "none")).unwrap();
    server.delete("v1", "pods", Some("default"), "b").unwrap();
    log.expect(&["~a", "-b"]).await;
    let broken = pods.lister().get("default", "a").unwrap();
    assert!(broken.typed().is_err() && broken.typed().is_err());
    gap_without_change(&server).await;
    until(|| pods.metrics().reflector.full_lists == 2).await;
    let m = pods.metrics();
    // A pod is marked as deleted, which is an update, and then deleted.
    assert_eq!((m.added, m.updated, m.deleted, m.objects, m.decode_errors), (2, 2, 1, 1, 2));
    assert_eq!((m.reflector.relists.initial, m.reflector.relists.expired, m.reflector.expired), (1, 1, 1));
    assert!(m.synced && m.memory_bytes > 0);
    assert_eq!((&*m.handlers[0].name, m.handlers[0].delivered, m.handlers[0].pending), ("notes", 4, 0));
}

/// The state has a failure only between two attempts. During an attempt that the server does not answer, a user
/// interface had nothing to show; a program needs to know for how long and why the connection is lost.
#[tokio::test(start_paused = true)]
async fn last_failure_is_known_until_the_informer_is_live_again() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    until(|| pods.status().state == InformerState::Live).await;
    assert_eq!(pods.status().last_failure, None);
    let mut changes = pods.subscribe_status();
    let _refused = server.inject(faults::respond(503).max_hits(1));
    let stalled = break_watches_with(&server, faults::stall_request());
    let with_failure = |status: &InformerStatus| status.last_failure.is_some();
    tokio::time::timeout(TIMEOUT, changes.wait_for(with_failure)).await.expect("subscribers see it").unwrap();
    until(|| stalled.hits() > 0).await;
    advance_time(seconds(2)).await;
    let status = pods.status();
    assert!(matches!(status.state, InformerState::Stale { .. }), "{:?}", status.state);
    let (at, failure) = status.last_failure.clone().unwrap();
    assert!(failure.to_string().contains("503"), "{failure}");
    assert!((seconds(2)..seconds(10)).contains(&(status.now - at)), "{:?}", status.now - at);
    assert_eq!(status.scopes[0].last_failure, status.last_failure);
    drop(stalled);
    until(|| pods.status().state == InformerState::Live).await;
    assert_eq!(pods.status().last_failure, None);
}

/// Bug: the objects of a server that was created after hours of virtual time were hours too old. Each server's
/// clock began with the system's time at its creation, and the test created its only server at the start.
#[tokio::test(start_paused = true)]
async fn ages_are_right_in_virtual_time() {
    let early = ApiServer::new();
    create_pods(&early, &["a"]);
    // The clock of this crate is used for the first time long after the server's.
    advance_time(Duration::from_secs(108_000)).await;
    let late = ApiServer::new();
    for (server, hours) in [(&early, 30), (&late, 0)] {
        create_pods(server, &["b"]);
        let pods = synced_informer::<Pod>(server, InformerOptions::default()).await;
        let name = if hours == 0 { "b" } else { "a" };
        let created = pods.lister().get("default", name).unwrap().creation_timestamp().unwrap();
        let age = informer::now().duration_since(created).as_secs_f64() - f64::from(hours) * 3_600.0;
        // A creation timestamp is rounded down to seconds.
        assert!((-1.0..2.0).contains(&age), "{age}");
        let difference = informer::now().duration_since(server.now());
        assert!(difference.abs().as_secs() < 1, "{difference:?}");
    }
}
