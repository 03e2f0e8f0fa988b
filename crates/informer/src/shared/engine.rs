//! What is behind every handle of one informer: its cache, its tasks, its listeners. Not generic over the kind.
//!
//! Handles hold it; its tasks do not. So when the last handle goes, everything ends: the watch, the tasks, the memory.

use super::command::Command;
use super::compression::{CacheCompression, CompressionTask};
use super::listener::{Listener, ListenerOptions, Mode};
use super::options::InformerOptions;
use super::pump::Pump;
use crate::clock::Clock;
use crate::delta_queue::DeltaQueue;
use crate::error::{ShutdownError, Unfinished};
use crate::metrics::{HandlerMetrics, InformerMetrics};
use crate::reflector::ReflectorDriver;
use crate::resource::ResourceType;
use crate::status::{Diagnostic, DiagnosticSink, InformerStatus, StatusCell};
use futures::FutureExt as _;
use informer_core::reflector::Reflector;
use informer_core::{IndexHandle, StoreReader, StoreWriter};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tracing::Instrument as _;

/// Somebody who keeps informers alive for their detached handlers: a factory.
pub(crate) trait DetachTarget: Send + Sync {
    /// Keeps an informer alive, until the keeper itself goes; then the listener ends.
    fn adopt_detached(&self, engine: Arc<Engine>, listener: DetachedListener);
}

/// A listener whose registration was given up.
pub(crate) struct DetachedListener(pub(super) Arc<Listener>);

pub(crate) struct Engine {
    /// What it informs about, for messages: `pods in all namespaces`.
    pub(crate) resource: Arc<str>,
    pub(crate) kind: ResourceType,
    pub(crate) reader: StoreReader,
    pub(super) status: Arc<StatusCell>,
    pub(super) clock: Clock,
    pub(crate) keeper: OnceLock<Weak<dyn DetachTarget>>,
    /// The resync of handlers that say nothing about it.
    pub(super) resync_period: Duration,
    diagnostics: DiagnosticSink,
    decode_errors: Arc<AtomicU64>,
    commands: mpsc::UnboundedSender<Command>,
    stop: watch::Sender<bool>,
    next_listener: AtomicU64,
    /// The listeners that live; a shutdown that runs out of time closes them.
    listeners: Mutex<Vec<Weak<Listener>>>,
    life: Mutex<RunState>,
}

enum RunState {
    /// With all that its tasks need.
    Idle(Box<UnstartedTasks>),
    /// Closed when all tasks have ended; anybody may wait for that, any number of times.
    Running(watch::Receiver<()>),
    Discarded,
}

struct UnstartedTasks {
    drivers: Vec<ReflectorDriver>,
    pump: Pump,
    compression_task: Option<CompressionTask>,
}

impl Engine {
    /// An engine that has not started. Without a client its options must have a source.
    #[expect(clippy::needless_pass_by_value, reason = "an engine owns what it works with")]
    pub(crate) fn new(
        client: Option<kube::Client>,
        resource: &ResourceType,
        options: InformerOptions,
    ) -> Arc<Self> {
        let (client, options) = (client.as_ref(), &options);
        let scopes = options.scopes();
        let name: Arc<str> = format!("{} {}", resource.name(), options.describe_selection()).into();
        let diagnostics = DiagnosticSink { resource: Arc::clone(&name), hook: options.diagnostic_hook() };
        let (writer, reader) = StoreWriter::new(scopes.iter().cloned());
        let (queue, status) = (Arc::new(DeltaQueue::new(scopes.len())), Arc::new(StatusCell::new(&scopes)));
        let (commands, receiver) = mpsc::unbounded_channel();
        let (clock, stop, decode_errors) = (Clock::new(), watch::Sender::new(false), Arc::default());
        let (parameters, link) = (options.parameters_once(), options.link());
        let compression = CacheCompression::of(resource, options);
        let driver = |(lane, scope): (usize, &informer_core::Scope)| {
            let mut config = options.config(resource, scope.clone());
            config.decode_errors = Some(Arc::clone(&decode_errors));
            if let Some(compression) = &compression {
                compression.configure(&mut config);
            }
            // Spreads the clients of one server out; nothing else depends on it.
            let seed = options.seed_of(&name, lane);
            Some(ReflectorDriver {
                machine: Reflector::new(config, seed, Some(reader.clone())),
                source: options.source_of(client, resource, scope, &parameters, &link)?,
                link: link.clone(),
                reading: None,
                queue: Arc::clone(&queue),
                status: Arc::clone(&status),
                diagnostics: diagnostics.clone(),
                scope_index: lane,
                deltas: VecDeque::new(),
                clock,
                stop: stop.clone(),
            })
        };
        let drivers = scopes.iter().enumerate().filter_map(driver).collect();
        let compression_task = compression.clone().map(|compression| {
            let (commands, status) = (commands.clone(), Arc::clone(&status));
            CompressionTask::new(
                compression,
                reader.clone(),
                commands,
                stop.clone(),
                status,
                diagnostics.clone(),
            )
        });
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
            compression,
        };
        Arc::new(Self {
            resource: name,
            kind: resource.clone(),
            reader,
            status,
            clock,
            keeper: OnceLock::new(),
            resync_period: options.effective_resync_period(),
            diagnostics,
            decode_errors,
            commands,
            stop,
            next_listener: AtomicU64::new(0),
            listeners: Mutex::default(),
            life: Mutex::new(RunState::Idle(Box::new(UnstartedTasks { drivers, pump, compression_task }))),
        })
    }

    /// Starts its tasks; later calls do nothing.
    pub(crate) fn start(&self, runtime: &Handle) {
        let mut life = self.lock_life();
        *life = match std::mem::replace(&mut *life, RunState::Discarded) {
            RunState::Idle(parts) => {
                let UnstartedTasks { drivers, pump, compression_task } = *parts;
                let (running, ended) = watch::channel(());
                let running = Arc::new(running);
                let span = tracing::info_span!("informer", resource = &*self.resource);
                for driver in drivers {
                    let task = report_panic(driver.run(), self.diagnostics.clone());
                    runtime.spawn(with_running_guard(Arc::clone(&running), task).instrument(span.clone()));
                }
                if let Some(compression_task) = compression_task {
                    let task = report_panic(compression_task.run(), self.diagnostics.clone());
                    runtime.spawn(with_running_guard(Arc::clone(&running), task).instrument(span.clone()));
                }
                let task = report_panic(pump.run(), self.diagnostics.clone());
                runtime.spawn(with_running_guard(running, task).instrument(span));
                RunState::Running(ended)
            }
            other => other,
        };
    }

    /// What a listener is made from that says nothing else.
    pub(crate) fn listener_options(&self) -> ListenerOptions {
        ListenerOptions {
            name: "".into(),
            resync_period: self.resync_period,
            mode: Mode::Inline,
            uncoalesced_capacity: None,
            deliver_transient_deletes: false,
        }
    }

    /// Adds a listener; without a handler, somebody will poll it.
    pub(super) fn add_listener(
        &self,
        options: ListenerOptions,
        handler: Option<super::listener::Handler>,
    ) -> Arc<Listener> {
        let number = self.next_listener.fetch_add(1, Ordering::Relaxed);
        let listener =
            Arc::new(Listener::new(number, options, handler, self.clock, self.diagnostics.clone()));
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|known| known.strong_count() > 0);
        listeners.push(Arc::downgrade(&listener));
        drop(listeners);
        if !self.send(Command::AddListener(Arc::clone(&listener))) {
            // The informer has ended: nothing is ever told.
            listener.close(false);
        }
        listener
    }

    /// Takes a listener out; returns whether there is a task whose end can be waited for.
    pub(super) fn remove_listener(&self, listener: &Arc<Listener>) -> bool {
        self.send(Command::RemoveListener(Arc::clone(listener)));
        listener.close(false)
    }

    /// Ends a handler whose keeper has gone.
    pub(crate) fn drop_detached(&self, listener: &DetachedListener) {
        self.remove_listener(&listener.0);
    }

    /// Builds an index here, from a snapshot, and hands it to the pump. After the end the cache does not change, and look-ups walk it.
    pub(crate) fn add_index(&self, index: IndexHandle) {
        let built = self.reader.build_index(index);
        self.send(Command::InstallIndex(Box::new(built)));
    }

    pub(crate) fn subscribe_status(&self) -> watch::Receiver<InformerStatus> {
        self.status.subscribe()
    }

    /// Whether somebody took the command: a pump that has ended does not.
    pub(super) fn send(&self, command: Command) -> bool {
        self.commands.send(command).is_ok()
    }

    pub(crate) fn status(&self) -> InformerStatus {
        self.status.get(self.clock.now())
    }

    pub(crate) fn metrics(&self) -> InformerMetrics {
        let (status, snapshot) = (self.status(), self.reader.snapshot());
        let handlers = self.living_listeners().iter().map(|listener| handler_metrics(listener)).collect();
        let decode_errors = self.decode_errors.load(Ordering::Relaxed);
        InformerMetrics::new(&self.resource, &status, &snapshot, decode_errors, handlers)
    }

    /// Says that it is to stop, and ends one that was never started. What the handlers still have is told by the pump.
    pub(crate) async fn shutdown(&self, deadline: Duration) -> Result<(), ShutdownError> {
        // A handler that is in the middle of a call when time is up gets a moment to return from it.
        const TASK_END_TIMEOUT: Duration = Duration::from_millis(100);
        self.stop.send_replace(true);
        let Some(mut ended) = self.end_life() else {
            self.close_listeners();
            return Ok(());
        };
        let mut all_ended = std::pin::pin!(async { while ended.changed().await.is_ok() {} });
        if tokio::time::timeout(deadline, &mut all_ended).await.is_ok() {
            return Ok(());
        }
        self.close_listeners();
        let resource = Arc::clone(&self.resource);
        let late = tokio::time::timeout(TASK_END_TIMEOUT, all_ended).await;
        late.map_err(|_| ShutdownError::of(deadline, Unfinished::Informer { informer: resource }))
    }

    /// Returns when it is to stop.
    pub(crate) async fn stopping(&self) {
        // The sender is here, so it cannot be gone.
        let _gone = self.stop.subscribe().wait_for(|stop| *stop).await.is_err();
    }

    /// Whether it has stopped, is to stop, or was never started and will not be.
    pub(crate) fn has_stopped(&self) -> bool {
        *self.stop.borrow() || self.status.is_stopped()
    }

    /// Ends one that was never started; it never will be.
    pub(crate) fn cancel_start(&self) {
        self.stop.send_replace(true);
        if self.end_life().is_none() {
            self.close_listeners();
        }
    }

    /// What to wait for until all tasks have ended; `None` if none was ever begun, and none ever will be.
    fn end_life(&self) -> Option<watch::Receiver<()>> {
        let mut life = self.lock_life();
        if let RunState::Running(ended) = &*life {
            return Some(ended.clone());
        }
        // With its parts the drivers go, and say that they have stopped. Handlers go too, so no lock is held.
        let parts = std::mem::replace(&mut *life, RunState::Discarded);
        drop(life);
        drop(parts);
        None
    }

    fn close_listeners(&self) {
        for listener in self.living_listeners() {
            listener.close(false);
        }
    }

    fn living_listeners(&self) -> Vec<Arc<Listener>> {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock_life(&self) -> MutexGuard<'_, RunState> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn handler_metrics(listener: &Listener) -> HandlerMetrics {
    let (pending, oldest) = listener.backlog();
    let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
    HandlerMetrics {
        name: Arc::clone(&listener.options.name),
        id: listener.number,
        pending,
        oldest_pending_age: oldest,
        delivered: count(&listener.tally.delivered),
        coalesced: count(&listener.tally.coalesced),
        panics: count(&listener.tally.panics),
        slow_calls: count(&listener.tally.slow),
    }
}

/// Runs a task that others can wait for: they see its share of `running` go.
async fn with_running_guard(running: Arc<watch::Sender<()>>, task: impl Future<Output = ()>) {
    task.await;
    drop(running);
}

/// Runs a task of the informer. If it panics, through something that objects or handlers hold, that is said (C9).
async fn report_panic(task: impl Future<Output = ()>, diagnostics: DiagnosticSink) {
    if AssertUnwindSafe(task).catch_unwind().await.is_err() {
        diagnostics.report(&Diagnostic::TaskPanicked);
    }
}

/// The last handle is gone: nobody can ask for anything any more, so nothing pending is told.
impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.close_listeners();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::informer::SharedInformer;
    use crate::shared::Registration;
    use crate::source::{ResponseFuture, Source};
    use informer_core::reflector::{InformerState, ListRequest, WatchRequest};
    use k8s_openapi::api::core::v1::Pod;

    /// A server that never answers.
    struct Silence;

    impl Source for Silence {
        fn list(&self, _: ListRequest) -> ResponseFuture {
            Box::pin(std::future::pending())
        }

        fn watch(&self, _: WatchRequest) -> ResponseFuture {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn c9_a_dead_pump_stops_the_informer_and_it_says_so() {
        // The driver noticed only when it had something to push: a quiet informer stayed live over a cache that nobody wrote.
        let pods = SharedInformer::<Pod>::with_source(Silence, InformerOptions::default());
        let on: Registration = pods.on_event(|_| {});
        let parts = std::mem::replace(&mut *pods.engine().lock_life(), RunState::Discarded);
        let RunState::Idle(parts) = parts else { unreachable!("it was not started") };
        let UnstartedTasks { mut drivers, pump, .. } = *parts;
        let driving = tokio::spawn(drivers.remove(0).run());
        drop(pump);
        let ended = tokio::time::timeout(Duration::from_hours(1), driving).await;
        ended.expect("the driver goes on for nobody").unwrap();
        assert_eq!(
            pods.wait_for_sync(Duration::MAX).await.unwrap_err().informers[0].state,
            InformerState::Stopped
        );
        assert!(!on.wait_for_sync().await);
    }
}
