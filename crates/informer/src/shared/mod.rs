//! Shared informers: one watch and one cache, many readers and handlers.
//!
//! [`SharedInformer`] is a handle; behind it work two tasks and one task per handler. The reflector's driver fills the queue, the
//! [`pump`] empties it into the cache and tells the listeners. The last handle that goes ends them all.

mod listener;
mod options;
mod outbox;
mod pump;
mod registration;

pub use options::Options;
pub use registration::Registration;

use crate::clock::Clock;
use crate::event::Event;
use crate::lister::Lister;
use crate::queue::Queue;
use crate::reflector::Driver;
use crate::source::{KubeSource, Source};
use crate::status::{Status, StatusCell};
use informer_core::reflector::{Reflector, State};
use informer_core::{
    FieldPathError, Index, IndexHandle, ListenerId, Moment, StoreReader, StoreWriter, TypeMeta,
};
use kube::Resource;
use listener::Listener;
use pump::{Command, Pump};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// An informer for one kind: a cache that follows the server, and handlers that are told what changes.
///
/// Cheap to clone; all clones are the same informer. When the last one goes, the informer stops; listers keep the cache's last state.
pub struct SharedInformer<K> {
    shared: Arc<Shared>,
    kind: PhantomData<fn() -> K>,
}

struct Shared {
    /// What it informs about, for messages: `pods in all namespaces`.
    resource: Arc<str>,
    reader: StoreReader,
    commands: mpsc::UnboundedSender<Command>,
    status: Arc<StatusCell>,
    stop: watch::Sender<bool>,
    clock: Clock,
    next_listener: AtomicU64,
    /// The listeners that live; a shutdown that runs out of time closes them.
    listeners: Mutex<Vec<std::sync::Weak<Listener>>>,
    life: Mutex<Life>,
}

enum Life {
    /// With all that its tasks need.
    Idle(Box<(Driver, Pump)>),
    /// Closed when all tasks have ended; anybody may wait for that, any number of times.
    Begun(watch::Receiver<()>),
    NeverBegun,
}

/// Why an informer is not synced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{resource}: not synced{}: {}",
    after.map(|after| format!(" after {after:?}")).unwrap_or_default(),
    state.seen_from(*now)
)]
#[non_exhaustive]
pub struct SyncError {
    /// What it informs about.
    pub resource: Arc<str>,
    /// The state it is in.
    pub state: State,
    /// When that was so, on the clock of the moments in `state`.
    pub now: Moment,
    /// The deadline, if that is what ended the wait.
    pub after: Option<Duration>,
}

/// A shutdown that could not end everything in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: a handler is still running, or the cache still busy, {after:?} after shutdown began")]
#[non_exhaustive]
pub struct ShutdownError {
    /// What it informs about.
    pub resource: Arc<str>,
    /// The deadline.
    pub after: Duration,
}

/// An index that cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddIndexError {
    /// The field path does not parse.
    #[error(transparent)]
    Path(#[from] FieldPathError),
}

impl<K: Resource<DynamicType = ()>> SharedInformer<K> {
    /// An informer for all objects of the kind.
    pub fn new(client: kube::Client) -> Self {
        Self::with_options(client, &Options::default())
    }

    /// An informer with these settings.
    pub fn with_options(client: kube::Client, options: &Options) -> Self {
        let mut source = KubeSource::new(client, K::url_path(&(), options.namespace.as_deref()))
            .labels(options.labels.to_string())
            .fields(options.fields.to_string());
        if let Some(deadline) = options.headers_deadline {
            source = source.headers_deadline(deadline);
        }
        Self::with_source(source, options)
    }

    /// An informer that gets its lists and watches from elsewhere. Selectors are then the source's business.
    pub fn with_source(source: impl Source, options: &Options) -> Self {
        let types = TypeMeta::new(K::api_version(&()), K::kind(&()));
        let scope = options.scope();
        let resource: Arc<str> = format!("{} in {scope}", K::plural(&())).into();
        let (writer, reader) = StoreWriter::new([scope.clone()]);
        let (queue, status) = (Arc::new(Queue::default()), Arc::new(StatusCell::new()));
        let (commands, receiver) = mpsc::unbounded_channel();
        // Spreads the clients of one server out; nothing else depends on it.
        let seed = RandomState::new().hash_one(&resource);
        let machine = Reflector::new(options.config(types), seed, Some(reader.clone()));
        let driver = Driver {
            machine,
            source: Arc::new(source),
            queue: Arc::clone(&queue),
            status: Arc::clone(&status),
            resource: Arc::clone(&resource),
        };
        let stop = watch::Sender::new(false);
        let pump = Pump {
            writer,
            reader: reader.clone(),
            scope,
            queue,
            status: Arc::clone(&status),
            commands: receiver,
            stop: stop.clone(),
        };
        let shared = Shared {
            resource,
            reader,
            commands,
            status,
            stop,
            clock: Clock::new(),
            next_listener: AtomicU64::new(0),
            listeners: Mutex::default(),
            life: Mutex::new(Life::Idle(Box::new((driver, pump)))),
        };
        Self { shared: Arc::new(shared), kind: PhantomData }
    }
}

impl<K> SharedInformer<K> {
    /// Starts it; later calls do nothing.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn start(&self) {
        let runtime = tokio::runtime::Handle::current();
        let mut life = self.shared.lock_life();
        *life = match std::mem::replace(&mut *life, Life::NeverBegun) {
            Life::Idle(parts) => {
                let (driver, pump) = *parts;
                let (running, ended) = watch::channel(());
                let running = Arc::new(running);
                let driving = driver.run(self.shared.clock, self.shared.stop.subscribe());
                runtime.spawn(while_holding(Arc::clone(&running), driving));
                runtime.spawn(while_holding(running, pump.run()));
                Life::Begun(ended)
            }
            other => other,
        };
    }

    /// Registers a handler. It is told about everything that is there, then about every change; dropping the registration removes it.
    ///
    /// Handlers are called one event at a time, on the runtime's threads: they must not block. Decode what you need, put keys into a
    /// queue, and return. A handler that is slower than the changes sees fewer, larger steps. A handler that holds a clone of its
    /// informer keeps it alive for ever: let it hold a [`Lister`] instead.
    pub fn on(&self, mut handler: impl FnMut(Event<K>) + Send + 'static) -> Registration {
        let name = std::any::type_name_of_val(&handler);
        let id = ListenerId(self.shared.next_listener.fetch_add(1, Ordering::Relaxed));
        let listener = Arc::new(Listener::new(id, name.into()));
        let handler = Box::new(move |told| handler(Event::of(told)));
        let mut listeners = self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        drop(listeners);
        let added = self.shared.commands.send(Command::AddListener(Arc::clone(&listener), handler));
        if added.is_err() {
            // The informer has ended: this handler is never called.
            listener.close(false);
        }
        Registration::new(listener, self.shared.commands.clone())
    }

    /// Adds an index, before or after the start. It is built here, from a snapshot; look-ups through the handle are right from the first
    /// moment, and fast once the informer has taken it over.
    pub fn add_index(&self, index: Index) -> Result<IndexHandle, AddIndexError> {
        let handle = index.into_handle()?;
        let built = self.shared.reader.build_index(handle.clone());
        // After the end the cache does not change, and look-ups walk it.
        let _ = self.shared.commands.send(Command::InstallIndex(Box::new(built)));
        Ok(handle)
    }

    /// Reads the cache.
    pub fn lister(&self) -> Lister<K> {
        Lister::new(self.shared.reader.clone())
    }

    /// Where it stands.
    pub fn status(&self) -> Status {
        let snapshot = self.shared.reader.snapshot();
        let unreadable =
            snapshot.unreadable().map(|(key, reason)| (key.clone(), reason.to_owned())).collect();
        Status { unreadable, now: self.shared.clock.now(), ..self.shared.status.get() }
    }

    /// Waits until the first complete set is in the cache (C7). Fails at once where waiting is useless (forbidden, not served,
    /// stopped), waits through anything that may pass, and at the deadline says what the state is. The informer goes on regardless.
    pub async fn wait_for_sync(&self, deadline: Duration) -> Result<(), SyncError> {
        let mut status = self.shared.status.subscribe();
        let useless = |state: &State| {
            matches!(state, State::Forbidden { .. } | State::NotServed { .. } | State::Stopped)
        };
        let settled = status.wait_for(|status| status.synced || useless(&status.state));
        let (synced, state, after) = match tokio::time::timeout(deadline, settled).await {
            Ok(Ok(status)) => (status.synced, status.state.clone(), None),
            Ok(Err(_)) => (false, State::Stopped, None),
            Err(_) => (self.status().synced, self.status().state, Some(deadline)),
        };
        if synced {
            return Ok(());
        }
        let (resource, now) = (Arc::clone(&self.shared.resource), self.shared.clock.now());
        Err(SyncError { resource, state, now, after })
    }

    /// Stops it (C10): no more requests; what is queued is applied and told until the deadline, then the rest is dropped. When this returns
    /// without an error, all its tasks have ended and no handler is called any more. May be called again, by anybody.
    pub async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        // A handler that is in the middle of a call when time is up gets a moment to return from it.
        const GRACE: Duration = Duration::from_millis(100);
        self.shared.stop.send_replace(true);
        let Some(mut ended) = self.shared.end_life() else {
            self.shared.close_listeners();
            return Ok(());
        };
        let mut all_ended = std::pin::pin!(async { while ended.changed().await.is_ok() {} });
        if tokio::time::timeout(deadline, &mut all_ended).await.is_ok() {
            return Ok(());
        }
        self.shared.close_listeners();
        let resource = Arc::clone(&self.shared.resource);
        let late = tokio::time::timeout(GRACE, all_ended).await;
        late.map_err(|_| ShutdownError { resource, after: deadline })
    }
}

/// Runs a task that others can wait for: they see its share of `running` go.
async fn while_holding(running: Arc<watch::Sender<()>>, task: impl Future<Output = ()>) {
    task.await;
    drop(running);
}

impl Shared {
    fn lock_life(&self) -> std::sync::MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What to wait for until all tasks have ended; `None` if none was ever begun, and none ever will be.
    fn end_life(&self) -> Option<watch::Receiver<()>> {
        let mut life = self.lock_life();
        if let Life::Begun(ended) = &*life {
            return Some(ended.clone());
        }
        // With its parts the driver goes, and says that it has stopped. Handlers go too, so no lock is held.
        let parts = std::mem::replace(&mut *life, Life::NeverBegun);
        drop(life);
        drop(parts);
        None
    }

    fn close_listeners(&self) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for listener in listeners.iter().filter_map(std::sync::Weak::upgrade) {
            listener.close(false);
        }
    }
}

/// The last handle is gone: nobody can ask for anything any more, so nothing pending is told.
impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.close_listeners();
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), kind: PhantomData }
    }
}

impl<K> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "informer for {}: {}", self.shared.resource, self.status().state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Answer;
    use informer_core::reflector::{ListRequest, WatchRequest};
    use k8s_openapi::api::core::v1::Pod;

    /// A server that never answers.
    struct Silence;

    impl Source for Silence {
        fn list(&self, _: ListRequest) -> Answer {
            Box::pin(std::future::pending())
        }

        fn watch(&self, _: WatchRequest) -> Answer {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn c9_a_dead_pump_stops_the_informer_and_it_says_so() {
        // The driver noticed only when it had something to push: a quiet informer stayed live over a cache that nobody wrote.
        let pods = SharedInformer::<Pod>::with_source(Silence, &Options::default());
        let on = pods.on(|_| {});
        let parts = std::mem::replace(&mut *pods.shared.lock_life(), Life::NeverBegun);
        let Life::Idle(parts) = parts else { unreachable!("it was not started") };
        let (driver, pump) = *parts;
        let driving = tokio::spawn(driver.run(pods.shared.clock, pods.shared.stop.subscribe()));
        drop(pump);
        let ended = tokio::time::timeout(Duration::from_hours(1), driving).await;
        ended.expect("the driver goes on for nobody").unwrap();
        assert_eq!(pods.wait_for_sync(Duration::MAX).await.unwrap_err().state, State::Stopped);
        assert!(!on.synced().await);
    }
}
