//! Resyncs in every order with changes and with listeners that are added, removed or closed (C1, C6, C12).
//!
//! The tests run the pump one step at a time, so that each order is exactly the one in the test's name.

use super::super::listener::{ListenerOptions, Mode};
use super::*;
use crate::test_support::{entry, text};
use futures::task::noop_waker_ref;
use informer_core::{Delta, Replaced, ResourceVersion};
use std::task::{Context, Poll};

const PERIOD: Duration = Duration::from_secs(100);
/// Arguments of `Listener::close`.
const DRAIN: bool = true;
const DROP_PENDING: bool = false;

/// A pump that a test runs step by step.
struct SteppedPump {
    pump: Pump,
    listeners: Listeners,
    /// Keeps the command channel open.
    _commands: mpsc::UnboundedSender<Command>,
}

impl SteppedPump {
    /// Creates a pump without listeners, with an empty cache that is not synced.
    fn new() -> Self {
        let (writer, reader) = StoreWriter::new([Scope::All]);
        let (commands, receiver) = mpsc::unbounded_channel();
        let pump = Pump {
            writer,
            reader,
            scopes: vec![Scope::All],
            queue: Arc::new(DeltaQueue::new(1)),
            status: Arc::new(StatusCell::new(&[Scope::All])),
            commands: receiver,
            stop: watch::Sender::new(false),
            clock: Clock::new(),
            diagnostics: diagnostics(),
            compression: None,
            persistence: None,
        };
        Self { pump, listeners: Listeners::default(), _commands: commands }
    }

    /// Creates a pump without listeners, with a synced cache that contains `a@1` and `b@2`.
    async fn synced() -> Self {
        let mut harness = Self::new();
        harness.sync().await;
        harness
    }

    async fn sync(&mut self) {
        let (scope, version) = (Scope::All, ResourceVersion::new("2"));
        let entries = vec![entry("a", 1), entry("b", 2)];
        self.apply(Delta::Replaced(Replaced {
            scope,
            version,
            entries,
            unreadable: Vec::new(),
            audit: false,
        }))
        .await;
    }

    async fn apply(&mut self, delta: Delta) {
        self.pump.queue.push(0, &mut [delta].into()).await.unwrap();
        let (scope_index, batch) = self.pump.queue.pop(MAX_BATCH_DELTAS).await.unwrap();
        self.pump.apply(scope_index, batch, &mut self.listeners);
    }

    /// Creates a listener without a task that is not added to the pump.
    fn new_listener(&self) -> Arc<Listener> {
        let options = ListenerOptions {
            name: "test".into(),
            resync_period: PERIOD,
            mode: Mode::Inline,
            uncoalesced_capacity: None,
            deliver_transient_deletes: false,
            durable: None,
            is_filtered: false,
        };
        Arc::new(Listener::new(0, options, None, self.pump.clock, diagnostics()))
    }

    fn add(&mut self, listener: &Arc<Listener>) {
        self.pump.handle_command(Command::AddListener(Arc::clone(listener)), &mut self.listeners);
    }

    /// Adds a listener and takes its initial list.
    fn add_drained_listener(&mut self) -> Arc<Listener> {
        let listener = self.new_listener();
        self.add(&listener);
        assert_eq!(take_events(&listener), "+a@1! +b@2!");
        listener
    }

    fn remove(&mut self, listener: &Arc<Listener>) {
        self.pump.handle_command(Command::RemoveListener(Arc::clone(listener)), &mut self.listeners);
    }

    /// Resyncs after a whole period, when every object is due.
    async fn resync(&mut self) {
        tokio::time::advance(PERIOD).await;
        self.pump.resync(&mut self.listeners);
    }
}

fn diagnostics() -> DiagnosticSink {
    DiagnosticSink { resource: "pods".into(), hook: None }
}

/// Takes the pending events of a listener; the text ends with `end` if the listener has ended.
fn take_events(listener: &Listener) -> String {
    let mut context = Context::from_waker(noop_waker_ref());
    let mut all = Vec::new();
    loop {
        match listener.poll_next(&mut context) {
            Poll::Ready(Some(next)) => all.push(text(&next)),
            Poll::Ready(None) => {
                all.push("end".to_owned());
                break;
            }
            Poll::Pending => break,
        }
    }
    all.join(" ")
}

#[tokio::test(start_paused = true)]
async fn c12_add_then_resync_repeats_the_initial_list_only_after_it_was_taken() {
    let mut harness = SteppedPump::synced().await;
    let (fast, slow) = (harness.add_drained_listener(), harness.new_listener());
    harness.add(&slow);
    harness.resync().await;
    assert_eq!(take_events(&fast), "=a@1 =b@2");
    assert_eq!(take_events(&slow), "+a@1! +b@2!", "pending events are not repeated");
}

#[tokio::test(start_paused = true)]
async fn c6_resync_then_add_delivers_only_the_initial_list() {
    let mut harness = SteppedPump::synced().await;
    let early = harness.add_drained_listener();
    harness.resync().await;
    let late = harness.add_drained_listener();
    harness.pump.resync(&mut harness.listeners);
    assert_eq!(take_events(&late), "", "its own period has just started");
    assert_eq!(take_events(&early), "=a@1 =b@2");
}

#[tokio::test(start_paused = true)]
async fn c12_listener_added_before_the_sync_is_not_due_before_it() {
    let mut harness = SteppedPump::new();
    let listener = harness.new_listener();
    harness.add(&listener);
    harness.resync().await;
    assert_eq!((take_events(&listener).as_str(), harness.listeners.next_resync()), ("", None));
    harness.sync().await;
    assert_eq!(take_events(&listener), "+a@1! +b@2!");
    harness.resync().await;
    assert_eq!(take_events(&listener), "=a@1 =b@2");
}

#[tokio::test(start_paused = true)]
async fn c6_close_then_resync_delivers_nothing_although_the_pump_still_has_the_listener() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.add_drained_listener();
    listener.close(DROP_PENDING);
    harness.resync().await;
    assert_eq!(take_events(&listener), "end");
    harness.remove(&listener);
    assert_eq!(harness.listeners.next_resync(), None);
}

#[tokio::test(start_paused = true)]
async fn c6_resync_then_close_drops_the_resync_events() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.add_drained_listener();
    harness.resync().await;
    listener.close(DROP_PENDING);
    assert_eq!(take_events(&listener), "end");
}

#[tokio::test(start_paused = true)]
async fn c10_resync_then_drain_delivers_the_resync_events() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.add_drained_listener();
    harness.resync().await;
    listener.close(DRAIN);
    assert_eq!(take_events(&listener), "=a@1 =b@2 end");
}

/// Regression: a resync was delivered while a shutdown drained the queue, and delayed the remaining events.
#[tokio::test(start_paused = true)]
async fn c10_no_resync_is_due_during_a_shutdown() {
    let mut harness = SteppedPump::synced().await;
    let _listener = harness.add_drained_listener();
    assert!(harness.pump.next_resync(&harness.listeners).is_some());
    harness.pump.queue.close();
    assert_eq!(harness.pump.next_resync(&harness.listeners), None);
}

#[tokio::test(start_paused = true)]
async fn c6_remove_then_resync_fills_no_outbox() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.add_drained_listener();
    harness.remove(&listener);
    harness.resync().await;
    assert_eq!((listener.backlog().0, harness.listeners.next_resync()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn c6_close_then_add_then_resync_delivers_nothing() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.new_listener();
    listener.close(DROP_PENDING);
    harness.add(&listener);
    harness.resync().await;
    assert_eq!((listener.backlog().0, harness.listeners.next_resync()), (0, None));
}

/// In any order of a change and a resync, the resync delivers no state that is older than a delivered one.
#[tokio::test(start_paused = true)]
async fn c1_resync_and_change_do_not_overtake_each_other() {
    let mut harness = SteppedPump::synced().await;
    let listener = harness.add_drained_listener();
    harness.apply(Delta::Updated(entry("a", 3))).await;
    harness.resync().await;
    assert_eq!(take_events(&listener), "~a@1>a@3 =b@2");
    harness.resync().await;
    harness.apply(Delta::Updated(entry("a", 4))).await;
    assert_eq!(take_events(&listener), "~a@3>a@4 =b@2");
}

/// A wait for a condition must notice every change, also one that an audit or a source without versions makes.
#[tokio::test(start_paused = true)]
async fn c7_change_without_a_new_version_wakes_subscribers_of_the_status() {
    let mut harness = SteppedPump::synced().await;
    let mut status = harness.pump.status.subscribe();
    let version = status.borrow_and_update().resource_version.clone();
    harness.apply(Delta::Added(entry("c", 2))).await;
    assert_eq!(harness.pump.reader.snapshot().len(), 3);
    assert!(status.has_changed().unwrap());
    assert_eq!(status.borrow_and_update().resource_version, version);
}
