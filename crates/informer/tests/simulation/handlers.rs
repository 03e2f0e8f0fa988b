//! Informers and their handlers of several kinds, which record the events delivered to them.
//!
//! A handler only records; the checks run elsewhere, since a panic inside a handler is caught by the library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer::handler::{Deliverable, Delivery, HandlerBuilder};
use informer::status::InformerStatus;
use informer::{Event, Lister, Object, Registration, SharedInformer, Snapshot, UpdateCause};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::log::Log;
use crate::oracle::{State, View};

/// The resync period of handlers that have one.
pub(crate) const RESYNC_PERIOD: Duration = Duration::from_secs(40);

/// An informer, independent of its object type.
pub(crate) struct Informer {
    pub(crate) name: &'static str,
    pub(crate) view: View,
    pub(crate) status: Box<dyn Fn() -> InformerStatus>,
    pub(crate) list: ListStates,
    /// Adds a handler of a kind.
    pub(crate) add: Box<AddHandler>,
    /// Takes a snapshot and returns a function that reads it.
    pub(crate) snapshot: Box<dyn Fn() -> ListStates>,
}

/// Lists the states of a snapshot or of the newest state.
pub(crate) type ListStates = Box<dyn Fn() -> Vec<State>>;

/// Adds a handler with a name.
pub(crate) type AddHandler = dyn Fn(&str, Kind, &Log) -> TestHandler;

/// The kind of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Coalesced,
    Uncoalesced,
    /// Only objects with `app=web`.
    Filtered,
    Resynced,
    /// Panics now and then, after it has recorded the event.
    Panicking,
    /// A stream that is read with long pauses.
    Slow,
}

/// One event delivered to a handler.
#[derive(Debug, Clone)]
pub(crate) struct Delivered {
    pub(crate) what: What,
    pub(crate) state: State,
    /// The state in the store during the call.
    pub(crate) store: Option<State>,
    /// Number of rewinds the informer had counted by then.
    pub(crate) rewinds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Added { initial: bool },
    Updated { old: State, resync: bool },
    Deleted,
}

/// Everything delivered to a handler so far.
#[derive(Debug, Default)]
pub(crate) struct HandlerRecord {
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) skipped: u64,
    pub(crate) panics: u64,
    /// Number of events delivered while the informer was synced but had no version.
    pub(crate) synced_without_version: u64,
}

/// A handler that is or was registered.
pub(crate) struct TestHandler {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) informer: usize,
    pub(crate) record: Arc<Mutex<HandlerRecord>>,
    pub(crate) attachment: Attachment,
    /// Number of events delivered when its removal returned.
    pub(crate) removed_after: Option<usize>,
}

pub(crate) enum Attachment {
    Registered(Registration),
    Stream { pending: watch::Receiver<(usize, bool)>, task: JoinHandle<()> },
    Removed,
}

impl TestHandler {
    pub(crate) fn record(&self) -> MutexGuard<'_, HandlerRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of events delivered so far.
    pub(crate) fn delivered(&self) -> usize {
        self.record().delivered.len()
    }

    /// Removes the handler; streams are not removed.
    pub(crate) async fn remove(&mut self) -> bool {
        match std::mem::replace(&mut self.attachment, Attachment::Removed) {
            Attachment::Registered(registration) => registration.remove().await,
            attachment => {
                self.attachment = attachment;
                return false;
            }
        }
        self.removed_after = Some(self.delivered());
        true
    }

    /// Whether events about this state may be delivered to the handler.
    pub(crate) fn selects(&self, state: &State) -> bool {
        self.kind != Kind::Filtered || state.app == "web"
    }

    pub(crate) fn is_synced(&self) -> bool {
        match &self.attachment {
            Attachment::Registered(registration) => registration.has_synced(),
            Attachment::Stream { pending, .. } => pending.borrow().1,
            Attachment::Removed => false,
        }
    }

    pub(crate) fn pending(&self) -> usize {
        match &self.attachment {
            Attachment::Registered(registration) => registration.pending_events(),
            Attachment::Stream { pending, .. } => pending.borrow().0,
            Attachment::Removed => 0,
        }
    }

    /// The objects that exist according to the delivered events.
    pub(crate) fn known_objects(&self) -> Vec<State> {
        let mut objects = BTreeMap::new();
        for delivered in &self.record().delivered {
            match delivered.what {
                What::Deleted => objects.remove(&delivered.state.key()),
                _ => objects.insert(delivered.state.key(), delivered.state.clone()),
            };
        }
        objects.into_values().collect()
    }
}

/// Wraps an informer of any type.
pub(crate) fn test_informer<K: Send + Sync + 'static>(
    name: &'static str,
    informer: &SharedInformer<K>,
    view: View,
) -> Informer {
    let (status, listed, added, held) =
        (informer.clone(), informer.lister(), informer.clone(), informer.lister());
    Informer {
        name,
        view,
        status: Box::new(move || status.status()),
        list: Box::new(move || states(&listed.snapshot())),
        add: Box::new(move |handler, kind, log| add(&added, handler, kind, log)),
        snapshot: Box::new(move || {
            let snapshot = held.snapshot();
            Box::new(move || states(&snapshot))
        }),
    }
}

fn states<K>(snapshot: &Snapshot<K>) -> Vec<State> {
    snapshot.iter().map(State::of).collect()
}

fn add<K: Send + Sync + 'static>(
    informer: &SharedInformer<K>,
    name: &str,
    kind: Kind,
    log: &Log,
) -> TestHandler {
    let record: Arc<Mutex<HandlerRecord>> = Arc::default();
    let mut recorder = EventRecorder {
        name: name.to_owned(),
        record: Arc::clone(&record),
        lister: informer.lister(),
        status: informer.subscribe_status(),
        log: log.clone(),
    };
    let handler = informer.handler().name(name.to_owned());
    let handler = if kind == Kind::Resynced { handler.resync_period(RESYNC_PERIOD) } else { handler };
    let attachment = match kind {
        Kind::Coalesced | Kind::Resynced => registered(handler, recorder),
        Kind::Filtered => registered(handler.filter(|pod| pod.labels().get("app") == Some("web")), recorder),
        Kind::Uncoalesced => registered(handler.uncoalesced_with_capacity(8), recorder),
        Kind::Panicking => Attachment::Registered(handler.on_event(move |event| {
            recorder.note(event.into());
            if recorder.count() % 5 == 0 {
                recorder.record.lock().unwrap_or_else(PoisonError::into_inner).panics += 1;
                // Resumes the unwind without calling the panic hook, so that nothing is printed.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        })),
        Kind::Slow => {
            let mut events = handler.event_stream();
            let (sender, pending) = watch::channel((usize::MAX, false));
            let task = tokio::spawn(async move {
                loop {
                    sender.send_replace((events.pending_events(), events.has_synced()));
                    let next = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
                    match next {
                        Ok(Some(event)) => recorder.note(event.into()),
                        Ok(None) => return,
                        Err(_) => continue,
                    }
                    super::advance_time(Duration::from_millis(700)).await;
                }
            });
            Attachment::Stream { pending, task }
        }
    };
    TestHandler { name: name.to_owned(), kind, informer: 0, record, attachment, removed_after: None }
}

fn registered<K: 'static, E>(handler: HandlerBuilder<K, E>, mut recorder: EventRecorder<K>) -> Attachment
where
    E: Deliverable<K> + Into<Delivery<K>>,
{
    Attachment::Registered(handler.on_event(move |given| recorder.note(given.into())))
}

/// Records the events of one handler.
struct EventRecorder<K> {
    name: String,
    record: Arc<Mutex<HandlerRecord>>,
    lister: Lister<K>,
    status: watch::Receiver<InformerStatus>,
    log: Log,
}

impl<K> EventRecorder<K> {
    fn note(&mut self, delivery: Delivery<K>) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let event = match delivery {
            Delivery::Event(event) => event,
            Delivery::Lagged { skipped, .. } => {
                self.log.note(format_args!("{} lagged {skipped}", self.name));
                record.skipped += skipped;
                return;
            }
            _ => return,
        };
        let object: &Object<K> = event.object();
        let (state, store) = (State::of(object), self.lister.get_by_key(object.key()));
        let what = match &event {
            Event::Added { initial, .. } => What::Added { initial: *initial },
            Event::Updated { old, cause, .. } => {
                What::Updated { old: State::of(old), resync: *cause == UpdateCause::Resync }
            }
            Event::Deleted { .. } => What::Deleted,
        };
        let sign = match &what {
            What::Added { .. } => '+',
            What::Updated { resync: true, .. } => '=',
            What::Updated { .. } => '~',
            What::Deleted => '-',
        };
        self.log.note(format_args!("{} {sign} {state}", self.name));
        let status = self.status.borrow();
        record.synced_without_version += u64::from(status.synced && status.resource_version.is_none());
        let rewinds = status.cache.rewinds;
        drop(status);
        let store = store.as_ref().map(State::of);
        record.delivered.push(Delivered { what, state, store, rewinds });
    }

    fn count(&self) -> usize {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).delivered.len()
    }
}
