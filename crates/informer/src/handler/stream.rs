//! The event stream: events taken by polling instead of a callback.

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

/// A stream of the events of an informer.
///
/// The stream keeps the informer alive; dropping the stream stops the delivery. The stream ends when the
/// informer ends, after the events that were received until then. If the stream is polled slowly, the pending
/// changes of an object are coalesced into one event, or two if the object was deleted and re-created (C8).
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
#[must_use = "dropping an event stream stops the delivery"]
pub struct EventStream<K, E = Event<K>> {
    listener: PolledListener,
    filter: OptionalFilter<K>,
    item: PhantomData<fn() -> E>,
}

impl<K: 'static, E: Deliverable<K>> EventStream<K, E> {
    pub(super) fn new(engine: Arc<Engine>, options: ListenerOptions, filter: OptionalFilter<K>) -> Self {
        Self { listener: PolledListener::new(engine, options), filter, item: PhantomData }
    }

    /// Waits for the next event; returns `None` when the informer has ended.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe: no event is lost.
    pub async fn next(&mut self) -> Option<E> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// Waits for the next event, and returns it together with other pending events, at most `max` in total
    /// (at least one).
    ///
    /// Returns an empty vector when the informer has ended. Useful where a batch costs as much as one event,
    /// such as a transaction of a database. The events of a [durable](super::HandlerBuilder::durable) handler are
    /// acknowledged when the next batch is requested.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe: no event is lost.
    pub async fn next_batch(&mut self, max: usize) -> Vec<E> {
        std::future::poll_fn(|context| self.poll_batch(context, max.max(1))).await
    }

    /// Waits until the stream has received the complete initial list: its events are pending, unless they were
    /// taken already.
    ///
    /// Takes no event, so that the initial list can be taken as a whole. Returns `false` if the informer has
    /// ended before, and waits as long as the informer cannot list its objects; see
    /// [`SharedInformer::wait_for_sync`](crate::SharedInformer::wait_for_sync) for a timeout and the reason.
    ///
    /// ```
    /// # use informer::SharedInformerFactory;
    /// # use k8s_openapi::api::core::v1::Namespace;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = informer_apiserver::ApiServer::new();
    /// # let factory = SharedInformerFactory::new(server.client());
    /// let mut events = factory.informer::<Namespace>().event_stream();
    /// factory.start();
    ///
    /// events.wait_for_initial_list().await;
    /// let namespaces = events.next_batch(usize::MAX).await;
    /// assert!(namespaces.iter().any(|event| event.object().name() == "default"));
    /// # }
    /// ```
    ///
    /// If the list is empty, or a filter drops all its events, `next_batch` waits for the next change.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe. The future does not borrow the stream: another task can wait while this
    /// one takes events.
    pub fn wait_for_initial_list(&self) -> impl Future<Output = bool> + Send + use<K, E> {
        self.listener.wait_for_initial_list()
    }

    /// Waits until every event of the initial list has been taken, and the stream was polled again afterwards,
    /// as [`Registration::wait_for_sync`](crate::Registration::wait_for_sync) does for a handler.
    ///
    /// Returns `false` if that will never happen, because the informer has ended before. Another task has to
    /// take the events meanwhile.
    ///
    /// # Cancel safety
    ///
    /// This function is cancel safe. The future does not borrow the stream.
    pub fn wait_for_sync(&self) -> impl Future<Output = bool> + Send + use<K, E> {
        self.listener.wait_for_sync()
    }

    /// Returns whether every event of the initial list has been taken, and the stream was polled again
    /// afterwards.
    pub fn has_synced(&self) -> bool {
        self.listener.has_synced()
    }

    /// Returns the number of objects with pending events, or of pending events if the stream is uncoalesced;
    /// including those that the filter will drop.
    pub fn pending_events(&self) -> usize {
        self.listener.backlog().0
    }

    /// Returns the age of the oldest pending event; `None` if no event is pending.
    pub fn oldest_pending_age(&self) -> Option<Duration> {
        self.listener.backlog().1
    }

    /// A batch is one unit of work for the task's budget, however large: the caller has chosen its size.
    fn poll_batch(&mut self, context: &mut Context<'_>, max: usize) -> Poll<Vec<E>> {
        let budget = std::task::ready!(tokio::task::coop::poll_proceed(context));
        let mut batch = Vec::new();
        for _ in 0..max {
            // What the filter has dropped needs no processing.
            let polled = if batch.is_empty() {
                self.listener.poll_next(context)
            } else {
                self.listener.poll_further(context)
            };
            match polled {
                Poll::Ready(Some(delivery)) => {
                    budget.made_progress();
                    batch.extend(self.filter.apply(delivery).and_then(E::from_delivery));
                }
                Poll::Ready(None) => {
                    budget.made_progress();
                    return Poll::Ready(batch);
                }
                Poll::Pending if batch.is_empty() => return Poll::Pending,
                Poll::Pending => return Poll::Ready(batch),
            }
        }
        if batch.is_empty() {
            // The filter has dropped all of them, and more may be pending.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(batch)
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Option<E>> {
        loop {
            // The task must yield even if the backlog is long, or if the filter drops all of it.
            let budget = std::task::ready!(tokio::task::coop::poll_proceed(context));
            let Some(delivery) = std::task::ready!(self.listener.poll_next(context)) else {
                return Poll::Ready(None);
            };
            budget.made_progress();
            if let Some(item) = self.filter.apply(delivery).and_then(E::from_delivery) {
                return Poll::Ready(Some(item));
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
        write!(f, "event stream of {}", self.listener.description())
    }
}
