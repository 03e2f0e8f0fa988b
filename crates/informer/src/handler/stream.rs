//! Events as a stream.

use super::deliverable::Deliverable;
use super::filter::OptionalFilter;
use crate::event::Event;
use crate::shared::{Engine, ListenerOptions, PolledListener};
use futures::Stream;
use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// The events of an informer, taken one by one. Keeps the informer alive; dropping it ends the listening.
///
/// It ends when the informer does, after what was received by then. A stream that is polled slowly sees fewer, larger steps, and costs
/// at most one pending transition per object (C8).
///
/// ```no_run
/// # use informer::SharedInformer;
/// # use k8s_openapi::api::core::v1::Pod;
/// # async fn example(pods: &SharedInformer<Pod>) {
/// let mut events = pods.event_stream();
/// while let Some(event) = events.next().await {
///     println!("{event:?}");
/// }
/// # }
/// ```
#[must_use = "dropping a stream ends its listening"]
pub struct EventStream<K, E = Event<K>> {
    pull: PolledListener,
    sieve: OptionalFilter<K>,
    given: PhantomData<fn() -> E>,
}

impl<K: 'static, E: Deliverable<K>> EventStream<K, E> {
    pub(super) fn new(engine: Arc<Engine>, options: ListenerOptions, sieve: OptionalFilter<K>) -> Self {
        Self { pull: PolledListener::new(engine, options), sieve, given: PhantomData }
    }

    /// The next event; `None` when the informer has ended. Safe to cancel: nothing is lost.
    pub async fn next(&mut self) -> Option<E> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// Whether every event of the initial set has been taken, and the next one was asked for.
    pub fn has_synced(&self) -> bool {
        self.pull.has_synced()
    }

    /// How many objects there is still something to tell about; of a stream of every state, how many states.
    pub fn pending_events(&self) -> usize {
        self.pull.backlog().0
    }

    /// For how long the oldest of them has been waiting.
    pub fn oldest_pending_age(&self) -> Option<Duration> {
        self.pull.backlog().1
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            // A long backlog, or one of which nothing passes, must not keep the task from yielding.
            let budget = std::task::ready!(tokio::task::coop::poll_proceed(context));
            let Some(told) = std::task::ready!(self.pull.poll_next(context)) else {
                return Poll::Ready(None);
            };
            budget.made_progress();
            if let Some(given) = self.sieve.apply(told).and_then(E::from_delivery) {
                return Poll::Ready(Some(given));
            }
        }
    }
}

impl<K: 'static, E: Deliverable<K>> Stream for EventStream<K, E> {
    type Item = E;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<E>> {
        self.get_mut().poll_event(context)
    }
}

impl<K, E> Unpin for EventStream<K, E> {}

impl<K, E> fmt::Debug for EventStream<K, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event stream of {}", self.pull.resource())
    }
}
