//! The work queue: keys that need work, handed out to workers, each to one at a time (C14).
//!
//! The async face of [`informer_core::workqueue::Queue`], which decides everything. There is no task behind it: whoever waits in
//! [`WorkQueue::get`] also minds the clock for keys that come later. The lock is held for one operation of the machine and never across an
//! await; wakers are called after it is let go.

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
    ExponentialBackoff, FastSlow, MaxOf, Priority, RateLimiter, TokenBucket, WithMaxDelay,
};

use crate::clock::Clock;
use crate::error::{ShutdownError, Unfinished};
use lock::Mutex;
use waiters::Waiters;

/// Keys that need work, each held by one worker at a time (C14). Clones are handles of the same queue.
///
/// However often a key is added before somebody gets to it, it is worked on once; what is added while it is being worked on is worked on
/// once more. A [`WorkItem`] says how a turn ended; one that is dropped without a word counts as failed, so that no key is lost
/// with a worker that was cancelled or panicked.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let queue = informer::workqueue::WorkQueue::new();
/// queue.add("default/web");
/// queue.add("default/web");
///
/// let lease = queue.get().await.expect("the queue is open");
/// assert_eq!(*lease, "default/web");
/// lease.done();                                 // or `retry()`, after a wait that grows, or `retry_after(…)`
///
/// queue.shutdown();
/// assert!(queue.get().await.is_none());         // workers end here
/// # }
/// ```
pub struct WorkQueue<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Mutex<State<T>>,
    clock: Clock,
}

struct State<T> {
    queue: Queue<T>,
    /// Who waits for a key.
    getters: Waiters,
    /// Who waits for the end.
    drainers: Waiters,
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug + 'static> WorkQueue<T> {
    /// A queue whose retries wait from 5 milliseconds to 1,000 seconds, doubling, each key for itself, and spread a little so that keys
    /// that failed together do not come back together.
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
    /// A queue whose retries wait as long as a limiter says.
    pub fn with_rate_limiter(limiter: impl RateLimiter<T> + 'static) -> Self {
        let queue = Queue::new(limiter);
        let state = State { queue, getters: Waiters::default(), drainers: Waiters::default() };
        WorkQueue { shared: Arc::new(Shared { state: Mutex::new(state), clock: Clock::new() }) }
    }

    /// Asks for a turn of a key. After a shutdown this does nothing.
    pub fn add(&self, key: T) {
        self.add_with_priority(key, Priority::NORMAL);
    }

    /// Asks for a turn of a key before those of lower priority.
    pub fn add_with_priority(&self, key: T, priority: Priority) {
        self.shared.with_queue_no_timer(|queue| {
            let now = if queue.samples_next_add() { self.shared.clock.now() } else { Moment::default() };
            queue.add(now, key, priority)
        });
    }

    /// Asks for a turn of a key after a while. If it comes later already, the earlier moment counts.
    pub fn add_after(&self, key: T, delay: Duration) {
        self.shared.with_queue(|queue, now| queue.add_after(now, key, delay, Priority::NORMAL));
    }

    /// Asks for a turn of a key after as long as the limiter says: as after a failure.
    pub fn add_rate_limited(&self, key: T) {
        self.shared.with_queue(|queue, now| queue.add_rate_limited(now, key, Priority::NORMAL));
    }

    /// Takes back what was to come later for a key; whether there was something.
    pub fn cancel(&self, key: &T) -> bool {
        self.shared.with_queue(|queue, _| queue.cancel(key))
    }

    /// Forgets the failures of a key.
    pub fn forget(&self, key: &T) {
        self.shared.with_queue(|queue, _| queue.forget(key));
    }

    /// How often a key was tried again since its failures were last forgotten.
    pub fn retries(&self, key: &T) -> u32 {
        self.shared.state.lock().queue.retries(key)
    }

    /// The next key, as soon as there is one; none when the queue is shut down and has nothing more to give.
    ///
    /// Cancel-safe: a key is taken only when this returns it.
    pub fn get(&self) -> Get<'_, T> {
        Get::new(self)
    }

    /// The next key, if there is one now.
    pub fn try_get(&self) -> Option<WorkItem<T>> {
        let now = self.shared.clock.now();
        let taken = self.shared.with_queue_no_timer(|queue| queue.take(now))?;
        Some(WorkItem::new(self.shared.clone(), taken))
    }

    /// Takes nothing new in. What is queued is still handed out, what is delayed is dropped, and what fails is not tried again. Nobody is
    /// waited for.
    pub fn shutdown(&self) {
        self.shared.with_queue(|queue, _| queue.shutdown());
    }

    /// Takes nothing new in and drops everything that nobody works on.
    pub fn shutdown_now(&self) {
        self.shared.with_queue(|queue, _| queue.shutdown_now());
    }

    /// Shuts down and waits until everything that was queued has been dealt with.
    pub async fn drain(&self, within: Duration) -> Result<(), ShutdownError> {
        self.shutdown();
        self.drained_within(within).await
    }

    /// As [`WorkQueue::drain`], and what is delayed or fails meanwhile still gets its turn.
    pub async fn drain_including_delayed(&self, within: Duration) -> Result<(), ShutdownError> {
        self.shared.with_queue(|queue, _| queue.shutdown_including_delayed());
        self.drained_within(within).await
    }

    /// Waits until the queue is shut down and nothing is queued, held or to come.
    pub fn drained(&self) -> Drained<'_, T> {
        Drained::new(self)
    }

    /// How many keys can be taken now.
    pub fn len(&self) -> usize {
        self.shared.with_queue(|queue, now| {
            queue.handle_timeout(now);
            queue.len()
        })
    }

    /// Whether there is nothing to take now.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys that come later, and in how long; the next one first.
    pub fn delayed(&self) -> Vec<(T, Duration)> {
        let state = self.shared.state.lock();
        let now = self.shared.clock.now();
        let mut delayed: Vec<(T, Duration)> =
            state.queue.delayed().map(|(key, at)| (key.clone(), at - now)).collect();
        delayed.sort_by_key(|(_, left)| *left);
        delayed
    }

    /// The keys that are being worked on, and for how long; the longest first.
    pub fn processing(&self) -> Vec<(T, Duration)> {
        let state = self.shared.state.lock();
        let now = self.shared.clock.now();
        state.queue.processing().map(|(key, since)| (key.clone(), now - since)).collect()
    }

    /// The figures of the queue.
    pub fn metrics(&self) -> QueueMetrics {
        self.shared.with_queue(|queue, now| queue.metrics(now))
    }

    async fn drained_within(&self, within: Duration) -> Result<(), ShutdownError> {
        if tokio::time::timeout(within, self.drained()).await.is_ok() {
            return Ok(());
        }
        let metrics = self.metrics();
        let queued = self.shared.state.lock().queue.len();
        let (processing, delayed) = (metrics.processing, metrics.delayed);
        Err(ShutdownError::of(within, Unfinished::WorkQueue { queued, processing, delayed }))
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
    /// Does something with the machine, and wakes whoever has to know.
    fn with_queue<R>(&self, operation: impl FnOnce(&mut Queue<T>, Moment) -> R) -> R {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let mut wakes = Wakes::default();
        let before = state.queue.next_deadline();
        let result = operation(&mut state.queue, now);
        let next = state.queue.next_deadline();
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            state.getters.timer_owner().into_iter().for_each(|waker| wakes.push(waker));
        }
        state.settle(&mut wakes);
        drop(state);
        wakes.wake();
        result
    }

    /// As [`Shared::with_queue`], for what makes no key come sooner.
    #[inline]
    fn with_queue_no_timer<R>(&self, operation: impl FnOnce(&mut Queue<T>) -> R) -> R {
        let mut wakes = Wakes::default();
        let mut state = self.state.lock();
        let result = operation(&mut state.queue);
        state.settle(&mut wakes);
        drop(state);
        wakes.wake();
        result
    }
}

/// Who is to be woken, once the lock is let go. Mostly nobody, or one.
#[derive(Default)]
struct Wakes {
    one: Option<Waker>,
    others: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Waker) {
        match &self.one {
            None => self.one = Some(waker),
            Some(_) => self.others.push(waker),
        }
    }

    #[inline]
    fn wake(self) {
        if let Some(one) = self.one {
            one.wake();
            self.others.into_iter().for_each(Waker::wake);
        }
    }
}

impl<T: Eq + Hash + Clone> State<T> {
    /// After every operation: whoever has to know is among those who are woken.
    #[inline]
    fn settle(&mut self, wakes: &mut Wakes) {
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

/// Something that differs from run to run.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8)
}
