//! One informer, end to end, against a server that the test plays: what handlers are told, what readers see, how waits end.
//! Each test quotes the promise it is about.
#![allow(clippy::unwrap_used)]

#[path = "common/script.rs"]
mod script;

use informer::{Event, Index, Key, Options, Registration, SharedInformer, State, WatchListPolicy};
use k8s_openapi::api::core::v1::Pod;
use script::{Server, pod, pod_with_uid, script};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

const LONG: Duration = Duration::from_mins(10);

fn informer() -> (SharedInformer<Pod>, Server) {
    informer_with(&Options::default())
}

fn informer_with(options: &Options) -> (SharedInformer<Pod>, Server) {
    let (source, server) = script();
    (SharedInformer::with_source(source, options.clone()), server)
}

/// A handler that writes down what it is told, and the notes.
fn notes(pods: &SharedInformer<Pod>) -> (Registration, Notes) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let registration = pods.on(move |event| {
        let _ = sender.send(describe(&event));
    });
    (registration, Notes(receiver))
}

struct Notes(mpsc::UnboundedReceiver<String>);

impl Notes {
    async fn expect(&mut self, expected: &[&str]) {
        for line in expected {
            let note = tokio::time::timeout(LONG, self.0.recv()).await.expect("nothing was told");
            assert_eq!(note.as_deref(), Some(*line));
        }
    }

    fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

fn describe(event: &Event<Pod>) -> String {
    match event {
        Event::Added { object, initial, .. } => {
            format!("+ {}@{}{}", object.name(), object.version(), if *initial { " initial" } else { "" })
        }
        Event::Updated { old, new, .. } => format!("~ {}@{}->{}", new.name(), old.version(), new.version()),
        Event::Deleted { last, observed, .. } => {
            format!(
                "- {}@{} {}",
                last.name(),
                last.version(),
                if *observed { "observed" } else { "inferred" }
            )
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c2_everything_at_sync_is_added_and_every_later_change_is_told() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    notes.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    watch.frame("ADDED", &pod("c", 6));
    watch.frame("MODIFIED", &pod("a", 7));
    watch.frame("DELETED", &pod("b", 8));
    notes.expect(&["+ c@6", "~ a@1->7", "- b@8 observed"]).await;
    assert_eq!(pods.lister().version().unwrap().as_str(), "8");
}

#[tokio::test(start_paused = true)]
async fn c2_c3_what_happened_in_a_gap_is_told_as_if_it_had_been_seen() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("gone", 1), pod("same", 2), pod("changed", 3), pod("reborn", 4)], 5).await;
    notes
        .expect(&["+ changed@3 initial", "+ gone@1 initial", "+ reborn@4 initial", "+ same@2 initial"])
        .await;
    watch.expire();
    let relist = server.expect("watch sendInitialEvents=true&resourceVersion=5").await.open();
    let now = [pod("same", 2), pod("changed", 8), pod_with_uid("reborn", 7, "another"), pod("new", 9)];
    for pod in &now {
        relist.frame("ADDED", pod);
    }
    relist.end_initial(9);
    // Deletions first, then the rest in key order (C5); what did not change is not told.
    notes.expect(&["- gone@1 inferred", "- reborn@4 inferred"]).await;
    notes.expect(&["~ changed@3->8", "+ new@9", "+ reborn@7"]).await;
    assert_eq!(pods.status().counters.expired, 1);
}

/// Real threads: the cache and the handlers race with the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_the_cache_holds_a_change_before_its_handler_runs() {
    let (pods, mut server) = informer();
    let lister = pods.lister();
    let (sender, mut behind) = mpsc::unbounded_channel();
    let _on = pods.on(move |event| {
        let cached = lister.get_by_key(event.object().key());
        let fine = match &event {
            // Deleted, or there again in a later life.
            Event::Deleted { last, .. } => {
                cached.is_none_or(|cached| !cached.version().is_before(last.version()))
            }
            Event::Added { .. } | Event::Updated { .. } if cached.is_none() => {
                let newest = lister.version();
                newest.is_some_and(|newest| event.object().version().is_before(&newest))
            }
            _ => cached.is_some_and(|cached| !cached.version().is_before(event.object().version())),
        };
        let _ = sender.send(fine);
    });
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    assert!(behind.recv().await.unwrap() && behind.recv().await.unwrap());
    for version in 6..500 {
        watch.frame("MODIFIED", &pod("a", version));
        watch.frame(if version % 2 == 0 { "DELETED" } else { "ADDED" }, &pod("b", version));
        if version % 7 == 0 {
            assert!(behind.recv().await.unwrap());
        }
    }
    watch.frame("ADDED", &pod("last", 500));
    pods.shutdown(LONG).await.unwrap();
    while let Some(fine) = behind.recv().await {
        assert!(fine);
    }
}

#[tokio::test(start_paused = true)]
async fn c5_a_snapshot_does_not_move() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    let before = pods.lister().snapshot();
    let (_on, mut notes) = notes(&pods);
    watch.frame("ADDED", &pod("b", 6));
    notes.expect(&["+ a@1 initial", "+ b@6"]).await;
    assert_eq!((before.len(), before.version().unwrap().as_str()), (1, "5"));
    assert_eq!((pods.lister().len(), pods.lister().version().unwrap().as_str()), (2, "6"));
}

#[tokio::test(start_paused = true)]
async fn c6_a_late_handler_gets_the_set_then_what_follows() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    let (late, mut told) = notes(&pods);
    watch.frame("MODIFIED", &pod("b", 6));
    assert!(late.synced().await);
    told.expect(&["+ a@1 initial", "+ b@2 initial", "~ b@2->6"]).await;
    late.remove().await;
    watch.frame("MODIFIED", &pod("b", 7));
    let (_other, mut other) = notes(&pods);
    other.expect(&["+ a@1 initial", "+ b@7 initial"]).await;
    assert!(told.is_empty(), "no call after removal returned");
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_be_removed_before_the_start() {
    let (pods, mut server) = informer();
    let (early, mut told) = notes(&pods);
    early.remove().await;
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    assert!(told.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c7_waiting_ends_at_once_where_it_is_useless() {
    let not_served = |state: &State| matches!(state, State::NotServed { .. });
    let forbidden = |state: &State| matches!(state, State::Forbidden { .. });
    let status = r#"{"kind":"Status","reason":"Forbidden","message":"pods is forbidden","code":403}"#;
    for (code, body, expected) in [
        (403, status, &forbidden as &dyn Fn(&State) -> bool),
        (404, "404 page not found\n", &not_served),
        (404, r#"{"kind":"Status","reason":"NotFound","code":404}"#, &not_served),
    ] {
        let (pods, mut server) = informer();
        pods.start();
        server.next().await.reply(code, body);
        server.expect("list limit=500&resourceVersion=0").await.reply(code, body);
        let begun = tokio::time::Instant::now();
        let error = pods.wait_for_sync(LONG).await.unwrap_err();
        assert!(expected(&error.state), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1));
        // It goes on regardless, and comes alive.
        let _watch = server.sync(&[], 5).await;
        pods.wait_for_sync(LONG).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c7_at_the_deadline_the_state_says_why() {
    let (pods, mut server) = informer();
    pods.start();
    let errors = tokio::spawn(async move {
        loop {
            server.next().await.reply(500, "");
        }
    });
    let error = pods.wait_for_sync(Duration::from_secs(20)).await.unwrap_err();
    assert!(matches!(&error.state, State::BackingOff { because, .. } if &**because == "500"), "{error}");
    assert!(
        error.to_string().starts_with("pods in all namespaces: not synced after 20s: backing off"),
        "{error}"
    );
    errors.abort();
}

#[tokio::test(start_paused = true)]
async fn c7_what_is_transient_is_waited_through() {
    let (pods, mut server) = informer_with(&Options::default().watch_list(WatchListPolicy::Never));
    pods.start();
    server.next().await.reply(503, "");
    server.next().await.reply(200, "<html>proxy</html>");
    server.expect("list limit=500&resourceVersion=0").await.list(&[pod("a", 1)], 5);
    pods.wait_for_sync(LONG).await.unwrap();
    let _watch = server.expect("watch resourceVersion=5").await.open();
    assert_eq!(pods.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c9_a_panicking_handler_goes_on_and_hurts_nobody_else() {
    let (pods, mut server) = informer();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&seen);
    let shaky = pods.on(move |event| {
        note.lock().unwrap().push(event.object().name().to_owned());
        assert_ne!(event.object().name(), "a", "panics on a");
    });
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    notes.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    assert!(shaky.synced().await);
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
    assert_eq!(shaky.panics(), 1);
}

#[tokio::test(start_paused = true)]
async fn c9_a_bad_object_is_an_error_for_whoever_reads_it() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let mut bad = pod("bad", 1);
    bad["spec"]["containers"] = "none".into();
    let watch = server.sync(&[bad, pod("good", 2)], 5).await;
    notes.expect(&["+ bad@1 initial", "+ good@2 initial"]).await;
    let error = pods.lister().get_by_key(&Key::new("ns", "bad")).unwrap().typed().unwrap_err();
    assert_eq!((error.key.to_string().as_str(), &*error.place), ("ns/bad", "spec.containers"));

    // A newer state without a version cannot be kept: the older one stays, and says that it is stale.
    let mut worse = pod("good", 6);
    worse["metadata"]["resourceVersion"] = serde_json::Value::Null;
    watch.frame("MODIFIED", &worse);
    watch.frame("ADDED", &pod("next", 7));
    notes.expect(&["+ next@7"]).await;
    let good = pods.lister().get_by_key(&Key::new("ns", "good")).unwrap();
    assert!(good.is_stale());
    assert_eq!(pods.status().unreadable[0].0, Key::new("ns", "good"));
    watch.frame("MODIFIED", &pod("good", 8));
    notes.expect(&["~ good@2->8"]).await;
    assert!(!pods.lister().get_by_key(&Key::new("ns", "good")).unwrap().is_stale());
    assert!(pods.status().unreadable.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c9_a_source_that_panics_has_failed_once_and_is_asked_again() {
    struct Broken;
    impl informer::source::Source for Broken {
        fn list(&self, _: informer::ListRequest) -> informer::source::Answer {
            panic!("broken source")
        }
        fn watch(&self, _: informer::WatchRequest) -> informer::source::Answer {
            panic!("broken source")
        }
    }
    let pods = SharedInformer::<Pod>::with_source(Broken, Options::default());
    pods.start();
    let error = pods.wait_for_sync(LONG).await.unwrap_err();
    assert!(
        matches!(&error.state, State::BackingOff { because, .. } if because.contains("panicked")),
        "{error}"
    );
    assert!(pods.status().counters.failures > 3);
    pods.shutdown(LONG).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn indexes_answer_before_and_after_the_start() {
    let (pods, mut server) = informer();
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    let by_app = pods.add_index(Index::label("app")).unwrap();
    let by_volumes = pods
        .add_index(Index::by("containers", |pod: &informer::Object<Pod>| {
            pod.typed().ok().and_then(|pod| Some(pod.spec.as_ref()?.containers.len().to_string()))
        }))
        .unwrap();
    let names = |pods: Vec<informer::Object<Pod>>| -> Vec<String> {
        pods.iter().map(|pod| pod.name().to_owned()).collect()
    };
    let lister = pods.lister();
    assert_eq!(names(lister.by(&by_node, "node-2")), ["b"]);
    assert_eq!(names(lister.by(&by_app, "a")), ["a"]);
    assert_eq!(names(lister.by(&by_volumes, "0")), ["a", "b"]);
    let (_on, mut notes) = notes(&pods);
    watch.frame("MODIFIED", &pod("a", 7));
    notes.expect(&["+ a@1 initial", "+ b@2 initial", "~ a@1->7"]).await;
    assert_eq!(lister.keys_by(&by_node, "node-7"), [Key::new("ns", "a")]);
    assert_eq!(lister.values_of(&by_node).iter().map(|v| &**v).collect::<Vec<_>>(), ["node-2", "node-7"]);
    assert!(pods.add_index(Index::field("spec..nodeName")).is_err());
}

#[tokio::test(start_paused = true)]
async fn c1_a_restored_server_is_believed_and_counted() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 40)], 50).await;
    notes.expect(&["+ a@40 initial"]).await;
    watch.expire();
    let too_large = r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
    server.expect("watch sendInitialEvents=true&resourceVersion=50").await.reply(504, too_large);
    let watch = server.sync(&[pod("a", 20)], 30).await;
    notes.expect(&["~ a@40->20"]).await;
    watch.frame("MODIFIED", &pod("a", 31));
    notes.expect(&["~ a@20->31"]).await;
    assert_eq!(pods.status().counters.rewinds, 1);
}

#[tokio::test(start_paused = true)]
async fn c10_shutdown_tells_what_was_received_and_then_nothing() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    notes.expect(&["+ a@1 initial"]).await;
    pods.shutdown(LONG).await.unwrap();
    assert!(watch.is_abandoned());
    watch.frame("ADDED", &pod("b", 6));
    assert_eq!(notes.0.recv().await, None, "the handler is gone");
    assert_eq!(pods.status().state, State::Stopped);
    assert_eq!(pods.lister().len(), 1, "the last state can still be read");
    let state = pods.wait_for_sync(LONG).await.unwrap_err().state;
    assert_eq!(state, State::Stopped, "nobody keeps it current any more");
}

#[tokio::test(start_paused = true)]
async fn the_last_handle_that_goes_ends_the_informer() {
    let (pods, mut server) = informer();
    pods.on(|_| {}).detach();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    let lister = pods.lister();
    let snapshot = lister.snapshot();
    drop(pods);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!watch.is_abandoned(), "the lister is a handle too");
    drop(lister);
    while !watch.is_abandoned() {
        tokio::task::yield_now().await;
    }
    assert_eq!(snapshot.len(), 1, "a snapshot needs nobody");
}

#[tokio::test(start_paused = true)]
async fn typed_raw_and_dynamic_views_are_one_object() {
    let (pods, mut server) = informer();
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    let object = pods.lister().namespace("ns").get("a").unwrap();
    let typed = object.typed().unwrap();
    let dynamic = object.view::<serde_json::Value>().typed().unwrap();
    assert_eq!(typed.spec.as_ref().unwrap().node_name.as_deref(), dynamic["spec"]["nodeName"].as_str());
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&object.json().unwrap()).unwrap(), *dynamic);
    assert!(dynamic["metadata"].get("managedFields").is_none());
    let meta: kube::core::ObjectMeta = object.metadata().unwrap();
    assert_eq!(meta.name.as_deref(), Some("a"));
    assert!(informer::Typed::ptr_eq(&typed, &object.typed().unwrap()), "shared while held");
    assert_eq!(format!("{object:?}"), "ns/a@1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_removal_is_final_whatever_is_going_on() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    for round in 0..50 {
        let removed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let late = Arc::clone(&removed);
        let on = pods
            .on(move |_| assert!(!late.load(std::sync::atomic::Ordering::SeqCst), "called after removal"));
        watch.frame("MODIFIED", &pod("a", 10 + round));
        assert!(on.synced().await);
        watch.frame("MODIFIED", &pod("a", 1000 + round));
        on.remove().await;
        removed.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn c7_everybody_who_waits_is_woken() {
    // P3: of eight tasks that wait for one store, a peer wakes one.
    let (pods, mut server) = informer();
    pods.start();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let pods = pods.clone();
            tokio::spawn(async move { pods.wait_for_sync(LONG).await })
        })
        .collect();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    for task in waiting {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c7_a_forgotten_start_is_named() {
    let (pods, _server) = informer();
    let error = pods.wait_for_sync(Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(error.to_string(), "pods in all namespaces: not synced after 3s: not started (call start)");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_a_stuck_handler_delays_nobody_and_costs_one_step_per_key() {
    // P9: one subscriber that is not polled stops a peer's whole store.
    let (pods, mut server) = informer();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (sender, mut told) = mpsc::unbounded_channel();
    let slow = pods.on(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    });
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    notes.expect(&["+ a@1 initial"]).await;
    assert_eq!(told.recv().await.unwrap(), "+ a@1 initial");
    let mut last = 1;
    for version in 6..60 {
        watch.frame("MODIFIED", &pod("a", version));
        notes.expect(&[&format!("~ a@{last}->{version}")]).await;
        last = version;
    }
    assert_eq!(slow.pending(), 1);
    release.send(()).unwrap();
    assert_eq!(told.recv().await.unwrap(), "~ a@1->59");
    drop(release);
    pods.shutdown(LONG).await.unwrap();
}

/// The pump obeyed as many commands as the runtime allows in one go. It was then put aside with its thread, which one of the new handlers blocked next: the
/// others were told nothing until that was over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_of_many_new_handlers_one_that_blocks_delays_nobody() {
    let (pods, mut server) = informer();
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();

    let deadline = Duration::from_secs(30);
    // One thread is taken until a handler has blocked the other.
    let ((taken, is_taken), (blocked, is_blocked)) = (channel(), channel());
    let first = tokio::spawn(async move {
        taken.send(()).unwrap();
        is_blocked.recv_timeout(deadline)
    });
    is_taken.recv().unwrap();
    let ((last_told, wait), (sender, mut waited)) = (channel(), mpsc::unbounded_channel());
    let (wait, adding) = (Arc::new(Mutex::new(Some(wait))), pods.clone());
    tokio::spawn(async move {
        for number in 0..200 {
            let (wait, blocked, sender) = (wait.clone(), blocked.clone(), sender.clone());
            let last_told = (number == 199).then(|| last_told.clone());
            let told = move |_| {
                // Only the first that is called waits.
                let wait = wait.lock().unwrap().take();
                if let Some(wait) = wait {
                    blocked.send(()).unwrap();
                    sender.send(wait.recv_timeout(deadline)).unwrap();
                }
                if let Some(last_told) = &last_told {
                    last_told.send(()).unwrap();
                }
            };
            adding.on(told).detach();
        }
    });
    assert_eq!(waited.recv().await, Some(Ok(())), "the last one was told meanwhile");
    assert_eq!(first.await.unwrap(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_shutdown_says_when_a_handler_does_not_return_and_may_be_asked_again() {
    let (pods, mut server) = informer();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (sender, mut told) = mpsc::unbounded_channel();
    pods.on(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    })
    .detach();
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    assert_eq!(told.recv().await.unwrap(), "+ a@1 initial");
    for _ in 0..2 {
        let error = pods.shutdown(Duration::from_millis(20)).await.unwrap_err();
        assert!(error.to_string().contains("a handler is still running"), "{error}");
    }
    drop(release);
    pods.shutdown(Duration::MAX).await.unwrap();
    assert_eq!(told.recv().await, None, "what was pending when time was up is dropped");
}

#[tokio::test(start_paused = true)]
async fn c10_what_is_pending_at_shutdown_is_told() {
    let (pods, mut server) = informer();
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    pods.shutdown(LONG).await.unwrap();
    notes.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    assert_eq!(notes.0.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_is_never_called_is_never_synced_and_says_so() {
    let (pods, _server) = informer();
    let early = pods.on(|_| {});
    pods.shutdown(LONG).await.unwrap();
    assert!(!early.synced().await);
    let late = pods.on(|_| {});
    assert!(!late.synced().await);
    late.remove().await;
}

#[tokio::test(start_paused = true)]
async fn c9_a_handler_that_panics_when_dropped_hurts_nobody() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let (pods, mut server) = informer();
    let bomb = Bomb;
    let never = pods.on(move |_| {
        let _held = &bomb;
    });
    never.remove().await;
    let (_on, mut notes) = notes(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    watch.frame("ADDED", &pod("b", 6));
    notes.expect(&["+ a@1 initial", "+ b@6"]).await;
}

#[tokio::test(start_paused = true)]
async fn c9_a_broken_index_function_hurts_only_its_index() {
    let (pods, mut server) = informer();
    let shaky = pods
        .add_index(Index::by("shaky", |pod: &informer::Object<Pod>| {
            assert_ne!(pod.name(), "a", "panics on a");
            Some(pod.name().to_owned())
        }))
        .unwrap();
    let by_app = pods.add_index(Index::label("app")).unwrap();
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(LONG).await.unwrap();
    assert_eq!(pods.lister().keys_by(&by_app, "a"), [Key::new("ns", "a")]);
    assert_eq!(pods.lister().keys_by(&shaky, "b"), [Key::new("ns", "b")]);
    assert!(pods.lister().keys_by(&shaky, "a").is_empty());
    assert_eq!(shaky.failures(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_was_synced_stays_so() {
    let (pods, mut server) = informer();
    let (on, mut notes) = notes(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    notes.expect(&["+ a@1 initial"]).await;
    assert!(on.synced().await);
    pods.shutdown(LONG).await.unwrap();
    assert!(on.synced().await);
}
