//! One informer end to end against a server played by the test: delivered events, reads, ends of waits. Test
//! names contain the number of the guarantee.
#![allow(clippy::unwrap_used)]

use crate::script::{Server, pod, pod_with_uid, script};
use informer::source::WatchListPolicy;
use informer::status::InformerState;
use informer::{Event, Index, InformerOptions, Key, Registration, SharedInformer};
use k8s_openapi::api::core::v1::Pod;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

const TIMEOUT: Duration = Duration::from_secs(600);

fn informer() -> (SharedInformer<Pod>, Server) {
    informer_with(&InformerOptions::default())
}

fn informer_with(options: &InformerOptions) -> (SharedInformer<Pod>, Server) {
    let (source, server) = script();
    (SharedInformer::with_source(source, options.clone()), server)
}

/// Adds a handler that logs its events.
fn log_events(pods: &SharedInformer<Pod>) -> (Registration, EventLog) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let registration = pods.on_event(move |event| {
        let _ = sender.send(describe(&event));
    });
    (registration, EventLog(receiver))
}

struct EventLog(mpsc::UnboundedReceiver<String>);

impl EventLog {
    async fn expect(&mut self, expected: &[&str]) {
        for line in expected {
            let event = tokio::time::timeout(TIMEOUT, self.0.recv()).await.expect("no event was delivered");
            assert_eq!(event.as_deref(), Some(*line));
        }
    }

    fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

fn describe(event: &Event<Pod>) -> String {
    match event {
        Event::Added { object, initial, .. } => {
            format!(
                "+ {}@{}{}",
                object.name(),
                object.resource_version(),
                if *initial { " initial" } else { "" }
            )
        }
        Event::Updated { old, new, .. } => {
            format!("~ {}@{}->{}", new.name(), old.resource_version(), new.resource_version())
        }
        Event::Deleted { last, observed, .. } => {
            format!(
                "- {}@{} {}",
                last.name(),
                last.resource_version(),
                if *observed { "observed" } else { "inferred" }
            )
        }
    }
}

#[tokio::test(start_paused = true)]
async fn c2_initial_list_is_added_and_every_later_change_is_delivered() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    log.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    watch.frame("ADDED", &pod("c", 6));
    watch.frame("MODIFIED", &pod("a", 7));
    watch.frame("DELETED", &pod("b", 8));
    log.expect(&["+ c@6", "~ a@1->7", "- b@8 observed"]).await;
    assert_eq!(pods.lister().resource_version().unwrap().as_str(), "8");
}

#[tokio::test(start_paused = true)]
async fn c2_c3_changes_of_a_gap_are_delivered_as_if_observed() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("gone", 1), pod("same", 2), pod("changed", 3), pod("reborn", 4)], 5).await;
    log.expect(&["+ changed@3 initial", "+ gone@1 initial", "+ reborn@4 initial", "+ same@2 initial"]).await;
    watch.expire();
    let relist = server.expect("watch sendInitialEvents=true&resourceVersion=5").await.open();
    let now = [pod("same", 2), pod("changed", 8), pod_with_uid("reborn", 7, "another"), pod("new", 9)];
    for pod in &now {
        relist.frame("ADDED", pod);
    }
    relist.end_initial(9);
    // Deletions first, then the rest in key order (C5); unchanged objects are not delivered.
    log.expect(&["- gone@1 inferred", "- reborn@4 inferred"]).await;
    log.expect(&["~ changed@3->8", "+ new@9", "+ reborn@7"]).await;
    assert_eq!(pods.status().reflector.expired, 1);
}

/// Uses real threads: the cache and the handlers race with the reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_change_is_cached_before_its_handler_runs() {
    let (pods, mut server) = informer();
    let lister = pods.lister();
    let (sender, mut behind) = mpsc::unbounded_channel();
    let _on = pods.on_event(move |event| {
        let cached = lister.get_by_key(event.object().key());
        let fine = match &event {
            // Deleted, or present again as a later incarnation.
            Event::Deleted { last, .. } => {
                cached.is_none_or(|cached| !cached.resource_version().is_before(last.resource_version()))
            }
            Event::Added { .. } | Event::Updated { .. } if cached.is_none() => {
                let newest = lister.resource_version();
                newest.is_some_and(|newest| event.object().resource_version().is_before(&newest))
            }
            _ => cached.is_some_and(|cached| {
                !cached.resource_version().is_before(event.object().resource_version())
            }),
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
    pods.shutdown(TIMEOUT).await.unwrap();
    while let Some(fine) = behind.recv().await {
        assert!(fine);
    }
}

#[tokio::test(start_paused = true)]
async fn c5_snapshot_does_not_change() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let before = pods.lister().snapshot();
    let (_on, mut log) = log_events(&pods);
    watch.frame("ADDED", &pod("b", 6));
    log.expect(&["+ a@1 initial", "+ b@6"]).await;
    assert_eq!((before.len(), before.resource_version().unwrap().as_str()), (1, "5"));
    assert_eq!((pods.lister().len(), pods.lister().resource_version().unwrap().as_str()), (2, "6"));
}

#[tokio::test(start_paused = true)]
async fn c6_late_handler_receives_the_initial_list_then_changes() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let (late, mut delivered) = log_events(&pods);
    watch.frame("MODIFIED", &pod("b", 6));
    assert!(late.wait_for_sync().await);
    delivered.expect(&["+ a@1 initial", "+ b@2 initial", "~ b@2->6"]).await;
    late.remove().await;
    watch.frame("MODIFIED", &pod("b", 7));
    let (_other, mut other) = log_events(&pods);
    other.expect(&["+ a@1 initial", "+ b@7 initial"]).await;
    assert!(delivered.is_empty(), "no call after removal returned");
}

#[tokio::test(start_paused = true)]
async fn handler_can_be_removed_before_start() {
    let (pods, mut server) = informer();
    let (early, mut delivered) = log_events(&pods);
    early.remove().await;
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert!(delivered.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c7_wait_for_sync_fails_immediately_if_forbidden_or_not_served() {
    let not_served = |state: &InformerState| matches!(state, InformerState::NotServed { .. });
    let forbidden = |state: &InformerState| matches!(state, InformerState::Forbidden { .. });
    let status = r#"{"kind":"Status","reason":"Forbidden","message":"pods is forbidden","code":403}"#;
    for (code, body, expected) in [
        (403, status, &forbidden as &dyn Fn(&InformerState) -> bool),
        (404, "404 page not found\n", &not_served),
        (404, r#"{"kind":"Status","reason":"NotFound","code":404}"#, &not_served),
    ] {
        let (pods, mut server) = informer();
        pods.start();
        server.next().await.reply(code, body);
        server.expect("list limit=500&resourceVersion=0").await.reply(code, body);
        let begun = tokio::time::Instant::now();
        let error = pods.wait_for_sync(TIMEOUT).await.unwrap_err();
        assert!(expected(&error.informers[0].state), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(1));
        // The informer retries and becomes live.
        let _watch = server.sync(&[], 5).await;
        pods.wait_for_sync(TIMEOUT).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c7_timeout_error_contains_the_state() {
    let (pods, mut server) = informer();
    pods.start();
    let errors = tokio::spawn(async move {
        loop {
            server.next().await.reply(500, "");
        }
    });
    let error = pods.wait_for_sync(Duration::from_secs(20)).await.unwrap_err();
    assert!(
        matches!(&error.informers[0].state, InformerState::BackingOff { failure, .. } if failure.message() == "500"),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .starts_with("wait for sync: timed out after 20s: pods in all namespaces: backing off"),
        "{error}"
    );
    errors.abort();
}

#[tokio::test(start_paused = true)]
async fn c7_wait_for_sync_outlasts_transient_failures() {
    let (pods, mut server) = informer_with(&InformerOptions::default().watch_list(WatchListPolicy::Never));
    pods.start();
    server.next().await.reply(503, "");
    server.next().await.reply(200, "<html>proxy</html>");
    server.expect("list limit=500&resourceVersion=0").await.list(&[pod("a", 1)], 5);
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let _watch = server.expect("watch resourceVersion=5").await.open();
    assert_eq!(pods.lister().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_handler_continues_and_affects_no_other() {
    let (pods, mut server) = informer();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    let shaky = pods.on_event(move |event| {
        record.lock().unwrap().push(event.object().name().to_owned());
        assert_ne!(event.object().name(), "a", "intended panic for a");
    });
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    log.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    assert!(shaky.wait_for_sync().await);
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
    assert_eq!(shaky.panics(), 1);
}

#[tokio::test(start_paused = true)]
async fn c9_invalid_object_is_an_error_on_decoding() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let mut invalid = pod("bad", 1);
    invalid["spec"]["containers"] = "none".into();
    let watch = server.sync(&[invalid, pod("good", 2)], 5).await;
    log.expect(&["+ bad@1 initial", "+ good@2 initial"]).await;
    let error = pods.lister().get_by_key(&Key::new("ns", "bad")).unwrap().typed().unwrap_err();
    assert_eq!((error.key.to_string().as_str(), &*error.field_path), ("ns/bad", "spec.containers"));

    // A newer state without a version cannot be cached: the older one stays and is marked as stale.
    let mut without_version = pod("good", 6);
    without_version["metadata"]["resourceVersion"] = serde_json::Value::Null;
    watch.frame("MODIFIED", &without_version);
    watch.frame("ADDED", &pod("next", 7));
    log.expect(&["+ next@7"]).await;
    let good = pods.lister().get_by_key(&Key::new("ns", "good")).unwrap();
    assert!(good.is_stale());
    assert_eq!(pods.status().unreadable_objects[0].0, Key::new("ns", "good"));
    watch.frame("MODIFIED", &pod("good", 8));
    log.expect(&["~ good@2->8"]).await;
    assert!(!pods.lister().get_by_key(&Key::new("ns", "good")).unwrap().is_stale());
    assert!(pods.status().unreadable_objects.is_empty());
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_source_is_a_failure_and_is_retried() {
    struct Broken;
    impl informer::source::Source for Broken {
        fn list(&self, _: informer::source::ListRequest) -> informer::source::ResponseFuture {
            panic!("broken source")
        }
        fn watch(&self, _: informer::source::WatchRequest) -> informer::source::ResponseFuture {
            panic!("broken source")
        }
    }
    let pods = SharedInformer::<Pod>::with_source(Broken, InformerOptions::default());
    pods.start();
    let error = pods.wait_for_sync(TIMEOUT).await.unwrap_err();
    assert!(
        matches!(&error.informers[0].state, InformerState::BackingOff { failure, .. } if failure.message().contains("panicked")),
        "{error}"
    );
    assert!(pods.status().reflector.failures > 3);
    pods.shutdown(TIMEOUT).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn indexes_work_before_and_after_start() {
    let (pods, mut server) = informer();
    let by_node = pods.add_index(Index::field("spec.nodeName")).unwrap();
    pods.start();
    let watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let by_app = pods.add_index(Index::label("app")).unwrap();
    let by_volumes = pods
        .add_index(Index::from_fn("containers", |pod: &informer::Object<Pod>| {
            pod.typed().ok().and_then(|pod| Some(pod.spec.as_ref()?.containers.len().to_string()))
        }))
        .unwrap();
    let names = |pods: Vec<informer::Object<Pod>>| -> Vec<String> {
        pods.iter().map(|pod| pod.name().to_owned()).collect()
    };
    let lister = pods.lister();
    assert_eq!(names(lister.by_index(&by_node, "node-2")), ["b"]);
    assert_eq!(names(lister.by_index(&by_app, "a")), ["a"]);
    assert_eq!(names(lister.by_index(&by_volumes, "0")), ["a", "b"]);
    let (_on, mut log) = log_events(&pods);
    watch.frame("MODIFIED", &pod("a", 7));
    log.expect(&["+ a@1 initial", "+ b@2 initial", "~ a@1->7"]).await;
    assert_eq!(lister.keys_by_index(&by_node, "node-7"), [Key::new("ns", "a")]);
    assert_eq!(lister.index_values(&by_node).iter().map(|v| &**v).collect::<Vec<_>>(), ["node-2", "node-7"]);
    assert!(pods.add_index(Index::field("spec..nodeName")).is_err());
}

#[tokio::test(start_paused = true)]
async fn c1_restored_server_is_followed_and_counted() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 40)], 50).await;
    log.expect(&["+ a@40 initial"]).await;
    watch.expire();
    let too_large = r#"{"kind":"Status","code":504,"reason":"Timeout","details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
    server.expect("watch sendInitialEvents=true&resourceVersion=50").await.reply(504, too_large);
    let watch = server.sync(&[pod("a", 20)], 30).await;
    log.expect(&["~ a@40->20"]).await;
    watch.frame("MODIFIED", &pod("a", 31));
    log.expect(&["~ a@20->31"]).await;
    assert_eq!(pods.status().reflector.rewinds, 1);
}

#[tokio::test(start_paused = true)]
async fn c10_shutdown_delivers_received_events_and_then_nothing() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    log.expect(&["+ a@1 initial"]).await;
    pods.shutdown(TIMEOUT).await.unwrap();
    assert!(watch.is_abandoned());
    watch.frame("ADDED", &pod("b", 6));
    assert_eq!(log.0.recv().await, None, "the handler was dropped");
    assert_eq!(pods.status().state, InformerState::Stopped);
    assert_eq!(pods.lister().len(), 1, "the last state can still be read");
    let state = pods.wait_for_sync(TIMEOUT).await.unwrap_err().informers[0].state.clone();
    assert_eq!(state, InformerState::Stopped, "the cache is not updated any more");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_ends_the_informer() {
    let (pods, mut server) = informer();
    pods.on_event(|_| {}).detach();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
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
    assert_eq!(snapshot.len(), 1, "a snapshot needs no informer");
}

#[tokio::test(start_paused = true)]
async fn typed_raw_and_dynamic_views_share_one_object() {
    let (pods, mut server) = informer();
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    let object = pods.lister().namespace("ns").get("a").unwrap();
    let typed = object.typed().unwrap();
    let dynamic = object.cast::<serde_json::Value>().typed().unwrap();
    assert_eq!(typed.spec.as_ref().unwrap().node_name.as_deref(), dynamic["spec"]["nodeName"].as_str());
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&object.to_json().unwrap()).unwrap(), *dynamic);
    assert!(dynamic["metadata"].get("managedFields").is_none());
    let meta: kube::core::ObjectMeta = object.metadata().unwrap();
    assert_eq!(meta.name.as_deref(), Some("a"));
    assert!(informer::Typed::ptr_eq(&typed, &object.typed().unwrap()), "shared while held");
    assert_eq!(format!("{object:?}"), "ns/a@1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_removal_is_final_during_deliveries() {
    let (pods, mut server) = informer();
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    for round in 0..50 {
        let removed = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let late = Arc::clone(&removed);
        let on = pods.on_event(move |_| {
            assert!(!late.load(std::sync::atomic::Ordering::SeqCst), "called after removal");
        });
        watch.frame("MODIFIED", &pod("a", 10 + round));
        assert!(on.wait_for_sync().await);
        watch.frame("MODIFIED", &pod("a", 1000 + round));
        on.remove().await;
        removed.store(true, std::sync::atomic::Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn c7_all_waiters_are_woken() {
    // P3: of eight tasks waiting for one store, kube-runtime woke one.
    let (pods, mut server) = informer();
    pods.start();
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let pods = pods.clone();
            tokio::spawn(async move { pods.wait_for_sync(TIMEOUT).await })
        })
        .collect();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    for task in waiting {
        task.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn c7_missing_start_is_reported() {
    let (pods, _server) = informer();
    let error = pods.wait_for_sync(Duration::from_secs(3)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "wait for sync: timed out after 3s: pods in all namespaces: not started (call start)"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_stuck_handler_delays_no_other_and_costs_one_event_per_key() {
    // P9: one subscriber that was not polled stopped kube-runtime's whole store.
    let (pods, mut server) = informer();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (sender, mut delivered) = mpsc::unbounded_channel();
    let slow = pods.on_event(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    });
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    log.expect(&["+ a@1 initial"]).await;
    assert_eq!(delivered.recv().await.unwrap(), "+ a@1 initial");
    let mut last = 1;
    for version in 6..60 {
        watch.frame("MODIFIED", &pod("a", version));
        log.expect(&[&format!("~ a@{last}->{version}")]).await;
        last = version;
    }
    assert_eq!(slow.pending_events(), 1);
    release.send(()).unwrap();
    assert_eq!(delivered.recv().await.unwrap(), "~ a@1->59");
    drop(release);
    pods.shutdown(TIMEOUT).await.unwrap();
}

/// Regression: the pump processed as many commands as the runtime allows before yielding. It was then queued
/// on the thread that one of the new handlers blocked next: the other handlers received nothing until that
/// call returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_blocking_new_handler_delays_no_other_new_handler() {
    let (pods, mut server) = informer();
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();

    let timeout = Duration::from_secs(30);
    // One thread is occupied until a handler has blocked the other one.
    let ((taken, is_taken), (blocked, is_blocked)) = (channel(), channel());
    let first = tokio::spawn(async move {
        taken.send(()).unwrap();
        is_blocked.recv_timeout(timeout)
    });
    is_taken.recv().unwrap();
    let ((last_delivered, wait), (sender, mut waited)) = (channel(), mpsc::unbounded_channel());
    let (wait, adding) = (Arc::new(Mutex::new(Some(wait))), pods.clone());
    tokio::spawn(async move {
        for number in 0..200 {
            let (wait, blocked, sender) = (wait.clone(), blocked.clone(), sender.clone());
            let last_delivered = (number == 199).then(|| last_delivered.clone());
            let delivered = move |_| {
                // Only the first call waits.
                let wait = wait.lock().unwrap().take();
                if let Some(wait) = wait {
                    blocked.send(()).unwrap();
                    sender.send(wait.recv_timeout(timeout)).unwrap();
                }
                if let Some(last_delivered) = &last_delivered {
                    last_delivered.send(()).unwrap();
                }
            };
            adding.on_event(delivered).detach();
        }
    });
    assert_eq!(waited.recv().await, Some(Ok(())), "the last handler received its event meanwhile");
    assert_eq!(first.await.unwrap(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_shutdown_times_out_with_a_stuck_handler_and_can_be_repeated() {
    let (pods, mut server) = informer();
    let (release, stuck) = std::sync::mpsc::channel::<()>();
    let (sender, mut delivered) = mpsc::unbounded_channel();
    pods.on_event(move |event| {
        let _ = sender.send(describe(&event));
        let _ = stuck.recv();
    })
    .detach();
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    assert_eq!(delivered.recv().await.unwrap(), "+ a@1 initial");
    for _ in 0..2 {
        let error = pods.shutdown(Duration::from_millis(20)).await.unwrap_err();
        assert!(error.to_string().contains("has not returned"), "{error}");
    }
    drop(release);
    pods.shutdown(Duration::MAX).await.unwrap();
    assert_eq!(delivered.recv().await, None, "events pending at the timeout are dropped");
}

#[tokio::test(start_paused = true)]
async fn c10_pending_events_are_delivered_at_shutdown() {
    let (pods, mut server) = informer();
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    pods.shutdown(TIMEOUT).await.unwrap();
    log.expect(&["+ a@1 initial", "+ b@2 initial"]).await;
    assert_eq!(log.0.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn handler_without_initial_list_never_syncs() {
    let (pods, _server) = informer();
    let early = pods.on_event(|_| {});
    pods.shutdown(TIMEOUT).await.unwrap();
    assert!(!early.wait_for_sync().await);
    let late = pods.on_event(|_| {});
    assert!(!late.wait_for_sync().await);
    late.remove().await;
}

#[tokio::test(start_paused = true)]
async fn c9_handler_panicking_on_drop_affects_nothing_else() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }
    let (pods, mut server) = informer();
    let bomb = Bomb;
    let never = pods.on_event(move |_| {
        let _held = &bomb;
    });
    never.remove().await;
    let (_on, mut log) = log_events(&pods);
    pods.start();
    let watch = server.sync(&[pod("a", 1)], 5).await;
    watch.frame("ADDED", &pod("b", 6));
    log.expect(&["+ a@1 initial", "+ b@6"]).await;
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_index_function_affects_only_its_index() {
    let (pods, mut server) = informer();
    let shaky = pods
        .add_index(Index::from_fn("shaky", |pod: &informer::Object<Pod>| {
            assert_ne!(pod.name(), "a", "intended panic for a");
            Some(pod.name().to_owned())
        }))
        .unwrap();
    let by_app = pods.add_index(Index::label("app")).unwrap();
    pods.start();
    let _watch = server.sync(&[pod("a", 1), pod("b", 2)], 5).await;
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    assert_eq!(pods.lister().keys_by_index(&by_app, "a"), [Key::new("ns", "a")]);
    assert_eq!(pods.lister().keys_by_index(&shaky, "b"), [Key::new("ns", "b")]);
    assert!(pods.lister().keys_by_index(&shaky, "a").is_empty());
    assert_eq!(shaky.panics(), 1);
}

#[tokio::test(start_paused = true)]
async fn synced_handler_stays_synced() {
    let (pods, mut server) = informer();
    let (on, mut log) = log_events(&pods);
    pods.start();
    let _watch = server.sync(&[pod("a", 1)], 5).await;
    log.expect(&["+ a@1 initial"]).await;
    assert!(on.wait_for_sync().await);
    pods.shutdown(TIMEOUT).await.unwrap();
    assert!(on.wait_for_sync().await);
}
