//! Handlers for life: closures, traits and streams; filters; inline and blocking; merged and every state; removal from anywhere.
#![allow(clippy::unwrap_used)]

#[path = "common/cluster.rs"]
mod cluster;

use cluster::{LONG, describe, notes, pod, until, with};
use informer::{
    Cause, Delivery, FilteringHandler, Handler, Object, Options, Problem, Registration, SharedInformer,
};
use informer_apiserver::ApiServer;
use k8s_openapi::api::core::v1::Pod;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

async fn synced(server: &ApiServer) -> SharedInformer<Pod> {
    synced_with(server, Options::default()).await
}

async fn synced_with(server: &ApiServer, options: Options) -> SharedInformer<Pod> {
    let pods = SharedInformer::with_options(server.client(), options);
    pods.start();
    pods.wait_for_sync(LONG).await.unwrap();
    pods
}

fn update(server: &ApiServer, name: &str, image: &str) {
    server.update(&with(pod("default", name), "/spec/containers/0/image", image)).unwrap();
}

fn delete(server: &ApiServer, name: &str) {
    server.delete("v1", "pods", Some("default"), name).unwrap();
}

/// A gate that a handler on a thread of its own waits at.
#[derive(Default)]
struct Gate(Mutex<bool>, Condvar);

impl Gate {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.lock().unwrap();
        drop(self.1.wait_while(open, |open| !*open).unwrap());
    }
}

// Three faces of one mechanism.

struct Diary(mpsc::UnboundedSender<String>);

impl Handler<Pod> for Diary {
    fn on_add(&mut self, object: Object<Pod>, initial: bool) {
        let _ = self.0.send(format!("+{}{}", object.name(), if initial { " initial" } else { "" }));
    }

    fn on_update(&mut self, _: Object<Pod>, new: Object<Pod>, cause: Cause) {
        let _ = self.0.send(format!("{}{}", if cause == Cause::Resync { "=" } else { "~" }, new.name()));
    }

    fn on_delete(&mut self, last: Object<Pod>, _observed: bool) {
        let _ = self.0.send(format!("-{}", last.name()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_a_trait_and_a_stream_are_told_the_same() {
    let server = ApiServer::new();
    server.create(&pod("default", "a")).unwrap();
    let pods = synced(&server).await;
    let (_closure, mut closure) = notes(&pods);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _handler = pods.add_handler(Diary(sender));
    let mut diary = cluster::Notes(receiver);
    let mut stream = pods.events();
    let first = stream.next().await.unwrap();
    assert_eq!(describe(&first), "+a initial");
    closure.expect(&["+a initial"]).await;
    diary.expect(&["+a initial"]).await;
    for (act, expected) in [(0, "+b"), (1, "~b"), (2, "-b")] {
        match act {
            0 => drop(server.create(&pod("default", "b")).unwrap()),
            1 => update(&server, "b", "httpd"),
            _ => delete(&server, "b"),
        }
        let told = tokio::time::timeout(LONG, stream.next()).await.unwrap().unwrap();
        // A pod is told to go before it is gone.
        let told = if act == 2 && describe(&told) == "~b" { stream.next().await.unwrap() } else { told };
        assert_eq!(describe(&told), expected);
    }
    assert!(stream.is_synced());
    closure.expect(&["+b", "~b"]).await;
    diary.expect(&["+b", "~b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_informer_after_what_was_received() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let mut stream = pods.events();
    server.create(&pod("default", "a")).unwrap();
    until(|| stream.pending() == 1).await;
    assert!(stream.oldest_pending().is_some());
    pods.shutdown(LONG).await.unwrap();
    assert_eq!(describe(&stream.next().await.unwrap()), "+a");
    assert!(stream.next().await.is_none());
    assert!(stream.next().await.is_none());
}

// Filters.

#[tokio::test(start_paused = true)]
async fn c3_an_update_that_starts_matching_is_an_add_and_one_that_stops_is_a_delete() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let assigned = |pod: &Object<Pod>| {
        pod.typed().is_ok_and(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()))
    };
    let (sender, receiver) = mpsc::unbounded_channel();
    let _as_option = pods.handler().filter(assigned).on(move |event| drop(sender.send(describe(&event))));
    let mut by_option = cluster::Notes(receiver);
    let (sender, receiver) = mpsc::unbounded_channel();
    let _as_handler = pods.add_handler(FilteringHandler::new(assigned, Diary(sender)));
    let mut by_handler = cluster::Notes(receiver);

    server.create(&pod("default", "a")).unwrap();
    server.plant(&with(pod("default", "a"), "/spec/nodeName", "node-1")).unwrap();
    by_option.expect(&["+a"]).await;
    by_handler.expect(&["+a"]).await;
    server
        .plant(&with(with(pod("default", "a"), "/spec/nodeName", "node-1"), "/metadata/labels/app", "db"))
        .unwrap();
    by_option.expect(&["~a"]).await;
    server.plant(&pod("default", "a")).unwrap();
    by_option.expect(&["-a"]).await;
    by_handler.expect(&["~a", "-a"]).await;
    delete(&server, "a");
    until(|| pods.lister().is_empty()).await;
    assert!(by_option.is_empty() && by_handler.is_empty());
}

// Where handlers run, and how far behind they may be.

#[tokio::test]
async fn c8_a_blocking_handler_holds_up_nobody_on_a_single_thread() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, told) = (Arc::clone(&gate), Arc::new(Mutex::new(Vec::new())));
    let writes = Arc::clone(&told);
    let blocked = pods.handler().name("blocked").blocking().on(move |event| {
        at_gate.pass(); // the thread stands still
        writes.lock().unwrap().push(describe(&event));
    });
    let (_free, mut free) = notes(&pods);
    server.create(&pod("default", "a")).unwrap();
    free.expect(&["+a"]).await;
    for image in ["1", "2", "3"] {
        update(&server, "a", image);
        free.expect(&["~a"]).await;
    }
    assert_eq!(blocked.pending(), 1, "three changes of one object are one transition");
    assert!(blocked.oldest_pending().is_some());
    gate.open();
    until(|| told.lock().unwrap().len() == 2).await;
    assert_eq!(*told.lock().unwrap(), ["+a", "~a"]);
    assert_eq!((blocked.pending(), blocked.oldest_pending()), (0, None));
}

#[tokio::test]
async fn c8_an_inline_handler_that_takes_long_is_named_and_counted() {
    let server = ApiServer::new();
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let hook = Arc::clone(&heard);
    let options = Options::default().on_error(move |_, problem| {
        if let Problem::HandlerSlow { handler, .. } = problem {
            hook.lock().unwrap().push(handler.to_string());
        }
    });
    let pods = synced_with(&server, options).await;
    let _slow = pods.handler().name("slow one").on(|_| {
        let began = std::time::Instant::now();
        while began.elapsed() < Duration::from_millis(101) {
            std::hint::spin_loop();
        }
    });
    server.create(&pod("default", "a")).unwrap();
    until(|| !heard.lock().unwrap().is_empty()).await;
    assert_eq!(*heard.lock().unwrap(), ["slow one"]);
    let metrics = pods.metrics();
    assert_eq!((metrics.handlers[0].slow_calls, metrics.handlers[0].told), (1, 1));
}

#[tokio::test]
async fn c8_every_state_is_told_up_to_the_bound_and_then_how_many_were_merged() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, told) = (Arc::clone(&gate), Arc::new(Mutex::new(Vec::new())));
    let writes = Arc::clone(&told);
    let on = pods.handler().every_state_up_to(3).blocking().on(move |delivery| {
        at_gate.pass();
        writes.lock().unwrap().push(match delivery {
            Delivery::Lagged { skipped, .. } => format!("lagged {skipped}"),
            Delivery::Event(event) => describe(&event),
            _ => unreachable!("there is nothing else"),
        });
    });
    let (_free, mut free) = notes(&pods);
    server.create(&pod("default", "a")).unwrap();
    free.expect(&["+a"]).await;
    until(|| on.pending() == 0).await; // it stands at the gate with the first event
    for image in ["1", "2", "3", "4", "5", "6"] {
        update(&server, "a", image);
        free.expect(&["~a"]).await;
    }
    assert_eq!(on.pending(), 4, "three states, and one merged from three");
    gate.open();
    until(|| on.pending() == 0 && told.lock().unwrap().len() == 6).await;
    assert_eq!(*told.lock().unwrap(), ["+a", "~a", "~a", "~a", "lagged 2", "~a"]);
    update(&server, "a", "7");
    update(&server, "a", "8");
    until(|| told.lock().unwrap().len() == 8).await;
    assert_eq!(pods.metrics().handlers[0].skipped, 2);
}

// Removal, from anywhere.

#[tokio::test(start_paused = true)]
async fn c6_a_handler_may_drop_its_own_registration_inside_its_call() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let slot: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (own, calls) = (Arc::clone(&slot), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&calls);
    let registration = pods.on(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        drop(own.lock().unwrap().take());
    });
    *slot.lock().unwrap() = Some(registration);
    let (_free, mut free) = notes(&pods);
    for name in ["a", "b", "c"] {
        server.create(&pod("default", name)).unwrap();
    }
    free.expect(&["+a", "+b", "+c"]).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn c6_a_blocking_handler_that_waits_for_its_own_removal_does_not_hang() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let slot: Arc<Mutex<Option<Registration>>> = Arc::default();
    let (own, calls) = (Arc::clone(&slot), Arc::new(AtomicUsize::new(0)));
    let (count, runtime) = (Arc::clone(&calls), tokio::runtime::Handle::current());
    let registration = pods.handler().blocking().on(move |_| {
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
    pods.shutdown(LONG).await.unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1, "the call in progress was the last one");
}

#[tokio::test]
async fn c6_removal_waits_for_a_blocking_call_in_progress() {
    let server = ApiServer::new();
    let pods = synced(&server).await;
    let gate = Arc::new(Gate::default());
    let (at_gate, running) = (Arc::clone(&gate), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&running);
    let on = pods.handler().blocking().on(move |_| {
        count.store(1, Ordering::SeqCst);
        at_gate.pass();
        count.store(2, Ordering::SeqCst);
    });
    server.create(&pod("default", "a")).unwrap();
    until(|| running.load(Ordering::SeqCst) == 1).await;
    let removal = tokio::spawn(on.remove());
    tokio::task::yield_now().await;
    assert!(!removal.is_finished());
    gate.open();
    removal.await.unwrap();
    assert_eq!(running.load(Ordering::SeqCst), 2, "when removal returned, the handler was not running");
}

#[tokio::test(start_paused = true)]
async fn c9_a_panicking_handler_is_caught_reported_and_goes_on() {
    let server = ApiServer::new();
    let heard = Arc::new(AtomicUsize::new(0));
    let hook = Arc::clone(&heard);
    let options = Options::default().on_error(move |resource, problem| {
        assert_eq!(resource, "pods in all namespaces");
        if matches!(problem, Problem::HandlerPanicked { .. }) {
            hook.fetch_add(1, Ordering::Relaxed);
        }
        panic!("a hook that panics hurts nobody either");
    });
    let pods = synced_with(&server, options).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&calls);
    // Detached: its panics show in the figures all the same.
    pods.handler()
        .name("clumsy")
        .on(move |_| assert!(count.fetch_add(1, Ordering::Relaxed) != 0, "the first call fails"))
        .detach();
    server.create(&pod("default", "a")).unwrap();
    server.create(&pod("default", "b")).unwrap();
    until(|| calls.load(Ordering::Relaxed) == 2).await;
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    let metrics = pods.metrics();
    assert_eq!((&*metrics.handlers[0].name, metrics.handlers[0].panics), ("clumsy", 1));
}
