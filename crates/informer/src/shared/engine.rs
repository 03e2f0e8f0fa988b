//! The engine: everything behind the handles of one informer, with its cache, tasks and listeners.
//!
//! The engine is not generic over the kind. Handles hold it and its tasks do not, so when the last handle
//! is dropped, the watch and the tasks end and the memory is freed.

use super::command::Command;
use super::compression::{CacheCompression, CompressionTask};
use super::drivers::drivers;
use super::eviction::{DecodedObjects, EvictionTask};
use super::listener::{Listener, ListenerOptions, Mode};
use super::options::{InformerOptions, Shard};
use super::parts::EngineParts;
use super::persist::PersistTask;
use super::projections::{CacheProjections, ReleaseTask};
use super::pump::Pump;
use crate::access::RequiredAccess;
use crate::clock::Clock;
use crate::delta_queue::DeltaQueue;
use crate::error::{ShutdownError, Unfinished};
use crate::metrics::{HandlerMetrics, InformerMetrics};
use crate::reflector::ReflectorDriver;
use crate::resource::ResourceType;
use crate::status::{CompleteRanges, Diagnostic, DiagnosticSink, InformerStatus, StatusCell};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use informer_core::reflector::Config;
use informer_core::{DecodeAhead, Delta, IndexHandle, Projection, Replaced, Scope, StoreReader, StoreWriter};
use serde::de::DeserializeOwned;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

/// An owner of detached handlers, which keeps their informers alive: a factory.
pub(crate) trait DetachTarget: Send + Sync {
    /// Takes over a detached handler and keeps its informer alive until this owner is dropped; then the
    /// listener ends.
    fn adopt_detached(&self, engine: Arc<Engine>, listener: DetachedListener);
}

/// A listener whose registration was detached.
pub(crate) struct DetachedListener(pub(super) Arc<Listener>);

/// The shared state behind all handles of one informer.
pub(crate) struct Engine {
    /// Description of the informer for messages, such as `pods in all namespaces`.
    pub(crate) description: Arc<str>,
    /// The labels of its metrics.
    metric_labels: Arc<[(&'static str, Box<str>)]>,
    pub(crate) kind: ResourceType,
    /// The hash ranges to which the cache is restricted; `None` without sharding.
    pub(crate) shard: Option<Shard>,
    /// Whether the objects come from an API server, and not from a source of the application.
    is_served: bool,
    pub(crate) reader: StoreReader,
    pub(super) status: Arc<StatusCell>,
    pub(super) clock: Clock,
    /// The factory that takes over detached handlers; unset if the informer was created without a factory.
    pub(crate) detach_target: OnceLock<Weak<dyn DetachTarget>>,
    /// The resync period of handlers that do not set their own.
    pub(super) resync_period: Duration,
    diagnostics: DiagnosticSink,
    decoded: DecodedObjects,
    projections: CacheProjections,
    commands: mpsc::UnboundedSender<Command>,
    stop: watch::Sender<bool>,
    next_listener_id: AtomicU64,
    /// The existing listeners, for metrics and to close them all.
    listeners: Mutex<Vec<Weak<Listener>>>,
    run_state: Mutex<RunState>,
}

enum RunState {
    /// Not started; contains the tasks.
    Idle(Box<UnstartedTasks>),
    /// Started; the channel closes when all tasks have ended.
    Running(watch::Receiver<()>),
    /// Stopped before it was started; it cannot be started any more.
    Discarded,
}

struct UnstartedTasks {
    drivers: Vec<ReflectorDriver>,
    pump: Pump,
    persist_task: Option<PersistTask>,
    compression_task: Option<CompressionTask>,
    release_task: ReleaseTask,
    eviction_task: Option<EvictionTask>,
}

impl Engine {
    /// Creates an engine that is not started. Without a client, the options must contain a source.
    #[expect(clippy::needless_pass_by_value, reason = "an engine owns its client and options")]
    pub(crate) fn new(
        client: Option<kube::Client>,
        resource: &ResourceType,
        options: InformerOptions,
    ) -> Arc<Self> {
        let (client, options, scopes) = (client.as_ref(), &options, options.scopes());
        let description: Arc<str> = format!("{} {}", resource.name(), options.describe_selection()).into();
        let diagnostics = options.diagnostic_sink(&description);
        let (queue, status) = (Arc::new(DeltaQueue::new(scopes.len())), Arc::new(StatusCell::new(&scopes)));
        let (commands, receiver) = mpsc::unbounded_channel();
        let (clock, stop) = (Clock::new(), watch::Sender::new(false));
        let compression = CacheCompression::from_options(resource, options);
        let (writer, reader) = new_store(&scopes, compression.is_some(), options.shard().is_some());
        let decoded = DecodedObjects::new(options.retention_or_default());
        let projections = CacheProjections::new(diagnostics.clone());
        let parts = EngineParts {
            client,
            reader: &reader,
            commands: &commands,
            status: &status,
            diagnostics: &diagnostics,
            clock,
            stop: &stop,
        };
        let parameters = options.build_parameters();
        let persisted = PersistTask::from_options(resource, options, &parameters, &parts);
        let (mut persist_task, persistence) = persisted.unzip();
        let configure = |config: &mut Config| configure(config, &decoded, &projections, compression.as_ref());
        let saved = persist_task.as_mut();
        let drivers = drivers(&parts, resource, options, &parameters, &queue, configure, saved);
        let pump = Pump {
            writer,
            reader: reader.clone(),
            scopes: scopes.clone(),
            queue: Arc::clone(&queue),
            status: Arc::clone(&status),
            commands: receiver,
            stop: stop.clone(),
            clock,
            diagnostics: diagnostics.clone(),
            compression: compression.clone(),
            persistence,
        };
        let tasks = UnstartedTasks {
            drivers,
            persist_task,
            compression_task: compression.map(|compression| {
                CompressionTask::new(compression, parts.rewriter(), stop.clone(), &status, &diagnostics)
            }),
            release_task: ReleaseTask::new(&projections, parts.rewriter(), &stop),
            eviction_task: decoded.eviction_task(&projections, &parts.rewriter(), &stop),
            pump,
        };
        Arc::new(Self {
            description,
            metric_labels: options.metric_labels(resource),
            kind: resource.clone(),
            shard: options.shard().cloned(),
            is_served: !options.has_source(),
            reader,
            status,
            clock,
            detach_target: OnceLock::new(),
            resync_period: options.effective_resync_period(),
            diagnostics,
            decoded,
            projections,
            commands,
            stop,
            next_listener_id: AtomicU64::new(0),
            listeners: Mutex::default(),
            run_state: Mutex::new(RunState::Idle(Box::new(tasks))),
        })
    }

    /// Starts the tasks; later calls have no effect.
    pub(crate) fn start(&self, runtime: &Handle) {
        let mut run_state = self.lock_run_state();
        *run_state = match std::mem::replace(&mut *run_state, RunState::Discarded) {
            RunState::Idle(tasks) => {
                let UnstartedTasks {
                    drivers,
                    pump,
                    persist_task,
                    compression_task,
                    release_task,
                    eviction_task,
                } = *tasks;
                let (running, ended) = watch::channel(());
                let running = Arc::new(running);
                let span = tracing::info_span!("informer", resource = &*self.description);
                let spawn_task = |task: BoxFuture<'static, ()>| {
                    let task = report_panic(task, self.diagnostics.clone());
                    runtime.spawn(with_running_guard(Arc::clone(&running), task).instrument(span.clone()));
                };
                for driver in drivers {
                    spawn_task(driver.run().boxed());
                }
                if let Some(persist_task) = persist_task {
                    spawn_task(persist_task.run().boxed());
                }
                if let Some(compression_task) = compression_task {
                    spawn_task(compression_task.run().boxed());
                }
                if let Some(eviction_task) = eviction_task {
                    spawn_task(eviction_task.run().boxed());
                }
                spawn_task(release_task.run().boxed());
                spawn_task(pump.run().boxed());
                RunState::Running(ended)
            }
            unchanged => unchanged,
        };
    }

    /// Adds the permissions that the informer needs.
    pub(crate) fn add_required_access(&self, access: &mut RequiredAccess) {
        if !self.is_served {
            return;
        }
        for scope in self.reader.snapshot().scopes() {
            let namespace = match scope {
                Scope::All => None,
                Scope::Namespace(namespace) => Some(&**namespace),
            };
            access.add_verbs(namespace, &self.kind.group, &self.kind.plural, None, &["list", "watch"]);
        }
    }

    /// Replaces the cached objects of an engine that was not started, for unit tests.
    pub(crate) fn fill(&self, list: Replaced) {
        if let RunState::Idle(tasks) = &mut *self.lock_run_state() {
            tasks.pump.writer.apply(&list.scope.clone(), [Delta::Replaced(list)]);
        }
    }

    /// Returns the default options of a listener.
    pub(crate) fn listener_options(&self) -> ListenerOptions {
        ListenerOptions {
            name: "".into(),
            resync_period: self.resync_period,
            mode: Mode::Inline,
            uncoalesced_capacity: None,
            deliver_transient_deletes: false,
            durable: None,
            is_filtered: false,
        }
    }

    /// Adds a listener; without a handler, the caller takes its events by polling.
    pub(super) fn add_listener(
        &self,
        options: ListenerOptions,
        handler: Option<super::listener::HandlerFn>,
    ) -> Arc<Listener> {
        let id = self.next_listener_id.fetch_add(1, Ordering::Relaxed);
        let listener = Arc::new(Listener::new(id, options, handler, self.clock, self.diagnostics.clone()));
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        drop(listeners);
        if !self.send(Command::AddListener(Arc::clone(&listener))) {
            // The informer has ended: no event will be delivered.
            let drain = false;
            listener.close(drain);
        }
        listener
    }

    /// Removes a listener; returns whether there is a task whose end the caller can await.
    pub(super) fn remove_listener(&self, listener: &Arc<Listener>) -> bool {
        self.send(Command::RemoveListener(Arc::clone(listener)));
        let drain = false;
        listener.close(drain)
    }

    /// Ends a detached handler whose owner was dropped.
    pub(crate) fn drop_detached(&self, listener: &DetachedListener) {
        self.remove_listener(&listener.0);
    }

    /// Builds an index from a snapshot, on the calling thread, and sends it to the pump.
    ///
    /// After the informer has ended no pump installs it; look-ups then examine all objects of the cache,
    /// which no longer changes.
    pub(crate) fn add_index(&self, index: IndexHandle) {
        let built = self.reader.build_index(index);
        self.send(Command::InstallIndex(Box::new(built)));
    }

    /// Adds a projection, or returns another handle to the one of this type.
    pub(crate) fn add_projection<P: DeserializeOwned + Send + Sync + 'static>(
        &self,
        memory_limit: usize,
    ) -> Projection<P> {
        self.projections.add(memory_limit)
    }

    /// Decodes objects as a `K` when they arrive, if the retention is `Decoded`, while the result is held.
    pub(crate) fn decode_ahead<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Option<DecodeAhead> {
        self.projections.decode_ahead::<K>(self.decoded.retention())
    }

    pub(crate) fn subscribe_status(&self) -> watch::Receiver<InformerStatus> {
        self.status.subscribe()
    }

    /// Sends a command to the pump; returns `false` if the pump has ended.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    pub(crate) fn status(&self) -> InformerStatus {
        let mut status = self.status.get(self.clock.now());
        status.blocked_handlers = handler_names(&self.live_listeners(), Listener::is_blocked);
        status
    }

    /// Returns what the cache contains of each scope, without the absent ones if these do not matter; empty without
    /// sharding.
    pub(crate) fn complete_ranges(&self, without_absent: bool) -> Vec<CompleteRanges> {
        if self.shard.is_some() { self.status.complete_ranges(without_absent) } else { Vec::new() }
    }

    pub(crate) fn metrics(&self) -> InformerMetrics {
        let (status, snapshot) = (self.status(), self.reader.snapshot());
        let handlers = self.live_listeners().iter().map(|listener| handler_metrics(listener)).collect();
        let (informer, labels) = (&self.description, &self.metric_labels);
        let decoded = (self.decoded.errors(), self.decoded.metrics());
        let projections = self.projections.metrics();
        InformerMetrics::new(informer, labels, &status, &snapshot, decoded, handlers, projections)
    }

    /// Stops the engine, waits until pending events are delivered, and drops the rest after `timeout`.
    ///
    /// An engine that was never started cannot be started any more.
    pub(crate) async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        /// Time for a handler call in progress to return after `timeout`.
        const TASK_END_TIMEOUT: Duration = Duration::from_millis(100);
        self.stop.send_replace(true);
        let Some(mut ended) = self.discard_if_unstarted() else {
            self.close_listeners();
            return Ok(());
        };
        let mut all_ended = std::pin::pin!(async { while ended.changed().await.is_ok() {} });
        if tokio::time::timeout(timeout, &mut all_ended).await.is_ok() {
            return Ok(());
        }
        self.close_listeners();
        let late = tokio::time::timeout(TASK_END_TIMEOUT, all_ended).await;
        late.map_err(|_| {
            let handlers = handler_names(&self.live_listeners(), |one| one.running_call().is_some());
            let informer = Arc::clone(&self.description);
            ShutdownError::of(timeout, Unfinished::Informer { informer, handlers })
        })
    }

    /// Waits for a stop request.
    pub(crate) async fn wait_for_stop_request(&self) {
        // This engine owns the sender, so the channel cannot close.
        let _closed = self.stop.subscribe().wait_for(|stop| *stop).await.is_err();
    }

    /// Returns whether the engine has stopped, is stopping, or was discarded before it started.
    pub(crate) fn has_stopped(&self) -> bool {
        *self.stop.borrow() || self.status.is_stopped()
    }

    /// Stops the engine without waiting for its tasks. If it was never started, it cannot be started any
    /// more.
    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
        if self.discard_if_unstarted().is_none() {
            self.close_listeners();
        }
    }

    /// Returns a channel that closes when all tasks have ended. If the engine was never started, drops its
    /// tasks and returns `None`.
    fn discard_if_unstarted(&self) -> Option<watch::Receiver<()>> {
        let mut run_state = self.lock_run_state();
        if let RunState::Running(ended) = &*run_state {
            return Some(ended.clone());
        }
        // The destructors of the tasks set the state to `Stopped` and drop handlers. A destructor of a
        // handler may call this engine, so the lock is released first.
        let tasks = std::mem::replace(&mut *run_state, RunState::Discarded);
        drop(run_state);
        drop(tasks);
        None
    }

    fn close_listeners(&self) {
        let drain = false;
        for listener in self.live_listeners() {
            listener.close(drain);
        }
    }

    fn live_listeners(&self) -> Vec<Arc<Listener>> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock_run_state(&self) -> MutexGuard<'_, RunState> {
        self.run_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds to a configuration what the entries of the cache share.
fn configure(
    config: &mut Config,
    decoded: &DecodedObjects,
    projections: &CacheProjections,
    compression: Option<&CacheCompression>,
) {
    decoded.configure(config);
    projections.configure(config);
    if let Some(compression) = compression {
        compression.configure(config);
    }
}

/// Creates an empty store; a compressed one saves memory at the cost of lookups by key.
fn new_store(scopes: &[Scope], is_compressed: bool, is_sharded: bool) -> (StoreWriter, StoreReader) {
    let (writer, reader) = StoreWriter::new(scopes.iter().cloned());
    let writer = if is_sharded { writer.sharded() } else { writer };
    (if is_compressed { writer.without_key_copies() } else { writer }, reader)
}

/// Returns the names of the handlers that fulfil a condition.
fn handler_names(listeners: &[Arc<Listener>], condition: impl Fn(&Listener) -> bool) -> Vec<Arc<str>> {
    let matching = listeners.iter().filter(|listener| condition(listener));
    matching.map(|listener| Arc::clone(&listener.options.name)).collect()
}

fn handler_metrics(listener: &Listener) -> HandlerMetrics {
    let (pending, oldest) = listener.backlog();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    HandlerMetrics {
        name: Arc::clone(&listener.options.name),
        id: listener.id,
        pending,
        oldest_pending_age: oldest,
        delivered: count(&listener.counters.delivered),
        coalesced: count(&listener.counters.coalesced),
        panics: count(&listener.counters.panics),
        slow_calls: listener.slow_calls(),
        running_call: listener.running_call(),
    }
}

/// Runs a task and then drops its share of `running`; the channel closes when every task has dropped its
/// share.
async fn with_running_guard(running: Arc<watch::Sender<()>>, task: impl Future<Output = ()>) {
    task.await;
    drop(running);
}

/// Runs a task of the informer and reports a panic, which user code can cause, for example in a destructor
/// (C9).
async fn report_panic(task: impl Future<Output = ()>, diagnostics: DiagnosticSink) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        diagnostics.report(&Diagnostic::TaskPanicked);
    }
}

/// Stops the tasks when the last handle is dropped. Pending events are dropped too.
impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.close_listeners();
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
