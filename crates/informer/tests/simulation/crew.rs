//! Informers and their handlers, of several kinds, each writing down what it is told.
//!
//! A handler only notes; whether it was right is looked at elsewhere, since what panics inside a handler is the handler's own
//! affair.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer::{
    Cause, Delivery, Event, Given, HandlerBuilder, Lister, Object, Registration, SharedInformer, Status,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::log::Log;
use crate::truth::{State, View};

/// The period of handlers that have a resync.
pub(crate) const RESYNC: Duration = Duration::from_secs(40);

/// An informer, whatever the type of its objects.
pub(crate) struct Informer {
    pub(crate) name: &'static str,
    pub(crate) view: View,
    pub(crate) status: Box<dyn Fn() -> Status>,
    pub(crate) list: Reading,
    /// Adds a handler of some kind.
    pub(crate) add: Box<Adding>,
    /// A state that is held on to, as somebody reads it.
    pub(crate) hold: Box<dyn Fn() -> Reading>,
}

/// Reads one state, or the newest.
pub(crate) type Reading = Box<dyn Fn() -> Vec<State>>;

/// Adds a handler with a name.
pub(crate) type Adding = dyn Fn(&str, Kind, &Log) -> Member;

/// What kind of handler it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Merged,
    EveryState,
    /// Only what has `app=web`.
    Filtered,
    Resynced,
    /// Panics now and then, after it has noted what it was told.
    Panicking,
    /// A stream that is read with long pauses.
    Slow,
}

/// One thing that a handler was told.
#[derive(Debug, Clone)]
pub(crate) struct Told {
    pub(crate) what: What,
    pub(crate) state: State,
    /// What the store had of the object during the call.
    pub(crate) store: Option<State>,
    /// How often the informer had seen the server go back by then.
    pub(crate) rewinds: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum What {
    Added { initial: bool },
    Updated { old: State, resync: bool },
    Deleted,
}

/// What a handler was told so far.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) told: Vec<Told>,
    pub(crate) skipped: u64,
    pub(crate) panics: u64,
    /// How often its informer was synced by then, and yet stood for no version.
    pub(crate) unripe: u64,
}

/// A handler that is registered, or was.
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) informer: usize,
    pub(crate) notes: Arc<Mutex<Notes>>,
    pub(crate) place: Place,
    /// How much it had been told when its removal returned.
    pub(crate) removed_after: Option<usize>,
}

pub(crate) enum Place {
    Registered(Registration),
    Stream { pending: watch::Receiver<(usize, bool)>, task: JoinHandle<()> },
    Gone,
}

impl Member {
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much it was told so far.
    pub(crate) fn told(&self) -> usize {
        self.notes().told.len()
    }

    /// Removes it; a stream stays.
    pub(crate) async fn remove(&mut self) -> bool {
        match std::mem::replace(&mut self.place, Place::Gone) {
            Place::Registered(registration) => registration.remove().await,
            place => {
                self.place = place;
                return false;
            }
        }
        self.removed_after = Some(self.told());
        true
    }

    /// Whether it may be told about a state at all.
    pub(crate) fn hears_of(&self, state: &State) -> bool {
        self.kind != Kind::Filtered || state.app == "web"
    }

    pub(crate) fn is_synced(&self) -> bool {
        match &self.place {
            Place::Registered(registration) => registration.is_synced(),
            Place::Stream { pending, .. } => pending.borrow().1,
            Place::Gone => false,
        }
    }

    pub(crate) fn pending(&self) -> usize {
        match &self.place {
            Place::Registered(registration) => registration.pending(),
            Place::Stream { pending, .. } => pending.borrow().0,
            Place::Gone => 0,
        }
    }

    /// What it believes to be there.
    pub(crate) fn believes(&self) -> Vec<State> {
        let mut objects = BTreeMap::new();
        for told in &self.notes().told {
            match told.what {
                What::Deleted => objects.remove(&told.state.key()),
                _ => objects.insert(told.state.key(), told.state.clone()),
            };
        }
        objects.into_values().collect()
    }
}

/// An informer of some type as the run knows it.
pub(crate) fn recruit<K: Send + Sync + 'static>(
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
        list: Box::new(move || states(&listed)),
        add: Box::new(move |handler, kind, log| add(&added, handler, kind, log)),
        hold: Box::new(move || {
            let snapshot = held.snapshot();
            Box::new(move || states(&snapshot))
        }),
    }
}

fn states<K>(lister: &Lister<K>) -> Vec<State> {
    lister.list().iter().map(State::of).collect()
}

fn add<K: Send + Sync + 'static>(informer: &SharedInformer<K>, name: &str, kind: Kind, log: &Log) -> Member {
    let notes: Arc<Mutex<Notes>> = Arc::default();
    let mut scribe = Scribe {
        name: name.to_owned(),
        notes: Arc::clone(&notes),
        lister: informer.lister(),
        status: informer.watch_status(),
        log: log.clone(),
    };
    let handler = informer.handler().name(name.to_owned());
    let handler = if kind == Kind::Resynced { handler.resync(RESYNC) } else { handler };
    let place = match kind {
        Kind::Merged | Kind::Resynced => registered(handler, scribe),
        Kind::Filtered => registered(handler.filter(|pod| pod.labels().get("app") == Some("web")), scribe),
        Kind::EveryState => registered(handler.every_state_up_to(8), scribe),
        Kind::Panicking => Place::Registered(handler.on(move |event| {
            scribe.note(event.into());
            if scribe.count() % 5 == 0 {
                scribe.notes.lock().unwrap_or_else(PoisonError::into_inner).panics += 1;
                // No hook, no message: it is on purpose.
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        })),
        Kind::Slow => {
            let mut events = handler.events();
            let (sender, pending) = watch::channel((usize::MAX, false));
            let task = tokio::spawn(async move {
                loop {
                    sender.send_replace((events.pending(), events.is_synced()));
                    let next = tokio::time::timeout(Duration::from_secs(10), events.next()).await;
                    match next {
                        Ok(Some(event)) => scribe.note(event.into()),
                        Ok(None) => return,
                        Err(_) => continue,
                    }
                    super::pass(Duration::from_millis(700)).await;
                }
            });
            Place::Stream { pending, task }
        }
    };
    Member { name: name.to_owned(), kind, informer: 0, notes, place, removed_after: None }
}

fn registered<K: 'static, E>(handler: HandlerBuilder<K, E>, mut scribe: Scribe<K>) -> Place
where
    E: Given<K> + Into<Delivery<K>>,
{
    Place::Registered(handler.on(move |given| scribe.note(given.into())))
}

/// Writes down what one handler is told.
struct Scribe<K> {
    name: String,
    notes: Arc<Mutex<Notes>>,
    lister: Lister<K>,
    status: watch::Receiver<Status>,
    log: Log,
}

impl<K> Scribe<K> {
    fn note(&mut self, delivery: Delivery<K>) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let event = match delivery {
            Delivery::Event(event) => event,
            Delivery::Lagged { skipped, .. } => {
                self.log.note(format_args!("{} lagged {skipped}", self.name));
                notes.skipped += skipped;
                return;
            }
            _ => return,
        };
        let object: &Object<K> = event.object();
        let (state, store) = (State::of(object), self.lister.get_by_key(object.key()));
        let what = match &event {
            Event::Added { initial, .. } => What::Added { initial: *initial },
            Event::Updated { old, cause, .. } => {
                What::Updated { old: State::of(old), resync: *cause == Cause::Resync }
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
        notes.unripe += u64::from(status.synced && status.version.is_none());
        let rewinds = status.changes.rewinds;
        drop(status);
        let store = store.as_ref().map(State::of);
        notes.told.push(Told { what, state, store, rewinds });
    }

    fn count(&self) -> usize {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).told.len()
    }
}
