//! A resync in every order with listeners that are added, removed or closed, and with changes (C1, C6, C12).
//!
//! The pump runs one step at a time here, so that each order is exactly the one that a test names.

use super::super::listener::{ListenerOptions, Mode};
use super::*;
use crate::test_support::{entry, text};
use futures::task::noop_waker_ref;
use informer_core::{Delta, Replaced, ResourceVersion};
use std::task::{Context, Poll};

const PERIOD: Duration = Duration::from_secs(100);

struct Steps {
    pump: Pump,
    listeners: Listeners,
    /// Keeps the channel of commands open.
    _commands: mpsc::UnboundedSender<Command>,
}

impl Steps {
    /// A pump without listeners, over an empty cache that is not synced.
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
        };
        Self { pump, listeners: Listeners::default(), _commands: commands }
    }

    /// The same with a cache that is synced and holds `a@1` and `b@2`.
    async fn synced() -> Self {
        let mut steps = Self::new();
        steps.sync().await;
        steps
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
        let (lane, batch) = self.pump.queue.pop(MAX_BATCH_DELTAS).await.unwrap();
        self.pump.apply(lane, batch, &mut self.listeners);
    }

    /// A listener that no task empties, and that the pump does not know.
    fn listener(&self) -> Arc<Listener> {
        let options = ListenerOptions {
            name: "test".into(),
            resync_period: PERIOD,
            mode: Mode::Inline,
            uncoalesced_capacity: None,
            deliver_transient_deletes: false,
        };
        Arc::new(Listener::new(0, options, None, self.pump.clock, diagnostics()))
    }

    fn add(&mut self, listener: &Arc<Listener>) {
        self.pump.handle_command(Command::AddListener(Arc::clone(listener)), &mut self.listeners);
    }

    /// A listener that has taken its initial set.
    fn added(&mut self) -> Arc<Listener> {
        let listener = self.listener();
        self.add(&listener);
        assert_eq!(taken(&listener), "+a@1! +b@2!");
        listener
    }

    fn remove(&mut self, listener: &Arc<Listener>) {
        self.pump.handle_command(Command::RemoveListener(Arc::clone(listener)), &mut self.listeners);
    }

    /// A resync after a whole period: everything is due.
    async fn resync(&mut self) {
        tokio::time::advance(PERIOD).await;
        self.pump.resync(&self.listeners);
    }
}

fn diagnostics() -> DiagnosticSink {
    DiagnosticSink { resource: "pods".into(), hook: None }
}

/// What a listener has pending, and whether it has ended.
fn taken(listener: &Listener) -> String {
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
async fn c12_add_then_resync_repeats_the_initial_set_only_once_it_is_taken() {
    let mut steps = Steps::synced().await;
    let (quick, slow) = (steps.added(), steps.listener());
    steps.add(&slow);
    steps.resync().await;
    assert_eq!(taken(&quick), "=a@1 =b@2");
    assert_eq!(taken(&slow), "+a@1! +b@2!", "what is pending is not repeated");
}

#[tokio::test(start_paused = true)]
async fn c6_resync_then_add_brings_the_initial_set_alone() {
    let mut steps = Steps::synced().await;
    let early = steps.added();
    steps.resync().await;
    let late = steps.added();
    steps.pump.resync(&steps.listeners);
    assert_eq!(taken(&late), "", "its own period has just begun");
    assert_eq!(taken(&early), "=a@1 =b@2");
}

#[tokio::test(start_paused = true)]
async fn c12_a_listener_that_is_added_before_the_sync_is_not_due_before_it() {
    let mut steps = Steps::new();
    let listener = steps.listener();
    steps.add(&listener);
    steps.resync().await;
    assert_eq!((taken(&listener).as_str(), steps.listeners.next_resync()), ("", None));
    steps.sync().await;
    assert_eq!(taken(&listener), "+a@1! +b@2!");
    steps.resync().await;
    assert_eq!(taken(&listener), "=a@1 =b@2");
}

#[tokio::test(start_paused = true)]
async fn c6_close_then_resync_brings_nothing_although_the_pump_still_has_the_listener() {
    let mut steps = Steps::synced().await;
    let listener = steps.added();
    listener.close(false);
    steps.resync().await;
    assert_eq!(taken(&listener), "end");
    steps.remove(&listener);
    assert_eq!(steps.listeners.next_resync(), None);
}

#[tokio::test(start_paused = true)]
async fn c6_resync_then_close_drops_what_the_resync_brought() {
    let mut steps = Steps::synced().await;
    let listener = steps.added();
    steps.resync().await;
    listener.close(false);
    assert_eq!(taken(&listener), "end");
}

#[tokio::test(start_paused = true)]
async fn c10_resync_then_drain_still_brings_it() {
    let mut steps = Steps::synced().await;
    let listener = steps.added();
    steps.resync().await;
    listener.close(true);
    assert_eq!(taken(&listener), "=a@1 =b@2 end");
}

/// A resync was delivered while a shutdown drained the queue, and took time from the events that were left.
#[tokio::test(start_paused = true)]
async fn c10_no_resync_is_due_once_the_shutdown_has_begun() {
    let mut steps = Steps::synced().await;
    let _listener = steps.added();
    assert!(steps.pump.next_resync(&steps.listeners).is_some());
    steps.pump.queue.close();
    assert_eq!(steps.pump.next_resync(&steps.listeners), None);
}

#[tokio::test(start_paused = true)]
async fn c6_remove_then_resync_fills_no_outbox() {
    let mut steps = Steps::synced().await;
    let listener = steps.added();
    steps.remove(&listener);
    steps.resync().await;
    assert_eq!((listener.backlog().0, steps.listeners.next_resync()), (0, None));
}

#[tokio::test(start_paused = true)]
async fn c6_close_then_add_then_resync_brings_nothing() {
    let mut steps = Steps::synced().await;
    let listener = steps.listener();
    listener.close(false);
    steps.add(&listener);
    steps.resync().await;
    assert_eq!((listener.backlog().0, steps.listeners.next_resync()), (0, None));
}

/// However a change and a resync follow each other, no state is repeated that is older than one that was delivered.
#[tokio::test(start_paused = true)]
async fn c1_a_resync_overtakes_no_change_and_none_overtakes_it() {
    let mut steps = Steps::synced().await;
    let listener = steps.added();
    steps.apply(Delta::Updated(entry("a", 3))).await;
    steps.resync().await;
    assert_eq!(taken(&listener), "~a@1>a@3 =b@2");
    steps.resync().await;
    steps.apply(Delta::Updated(entry("a", 4))).await;
    assert_eq!(taken(&listener), "~a@3>a@4 =b@2");
}
