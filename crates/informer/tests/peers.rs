//! Faults that were seen in another library, kube-runtime 5.0, each as a test of what is promised here instead. The numbers are those
//! of the list from which they come; each test opens with what went wrong there.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{
    Heard, LONG, asked, config_map, create_pods, cut, describe, disturb, frame, gap, live, names, notes,
    pass, pod, until, with,
};
use informer::{Event, Key, LabelSelector, Lister, Options, Problem, Report, SharedInformer, State};
use informer::{Trouble, WatchListPolicy};
use informer_apiserver::{ApiServer, Verb, faults};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc as threads};
use std::time::Duration;
use tokio::sync::mpsc;

fn listing() -> Options {
    Options::default().watch_list(WatchListPolicy::Never)
}

/// Whether the cache holds what an event says, or something newer (C4).
fn holds(lister: &Lister<Pod>, event: &Event<Pod>) -> bool {
    let cached = lister.get_by_key(event.object().key());
    match event {
        Event::Deleted { .. } => cached.is_none(),
        _ => cached.is_some_and(|cached| !cached.version().is_before(event.object().version())),
    }
}

/// A relist that is stopped halfway by `fault`, after a gap in which an object came, one went and one changed.
async fn relist_halfway(options: Options, fault: fn() -> faults::Rule) {
    let server = ApiServer::new();
    create_pods(&server, &["a", "b", "c", "gone"]);
    let pods = SharedInformer::<Pod>::with_options(server.client(), options);
    let lister = pods.lister();
    let (sender, mut told) = mpsc::unbounded_channel();
    let _on = pods.on(move |event| drop(sender.send((describe(&event), holds(&lister, &event)))));
    pods.start();
    for name in ["a", "b", "c", "gone"] {
        let note = tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap();
        assert_eq!(note, (format!("+{name} initial"), true));
    }

    let halfway = server.fault(fault());
    gap(&server, "pods", || {
        server.plant(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
        server.delete("v1", "pods", Some("default"), "gone").unwrap();
        create_pods(&server, &["zoe"]);
    })
    .await;
    until(|| halfway.hits() == 1).await;
    assert!(told.try_recv().is_err(), "something was told before the set was complete");
    assert_eq!(names(&pods.lister().list()), ["a", "b", "c", "gone"], "the old set stays, whole");

    drop(halfway);
    for line in ["-gone inferred", "~a", "+zoe"] {
        let note = tokio::time::timeout(LONG, told.recv()).await.unwrap().unwrap();
        assert_eq!(note, (line.to_owned(), true), "(event, whether the cache held it)");
    }
    pass(Duration::from_secs(30)).await;
    assert!(told.try_recv().is_err(), "each is told once");
}

#[tokio::test(start_paused = true)]
async fn p1_c4_a_relist_in_pages_tells_nothing_before_the_cache_holds_it() {
    // A relist in several pages fired triggers page by page while the store still held the old set: the object that had changed was
    // reconciled in its old state, the new one was "not found", and neither ever again. Here handlers run when the cache has it.
    relist_halfway(listing().page_size(2), || faults::hold().on(Verb::List).page(2)).await;
}

#[tokio::test(start_paused = true)]
async fn p1_c4_a_relist_as_a_stream_tells_nothing_before_the_cache_holds_it() {
    // The same in streaming mode, where initial events come one by one for as long as they take.
    relist_halfway(Options::default(), || faults::stall_watch().after_frames(2)).await;
}

#[tokio::test(start_paused = true)]
async fn p3_c7_all_of_eight_waiters_wake_up() {
    // A store kept one waker: of eight tasks that waited for it to be ready, one woke up. Here all do, whatever they wait for.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (on, _told) = notes(&pods);
    let on = Arc::new(on);
    let held = server.fault(faults::hold());
    pods.start();
    let version = informer::ResourceVersion::new(&server.version().to_string());
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let (pods, on, version) = (pods.clone(), Arc::clone(&on), version.clone());
            tokio::spawn(async move {
                pods.wait_for_sync(LONG).await.unwrap();
                pods.wait_for_version(&version, LONG).await.unwrap();
                on.synced().await
            })
        })
        .collect();
    until(|| held.hits() == 1).await;
    drop(held);
    for task in waiting {
        assert!(tokio::time::timeout(LONG, task).await.expect("never woke up").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn p4_c8_a_stream_whose_next_object_has_left_goes_on() {
    // A subscriber that was woken for an object which had left the store by then returned `Pending` without a waker, and hung although
    // more was queued. Here what came and went unseen is not told, and what is behind it is.
    let server = ApiServer::new();
    let pods = live::<Pod>(&server, Options::default()).await;
    let mut events = pods.events();
    create_pods(&server, &["left", "stays"]);
    until(|| pods.lister().len() == 2).await;
    server.delete("v1", "pods", Some("default"), "left").unwrap();
    until(|| pods.lister().len() == 1).await;
    let event = tokio::time::timeout(LONG, events.next()).await.expect("hangs").unwrap();
    assert_eq!(describe(&event), "+stays");
    let next = tokio::spawn(async move { events.next().await.map(|event| describe(&event)) });
    pass(Duration::from_secs(1)).await;
    assert!(!next.is_finished());
    create_pods(&server, &["woken"]);
    let next = tokio::time::timeout(LONG, next).await.expect("was not woken").unwrap();
    assert_eq!(next.as_deref(), Some("+woken"));
}

#[tokio::test(start_paused = true)]
async fn p9_c8_a_stream_that_is_not_polled_harms_nobody() {
    // One subscriber that was not polled stopped the root stream: of a hundred objects the store got five. Here it costs one pending
    // step per object, and nobody else notices.
    let server = ApiServer::new();
    let pods = live::<Pod>(&server, Options::default()).await;
    let mut idle = pods.events();
    let (_on, mut told) = notes(&pods);
    let all: Vec<String> = (0..100).map(|number| format!("pod-{number:03}")).collect();
    for name in &all {
        create_pods(&server, &[name]);
    }
    for name in &all {
        told.expect(&[&format!("+{name}")]).await;
    }
    for round in 0..20 {
        server.update(&with(pod("default", "pod-007"), "/metadata/labels/round", round.to_string())).unwrap();
        told.expect(&["~pod-007"]).await;
    }
    assert_eq!((pods.lister().len(), idle.pending()), (100, 100));
    for name in &all {
        let event = tokio::time::timeout(LONG, idle.next()).await.unwrap().unwrap();
        assert_eq!(describe(&event), format!("+{name}"));
        let newest = pods.lister().get_by_key(event.object().key()).unwrap();
        assert_eq!(event.object().version(), newest.version(), "the newest state, in one step");
    }
    assert_eq!(idle.pending(), 0);
}

/// Real threads: the handler blocks one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p9_c8_a_handler_that_is_stuck_harms_nobody_and_catches_up() {
    // As above, for a handler that does not come back from a call.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (release, stuck) = threads::channel::<()>();
    let (sender, mut slow) = mpsc::unbounded_channel();
    let on = pods.handler().blocking().on(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    });
    let (_other, mut told) = notes(&pods);
    pods.start();
    told.expect(&["+a initial"]).await;
    assert_eq!(tokio::time::timeout(LONG, slow.recv()).await.unwrap().unwrap(), "+a initial");
    for round in 0..50 {
        server.update(&with(pod("default", "a"), "/metadata/labels/round", round.to_string())).unwrap();
        told.expect(&["~a"]).await;
    }
    assert_eq!(on.pending(), 1, "one step per key");
    drop(release);
    assert_eq!(tokio::time::timeout(LONG, slow.recv()).await.unwrap().unwrap(), "~a");
    pods.shutdown(LONG).await.unwrap();
    assert_eq!(slow.recv().await, None);
}

/// Real threads: a reader and the writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p7_c5_readers_go_on_while_twenty_thousand_objects_are_swapped() {
    // A relist freed the old set under the store's write lock: with 20,000 pods readers stood still for half a second. Here readers
    // and the writer never wait for each other: a read always answers, and always from one whole state.
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
    let maps = live::<ConfigMap>(&server, Options::default()).await;
    let (lister, held, over) = (maps.lister(), maps.lister().snapshot(), Arc::new(AtomicBool::new(false)));
    let (first, second): (LabelSelector, LabelSelector) =
        ("round=1".parse().unwrap(), "round=2".parse().unwrap());
    let reader = std::thread::spawn({
        let (over, second) = (Arc::clone(&over), second.clone());
        move || {
            let mut seen_new = false;
            while !over.load(Ordering::SeqCst) || !seen_new {
                assert!(
                    lister.get("default", "map-00000").is_some()
                        && lister.get("default", "map-19999").is_some()
                );
                let state = lister.snapshot();
                let new = state.matching(&second).len();
                assert!(new == 0 || new == OBJECTS, "{new} of {OBJECTS}: half a relist");
                assert!(new == OBJECTS || !seen_new, "a state went back");
                seen_new = new == OBJECTS;
            }
        }
    });
    gap(&server, "configmaps", || {
        for number in 0..OBJECTS {
            server.update(&map(number, "2")).unwrap();
        }
    })
    .await;
    until(|| maps.lister().matching(&second).len() == OBJECTS).await;
    over.store(true, Ordering::SeqCst);
    reader.join().expect("what the reader saw");
    assert_eq!((held.len(), held.matching(&first).len()), (OBJECTS, OBJECTS), "a held state does not move");
    assert_eq!(maps.status().counters.replaces, 2);
}

#[tokio::test(start_paused = true)]
async fn p8_c2_a_relist_tells_what_has_vanished() {
    // A relist told nothing of objects that had vanished during the gap, so dependants never heard of a deletion. Here they are told
    // as deleted, with the last known state, and marked as inferred; what did not change is not told again.
    for options in [Options::default(), listing()] {
        let server = ApiServer::new();
        create_pods(&server, &["gone", "reborn", "same"]);
        let pods = live::<Pod>(&server, options).await;
        let (_on, mut told) = notes(&pods);
        let mut events = pods.handler().filter(|pod| pod.name() == "gone").events();
        told.expect(&["+gone initial", "+reborn initial", "+same initial"]).await;
        assert_eq!(describe(&events.next().await.unwrap()), "+gone initial");
        gap(&server, "pods", || {
            server.delete("v1", "pods", Some("default"), "gone").unwrap();
            server.delete("v1", "pods", Some("default"), "reborn").unwrap();
            create_pods(&server, &["reborn"]);
        })
        .await;
        // Deletions first (C5); another life is a deletion and an addition (C3).
        told.expect(&["-gone inferred", "-reborn inferred", "+reborn"]).await;
        let event = tokio::time::timeout(LONG, events.next()).await.unwrap().unwrap();
        let Event::Deleted { last, observed: false, .. } = &event else { unreachable!("{event:?}") };
        assert_eq!(last.typed().unwrap().spec.as_ref().unwrap().containers.len(), 1);
        assert!(told.is_empty());
    }
}

/// For objects that only JSON can spell.
fn in_json() -> Options {
    Options::default().protobuf(false)
}

#[tokio::test(start_paused = true)]
async fn p11_c9_an_object_that_does_not_decode_in_a_watch_is_told_and_kept() {
    // A watch event that did not decode was an empty API error, then skipped: the cache stayed at the older state without a word. Here
    // the newer state is cached and told, and whoever decodes it gets the error.
    let server = ApiServer::new();
    create_pods(&server, &["bad", "good"]);
    let pods = live::<Pod>(&server, in_json()).await;
    let (_on, mut told) = notes(&pods);
    told.expect(&["+bad initial", "+good initial"]).await;
    assert!(pods.lister().get("default", "bad").unwrap().typed().is_ok());
    let version = server.plant(&with(pod("default", "bad"), "/spec/containers", "none")).unwrap();
    create_pods(&server, &["next"]);
    told.expect(&["~bad", "+next"]).await;
    let bad = pods.lister().get("default", "bad").unwrap();
    assert_eq!(bad.version().as_str(), version["metadata"]["resourceVersion"]);
    let error = bad.typed().unwrap_err();
    assert_eq!((&*error.place, error.key.to_string().as_str()), ("spec.containers", "default/bad"));
    assert_eq!((bad.labels().get("app"), pods.metrics().decode_errors), (Some("web"), 1));
    assert!(pods.lister().get("default", "next").unwrap().typed().is_ok());
    assert_eq!((pods.status().state, pods.status().counters.failures), (State::Live, 0));
}

#[tokio::test(start_paused = true)]
async fn p12_c9_an_object_that_does_not_decode_in_a_list_fails_nothing_else() {
    // One item that did not decode failed the whole list, for ever. Here the rest is there, and so are the object's bytes.
    for options in [in_json(), listing().protobuf(false)] {
        let server = ApiServer::new();
        server.plant(&with(pod("default", "bad"), "/spec/containers", "none")).unwrap();
        create_pods(&server, &["good"]);
        let pods = live::<Pod>(&server, options).await;
        assert_eq!(names(&pods.lister().list()), ["bad", "good"]);
        let bad = pods.lister().get("default", "bad").unwrap();
        assert!(bad.typed().is_err());
        assert_eq!(bad.view::<serde_json::Value>().typed().unwrap()["spec"]["containers"], "none");
        assert!(pods.lister().get("default", "good").unwrap().typed().is_ok());
        assert_eq!((pods.status().counters.failures, pods.metrics().decode_errors), (0, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn p11_c9_an_object_whose_head_does_not_read_is_counted_and_named() {
    // The worse case of the above: not even the metadata reads, so there is nothing to cache. Here it is counted, reported and
    // named in the status; what the cache has says that it is stale; and the position moves on.
    let server = ApiServer::new();
    let heard = Heard::default();
    create_pods(&server, &["a"]);
    let pods = live::<Pod>(&server, heard.hook(in_json())).await;
    let (_on, mut told) = notes(&pods);
    told.expect(&["+a initial"]).await;
    server.create(&config_map("default", "bump", "1")).unwrap();
    let version = server.version().to_string();
    let headless = serde_json::json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
        "name": "a", "namespace": "default", "resourceVersion": version, "labels": 5}});
    // A bookmark brings the position up to here.
    pass(Duration::from_secs(61)).await;
    let _forged = disturb(&server, faults::raw_frame(frame("MODIFIED", &headless)).of("pods").times(1)).await;
    until(|| !pods.status().unreadable.is_empty()).await;
    let status = pods.status();
    assert_eq!(status.unreadable[0].0, Key::new("default", "a"));
    assert!(status.unreadable[0].1.contains("labels"), "{:?}", status.unreadable);
    assert_eq!((status.counters.unreadable, status.version.unwrap().as_str()), (1, &*version));
    assert!(heard.any(|problem| matches!(problem, Problem::Server(Report::Unreadable(_)))));
    assert!(pods.lister().get("default", "a").unwrap().is_stale());

    let watches = asked(&server, Verb::Watch, "pods").len();
    cut(&server);
    until(|| asked(&server, Verb::Watch, "pods").len() > watches).await;
    let from = asked(&server, Verb::Watch, "pods").pop().unwrap().parameter("resourceVersion");
    assert_eq!(from, Some(version), "the position moved on");
    server.plant(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    create_pods(&server, &["b"]);
    told.expect(&["~a", "+b"]).await;
    assert!(!pods.lister().get("default", "a").unwrap().is_stale());
    assert!(pods.status().unreadable.is_empty());
}

#[tokio::test(start_paused = true)]
async fn p15_c11_a_server_that_refuses_streaming_lists_is_listed_and_remembered() {
    // A refused streaming list was an error for ever. Here the set is listed, and the server is not asked again.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let refused = server.fault(faults::refuse_watch_list());
    let heard = Heard::default();
    let pods = live::<Pod>(&server, heard.hook(Options::default())).await;
    assert_eq!((refused.hits(), pods.lister().len()), (1, 1));
    assert!(heard.any(|problem| matches!(problem, Problem::Server(Report::WatchListAbandoned { .. }))));
    gap(&server, "pods", || create_pods(&server, &["b"])).await;
    until(|| pods.lister().len() == 2).await;
    assert_eq!((refused.hits(), pods.status().counters.watch_lists), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn p15_c11_a_streaming_list_that_never_ends_is_given_up_and_remembered() {
    // A server that streams initial events and never says that they are over gives no error to fall back on. Here progress is asked for.
    let server = ApiServer::new();
    create_pods(&server, &["a", "b"]);
    let endless = server.fault(faults::endless_watch_list());
    let pods = SharedInformer::<Pod>::new(server.client());
    pods.start();
    let begun = tokio::time::Instant::now();
    until(|| matches!(pods.status().state, State::Listing { done: 2, .. })).await;
    assert!(!pods.lister().has_synced() && pods.lister().is_empty(), "half a set is no set (C5)");
    pods.wait_for_sync(LONG).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(names(&pods.lister().list()), ["a", "b"]);
    gap(&server, "pods", || create_pods(&server, &["c"])).await;
    until(|| pods.lister().len() == 3).await;
    assert_eq!(endless.hits(), 1);
}

#[tokio::test(start_paused = true)]
async fn p16_c11_a_410_on_opening_a_watch_is_a_relist() {
    // An HTTP 410 on opening a watch was retried with the same version for ever. Here the set is asked for anew, and nothing is lost.
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let gone = server.fault(faults::answer(410).on(Verb::Watch).times(3));
    let heard = Heard::default();
    let pods = live::<Pod>(&server, heard.hook(listing())).await;
    let (_on, mut told) = notes(&pods);
    told.expect(&["+a initial"]).await;
    create_pods(&server, &["b"]);
    told.expect(&["+b"]).await;
    until(|| pods.status().state == State::Live).await;
    assert_eq!((gone.hits(), pods.status().counters.expired), (3, 3));
    assert_eq!(asked(&server, Verb::List, "pods").len(), 4);
    assert!(heard.any(|problem| problem.trouble() == Some(Trouble::Expired)));
    create_pods(&server, &["c"]);
    told.expect(&["+c"]).await;
}

#[tokio::test(start_paused = true)]
async fn p16_c11_a_410_on_every_watch_is_no_hot_loop() {
    let server = ApiServer::new();
    create_pods(&server, &["a"]);
    let gone = server.fault(faults::answer(410).on(Verb::Watch));
    let pods = live::<Pod>(&server, listing()).await;
    pass(LONG).await;
    assert!((10..100).contains(&gone.hits()), "{} watches in ten minutes", gone.hits());
    create_pods(&server, &["b"]);
    until(|| pods.lister().len() == 2).await;
}
