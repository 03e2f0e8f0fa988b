//! How a handler is registered.

use super::deliverable::Deliverable;
use super::filter::OptionalFilter;
use super::stream::EventStream;
use super::{Handler, dispatch};
use crate::event::{Delivery, Event, Untyped};
use crate::shared::{Engine, ListenerOptions, Mode, Registration};
use informer_core::Object;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// So many pending states a handler may have that wants every one, unless it says otherwise.
const DEFAULT_UNCOALESCED_CAPACITY: usize = 10_000;

/// Registers a handler with options; made by [`SharedInformer::handler`](crate::SharedInformer::handler).
///
/// `E` is what the handler is given: an [`Event`], or after [`HandlerBuilder::uncoalesced`] a [`Delivery`].
///
/// ```no_run
/// # use informer::{Event, SharedInformer};
/// # use k8s_openapi::api::core::v1::Pod;
/// # use std::time::Duration;
/// # fn example(pods: &SharedInformer<Pod>) {
/// let _watching = pods
///     .handler()
///     .name("web pods")
///     .resync_period(Duration::from_secs(600))
///     .filter(|pod| pod.labels().get("app") == Some("web"))
///     .on_event(|event| println!("{event:?}"));
/// # }
/// ```
#[must_use = "a handler is registered by on(), register() or events()"]
pub struct HandlerBuilder<K, E = Event<K>> {
    engine: Arc<Engine>,
    name: Option<Arc<str>>,
    options: ListenerOptions,
    sieve: OptionalFilter<K>,
    given: PhantomData<fn() -> E>,
}

impl<K> HandlerBuilder<K> {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        let options = engine.listener_options();
        Self { engine, name: None, options, sieve: OptionalFilter::default(), given: PhantomData }
    }

    /// Tells every state of every object, up to 10,000 pending ones, instead of one transition per object. Past the bound the
    /// handler is told that it lagged, and by how many events; then it is told merged ones until it has caught up.
    pub fn uncoalesced(self) -> HandlerBuilder<K, Delivery<K>> {
        self.uncoalesced_with_capacity(DEFAULT_UNCOALESCED_CAPACITY)
    }

    /// The same with another bound.
    pub fn uncoalesced_with_capacity(self, bound: usize) -> HandlerBuilder<K, Delivery<K>> {
        let Self { engine, name, options, sieve, .. } = self;
        let options = ListenerOptions { uncoalesced_capacity: Some(bound), ..options };
        HandlerBuilder { engine, name, options, sieve, given: PhantomData }
    }
}

impl<K: 'static, E: Deliverable<K>> HandlerBuilder<K, E> {
    /// What it is called in messages and metrics; its type's name, unless set.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How often everything is told again (C12): spread over the period, as updates whose cause is a resync. At least a second; zero
    /// means never, also where the informer's options say otherwise.
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.options.resync_period = period;
        self
    }

    /// Only objects that match; see [`FilteringHandler`](super::FilteringHandler) for the rule. A second filter replaces the first. A
    /// filter that panics is a handler that panics; on a stream the panic is the polling task's own.
    pub fn filter(mut self, matches: impl FnMut(&Object<K>) -> bool + Send + 'static) -> Self {
        self.sieve = OptionalFilter::new(matches);
        self
    }

    /// Calls the handler on a thread that may block, instead of the runtime's. The thread is one of tokio's blocking pool: more handlers that
    /// block at the same time than it has threads (512 by default) wait for each other.
    pub fn blocking(mut self) -> Self {
        self.options.mode = Mode::Blocking;
        self
    }

    /// Calls the handler on the runtime's threads; it must not block. This is the default.
    pub fn inline(mut self) -> Self {
        self.options.mode = Mode::Inline;
        self
    }

    /// Registers a closure.
    pub fn on_event(self, mut handler: impl FnMut(E) + Send + 'static) -> Registration {
        let kind = std::any::type_name_of_val(&handler);
        self.attach(kind, move |delivery| {
            if let Some(given) = E::from_delivery(delivery) {
                handler(given);
            }
        })
    }

    /// Registers a handler.
    pub fn add(self, mut handler: impl Handler<K>) -> Registration {
        let kind = std::any::type_name_of_val(&handler);
        self.attach(kind, move |delivery| dispatch(&mut handler, delivery))
    }

    /// The events as a stream, for a task that takes them one by one. Where it runs is then that task's affair.
    pub fn event_stream(self) -> EventStream<K, E> {
        let Self { engine, name, mut options, sieve, .. } = self;
        options.name = name.unwrap_or_else(|| "event stream".into());
        EventStream::new(engine, options, sieve)
    }

    fn attach(
        self,
        kind: &'static str,
        mut handler: impl FnMut(Delivery<K>) + Send + 'static,
    ) -> Registration {
        let Self { engine, name, mut options, mut sieve, .. } = self;
        options.name = name.unwrap_or_else(|| kind.into());
        let handler = move |delivery: Delivery<Untyped>| {
            sieve.apply(delivery).map(&mut handler);
        };
        Registration::add(engine, options, Box::new(handler))
    }
}

impl<K, E> fmt::Debug for HandlerBuilder<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "handler for {}: {:?}", self.engine.resource, self.options)
    }
}
