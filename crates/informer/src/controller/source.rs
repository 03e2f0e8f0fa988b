//! The origins of keys: event sources (informers) and key streams.
//!
//! A source is a [`TypedSource`] while it is configured, and becomes an [`ErasedSource`], which does not know
//! the type of its objects.

use super::pending_keys::PendingKeys;
use super::resume::UnfinishedKeys;
use super::shard_gate::GateSource;
use super::sharding::{DeletedKeys, SourceFactory, SourceRole};
use crate::coop::YieldBudget;
use crate::event::{Delivery, Event, Untyped, UpdateCause};
use crate::factory::SharedInformerFactory;
use crate::informer::SharedInformer;
use crate::reference::group;
use crate::resource::is_cluster_scoped;
use crate::shared::{DurableName, Engine, ListenerOptions, Registration, is_synced, is_unavailable};
use crate::status::InformerStatus;
use crate::workqueue::WorkQueue;
use futures::future::FutureExt as _;
use futures::stream::{BoxStream, StreamExt as _};
use informer_core::reflector::InformerState;
use informer_core::workqueue::Priority;
use informer_core::{DecodeAhead, Entry, Key, Object, StoreReader};
use kube::Resource;
use serde::de::DeserializeOwned;
use std::any::Any;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// Maximum number of pending events per source. If there are more, events are coalesced, and every key of
/// the controller's own kind is queued.
const SOURCE_CAPACITY: usize = 10_000;
/// Number of keys forwarded from a stream before the task is rescheduled.
const YIELD_BUDGET: u32 = 32;

/// A stream of external keys; `None` once it has ended. Each run continues where the previous run stopped.
pub(super) type KeyStream = Arc<tokio::sync::Mutex<Option<BoxStream<'static, Key>>>>;

/// The destination of keys that are to be reconciled.
#[derive(Clone)]
pub(super) struct KeySink {
    pub(super) queue: WorkQueue<Key>,
    /// The keys that are not reconciled successfully, if they are recorded.
    pub(super) unfinished: Option<Arc<UnfinishedKeys>>,
}

impl KeySink {
    pub(super) fn add(&self, key: Key) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    pub(super) fn add_with_priority(&self, key: Key, priority: Priority) {
        if let Some(unfinished) = &self.unfinished {
            unfinished.add(&key);
        }
        self.queue.add_with_priority(key, priority);
    }

    /// Queues all keys of the controller's own kind: the keys to which some events map are unknown.
    pub(super) fn enqueue_all(&self, own_kind: &StoreReader) {
        for entry in own_kind.snapshot().list() {
            self.add_with_priority(entry.key().clone(), Priority::INITIAL);
        }
    }
}

/// The kind of the controller, as it appears in owner references.
#[derive(Debug, Clone)]
pub(super) struct OwnerKind {
    pub(super) group: Box<str>,
    pub(super) kind: Box<str>,
    pub(super) cluster_scoped: bool,
}

impl OwnerKind {
    /// Returns the key and the uid of the object of this kind that controls `object`, if there is one.
    pub(super) fn owner<'a, O>(&self, object: &'a Object<O>) -> Option<(Key, &'a str)> {
        let owner = object.owners().iter().find(|owner| {
            owner.controller && *owner.kind == *self.kind && group(owner.api_version) == &*self.group
        })?;
        if self.cluster_scoped {
            return Some((Key::cluster(owner.name), owner.uid));
        }
        // A namespaced object cannot own a cluster-scoped one.
        object.namespace().map(|namespace| (Key::new(namespace, owner.name), owner.uid))
    }
}

type Map<W> = dyn Fn(&Object<W>, &mut dyn FnMut(Key)) + Send + Sync;
type Predicate<W> = Arc<dyn Fn(&Event<W>) -> bool + Send + Sync>;

/// Maps an object to the keys to queue; `None` queues no keys.
pub(super) struct KeyMapper<W>(Option<Arc<Map<W>>>);

impl<W> KeyMapper<W> {
    pub(super) fn new<I: IntoIterator<Item = Key>>(
        map: impl Fn(&Object<W>) -> I + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(move |object, emit| map(object).into_iter().for_each(emit))))
    }

    /// Maps every object to its own key.
    pub(super) fn own_key() -> Self {
        Self(Some(Arc::new(|object, emit| emit(object.key().clone()))))
    }

    /// Maps objects to no keys, for sources that are only read.
    pub(super) fn never() -> Self {
        Self(None)
    }
}

/// A source under configuration, with the type of its objects.
pub(super) struct TypedSource<L> {
    informer: SourceInformer<L>,
    role: SourceRole,
    mapper: KeyMapper<L>,
    predicates: Vec<Predicate<L>>,
    pub(super) optional: bool,
}

/// A source whose informer is created when the controller is complete.
pub(super) type PendingSource = Box<dyn FnOnce(&SourceFactory<'_>) -> ErasedSource + Send + Sync>;

/// The informer of a source.
pub(super) enum SourceInformer<L> {
    Given(SharedInformer<L>),
    /// One of the controller's factory, or of its view for the shard group.
    OfKind {
        cluster_scoped: bool,
        create: CreateInformer<L>,
    },
}

type CreateInformer<L> = Box<dyn FnOnce(&SharedInformerFactory) -> SharedInformer<L> + Send + Sync>;

impl<L: 'static> SourceInformer<L> {
    /// Returns the informer of a kind that is known at compile time.
    pub(super) fn of_kind() -> Self
    where
        L: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync,
    {
        let create = Box::new(SharedInformerFactory::informer::<L>);
        Self::OfKind { cluster_scoped: is_cluster_scoped::<L>(), create }
    }
}

impl<L: 'static> TypedSource<L> {
    pub(super) fn new(informer: SourceInformer<L>, role: SourceRole, mapper: KeyMapper<L>) -> Self {
        Self { informer, role, mapper, predicates: Vec::new(), optional: false }
    }

    pub(super) fn with_predicate(&mut self, predicate: impl Fn(&Event<L>) -> bool + Send + Sync + 'static) {
        self.predicates.push(Arc::new(predicate));
    }

    /// Returns a function that completes the source when the settings of the controller are known.
    pub(super) fn pending(self) -> PendingSource {
        Box::new(|factory| self.erase(factory))
    }

    fn erase(self, factory: &SourceFactory<'_>) -> ErasedSource {
        let Self { informer, role, mapper, predicates, optional } = self;
        factory.record_role(role);
        let (informer, cluster_scoped) = match informer {
            SourceInformer::Given(informer) => (informer, false),
            SourceInformer::OfKind { cluster_scoped, create } => {
                (create(&factory.view(role, cluster_scoped)), cluster_scoped)
            }
        };
        factory.record_ranges(role, cluster_scoped, informer.engine().shard.as_ref());
        let deleted_keys = factory.deleted_keys(role);
        let (engine, decode_ahead) = (Arc::clone(informer.engine()), informer.decode_ahead());
        let mapping = mapper.0.map(|map| Arc::new(EventMapping { map, predicates }));
        let queue_initial = mapping.clone().map(|mapping| -> QueueInitial {
            Box::new(move |sink, entry| mapping.queue_initial(sink, entry))
        });
        let listen = mapping.map(|mapping| -> Listen {
            Box::new(move |name, sink, own_engine, durable| {
                let (mapping, deleted_keys) = (Arc::clone(&mapping), deleted_keys.clone());
                let handler = move |delivery: Delivery<Untyped>| match delivery.typed() {
                    Delivery::Event(event) => {
                        let Some(event) = since_last_process(event) else { return };
                        let queued = mapping.queue(&sink, &event, deleted_keys.as_deref());
                        if queued.is_err() && sink.unfinished.is_some() {
                            // A restart does not queue the keys of this event either.
                            sink.enqueue_all(&own_engine.reader);
                        }
                        queued.unwrap_or_else(|panic| resume_unwind(panic));
                    }
                    Delivery::Lagged { .. } => sink.enqueue_all(&own_engine.reader),
                    // Another process reconciles the object.
                    Delivery::Released { .. } => {}
                };
                // Predicates and mappers must see every state on which a reconcile may have acted, without
                // coalescing: the cache is ahead of the handler, and an event of another source may already
                // have caused a reconcile that read such a state.
                let engine = Arc::clone(informer.engine());
                let options = ListenerOptions {
                    name,
                    uncoalesced_capacity: Some(SOURCE_CAPACITY),
                    deliver_transient_deletes: true,
                    durable,
                    ..engine.listener_options()
                };
                Registration::add(engine, options, Box::new(handler))
            })
        });
        ErasedSource { engine, optional, listen, queue_initial, _decode_ahead: decode_ahead }
    }
}

/// The payload of a panic.
type Panic = Box<dyn Any + Send>;

/// Which events lead to which keys.
struct EventMapping<L> {
    map: Arc<Map<L>>,
    predicates: Vec<Predicate<L>>,
}

impl<L> EventMapping<L> {
    /// Queues the keys of an event, after a deletion was recorded in `deleted_keys`. If a predicate panics, the event
    /// passes; the first panic is returned.
    fn queue(
        &self,
        sink: &KeySink,
        event: &Event<L>,
        deleted_keys: Option<&DeletedKeys>,
    ) -> Result<(), Panic> {
        let check = || self.predicates.iter().all(|predicate| predicate(event));
        let passes = catch_unwind(AssertUnwindSafe(check));
        let mut queued = Ok(());
        if *passes.as_ref().unwrap_or(&true) {
            if let (Some(deleted), Event::Deleted { last, .. }) = (deleted_keys, event) {
                deleted.record(last.key(), last.uid());
            }
            queued = catch_unwind(AssertUnwindSafe(|| enqueue(sink, event, &*self.map)));
        }
        passes.map(drop).and(queued)
    }

    /// Queues the keys of an object, as if nothing was known of an earlier process.
    fn queue_initial(&self, sink: &KeySink, entry: &Arc<Entry>) -> Result<(), Panic> {
        let object = Object::new(Arc::clone(entry));
        self.queue(sink, &Event::Added { object, initial: true, previous: None }, None)
    }
}

/// Returns the change since the state that the controller has handled in an earlier process; `None` if there is
/// none.
fn since_last_process<W>(event: Event<W>) -> Option<Event<W>> {
    match event {
        Event::Added { object, previous: Some(previous), .. } => {
            let (old, new) = (previous.entry(), object.entry());
            let is_same = Arc::ptr_eq(old, new) || old.is_same_state(new);
            (!is_same).then(|| Event::Updated { old: previous, new: object, cause: UpdateCause::Change })
        }
        event => Some(event),
    }
}

/// Queues the keys that the mapper returns for an event.
fn enqueue<W>(sink: &KeySink, event: &Event<W>, map: &Map<W>) {
    // Changes are processed before the initial list and resyncs.
    let priority = match event {
        Event::Added { initial: true, .. } | Event::Updated { cause: UpdateCause::Resync, .. } => {
            Priority::INITIAL
        }
        _ => Priority::NORMAL,
    };
    let mut queued = HashSet::new();
    // A panic of the mapper for the old state must not prevent the call for the new state.
    let old_state_result = match event {
        Event::Updated { old, cause: UpdateCause::Change, .. } => {
            let mut add = |key: Key| {
                queued.insert(key.clone());
                sink.add_with_priority(key, priority);
            };
            catch_unwind(AssertUnwindSafe(|| map(old, &mut add)))
        }
        _ => Ok(()),
    };
    // Each key once: between two adds, a worker could take the key, and would process it again after the second one.
    map(event.object(), &mut |key| {
        if !queued.contains(&key) {
            sink.add_with_priority(key, priority);
        }
    });
    old_state_result.unwrap_or_else(|panic| resume_unwind(panic));
}

type Listen = Box<dyn Fn(Arc<str>, KeySink, Arc<Engine>, Option<DurableName>) -> Registration + Send + Sync>;

type QueueInitial = Box<dyn Fn(&KeySink, &Arc<Entry>) -> Result<(), Panic> + Send + Sync>;

/// A source without the type of its objects.
pub(super) struct ErasedSource {
    pub(super) engine: Arc<Engine>,
    optional: bool,
    /// Registers the handler that queues keys; `None` if the source is only read.
    listen: Option<Listen>,
    /// Queues the keys of an object.
    queue_initial: Option<QueueInitial>,
    /// Decodes objects when they arrive, if the retention is `Decoded`.
    _decode_ahead: Option<DecodeAhead>,
}

impl ErasedSource {
    /// Creates a source whose events queue no key.
    pub(super) fn only_read(engine: Arc<Engine>) -> Self {
        Self { engine, optional: false, listen: None, queue_initial: None, _decode_ahead: None }
    }

    /// Registers a handler that adds keys to `sink` until the registration is dropped. `own_engine`
    /// belongs to the informer of the controller's own kind.
    pub(super) fn listen(
        &self,
        name: &Arc<str>,
        sink: &KeySink,
        own_engine: &Arc<Engine>,
        durable: Option<DurableName>,
    ) -> Option<Registration> {
        let listen = self.listen.as_ref()?;
        Some(listen(Arc::clone(name), sink.clone(), Arc::clone(own_engine), durable))
    }

    /// Queues the keys of all cached objects, whether or not they have changed since an earlier process. Returns whether
    /// a predicate or mapper has panicked.
    pub(super) async fn queue_all(&self, sink: &KeySink) -> bool {
        let Some(queue_initial) = &self.queue_initial else { return false };
        let (snapshot, mut panics) = (self.engine.reader.snapshot(), 0_u64);
        let mut budget = YieldBudget::new(YIELD_BUDGET);
        // Restored entries of a source that is absent are not confirmed.
        for entry in snapshot.list().filter(|entry| snapshot.is_confirmed(entry.key())) {
            panics += u64::from(queue_initial(sink, entry).is_err());
            budget.consume().await;
        }
        if panics > 0 {
            tracing::error!(panics, "predicates or mappers of a controller panicked");
        }
        panics > 0
    }

    /// Waits until the initial list has been handled, or the source is optional and unavailable; returns
    /// false if the informer has stopped.
    pub(super) async fn wait_until_ready(&self, registration: Option<&Registration>) -> bool {
        let synced = async {
            match registration {
                Some(registration) => registration.wait_for_sync().await,
                None => self.wait_for_status(is_synced).await,
            }
        };
        tokio::select! {
            biased;
            synced = synced => synced,
            absent = self.wait_for_status(is_absent), if self.optional => absent,
        }
    }

    /// Returns whether the controller cannot start without the source.
    pub(super) fn is_required(&self) -> bool {
        !self.optional
    }

    /// Returns the source as the gate of a sharded controller sees it.
    pub(super) fn gate_source(&self) -> GateSource {
        GateSource { engine: Arc::clone(&self.engine), optional: self.optional }
    }

    /// Returns whether the source is optional, and forbidden or not served.
    pub(super) fn is_absent(&self) -> bool {
        self.optional && is_absent(&self.engine.status())
    }

    /// Waits until the source will deliver no more events.
    pub(super) async fn wait_until_stopped(&self, registration: Option<&Registration>) {
        match registration {
            Some(registration) => registration.ended().await,
            None => self.engine.wait_for_stop_request().await,
        }
    }

    /// Describes why the source is not ready.
    pub(super) fn reason(&self) -> String {
        let status = self.engine.status();
        let resource = &self.engine.description;
        if is_synced(&status) {
            return format!("{resource}: synced, but its initial list is not handled yet");
        }
        let optional = if self.optional { " (optional)" } else { "" };
        format!("{resource}{optional}: {}", status.state.display_at(status.now))
    }

    /// Waits until `condition` holds for the status; returns false if the informer stops first.
    async fn wait_for_status(&self, condition: impl Fn(&InformerStatus) -> bool) -> bool {
        let mut status = self.engine.subscribe_status();
        let reached =
            status.wait_for(|status| condition(status) || status.state == InformerState::Stopped).await;
        reached.is_ok_and(|status| condition(&status))
    }
}

/// Returns whether a kind is forbidden or not served.
fn is_absent(status: &InformerStatus) -> bool {
    is_unavailable(&status.state) && status.state != InformerState::Stopped
}

/// Queues the keys of a stream until it ends or panics.
pub(super) async fn forward_keys(
    keys: KeyStream,
    sink: KeySink,
    pending: Arc<PendingKeys>,
    controller_name: Arc<str>,
) {
    let mut keys = keys.lock().await;
    let Some(stream) = keys.as_mut() else { return };
    let mut budget = YieldBudget::new(YIELD_BUDGET);
    loop {
        match AssertUnwindSafe(stream.next()).catch_unwind().await {
            Ok(Some(key)) => {
                pending.add(&key);
                sink.add(key);
            }
            Ok(None) => break,
            Err(_) => {
                let controller = &*controller_name;
                tracing::error!(controller, "a key stream panicked; the controller continues without it");
                break;
            }
        }
        // A stream that is always ready must not block its thread.
        budget.consume().await;
    }
    *keys = None;
}
