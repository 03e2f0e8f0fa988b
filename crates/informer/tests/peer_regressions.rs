//! Bugs found in kube-runtime 5.0, each as a test of the guarantee given here instead. The numbers are those
//! of the list of findings; each test starts with a description of the bug.
#![allow(clippy::unwrap_used)]

use crate::cluster::{
    Diagnostics, TIMEOUT, advance_time, break_watches, config_map, create_pods, describe, frame, gap,
    gap_with_changes, inject_from_first_frame, log_events, names, pod, requests_for, synced_informer, until,
    with,
};
use informer::selector::LabelSelector;
use informer::source::WatchListPolicy;
use informer::status::{Diagnostic, FailureKind, InformerState};
use informer::{Event, Index, InformerOptions, Key, Lister, Object, SharedInformer};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::time::Duration;
use tokio::sync::mpsc;

fn listing() -> InformerOptions {
    InformerOptions::default().watch_list(WatchListPolicy::Never)
}

/// Whether the cache contains the state of an event or a newer one (C4).
fn is_cached(lister: &Lister<Pod>, event: &Event<Pod>) -> bool {
    let cached = lister.get_by_key(event.object().key());
    match event {
        Event::Deleted { .. } => cached.is_none(),
        _ => cached
            .is_some_and(|cached| !cached.resource_version().is_before(event.object().resource_version())),
    }
}

/// A relist interrupted half-way by `fault`, after a gap in which one object was added, one deleted and one
/// changed.
async fn relist_halfway(options: InformerOptions, fault: fn() -> faults::FaultRule) {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c", "gone"]);
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let lister = pods.lister();
    let (sender, mut log) = mpsc::unbounded_channel();
    let _registration =
        pods.on_event(move |event| drop(sender.send((describe(&event), is_cached(&lister, &event)))));
    pods.start();
    for name in ["a", "b", "c", "gone"] {
        let event = tokio::time::timeout(TIMEOUT, log.recv()).await.unwrap().unwrap();
        assert_eq!(event, (format!("+{name} initial"), true));
    }

    let halfway = server.inject(fault());
    gap_with_changes(&server).await;
    until(|| halfway.hits() == 1).await;
    assert!(log.try_recv().is_err(), "an event was delivered before the list was complete");
    assert_eq!(names(&pods.lister().list()), ["a", "b", "c", "gone"], "the old list stays complete");

    drop(halfway);
    for line in ["-gone inferred", "~a", "+zoe"] {
        let event = tokio::time::timeout(TIMEOUT, log.recv()).await.unwrap().unwrap();
        assert_eq!(event, (line.to_owned(), true), "(event, whether it was cached)");
    }
    advance_time(Duration::from_secs(30)).await;
    assert!(log.try_recv().is_err(), "each event is delivered once");
}

#[tokio::test(start_paused = true)]
async fn p1_c4_paged_relist_delivers_nothing_before_it_is_cached() {
    // A relist in several pages triggered reconciles page by page while the store still contained the old
    // list: the changed object was reconciled in its old state, the new one was "not found", and neither was
    // reconciled again. Here handlers run once the cache contains the change.
    relist_halfway(listing().page_size(2), || faults::stall_request().for_verb(Verb::List).page(2)).await;
}

#[tokio::test(start_paused = true)]
async fn p1_c4_streaming_relist_delivers_nothing_before_it_is_cached() {
    // The same bug in streaming mode, where initial events arrive one by one.
    relist_halfway(InformerOptions::default(), || faults::stall_watch().after_frames(2)).await;
}

#[tokio::test(start_paused = true)]
async fn p3_c7_all_of_eight_waiters_wake_up() {
    // A store kept one waker: of eight tasks waiting for it to be ready, one woke up. Here all of them wake
    // up.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (registration, _log) = log_events(&pods);
    let registration = Arc::new(registration);
    let stalled = server.inject(faults::stall_request());
    pods.start();
    let version = informer::ResourceVersion::new(&server.resource_version().to_string());
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (pods, registration, version) = (pods.clone(), Arc::clone(&registration), version.clone());
            tokio::spawn(async move {
                pods.wait_for_sync(TIMEOUT).await.unwrap();
                pods.wait_for_resource_version(&version, TIMEOUT).await.unwrap();
                registration.wait_for_sync().await
            })
        })
        .collect();
    until(|| stalled.hits() == 1).await;
    drop(stalled);
    for task in waiting {
        assert!(tokio::time::timeout(TIMEOUT, task).await.expect("never woke up").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn p4_c8_stream_continues_after_its_next_object_was_deleted() {
    // A subscriber woken for an object that had been deleted from the store by then returned `Pending`
    // without a waker and hung although more events were queued. Here an object that was added and deleted
    // unread is not delivered, and the events behind it are.
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let mut events = pods.event_stream();
    create_pods(&server, &["left", "stays"]);
    until(|| pods.lister().len() == 2).await;
    server.delete("v1", "pods", Some("default"), "left").unwrap();
    until(|| pods.lister().len() == 1).await;
    let event = tokio::time::timeout(TIMEOUT, events.next()).await.expect("the stream hangs").unwrap();
    assert_eq!(describe(&event), "+stays");
    let next = tokio::spawn(async move { events.next().await.map(|event| describe(&event)) });
    advance_time(Duration::from_secs(1)).await;
    assert!(!next.is_finished());
    create_pods(&server, &["woken"]);
    let next = tokio::time::timeout(TIMEOUT, next).await.expect("the stream was not woken").unwrap();
    assert_eq!(next.as_deref(), Some("+woken"));
}

#[tokio::test(start_paused = true)]
async fn p9_c8_unpolled_stream_affects_no_other() {
    // A subscriber that was not polled stopped the root stream: of a hundred objects the store received five.
    // Here it costs one pending event per object and affects nothing else.
    let server = ApiServer::new();
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let mut idle = pods.event_stream();
    let (_registration, mut log) = log_events(&pods);
    let all: Vec<String> = (0..100).map(|number| format!("pod-{number:03}")).collect();
    for name in &all {
        create_pods(&server, &[name]);
    }
    for name in &all {
        log.expect(&[&format!("+{name}")]).await;
    }
    for round in 0..20 {
        server.update(&with(pod("default", "pod-007"), "/metadata/labels/round", round.to_string())).unwrap();
        log.expect(&["~pod-007"]).await;
    }
    assert_eq!((pods.lister().len(), idle.pending_events()), (100, 100));
    for name in &all {
        let event = tokio::time::timeout(TIMEOUT, idle.next()).await.unwrap().unwrap();
        assert_eq!(describe(&event), format!("+{name}"));
        let newest = pods.lister().get_by_key(event.object().key()).unwrap();
        assert_eq!(
            event.object().resource_version(),
            newest.resource_version(),
            "the newest state, in one event"
        );
    }
    assert_eq!(idle.pending_events(), 0);
}

/// Uses real threads because the handler blocks one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_c8_stuck_handler_affects_no_other_and_catches_up() {
    // As in the previous test, for a handler that does not return from a call.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (release, stuck) = threads::channel::<()>();
    let (sender, mut slow) = mpsc::unbounded_channel();
    let registration = pods.handler().blocking().on_event(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    });
    let (_other, mut log) = log_events(&pods);
    pods.start();
    log.expect(&["+a initial"]).await;
    assert_eq!(tokio::time::timeout(TIMEOUT, slow.recv()).await.unwrap().unwrap(), "+a initial");
    for round in 0..50 {
        server.update(&with(pod("default", "a"), "/metadata/labels/round", round.to_string())).unwrap();
        log.expect(&["~a"]).await;
    }
    assert_eq!(registration.pending_events(), 1, "one event per key");
    drop(release);
    assert_eq!(tokio::time::timeout(TIMEOUT, slow.recv()).await.unwrap().unwrap(), "~a");
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(slow.recv().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_c5_reads_return_while_the_writer_is_in_the_middle_of_a_relist() {
    // A relist replaced and freed the objects under the store's write lock, so readers waited for it. Here the
    // writer stops in the middle of a relist, in an index function, until the reads have returned.
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let pods = synced_informer::<Pod>(&server, InformerOptions::default()).await;
    let (reached, mut is_reached) = mpsc::unbounded_channel();
    let (resume, resumed) = threads::channel::<()>();
    let resumed = std::sync::Mutex::new(resumed);
    let index = Index::from_fn("gate", move |pod: &Object<Pod>| {
        if pod.name() == "new" {
            let _ = reached.send(());
            // An error means that the test has ended.
            let _ = resumed.lock().unwrap().recv();
        }
        vec![pod.name().to_owned()]
    });
    pods.add_index(index).unwrap();
    gap(&server, "pods", || create_pods(&server, &["new"])).await;
    tokio::time::timeout(TIMEOUT, is_reached.recv()).await.expect("the relist arrives").unwrap();
    let lister = pods.lister();
    let read = tokio::task::spawn_blocking(move || {
        let snapshot = lister.snapshot();
        (names(&lister.list()), lister.get("default", "a").is_some(), snapshot.len())
    });
    let read = tokio::time::timeout(TIMEOUT, read).await.expect("reads return during the relist").unwrap();
    assert_eq!(read, (vec!["a".to_owned(), "b".to_owned()], true, 2));
    resume.send(()).unwrap();
    until(|| pods.lister().len() == 3).await;
}

/// Uses real threads for a reader and the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_c5_readers_are_not_blocked_while_twenty_thousand_objects_are_replaced() {
    // A relist freed the old objects under the store's write lock: with 20,000 pods readers were blocked for
    // half a second. Here readers and the writer never wait for each other, and a read sees one consistent
    // snapshot.
    const OBJECTS: usize = 20_000;
    let map = |number: usize, round: &str| {
        with(
            config_map("default", &format!("map-{number:05}"), ""),
            "/metadata/labels",
            serde_json::json!({"round": round}),
        )
    };
    let server = ApiServer::builder().unlimited_history().build();
    for number in 0..OBJECTS {
        server.create(&map(number, "1")).unwrap();
    }
    let maps = synced_informer::<ConfigMap>(&server, InformerOptions::default()).await;
    let (lister, snapshot, finished) =
        (maps.lister(), maps.lister().snapshot(), Arc::new(AtomicBool::new(false)));
    let (first, second): (LabelSelector, LabelSelector) =
        ("round=1".parse().unwrap(), "round=2".parse().unwrap());
    let reader = std::thread::spawn({
        let (finished, second) = (Arc::clone(&finished), second.clone());
        move || {
            let mut is_replaced = false;
            while !finished.load(Ordering::SeqCst) || !is_replaced {
                assert!(
                    lister.get("default", "map-00000").is_some()
                        && lister.get("default", "map-19999").is_some()
                );
                let state = lister.snapshot();
                let new = state.matching(&second).count();
                assert!(new == 0 || new == OBJECTS, "{new} of {OBJECTS}: an incomplete relist");
                assert!(new == OBJECTS || !is_replaced, "a snapshot is older than the one before");
                is_replaced = new == OBJECTS;
            }
        }
    });
    gap(&server, "configmaps", || {
        for number in 0..OBJECTS {
            server.update(&map(number, "2")).unwrap();
        }
    })
    .await;
    until(|| maps.lister().list_matching(&second).len() == OBJECTS).await;
    finished.store(true, Ordering::SeqCst);
    reader.join().expect("the reader failed");
    assert_eq!(
        (snapshot.len(), snapshot.matching(&first).count()),
        (OBJECTS, OBJECTS),
        "a snapshot does not change"
    );
    assert_eq!(maps.status().reflector.full_lists, 2);
}

#[tokio::test(start_paused = true)]
async fn p8_c2_relist_delivers_deletions_of_the_gap() {
    // A relist did not report objects deleted during the gap, so dependants never received a deletion. Here
    // they are delivered as deleted, with the last known state and marked as inferred; unchanged objects are
    // not delivered again.
    for options in [InformerOptions::default(), listing()] {
        let server = ApiServer::new();
        create_pods(&server, &["gone", "reborn", "same"]);
        let pods = synced_informer::<Pod>(&server, options).await;
        let (_registration, mut log) = log_events(&pods);
        let mut events = pods.handler().filter(|pod| pod.name() == "gone").event_stream();
        log.expect(&["+gone initial", "+reborn initial", "+same initial"]).await;
        assert_eq!(describe(&events.next().await.unwrap()), "+gone initial");
        gap(&server, "pods", || {
            server.delete("v1", "pods", Some("default"), "gone").unwrap();
            server.delete("v1", "pods", Some("default"), "reborn").unwrap();
            create_pods(&server, &["reborn"]);
        })
        .await;
        // Deletions first (C5); another incarnation is a deletion and an addition (C3).
        log.expect(&["-gone inferred", "-reborn inferred", "+reborn"]).await;
        let event = tokio::time::timeout(TIMEOUT, events.next()).await.unwrap().unwrap();
        let Event::Deleted { last, observed: false, .. } = &event else { unreachable!("{event:?}") };
        assert_eq!(last.typed().unwrap().spec.as_ref().unwrap().containers.len(), 1);
        assert!(log.is_empty());
    }
}

/// For objects that only JSON can represent.
fn json_only() -> InformerOptions {
    InformerOptions::default().prefer_protobuf(false)
}

#[tokio::test(start_paused = true)]
async fn p11_c9_undecodable_object_in_a_watch_is_cached_and_delivered() {
    // A watch event that did not decode was an empty API error and then skipped: the cache silently stayed at
    // the older state. Here the newer state is cached and delivered, and decoding it returns the error.
    let server = ApiServer::new();
    create_pods(&server, &["bad", "good"]);
    let pods = synced_informer::<Pod>(&server, json_only()).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+bad initial", "+good initial"]).await;
    assert!(pods.lister().get("default", "bad").unwrap().typed().is_ok());
    let version = server.insert_unchecked(&with(pod("default", "bad"), "/spec/containers", "none")).unwrap();
    create_pods(&server, &["next"]);
    log.expect(&["~bad", "+next"]).await;
    let invalid = pods.lister().get("default", "bad").unwrap();
    assert_eq!(invalid.resource_version().as_str(), version["metadata"]["resourceVersion"]);
    let error = invalid.typed().unwrap_err();
    assert_eq!((&*error.field_path, error.key.to_string().as_str()), ("spec.containers", "default/bad"));
    assert_eq!((invalid.labels().get("app"), pods.metrics().decode_errors), (Some("web"), 1));
    assert!(pods.lister().get("default", "next").unwrap().typed().is_ok());
    assert_eq!((pods.status().state, pods.status().reflector.failures), (InformerState::Live, 0));
}

#[tokio::test(start_paused = true)]
async fn p12_c9_undecodable_object_in_a_list_fails_nothing_else() {
    // One item that did not decode failed the whole list, forever. Here the other items are cached, and so
    // are the object's bytes.
    for options in [json_only(), listing().prefer_protobuf(false)] {
        let server = ApiServer::new();
        server.insert_unchecked(&with(pod("default", "bad"), "/spec/containers", "none")).unwrap();
        create_pods(&server, &["good"]);
        let pods = synced_informer::<Pod>(&server, options).await;
        assert_eq!(names(&pods.lister().list()), ["bad", "good"]);
        let invalid = pods.lister().get("default", "bad").unwrap();
        assert!(invalid.typed().is_err());
        assert_eq!(invalid.cast::<serde_json::Value>().typed().unwrap()["spec"]["containers"], "none");
        assert!(pods.lister().get("default", "good").unwrap().typed().is_ok());
        assert_eq!((pods.status().reflector.failures, pods.metrics().decode_errors), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn p11_c9_unreadable_object_is_counted_and_named() {
    // As above, but even the metadata is invalid, so there is nothing to cache. Here the object is counted,
    // reported and named in the status, the cached state is marked as stale, and the position advances.
    let server = ApiServer::new();
    let diagnostics = Diagnostics::default();
    create_pods(&server, &["a"]);
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(json_only())).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+a initial"]).await;
    server.create(&config_map("default", "bump", "1")).unwrap();
    let version = server.resource_version().to_string();
    let headless = serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
        "name": "a", "namespace": "default", "resourceVersion": version, "labels": 5}});
    // A bookmark advances the position to this version.
    advance_time(Duration::from_secs(61)).await;
    let _forged = inject_from_first_frame(
        &server,
        faults::raw_frame(frame("MODIFIED", &headless)).for_resource("pods").max_hits(1),
    )
    .await;
    until(|| !pods.status().unreadable_objects.is_empty()).await;
    let status = pods.status();
    assert_eq!(status.unreadable_objects[0].0, Key::new("default", "a"));
    assert!(status.unreadable_objects[0].1.contains("labels"), "{:?}", status.unreadable_objects);
    assert_eq!((status.reflector.unreadable, status.resource_version.unwrap().as_str()), (1, &*version));
    assert!(diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::ObjectSkipped(_))));
    assert!(pods.lister().get("default", "a").unwrap().is_stale());

    let watches = requests_for(&server, Verb::Watch, "pods").len();
    break_watches(&server);
    until(|| requests_for(&server, Verb::Watch, "pods").len() > watches).await;
    let from = requests_for(&server, Verb::Watch, "pods").pop().unwrap().parameter("resourceVersion");
    assert_eq!(from, Some(version), "the position advanced");
    server.insert_unchecked(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    create_pods(&server, &["b"]);
    log.expect(&["~a", "+b"]).await;
    assert!(!pods.lister().get("default", "a").unwrap().is_stale());
    assert!(pods.status().unreadable_objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn p15_c11_rejected_streaming_list_falls_back_to_lists_permanently() {
    // A rejected streaming list was an error forever. Here the informer lists, and does not request a
    // streaming list again.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let refused = server.inject(faults::refuse_watch_list());
    let diagnostics = Diagnostics::default();
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(InformerOptions::default())).await;
    assert_eq!((refused.hits(), pods.lister().len()), (1, 1));
    assert!(diagnostics.any(|diagnostic| matches!(diagnostic, Diagnostic::WatchListDisabled { .. })));
    gap(&server, "pods", || create_pods(&server, &["b"])).await;
    until(|| pods.lister().len() == 2).await;
    assert_eq!((refused.hits(), pods.status().reflector.watch_lists), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn p15_c11_endless_streaming_list_falls_back_to_lists_permanently() {
    // A server that streams initial events without ever ending them gives no error to fall back on. Here a
    // streaming list must make progress.
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let endless = server.inject(faults::endless_watch_list());
    let pods = SharedInformer::<Pod>::new(server.client());
    pods.start();
    let begun = tokio::time::Instant::now();
    until(|| matches!(pods.status().state, InformerState::Listing { received: 2, .. })).await;
    assert!(
        !pods.lister().has_synced() && pods.lister().is_empty(),
        "an incomplete list is not visible (C5)"
    );
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(names(&pods.lister().list()), ["a", "b"]);
    gap(&server, "pods", || create_pods(&server, &["c"])).await;
    until(|| pods.lister().len() == 3).await;
    assert_eq!(endless.hits(), 1);
}

#[tokio::test(start_paused = true)]
async fn p16_c11_410_on_opening_a_watch_causes_a_relist() {
    // An HTTP 410 on opening a watch was retried with the same version forever. Here the informer relists,
    // and nothing is lost.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let expired = server.inject(faults::respond(410).for_verb(Verb::Watch).max_hits(3));
    let diagnostics = Diagnostics::default();
    let pods = synced_informer::<Pod>(&server, diagnostics.hook(listing())).await;
    let (_registration, mut log) = log_events(&pods);
    log.expect(&["+a initial"]).await;
    create_pods(&server, &["b"]);
    log.expect(&["+b"]).await;
    until(|| pods.status().state == InformerState::Live).await;
    assert_eq!((expired.hits(), pods.status().reflector.expired), (3, 3));
    assert_eq!(requests_for(&server, Verb::List, "pods").len(), 4);
    assert!(diagnostics.any(|diagnostic| {
        diagnostic.failure().is_some_and(|failure| failure.kind() == FailureKind::Expired)
    }));
    create_pods(&server, &["c"]);
    log.expect(&["+c"]).await;
}

#[tokio::test(start_paused = true)]
async fn p16_c11_410_on_every_watch_causes_no_hot_loop() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let expired = server.inject(faults::respond(410).for_verb(Verb::Watch));
    let pods = synced_informer::<Pod>(&server, listing()).await;
    advance_time(TIMEOUT).await;
    assert!((10..100).contains(&expired.hits()), "{} watches in ten minutes", expired.hits());
    create_pods(&server, &["b"]);
    until(|| pods.lister().len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn p10_c11_first_list_does_not_require_a_quorum_read() {
    // A list "at any version" was sent with a limit but without a version, which a server answers from etcd
    // with a quorum read (kube#1743). Here the first list names version 0, and a relist the version of the
    // cache.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = synced_informer::<Pod>(&server, listing()).await;
    gap(&server, "pods", || create_pods(&server, &["b"])).await;
    until(|| pods.lister().len() == 2).await;
    let lists = requests_for(&server, Verb::List, "pods");
    let versions = lists.iter().map(|list| query_parameter(&list.query, "resourceVersion"));
    let versions: Vec<_> = versions.collect();
    assert_eq!(versions.first().cloned().flatten().as_deref(), Some("0"), "{versions:?}");
    assert!(versions.iter().all(Option::is_some), "{versions:?}");
}

/// Returns the value of a parameter of a query.
fn query_parameter(query: &str, name: &str) -> Option<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
}
