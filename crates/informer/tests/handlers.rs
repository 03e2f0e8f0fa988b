//! Handlers: closures, traits and streams; filters; inline and blocking; coalesced and every state; removal.
#![allow(clippy::unwrap_used)]

use crate::cluster::{TIMEOUT, describe, log_events, pod, until, with};
use informer::handler::{Delivery, FilteringHandler};
use informer::status::Diagnostic;
use informer::{Handler, InformerOptions, Object, Registration, SharedInformer, UpdateCause};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

async fn synced(server: &ApiServer) -> SharedInformer<Pod> {
    synced_with(server, InformerOptions::default()).await
}

async fn synced_with(server: &ApiServer, options: InformerOptions) -> SharedInformer<Pod> {
    let pods = SharedInformer::with_options(server.client(), options);
    pods.start();
    pods.wait_for_sync(TIMEOUT).await.unwrap();
    pods
}

fn update(server: &ApiServer, name: &str, image: &str) {
    server.update(&with(pod("default", name), "/spec/containers/0/image", image)).unwrap();
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "pods", Some("default"), name).unwrap();
}

/// A gate at which a blocking handler waits.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn wait(&self) {
        let open = self.0.lock().unwrap();
        drop(self.1.wait_while(open, |open| !*open).unwrap());
    }
}

// Closures, traits and streams.

struct LoggingHandler(mpsc::UnboundedSender<String>);

impl Handler<Pod> for LoggingHandler {
    fn on_add(&mut self, object: Object<Pod>, initial: bool) {
        let _ = self.0.send(format!("+{}{}", object.name(), if initial { " initial" } else { "" }));
    }

    fn on_update(&mut self, _: Object<Pod>, new: Object<Pod>, cause: UpdateCause) {
        let _ =
            self.0.send(format!("{}{}", if cause == UpdateCause::Resync { "=" } else { "~" }, new.name()));
    }

    fn on_delete(&mut self, last: Object<Pod>, _observed: bool) {
        let _ = self.0.send(format!("-{}", last.name()));
    }
}

#[tokio::test(start_paused = true)]
async fn closure_trait_and_stream_receive_the_same_events() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let pods = synced(&server).await;
    let (_closure, mut closure) = log_events(&pods);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _handler = pods.add_handler(LoggingHandler(sender));
    let mut from_trait = crate::cluster::EventLog(receiver);
    let mut stream = pods.event_stream();
    let first = stream.next().await.unwrap();
    assert_eq!(describe(&first), "+a initial");
    closure.expect(&["+a initial"]).await;
    from_trait.expect(&["+a initial"]).await;
    for (act, expected) in [(0, "+b"), (1, "~b"), (2, "-b")] {
        match act {
            0 => drop(server.create(&pod("default", "b")).unwrap()),
            1 => update(&server, "b", "httpd"),
            _ => delete(&server, "b"),
        }
        let event = tokio::time::timeout(TIMEOUT, stream.next()).await.unwrap().unwrap();
        // A pod is marked as deleted before it is deleted.
        let event = if act == 2 && describe(&event) == "~b" { stream.next().await.unwrap() } else { event };
        assert_eq!(describe(&event), expected);
    }
    assert!(stream.has_synced());
    closure.expect(&["+b", "~b"]).await;
    from_trait.expect(&["+b", "~b"]).await;
}

#[tokio::test(start_paused = true)]
async fn stream_ends_with_its_informer_after_received_events() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let mut stream = pods.event_stream();
    server.create(&pod("default", "a")).unwrap();
    until(|| stream.pending_events() == 1).await;
    assert!(stream.oldest_pending_age().is_some());
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(describe(&stream.next().await.unwrap()), "+a");
    assert!(stream.next().await.is_none());
    assert!(stream.next().await.is_none());
}

/// What the filter drops does not keep a stream from being synced.
#[tokio::test(start_paused = true)]
async fn stream_whose_filter_drops_everything_syncs_and_ends() {
    let server = ApiServer::new();
    crate::cluster::create_pods(&server, &["a", "b", "c"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let mut stream = pods.handler().filter(|_| false).event_stream();
    pods.start();
    let synced = stream.wait_for_sync();
    let batch = tokio::spawn(async move { stream.next_batch(2).await.len() });
    assert!(tokio::time::timeout(TIMEOUT, synced).await.unwrap());
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(batch.await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn initial_list_of_a_stream_can_be_awaited_and_taken_as_a_whole() {
    let server = ApiServer::new();
    crate::cluster::create_pods(&server, &["a", "b", "c"]);
    let pods = SharedInformer::<Pod>::new(server.client());
    let (mut stream, uncoalesced) = (pods.event_stream(), pods.handler().uncoalesced().event_stream());
    pods.start();
    assert!(tokio::time::timeout(TIMEOUT, stream.wait_for_initial_list()).await.unwrap());
    assert_eq!(stream.pending_events(), 3);
    assert!(!stream.has_synced(), "nothing has been taken");
    let batch: Vec<String> = stream.next_batch(10).await.iter().map(describe).collect();
    assert_eq!(batch, ["+a initial", "+b initial", "+c initial"]);
    assert!(!stream.has_synced(), "the batch may not be processed yet");
    assert!(stream.wait_for_initial_list().await, "also after it was taken");
    let synced = tokio::spawn(stream.wait_for_sync());
    // The stream has delivered the list when it is polled again.
    assert!(tokio::time::timeout(Duration::from_secs(1), stream.next()).await.is_err());
    assert!(synced.await.unwrap() && stream.has_synced());
    assert!(tokio::time::timeout(TIMEOUT, uncoalesced.wait_for_initial_list()).await.unwrap());
    assert_eq!(uncoalesced.pending_events(), 3);
    // A stream of an informer that has synced, and one without objects.
    assert!(tokio::time::timeout(TIMEOUT, pods.event_stream().wait_for_initial_list()).await.unwrap());
    let none = SharedInformer::<Pod>::with_options(
        server.client(),
        InformerOptions::default().label_selector("app=none".parse().unwrap()),
    );
    none.start();
    let stream = none.event_stream();
    assert!(tokio::time::timeout(TIMEOUT, stream.wait_for_initial_list()).await.unwrap());
    assert_eq!(stream.pending_events(), 0);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_initial_list_of_a_stream_ends_with_the_informer() {
    let server = ApiServer::new();
    let stalled = server.inject(informer_apiserver::faults::stall_request().for_resource("pods"));
    let pods = SharedInformer::<Pod>::new(server.client());
    let (stream, never_started) = (pods.event_stream(), SharedInformer::<Pod>::new(server.client()));
    let waiting = tokio::spawn(stream.wait_for_initial_list());
    pods.start();
    until(|| stalled.hits() > 0).await;
    assert!(!waiting.is_finished());
    pods.shutdown(TIMEOUT).await.unwrap();
    assert!(!tokio::time::timeout(TIMEOUT, waiting).await.unwrap().unwrap());
    assert!(!stream.wait_for_initial_list().await && !stream.wait_for_sync().await && !stream.has_synced());
    // Dropping the stream and the informer ends the wait too.
    let waiting = never_started.event_stream().wait_for_initial_list();
    drop(never_started);
    assert!(!tokio::time::timeout(TIMEOUT, waiting).await.unwrap());
}

// Filters.

#[tokio::test(start_paused = true)]
async fn c3_update_that_starts_or_stops_matching_is_add_or_delete() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let assigned = |pod: &Object<Pod>| {
        pod.typed().is_ok_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    let _as_option =
        pods.handler().filter(assigned).on_event(move |event| drop(sender.send(describe(&event))));
    let mut by_option = crate::cluster::EventLog(receiver);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _as_handler = pods.add_handler(FilteringHandler::new(assigned, LoggingHandler(sender)));
    let mut by_handler = crate::cluster::EventLog(receiver);

    server.create(&pod("default", "a")).unwrap();
    server.insert_unchecked(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    by_option.expect(&["+a"]).await;
    by_handler.expect(&["+a"]).await;
    server
        .insert_unchecked(&with(
            with(pod("default", "a"), "/spec/nodeName", "node-1"),
            "/metadata/labels/app",
            "db",
        ))
        .unwrap();
    by_option.expect(&["~a"]).await;
    server.insert_unchecked(&pod("default", "a")).unwrap();
    by_option.expect(&["-a"]).await;
    by_handler.expect(&["~a", "-a"]).await;
    delete(&server, "a");
    until(|| pods.lister().is_empty()).await;
    assert!(by_option.is_empty() && by_handler.is_empty());
}

// Where handlers run, and how far behind they may be.

#[tokio::test]
async fn c8_blocking_handler_delays_no_other_on_a_single_thread() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, log) = (Arc::clone(&gate), Arc::new(Mutex::new(Vec::new())));
    let written = Arc::clone(&log);
    let blocked = pods.handler().name("blocked").blocking().on_event(move |event| {
        at_gate.wait(); // blocks the thread
        written.lock().unwrap().push(describe(&event));
    });
    let (_free, mut free) = log_events(&pods);
    server.create(&pod("default", "a")).unwrap();
    free.expect(&["+a"]).await;
    for image in ["1", "2", "3"] {
        update(&server, "a", image);
        free.expect(&["~a"]).await;
    }
    assert_eq!(blocked.pending_events(), 1, "three changes of one object are coalesced into one event");
    assert!(blocked.oldest_pending_age().is_some());
    gate.open();
    until(|| log.lock().unwrap().len() == 2).await;
    assert_eq!(*log.lock().unwrap(), ["+a", "~a"]);
    assert_eq!((blocked.pending_events(), blocked.oldest_pending_age()), (0, None));
}

#[tokio::test]
async fn c8_slow_inline_handler_is_reported_and_counted() {
    let server = ApiServer::new();
    let diagnostics: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&diagnostics);
    let options = InformerOptions::default().on_diagnostic(move |_, diagnostic| {
        if let Diagnostic::SlowHandler { handler, .. } = diagnostic {
            hook.lock().unwrap().push(handler.to_string());
        }
    });
    let pods = synced_with(&server, options).await;
    let _slow = pods.handler().name("slow one").on_event(|_| {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(101) {
            std::hint::spin_loop();
        }
    });
    server.create(&pod("default", "a")).unwrap();
    until(|| !diagnostics.lock().unwrap().is_empty()).await;
    assert_eq!(*diagnostics.lock().unwrap(), ["slow one"]);
    let metrics = pods.metrics();
    assert_eq!((metrics.handlers[0].slow_calls, metrics.handlers[0].delivered), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn batch_contains_pending_events_up_to_its_maximum() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let mut events = pods.event_stream();
    for name in ["a", "b", "c"] {
        server.create(&pod("default", name)).unwrap();
    }
    until(|| events.pending_events() == 3).await;
    let lines = |batch: &[informer::Event<Pod>]| batch.iter().map(describe).collect::<Vec<_>>();
    assert_eq!(lines(&events.next_batch(2).await), ["+a", "+b"]);
    assert_eq!(lines(&events.next_batch(100).await), ["+c"]);
    // Waits for an event, and loses none if it is cancelled.
    let cancelled = tokio::time::timeout(Duration::from_secs(1), events.next_batch(2)).await;
    assert!(cancelled.is_err());
    delete(&server, "a");
    assert_eq!(lines(&events.next_batch(2).await), ["-a"]);
    pods.shutdown(TIMEOUT).await.unwrap();
    assert!(events.next_batch(2).await.is_empty());
}

/// Regression: a batch contained at most 128 events, because each of them took one unit of the budget that
/// tokio gives a task. The tests took small batches.
#[tokio::test(start_paused = true)]
async fn batch_is_not_limited_by_the_budget_of_the_task() {
    let server = ApiServer::new();
    let names: Vec<String> = (0..300).map(|index| format!("pod-{index:03}")).collect();
    crate::cluster::create_pods(&server, &names.iter().map(String::as_str).collect::<Vec<_>>());
    let pods = SharedInformer::<Pod>::new(server.client());
    let mut all = pods.event_stream();
    let mut few = pods.handler().filter(|pod: &Object<Pod>| pod.name() >= "pod-290").event_stream();
    pods.start();
    assert!(tokio::time::timeout(TIMEOUT, all.wait_for_initial_list()).await.unwrap());
    assert_eq!(all.next_batch(1000).await.len(), 300);
    // Batches that the filter drops as a whole are not returned.
    let mut passed = 0;
    while passed < 10 {
        let batch = tokio::time::timeout(TIMEOUT, few.next_batch(7)).await.unwrap();
        assert!((1..=7).contains(&batch.len()), "{batch:?}");
        passed += batch.len();
    }
}

/// Regression: a handler that never returned was reported nowhere: the duration of a call was measured when
/// it returned, and the error of the shutdown named only the informer. The tests of slow handlers let each
/// call return.
#[tokio::test(start_paused = true)]
async fn c8_handler_that_never_returns_is_reported_while_its_call_runs() {
    let server = ApiServer::new();
    let diagnostics: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&diagnostics);
    let options = InformerOptions::default()
        .on_diagnostic(move |_, diagnostic| hook.lock().unwrap().push(diagnostic.to_string()));
    let pods = synced_with(&server, options).await;
    let (gate, log) = (Arc::new(Gate::default()), Arc::new(AtomicUsize::new(0)));
    let (at_gate, called) = (Arc::clone(&gate), Arc::clone(&log));
    let stuck = pods.handler().name("stuck").blocking().on_event(move |_| {
        called.fetch_add(1, Ordering::Relaxed);
        at_gate.wait();
    });
    let _idle = pods.handler().name("idle").on_event(|_| {});
    let mut statuses = pods.subscribe_status();
    server.create(&pod("default", "a")).unwrap();
    yield_until(|| log.load(Ordering::Relaxed) == 1).await;

    // Time does not advance on its own while a blocking thread is busy.
    advance(Duration::from_secs(9)).await;
    assert_eq!(pods.status().blocked_handlers, [] as [Arc<str>; 0]);
    let running = pods.metrics().handlers[0].running_call.unwrap();
    assert!(running >= Duration::from_secs(9), "{running:?}");
    advance(Duration::from_secs(6)).await;
    assert_eq!(pods.status().blocked_handlers, ["stuck".into()]);
    assert!(statuses.borrow_and_update().blocked_handlers == ["stuck".into()]);
    assert_eq!(pods.metrics().handlers[1].running_call, None);
    advance(Duration::from_secs(60)).await;
    // The call is reported once.
    let reported = diagnostics.lock().unwrap().clone();
    assert_eq!(reported.len(), 1, "{reported:?}");
    assert!(reported[0].starts_with("handler stuck has not returned from one event for 1"), "{reported:?}");

    let shutdown = tokio::spawn({
        let pods = pods.clone();
        async move { pods.shutdown(Duration::from_secs(3)).await }
    });
    advance(Duration::from_secs(4)).await;
    let error = shutdown.await.unwrap().unwrap_err().to_string();
    let expected = "shutdown: timed out after 3s: pods in all namespaces: handler stuck has not returned";
    assert_eq!(error, expected);

    gate.open();
    yield_until(|| pods.metrics().handlers[0].running_call.is_none()).await;
    assert!(pods.status().blocked_handlers.is_empty());
    drop(stuck);
}

/// Waits until a condition holds without advancing the paused clock.
async fn yield_until(mut condition: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "condition not met in time");
        tokio::task::yield_now().await;
    }
}

/// Advances the paused clock in small steps and runs what becomes due.
async fn advance(time: Duration) {
    let end = tokio::time::Instant::now() + time;
    while tokio::time::Instant::now() < end {
        tokio::time::advance(Duration::from_millis(500)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn c8_uncoalesced_handler_receives_every_state_up_to_its_capacity_then_lagged() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, log) = (Arc::clone(&gate), Arc::new(Mutex::new(Vec::new())));
    let written = Arc::clone(&log);
    let registration = pods.handler().uncoalesced_with_capacity(3).blocking().on_event(move |delivery| {
        at_gate.wait();
        written.lock().unwrap().push(match delivery {
            Delivery::Lagged { skipped, .. } => format!("lagged {skipped}"),
            Delivery::Event(event) => describe(&event),
            _ => unreachable!("no other variant"),
        });
    });
    let (_free, mut free) = log_events(&pods);
    server.create(&pod("default", "a")).unwrap();
    free.expect(&["+a"]).await;
    until(|| registration.pending_events() == 0).await; // the handler waits at the gate with the first event
    for image in ["1", "2", "3", "4", "5", "6"] {
        update(&server, "a", image);
        free.expect(&["~a"]).await;
    }
    assert_eq!(registration.pending_events(), 4, "three states, and one coalesced from three");
    gate.open();
    until(|| registration.pending_events() == 0 && log.lock().unwrap().len() == 6).await;
    assert_eq!(*log.lock().unwrap(), ["+a", "~a", "~a", "~a", "lagged 2", "~a"]);
    update(&server, "a", "7");
    update(&server, "a", "8");
    until(|| log.lock().unwrap().len() == 8).await;
    assert_eq!(pods.metrics().handlers[0].coalesced, 2);
}

// Removal, from inside and outside of calls.

#[tokio::test(start_paused = true)]
async fn c6_handler_may_drop_its_registration_during_a_call() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let slot: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (own, calls) = (Arc::clone(&slot), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let registration = pods.on_event(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        drop(own.lock().unwrap().take());
    });
    *slot.lock().unwrap() = Some(registration);
    let (_free, mut free) = log_events(&pods);
    for name in ["a", "b", "c"] {
        server.create(&pod("default", name)).unwrap();
    }
    free.expect(&["+a", "+b", "+c"]).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn c6_blocking_handler_waiting_for_its_own_removal_does_not_hang() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let slot: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (own, calls) = (Arc::clone(&slot), Arc::new(AtomicUsize::new(0)));
    let (count, runtime) = (Arc::clone(&calls), tokio::runtime::Handle::current());
    let registration = pods.handler().blocking().on_event(move |_| {
        if let Some(registration) = own.lock().unwrap().take() {
            runtime.block_on(registration.remove());
        }
        count.fetch_add(1, Ordering::Relaxed);
    });
    *slot.lock().unwrap() = Some(registration);
    server.create(&pod("default", "a")).unwrap();
    until(|| calls.load(Ordering::Relaxed) == 1).await;
    server.create(&pod("default", "b")).unwrap();
    until(|| pods.lister().len() == 2).await;
    pods.shutdown(TIMEOUT).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the call in progress was the last one");
}

#[tokio::test]
async fn c6_removal_waits_for_a_blocking_call_in_progress() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, running) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&running);
    let registration = pods.handler().blocking().on_event(move |_| {
        count.store(1, Ordering::SeqCst);
        at_gate.wait();
        count.store(2, Ordering::SeqCst);
    });
    server.create(&pod("default", "a")).unwrap();
    until(|| running.load(Ordering::SeqCst) == 1).await;
    let removal = tokio::spawn(registration.remove());
    tokio::task::yield_now().await;
    assert!(!removal.is_finished());
    gate.open();
    removal.await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 2, "when removal returned, the handler was not running");
}

#[tokio::test(start_paused = true)]
async fn c9_panicking_handler_is_reported_and_called_again() {
    let server = ApiServer::new();
    let diagnostics = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&diagnostics);
    let options = InformerOptions::default().on_diagnostic(move |resource, diagnostic| {
        assert_eq!(resource, "pods in all namespaces");
        if matches!(diagnostic, Diagnostic::HandlerPanicked { .. }) {
            hook.fetch_add(1, Ordering::Relaxed);
        }
        panic!("intended panic of the hook");
    });
    let pods = synced_with(&server, options).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    // Detached: panics are counted in its metrics nevertheless.
    pods.handler()
        .name("panicking")
        .on_event(move |_| {
            assert!(count.fetch_add(1, Ordering::Relaxed) != 0, "intended panic of the first call");
        })
        .detach();
    server.create(&pod("default", "a")).unwrap();
    server.create(&pod("default", "b")).unwrap();
    until(|| calls.load(Ordering::Relaxed) == 2).await;
    assert_eq!(diagnostics.load(Ordering::Relaxed), 1);
    let metrics = pods.metrics();
    assert_eq!((&*metrics.handlers[0].name, metrics.handlers[0].panics), ("panicking", 1));
}
