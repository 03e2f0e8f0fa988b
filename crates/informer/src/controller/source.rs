//! Where keys come from: informers, and streams of anybody's.
//!
//! A source is declared with its type ([`TypedSource`]), so that it can be told more about, and then sealed ([`Source`]): from there on nobody knows
//! the type of its objects.

use super::external_keys::PendingExternalKeys;
use crate::coop::YieldBudget;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
use crate::informer::SharedInformer;
use crate::reference::group;
use crate::shared::{Engine, ListenerOptions, Registration, is_synced, is_unavailable};
use crate::status::InformerStatus;
use crate::workqueue::WorkQueue;
use futures::future::FutureExt as _;
use futures::stream::{BoxStream, StreamExt as _};
use informer_core::reflector::InformerState;
use informer_core::workqueue::Priority;
use informer_core::{Key, Object};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// So many states of a source may wait to be looked at. With more, everything gets a turn.
const SOURCE_CAPACITY: usize = 10_000;
/// So many keys of a stream are a turn.
const YIELD_BUDGET: u32 = 32;

/// Keys from elsewhere; none when there are no more. A run takes them where the one before it stopped.
pub(super) type Keys = Arc<tokio::sync::Mutex<Option<BoxStream<'static, Key>>>>;

/// The kind that a controller is for, as owner references name it.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    pub(super) group: Box<str>,
    pub(super) kind: Box<str>,
    pub(super) cluster_scoped: bool,
}

impl Owner {
    /// The key of the object of this kind that controls another, if one does.
    pub(super) fn of<O>(&self, object: &Object<O>) -> Option<Key> {
        let owner = object.owners().iter().find(|owner| {
            owner.controller && *owner.kind == *self.kind && group(owner.api_version) == &*self.group
        })?;
        if self.cluster_scoped {
            return Some(Key::cluster(owner.name));
        }
        // What has a namespace cannot own what has none.
        object.namespace().map(|namespace| Key::new(namespace, owner.name))
    }
}

type Map<W> = dyn Fn(&Object<W>, &mut dyn FnMut(Key)) + Send + Sync;
type Predicate<W> = Arc<dyn Fn(&Event<W>) -> bool + Send + Sync>;

/// Which keys an object concerns.
pub(super) struct KeyMapper<W>(Option<Arc<Map<W>>>);

impl<W> KeyMapper<W> {
    pub(super) fn new<I: IntoIterator<Item = Key>>(
        map: impl Fn(&Object<W>) -> I + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(move |object, tell| map(object).into_iter().for_each(tell))))
    }

    /// An object concerns its own key.
    pub(super) fn own_key() -> Self {
        Self(Some(Arc::new(|object, tell| tell(object.key().clone()))))
    }

    /// It is only read.
    pub(super) fn never() -> Self {
        Self(None)
    }
}

/// A source whose type is still known.
pub(super) struct TypedSource<L> {
    informer: SharedInformer<L>,
    trigger: KeyMapper<L>,
    predicates: Vec<Predicate<L>>,
    pub(super) optional: bool,
}

impl<L: 'static> TypedSource<L> {
    pub(super) fn new(informer: SharedInformer<L>, trigger: KeyMapper<L>) -> Self {
        Self { informer, trigger, predicates: Vec::new(), optional: false }
    }

    pub(super) fn with_predicate(&mut self, predicate: impl Fn(&Event<L>) -> bool + Send + Sync + 'static) {
        self.predicates.push(Arc::new(predicate));
    }

    pub(super) fn erase(self) -> ErasedSource {
        let Self { informer, trigger, predicates, optional } = self;
        let engine = Arc::clone(informer.engine());
        let predicates: Arc<[Predicate<L>]> = predicates.into();
        let listen = trigger.0.map(|map| -> Listen {
            Box::new(move |name, queue, main| {
                let (map, predicates) = (Arc::clone(&map), Arc::clone(&predicates));
                let handler = move |delivery: Delivery<Untyped>| match delivery.typed() {
                    Delivery::Event(event) => {
                        let passes = || predicates.iter().all(|predicate| predicate(&event));
                        let passes = catch_unwind(AssertUnwindSafe(passes));
                        // One that panics hides nothing, and is told as a handler that panicked.
                        if *passes.as_ref().unwrap_or(&true) {
                            enqueue(&queue, &event, &*map);
                        }
                        passes.map_or_else(|panic| resume_unwind(panic), drop);
                    }
                    Delivery::Lagged { .. } => enqueue_all(&queue, &main),
                };
                // Neither predicates nor maps may miss a state on which a turn could have acted: the cache is ahead of the handler, and another
                // source may have asked for that turn.
                let engine = Arc::clone(informer.engine());
                let options = ListenerOptions {
                    name,
                    uncoalesced_capacity: Some(SOURCE_CAPACITY),
                    deliver_transient_deletes: true,
                    ..engine.listener_options()
                };
                Registration::add(engine, options, Box::new(handler))
            })
        });
        ErasedSource { engine, optional, listen }
    }
}

/// Adds the keys that an event concerns.
fn enqueue<W>(queue: &WorkQueue<Key>, event: &Event<W>, map: &Map<W>) {
    // What was there already, or is told again, does not keep changes waiting.
    let priority = match event {
        Event::Added { initial: true, .. } | Event::Updated { cause: UpdateCause::Resync, .. } => {
            Priority::INITIAL
        }
        _ => Priority::NORMAL,
    };
    let mut add = |key| queue.add_with_priority(key, priority);
    // What the old state does to the map must not keep the new one from it.
    let before = match event {
        Event::Updated { old, cause: UpdateCause::Change, .. } => {
            catch_unwind(AssertUnwindSafe(|| map(old, &mut add)))
        }
        _ => Ok(()),
    };
    map(event.object(), &mut add);
    before.unwrap_or_else(|panic| resume_unwind(panic));
}

/// Asks for a turn of everything: so many states were told as one that nobody can say whom they concerned.
fn enqueue_all(queue: &WorkQueue<Key>, main: &Engine) {
    for entry in main.reader.snapshot().list() {
        queue.add_with_priority(entry.key().clone(), Priority::INITIAL);
    }
}

type Listen = Box<dyn Fn(Arc<str>, WorkQueue<Key>, Arc<Engine>) -> Registration + Send + Sync>;

/// A source, whatever its type.
pub(super) struct ErasedSource {
    pub(super) engine: Arc<Engine>,
    optional: bool,
    /// How its changes become keys; none if it is only read.
    listen: Option<Listen>,
}

impl ErasedSource {
    /// Has its changes told to a queue, for as long as the registration lives. `main` has the objects whose keys these are.
    pub(super) fn listen(
        &self,
        name: &Arc<str>,
        queue: &WorkQueue<Key>,
        main: &Arc<Engine>,
    ) -> Option<Registration> {
        self.listen.as_ref().map(|listen| listen(Arc::clone(name), queue.clone(), Arc::clone(main)))
    }

    /// Waits until everything that was there has been told, or nobody needs to wait for it; false if it has stopped.
    pub(super) async fn opened(&self, registration: Option<&Registration>) -> bool {
        let synced = async {
            match registration {
                Some(registration) => registration.wait_for_sync().await,
                None => self.reaches(is_synced).await,
            }
        };
        tokio::select! {
            biased;
            synced = synced => synced,
            absent = self.reaches(is_absent), if self.optional => absent,
        }
    }

    /// Whether the start waits for it in any case.
    pub(super) fn is_needed(&self) -> bool {
        !self.optional
    }

    /// Whether it is optional, and forbidden or not served.
    pub(super) fn is_absent(&self) -> bool {
        self.optional && is_absent(&self.engine.status())
    }

    /// Returns when it will bring nothing any more.
    pub(super) async fn ended(&self, registration: Option<&Registration>) {
        match registration {
            Some(registration) => registration.ended().await,
            None => self.engine.stopping().await,
        }
    }

    /// Why it is not synced, in words.
    pub(super) fn reason(&self) -> String {
        let status = self.engine.status();
        let resource = &self.engine.resource;
        if is_synced(&status) {
            return format!("{resource}: synced, but not all of it has been handled yet");
        }
        let optional = if self.optional { " (optional)" } else { "" };
        format!("{resource}{optional}: {}", status.state.display_at(status.now))
    }

    /// Waits until this is so, or the informer has stopped: then it is false.
    async fn reaches(&self, is: impl Fn(&InformerStatus) -> bool) -> bool {
        let mut status = self.engine.subscribe_status();
        let settled = status.wait_for(|status| is(status) || status.state == InformerState::Stopped).await;
        settled.is_ok_and(|status| is(&status))
    }
}

/// Whether a kind is forbidden or not served.
fn is_absent(status: &InformerStatus) -> bool {
    is_unavailable(&status.state) && status.state != InformerState::Stopped
}

/// Adds keys as they come, until there are no more. A stream that panics has ended.
pub(super) async fn forward_keys(
    keys: Keys,
    queue: WorkQueue<Key>,
    owed: Arc<PendingExternalKeys>,
    name: Arc<str>,
) {
    let mut keys = keys.lock().await;
    let Some(stream) = keys.as_mut() else { return };
    let mut turn = YieldBudget::new(YIELD_BUDGET);
    loop {
        match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(Some(key)) => {
                owed.add(&key);
                queue.add(key);
            }
            Ok(None) => break,
            Err(_) => {
                let controller = &*name;
                tracing::error!(controller, "a stream of keys panicked; the controller goes on without it");
                break;
            }
        }
        // A stream may always have more.
        turn.consume().await;
    }
    *keys = None;
}
