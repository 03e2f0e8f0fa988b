//! The builder that adds a handler with options to an informer.

use super::deliverable::Deliverable;
use super::filter::OptionalFilter;
use super::name::short_name;
use super::stream::EventStream;
use super::{Handler, dispatch};
use crate::event::{Delivery, Event, Untyped};
#[cfg(feature = "persistence")]
use crate::shared::DurableName;
use crate::shared::{Engine, ListenerOptions, Mode, Registration};
use informer_core::Object;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Default upper bound on the pending events of an uncoalesced handler.
const DEFAULT_UNCOALESCED_CAPACITY: usize = 10_000;

/// A builder for a handler with options, created by
/// [`SharedInformer::handler`](crate::SharedInformer::handler).
///
/// `E` is the type that the handler receives: [`Event`], or [`Delivery`] after
/// [`HandlerBuilder::uncoalesced`].
///
/// ```no_run
/// # use informer::{Event, SharedInformer};
/// # use k8s_openapi::api::core::v1::Pod;
/// # use std::time::Duration;
/// # fn example(pods: &SharedInformer<Pod>) {
/// let _registration = pods
///     .handler()
///     .name("web pods")
///     .resync_period(Duration::from_secs(600))
///     .filter(|pod| pod.labels().get("app") == Some("web"))
///     .on_event(|event| println!("{event:?}"));
/// # }
/// ```
#[must_use = "call on_event(), add() or event_stream() to add the handler"]
pub struct HandlerBuilder<K, E = Event<K>> {
    engine: Arc<Engine>,
    name: Option<Arc<str>>,
    options: ListenerOptions,
    filter: OptionalFilter<K>,
    item: PhantomData<fn() -> E>,
}

impl<K> HandlerBuilder<K> {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let options = engine.listener_options();
        Self { engine, name: None, options, filter: OptionalFilter::default(), item: PhantomData }
    }

    /// Delivers every state as its own event while at most 10,000 events are pending.
    ///
    /// See [`uncoalesced_with_capacity`](Self::uncoalesced_with_capacity).
    pub fn uncoalesced(self) -> HandlerBuilder<K, Delivery<K>> {
        self.uncoalesced_with_capacity(DEFAULT_UNCOALESCED_CAPACITY)
    }

    /// Delivers every state as its own event while at most `capacity` events are pending.
    ///
    /// If more events are pending, changes of the same object are coalesced. The handler then receives
    /// [`Delivery::Lagged`] with the number of skipped events, followed by the coalesced events; once it
    /// has caught up, it receives every state again. The initial list does not count against the capacity.
    /// A capacity of zero is raised to one.
    pub fn uncoalesced_with_capacity(self, capacity: usize) -> HandlerBuilder<K, Delivery<K>> {
        let Self { engine, name, options, filter, .. } = self;
        let options = ListenerOptions { uncoalesced_capacity: Some(capacity), ..options };
        HandlerBuilder { engine, name, options, filter, item: PhantomData }
    }

    /// Delivers also the [release](Delivery::Released) of objects that belong to another process of a
    /// [shard group](crate::shard::ShardGroup) from now on.
    ///
    /// Closures and event streams receive only events otherwise. A [`Handler`] receives releases in any case.
    pub fn with_releases(self) -> HandlerBuilder<K, Delivery<K>> {
        let Self { engine, name, options, filter, .. } = self;
        HandlerBuilder { engine, name, options, filter, item: PhantomData }
    }
}

impl<K: 'static, E: Deliverable<K>> HandlerBuilder<K, E> {
    /// Sets the name of the handler in diagnostics and metrics.
    ///
    /// Defaults to the type of the handler without its path (`Count`), to the function that contains the
    /// closure (`App::new`), or to `event stream`. A [`FilteringHandler`](super::FilteringHandler) has the
    /// name of the handler that it forwards to.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the period at which the handler receives every cached object again (C12).
    ///
    /// The objects are spread over the period and delivered as updates with
    /// [`UpdateCause::Resync`](crate::UpdateCause::Resync); no request is sent. Zero disables resyncs, even
    /// if the informer's options enable them; shorter periods than one second are raised to one second.
    /// Defaults to the period of the informer's options.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.options.resync_period = period;
        self
    }

    /// Saves which events the handler has acknowledged, under this name, together with the
    /// [saved cache](crate::InformerOptions::persist) of the informer.
    ///
    /// - In the next process, the handler with this name also receives `Deleted { observed: false }` for each object
    ///   that it knew and that vanished while no process ran (C2 across restarts), or that was saved, but that it had
    ///   not received. These events come first, then all objects as initial, with the state that the handler has
    ///   acknowledged (`previous` in [`Event::Added`]; [`Handler`] does not receive it).
    /// - Delivery is at least once. An event is acknowledged when the handler has returned, even by a panic, or when
    ///   the next event or batch of its stream is requested. If the process dies before the acknowledgement is saved,
    ///   about once per second, the event is repeated by the next process.
    /// - Events are delivered after they were saved, usually within 0.1 s. The first events follow when the informer
    ///   is synced. If the disk fails, events are not withheld, and a deletion may be missed after the process has
    ///   died. If it does not respond, they are, and the status contains an error after 10 s.
    /// - A shutdown waits a second until the stream has ended, so that its last events are acknowledged. Poll it in
    ///   another task than the one that waits for the shutdown, or drop it before.
    /// - If the next process does not use the saved cache
    ///   ([`ColdStartReason`](crate::status::ColdStartReason)), or if processes have run for 30 days without
    ///   the name, the handler
    ///   begins as a new one.
    ///
    /// The name must be unique among the handlers of the informer. If it is not, if the cache is not persisted, or if
    /// the handler has a [filter](Self::filter), the handler works as any other, and
    /// [`Diagnostic::NotDurable`](crate::status::Diagnostic::NotDurable) is reported.
    #[cfg(feature = "persistence")]
    pub fn durable(mut self, name: impl Into<Arc<str>>) -> Self {
        self.options.durable = Some(DurableName { name: name.into(), versions: None, keys: None });
        self
    }

    /// Delivers only the events of objects that match; see [`FilteringHandler`](super::FilteringHandler)
    /// for the rule.
    ///
    /// A second filter replaces the first. A panic in the filter counts as a panic of the handler; in an
    /// event stream it unwinds into the task that polls the stream.
    pub fn filter(mut self, matches: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        self.filter = OptionalFilter::new(matches);
        self.options.is_filtered = true;
        self
    }

    /// Calls the handler on a thread of tokio's blocking pool, where it may block.
    ///
    /// If more handlers block at the same time than the pool has threads (512 by default), the others wait.
    pub fn blocking(mut self) -> Self {
        self.options.mode = Mode::Blocking;
        self
    }

    /// Calls the handler on the runtime's threads, where it must not block.
    ///
    /// This is the default. Calls of 100 ms or more are reported.
    pub fn inline(mut self) -> Self {
        self.options.mode = Mode::Inline;
        self
    }

    /// Adds a closure as the handler.
    pub fn on_event(self, mut handler: impl FnMut(E) + Send + 'static) -> Registration {
        let default_name = short_name(std::any::type_name_of_val(&handler));
        self.attach(default_name, move |delivery| {
            if let Some(item) = E::from_delivery(delivery) {
                handler(item);
            }
        })
    }

    /// Adds a [`Handler`]. [`SharedInformer::add_handler`](crate::SharedInformer::add_handler) is this with
    /// default options.
    #[expect(clippy::should_implement_trait, reason = "adds a handler, not a number")]
    pub fn add(self, mut handler: impl Handler<K>) -> Registration {
        let default_name = short_name(std::any::type_name_of_val(&handler));
        self.attach(default_name, move |delivery| dispatch(&mut handler, delivery))
    }

    /// Returns the events as a stream.
    ///
    /// [`blocking`](Self::blocking) has no effect: the task that polls the stream decides where it runs.
    pub fn event_stream(self) -> EventStream<K, E> {
        let Self { engine, name, mut options, filter, .. } = self;
        options.name = name.unwrap_or_else(|| "event stream".into());
        EventStream::new(engine, options, filter)
    }

    fn attach(
        self,
        default_name: String,
        mut handler: impl FnMut(Delivery<K>) + Send + 'static,
    ) -> Registration {
        let Self { engine, name, mut options, mut filter, .. } = self;
        options.name = name.unwrap_or_else(|| default_name.into());
        let handler = move |delivery: Delivery<Untyped>| {
            filter.apply(delivery).map(&mut handler);
        };
        Registration::add(engine, options, Box::new(handler))
    }
}

impl<K, E> fmt::Debug for HandlerBuilder<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler for {}: {:?}", self.engine.description, self.options)
    }
}
