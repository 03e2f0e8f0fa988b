//! The work queue: keys to be processed by workers, each key by one worker at a time (C14).
//!
//! [`WorkQueue`] corresponds to client-go's rate limiting queue, and has a worker loop as an example.

// `informer_core::workqueue::Queue` makes all decisions; this is its async interface. The queue has no task of
// its own: one of the tasks waiting in `WorkQueue::get` also runs the timer for delayed keys. The lock is held
// for one operation of the queue and never across an await; wakers are called after the lock is released.

mod get;
mod item;
mod lock;
mod metrics;
mod waiters;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use informer_core::Moment;
use informer_core::workqueue::{Queue, QueueMetrics};

pub use get::{Drained, Get};
pub use item::WorkItem;

pub use informer_core::workqueue::{
    ExponentialBackoff, FastSlow, MaxOf, Priority, RateLimiter, RetryLimit, TokenBucket, WithMaxDelay,
};

use crate::clock::Clock;
use crate::error::{ShutdownError, Unfinished};
use lock::Mutex;
use waiters::Waiters;

/// A queue of keys to be processed, each by one worker at a time (C14). Clones are handles of the same queue.
///
/// A key that is added several times before a worker takes it is processed once; a key that is added while it
/// is being processed is processed once more. A worker finishes its [`WorkItem`] as succeeded or failed; an
/// item that is dropped counts as failed, so that no key is lost with a worker that was cancelled or
/// panicked.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = informer::workqueue::WorkQueue::new();
/// queue.add("default/web");
/// queue.add("default/web");
///
/// let item = queue.get().await.expect("the queue is open");
/// assert_eq!(*item, "default/web");
/// item.done();                                  // or `retry()`, with backoff, or `retry_after(…)`
///
/// queue.shutdown();
/// assert!(queue.get().await.is_none());         // workers end here
/// # }
/// ```
///
/// # Workers
///
/// A handler adds keys, and workers read the current state of each key from the cache:
///
/// ```
/// use informer::{Object, SharedInformerFactory, workqueue::WorkQueue};
/// use k8s_openapi::api::core::v1::Namespace;
/// use std::time::Duration;
///
/// async fn process(namespace: Option<Object<Namespace>>) -> Result<(), kube::Error> {
///     // `None`: the namespace was deleted.
/// #   Ok(drop(namespace))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), informer::Error> {
/// # let server = informer_apiserver::ApiServer::new();
/// # let client = server.client();
/// let factory = SharedInformerFactory::new(client);
/// let (namespaces, queue) = (factory.informer::<Namespace>(), WorkQueue::new());
/// let adding = queue.clone();
/// let registration = namespaces.on_event(move |event| adding.add(event.object().key().clone()));
/// factory.start();
/// factory.wait_for_sync(Duration::from_secs(30)).await?;
///
/// let mut workers = tokio::task::JoinSet::new();
/// for _ in 0..2 {
///     let (queue, lister) = (queue.clone(), namespaces.lister());
///     workers.spawn(async move {
///         while let Some(item) = queue.get().await {       // `None` once the queue is shut down and empty
///             match process(lister.get_by_key(&item)).await {
///                 Ok(()) => item.done(),
///                 Err(error) if item.retries() >= 5 => {
///                     eprintln!("{}: {error}", item.key());
///                     item.give_up();
///                 }
///                 Err(_) => drop(item.retry()),            // returns the delay
///             }
///         }
///     });
/// }
/// # registration.wait_for_sync().await;
/// // … until the program stops.
/// registration.remove().await;
/// queue.drain(Duration::from_secs(5)).await?;             // finishes the queued keys
/// workers.join_all().await;
/// factory.shutdown(Duration::from_secs(5)).await?;
/// # assert!(queue.metrics().work_duration.count() >= 4, "the initial namespaces of a server");
/// # Ok(())
/// # }
/// ```
pub struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    clock: Clock,
    /// Whether the queue has a [`RetryLimit`].
    limits_retries: bool,
}

struct State<T> {
    queue: Queue<T>,
    /// Tasks that wait for a key.
    getters: Waiters,
    /// Tasks that wait until the queue is drained.
    drainers: Waiters,
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug + 'static> WorkQueue<T> {
    /// Creates a queue with exponential backoff per key, from 5 ms to 1,000 s, with jitter so that keys that
    /// failed together are not retried together.
    pub fn new() -> Self {
        Self::with_rate_limiter(ExponentialBackoff::default().jitter(seed()))
    }
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug + 'static> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Eq + Hash + Clone> WorkQueue<T> {
    /// Creates a queue whose retries are delayed by `limiter`.
    pub fn with_rate_limiter(limiter: impl RateLimiter<T> + 'static) -> Self {
        Self::with_limits(limiter, None)
    }

    /// Creates a queue whose retries are delayed by `limiter`, each key for itself, and limited by
    /// `retry_limit`, all keys together.
    ///
    /// The queues of controllers have such a limit by default, others do not.
    pub fn with_limits(
        limiter: impl RateLimiter<T> + 'static,
        retry_limit: impl Into<Option<RetryLimit>>,
    ) -> Self {
        let (mut queue, retry_limit) = (Queue::new(limiter), retry_limit.into());
        if let Some(limit) = retry_limit {
            queue = queue.with_retry_limit(limit);
        }
        let state = State { queue, getters: Waiters::default(), drainers: Waiters::default() };
        let (state, limits_retries) = (Mutex::new(state), retry_limit.is_some());
        WorkQueue { shared: Arc::new(Shared { state, clock: Clock::new(), limits_retries }) }
    }

    /// Queues a key with normal priority. Has no effect after a shutdown.
    pub fn add(&self, key: T) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    /// Queues a key, to be taken before keys of lower priority.
    pub fn add_with_priority(&self, key: T, priority: Priority) {
        self.shared.with_queue_no_timer(|queue| {
            // Only keys whose durations are sampled for metrics need the time.
            let now = if queue.samples_next_add() { self.shared.clock.now() } else { Moment::default() };
            queue.add(now, key, priority)
        });
    }

    /// Queues a key after `delay`. If the key is delayed already, the earlier time applies.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.shared.with_queue(|queue, now| queue.add_after(now, key, delay, Priority::NORMAL));
    }

    /// Queues a key after the delay of the rate limiter, as after a failure, or after the rest of its previous
    /// delay if that has not passed.
    pub fn add_rate_limited(&self, key: T) {
        self.shared.with_queue(|queue, now| queue.add_rate_limited(now, key, Priority::NORMAL));
    }

    /// Removes a key from the delayed keys; returns whether it was one.
    ///
    /// A key that is queued stays queued.
    pub fn cancel(&self, key: &T) -> bool {
        self.shared.with_queue(|queue, _| queue.cancel(key))
    }

    /// Resets the failures of a key in the rate limiter.
    pub fn forget(&self, key: &T) {
        self.shared.with_queue(|queue, _| queue.forget(key));
    }

    /// Returns the number of retries of a key since it last succeeded or its failures were forgotten.
    pub fn retries(&self, key: &T) -> u32 {
        self.shared.state.lock().queue.retries(key)
    }

    /// Waits for the next key; returns `None` when the queue is shut down and will return no more keys.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a key is taken only when this returns it.
    pub fn get(&self) -> Get<'_, T> {
        Get::new(self)
    }

    /// Returns the next key if one is queued.
    pub fn try_get(&self) -> Option<WorkItem<T>> {
        let now = self.shared.clock.now();
        let taken = self.shared.with_queue_no_timer(|queue| queue.take(now))?;
        Some(WorkItem::new(self.shared.clone(), taken))
    }

    /// Shuts the queue down without waiting: later adds are ignored, delayed keys are dropped and failed keys
    /// are not retried; queued keys are still processed.
    pub fn shutdown(&self) {
        self.shared.with_queue(|queue, _| queue.shutdown());
    }

    /// Shuts the queue down without waiting and drops every key that is not being processed.
    pub fn shutdown_now(&self) {
        self.shared.with_queue(|queue, _| queue.shutdown_now());
    }

    /// Shuts the queue down and waits until all queued keys have been processed.
    ///
    /// # Errors
    ///
    /// Returns an error after `timeout`, with the number of unfinished keys.
    pub async fn drain(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.shutdown();
        self.wait_drained(timeout).await
    }

    /// Shuts the queue down like [`WorkQueue::drain`], but also waits for delayed keys and retries failed
    /// ones.
    ///
    /// # Errors
    ///
    /// Returns an error after `timeout`, with the number of unfinished keys.
    pub async fn drain_including_delayed(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.shared.with_queue(|queue, _| queue.shutdown_including_delayed());
        self.wait_drained(timeout).await
    }

    /// Waits until the queue is shut down and no key is queued, processing or delayed.
    pub fn drained(&self) -> Drained<'_, T> {
        Drained::new(self)
    }

    /// Returns the number of keys that can be taken now.
    pub fn len(&self) -> usize {
        self.shared.with_queue(|queue, now| {
            queue.handle_timeout(now);
            queue.len()
        })
    }

    /// Returns whether no key can be taken now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the delayed keys and their remaining delays, the shortest first. Retries that wait for the
    /// [`RetryLimit`] have no remaining delay.
    pub fn delayed(&self) -> Vec<(T, Duration)> {
        let state = self.shared.state.lock();
        let now = self.shared.clock.now();
        let mut delayed: Vec<(T, Duration)> =
            state.queue.delayed().map(|(key, at)| (key.clone(), at - now)).collect();
        delayed.sort_by_key(|(_, remaining)| *remaining);
        delayed
    }

    /// Returns the keys being processed and since how long, the longest first.
    pub fn processing(&self) -> Vec<(T, Duration)> {
        let state = self.shared.state.lock();
        let now = self.shared.clock.now();
        state.queue.processing().map(|(key, since)| (key.clone(), now - since)).collect()
    }

    /// Returns the metrics of the queue.
    pub fn metrics(&self) -> QueueMetrics {
        self.shared.with_queue(|queue, now| queue.metrics(now))
    }

    async fn wait_drained(&self, timeout: Duration) -> Result<(), ShutdownError> {
        if tokio::time::timeout(timeout, self.drained()).await.is_ok() {
            return Ok(());
        }
        let metrics = self.metrics();
        let queued = self.shared.state.lock().queue.len();
        let (processing, delayed) = (metrics.processing, metrics.delayed);
        Err(ShutdownError::of(timeout, Unfinished::WorkQueue { queued, processing, delayed }))
    }
}

impl<T> Clone for WorkQueue<T> {
    fn clone(&self) -> Self {
        WorkQueue { shared: self.shared.clone() }
    }
}

impl<T> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WorkQueue").field(&self.shared.state.lock().queue).finish()
    }
}

impl<T: Eq + Hash + Clone> Shared<T> {
    /// Performs an operation on the queue and wakes the tasks that it affects, including the timer owner if
    /// the next deadline became earlier.
    fn with_queue<R>(&self, operation: impl FnOnce(&mut Queue<T>, Moment) -> R) -> R {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut wakes = Wakes::default();
        let before = state.queue.next_deadline();
        let result = operation(&mut state.queue, now);
        let next = state.queue.next_deadline();
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            state.getters.timer_owner_waker().into_iter().for_each(|waker| wakes.push(waker));
        }
        state.collect_wakes(&mut wakes);
        drop(state);
        wakes.wake();
        result
    }

    /// Performs an operation that cannot make the next deadline earlier, without checking the timer;
    /// otherwise like [`Shared::with_queue`].
    #[inline]
    fn with_queue_no_timer<R>(&self, operation: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let result = operation(&mut state.queue);
        state.collect_wakes(&mut wakes);
        drop(state);
        wakes.wake();
        result
    }
}

/// The wakers to call once the lock is released; usually none or one, which needs no allocation.
#[derive(Default)]
struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        match &self.first {
            None => self.first = Some(waker),
            Some(_) => self.rest.push(waker),
        }
    }

    #[inline]
    fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
            self.rest.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T: Eq + Hash + Clone> State<T> {
    /// Collects the wakers of all tasks that can make progress. Called after every operation.
    #[inline]
    fn collect_wakes(&mut self, wakes: &mut Wakes) {
        while let Some(waker) = self.getters.wake_next(self.queue.len()) {
            wakes.push(waker);
        }
        if self.queue.is_shutting_down() {
            if self.queue.is_over() {
                self.getters.pop_all().for_each(|waker| wakes.push(waker));
            }
            if self.queue.is_drained() {
                self.drainers.pop_all().for_each(|waker| wakes.push(waker));
            }
        }
    }
}

/// Returns a random seed.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8)
}
