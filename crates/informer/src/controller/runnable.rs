//! [`RunnableController`]: waiting for the sources, running reconciles, stopping.

use super::metrics::MetricsRecorder;
use super::pending_writes::PendingWrites;
use super::reconcile::ReconcileRunner;
use super::resume::{durable_name, unfinished_keys};
use super::shard_gate::ShardGate;
use super::sharding::{ControllerShard, SourceFactory};
use super::shared::{Call, Phase, Shared};
use super::source::{ErasedSource, forward_keys};
use super::spec::ControllerSpec;
use crate::access::RequiredAccess;
use crate::election::Term;
use crate::error::ControllerError;
use crate::factory::SharedInformerFactory;
use crate::metrics::ControllerMetrics;
use crate::shard_view::ShardHandle;
use crate::shared::{Engine, Registration};
use crate::workqueue::{WorkItem, WorkQueue};
use futures::future::{FutureExt as _, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use informer_core::Key;
use informer_core::workqueue::QueueMetrics;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// A controller with its reconcile function. Clones are cheap handles of the same controller.
///
/// A controller has at most one run at a time. After a run has ended, the controller can be run again: the
/// new run has a new queue and reconciles every cached object, or continues if the controller
/// [resumes](super::Controller::resume).
#[derive(Clone)]
pub struct RunnableController {
    shared: Arc<Shared>,
}

/// The state of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerState {
    /// The controller is not running.
    Idle,
    /// No reconcile has started: the initial list of at least one source is not handled yet, or reconciles of
    /// an earlier run have not ended.
    #[non_exhaustive]
    Waiting {
        /// Reasons for waiting: one text per source that is not ready, or one for an earlier run.
        reasons: Vec<String>,
    },
    /// Keys are being reconciled.
    Running,
    /// The controller was stopped, and waits for running reconciles until its shutdown timeout.
    Stopping,
}

impl RunnableController {
    pub(super) fn new(spec: ControllerSpec, call: Call) -> Self {
        let ControllerSpec { factory, name, owner_kind, sources, streams, settings, sharding, deleted_keys } =
            spec;
        let sharding = sharding.map(|group| ControllerShard::new(group, owner_kind.cluster_scoped));
        let source_factory = SourceFactory::new(&factory, sharding.as_ref(), &deleted_keys);
        let sources = sources.into_iter().map(|source| source(&source_factory)).collect();
        let rejection = source_factory.rejection();
        let metrics = MetricsRecorder::new(settings.concurrency);
        let phase = watch::Sender::new(Phase::Idle);
        let unfinished_keys = unfinished_keys(&settings);
        let shared = Shared {
            factory,
            name,
            sources,
            shard: sharding,
            deleted_keys,
            rejection,
            streams,
            settings,
            call,
            pending_writes: PendingWrites::default(),
            external_keys: Arc::default(),
            unfinished_keys,
            metrics,
            phase,
            queue: Mutex::default(),
            unfinished_reconciles: Mutex::default(),
            undeclared: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the name used in log lines, errors and metrics.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns the factory passed to the constructor.
    pub fn factory(&self) -> &SharedInformerFactory {
        &self.shared.factory
    }

    /// Returns the shard group that divides the keys among processes.
    pub(crate) fn shard_group(&self) -> Option<&ShardHandle> {
        self.shared.shard.as_ref().map(|shard| &shard.group)
    }

    /// Adds the permissions that the sources need.
    pub(crate) fn add_required_access(&self, access: &mut RequiredAccess) {
        self.shared.sources.iter().for_each(|source| source.engine.add_required_access(access));
    }

    /// Returns the current state, with the reasons if the controller has not started to reconcile.
    pub fn state(&self) -> ControllerState {
        match &*self.shared.phase.borrow() {
            Phase::Idle => ControllerState::Idle,
            Phase::WaitingForEarlierRun => {
                let reason = "reconciles of an earlier run have not ended (is something blocking a thread?)";
                ControllerState::Waiting { reasons: vec![reason.to_owned()] }
            }
            Phase::Waiting(unsynced) => {
                let reason = |index: &usize| self.shared.sources.get(*index).map(ErasedSource::reason);
                ControllerState::Waiting { reasons: unsynced.iter().filter_map(reason).collect() }
            }
            Phase::Running => ControllerState::Running,
            Phase::Stopping => ControllerState::Stopping,
        }
    }

    /// Waits until the state is [`ControllerState::Running`].
    pub async fn wait_until_running(&self) {
        // Cannot fail: `self` owns the sender.
        let _closed = self.shared.phase.subscribe().wait_for(|phase| *phase == Phase::Running).await.is_err();
    }

    /// Queues a key. Has no effect before the first run and after a run has ended, since every run starts
    /// with all objects, unless the controller [resumes](super::Controller::resume).
    pub fn enqueue(&self, key: Key) {
        if let Some(queue) = &*self.shared.queue() {
            self.shared.key_sink(queue).add(key);
        }
    }

    /// Returns the metrics of the controller, over all runs.
    pub fn metrics(&self) -> ControllerMetrics {
        self.shared.metrics.get()
    }

    /// Returns the metrics of the work queue of the current or the last run.
    pub fn queue_metrics(&self) -> QueueMetrics {
        self.shared.queue().as_ref().map(WorkQueue::metrics).unwrap_or_default()
    }

    /// Returns the keys being reconciled and since how long, the longest first. Includes keys whose reconcile
    /// waits until the cache shows earlier writes.
    pub fn active_reconciles(&self) -> Vec<(Key, Duration)> {
        self.shared.queue().as_ref().map(WorkQueue::processing).unwrap_or_default()
    }

    /// Returns whether this controller runs without an informer: all sources that use it are optional, and it
    /// is forbidden or not served.
    pub(crate) fn runs_without(&self, engine: &Arc<Engine>) -> bool {
        !self.requires(engine) && self.shared.sources_of(engine).any(ErasedSource::is_absent)
    }

    /// Returns whether an informer is a source of this controller and not optional.
    pub(crate) fn requires(&self, engine: &Arc<Engine>) -> bool {
        self.shared.sources_of(engine).any(ErasedSource::is_required)
    }

    /// Runs the controller until one of its informers is stopped. Starts the informers if necessary.
    ///
    /// Dropping the future aborts every reconcile at its next await point.
    ///
    /// # Errors
    ///
    /// Ends with [`ControllerError::InformerStopped`], or immediately with
    /// [`ControllerError::AlreadyRunning`].
    pub async fn run(&self) -> Result<(), ControllerError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs the controller until `stop` completes or one of its informers is stopped.
    ///
    /// After that no reconcile starts, and running ones may continue for the
    /// [shutdown timeout](super::Controller::shutdown_timeout).
    ///
    /// # Errors
    ///
    /// Returns an error if the controller is already running, if one of its informers has stopped, or if
    /// reconciles were aborted after the shutdown timeout.
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<(), ControllerError> {
        self.run_in(None, stop).await
    }

    /// Runs the controller until `stop` completes, in a leadership term if there is one.
    pub(crate) async fn run_in(
        &self,
        term: Option<Term>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ControllerError> {
        let mut stop = std::pin::pin!(stop);
        let mut run = Run::start(&self.shared, term)?;
        let mut result = tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            ready = run.wait_for_sources() => ready,
        };
        if result.is_ok() {
            result = tokio::select! {
                biased;
                () = stop => Ok(()),
                ended = run.run_loop() => ended,
            };
        }
        match run.stop().await {
            // Takes precedence: reconciles that still run may write, whatever ended the run.
            Err(error) if error.is_blocked() => Err(error),
            stopped => result.and(stopped),
        }
    }
}

/// The exclusive right to run a controller, released when dropped.
struct RunGuard<'a>(&'a Shared);

impl<'a> RunGuard<'a> {
    fn take(shared: &'a Shared) -> Result<Self, ControllerError> {
        let taken = shared.phase.send_if_modified(|phase| {
            let idle = *phase == Phase::Idle;
            if idle {
                *phase = Phase::WaitingForEarlierRun;
            }
            idle
        });
        if taken {
            Ok(Self(shared))
        } else {
            Err(ControllerError::AlreadyRunning { controller: Arc::clone(&shared.name) })
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Idle);
    }
}

/// One run of a controller. Dropping it stops everything that it started.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    runner: Arc<ReconcileRunner>,
    stop_requested: watch::Sender<bool>,
    /// The registrations of the sources, in their order; `None` for a source that is only read.
    registrations: Vec<Option<Registration>>,
    /// Running reconciles, at most `concurrency`.
    reconciles: JoinSet<()>,
    /// Reconciles of earlier runs.
    earlier_reconciles: Vec<JoinSet<()>>,
    /// Keys whose writes are not visible yet. They do not count towards `concurrency`.
    awaiting_writes: JoinSet<WorkItem<Key>>,
    /// Keys whose writes are visible, waiting until fewer than `concurrency` reconciles run.
    ready: VecDeque<WorkItem<Key>>,
    /// Tasks that forward keys from external streams.
    key_streams: JoinSet<()>,
    /// The task that applies the decisions of the shard group.
    gate_task: Option<JoinHandle<()>>,
    _guard: RunGuard<'a>,
}

impl<'a> Run<'a> {
    fn start(shared: &'a Arc<Shared>, term: Option<Term>) -> Result<Self, ControllerError> {
        if let Some(reason) = shared.rejection {
            let controller = Arc::clone(&shared.name);
            return Err(ControllerError::NotSharded { controller, reason });
        }
        let guard = RunGuard::take(shared)?;
        shared.factory.start();
        for source in &shared.sources {
            source.engine.start(&Handle::current());
        }
        shared.pending_writes.clear();
        let queue = shared.settings.new_queue();
        let sink = shared.key_sink(&queue);
        shared.external_keys.keys().into_iter().for_each(|key| sink.add(key));
        *shared.queue() = Some(queue.clone());
        // The first source is the kind of the controller itself.
        let own_engine = shared.sources.first().map(|source| &source.engine);
        let listen = |(index, source): (usize, &ErasedSource)| {
            let own_engine = own_engine?;
            let durable = durable_name(shared, index, &sink, &own_engine.reader);
            source.listen(&shared.name, &sink, own_engine, durable)
        };
        let registrations = shared.sources.iter().enumerate().map(listen).collect();
        let gate = shared.shard.as_ref().zip(own_engine).map(|(shard, own_kind)| {
            let sources = shared.sources.iter().map(ErasedSource::gate_source);
            let timeout = shared.settings.shutdown_timeout;
            ShardGate::new(shard, own_kind, sources, &shared.deleted_keys, &queue, timeout)
        });
        let gate_task = gate.as_ref().map(ShardGate::start);
        let (stop_requested, receiver) = watch::channel(false);
        let runner = Arc::new(ReconcileRunner {
            shared: Arc::clone(shared),
            queue,
            term: term.map(Arc::new),
            stop_requested: receiver,
            gate,
        });
        Ok(Self {
            gate_task,
            shared,
            runner,
            stop_requested,
            registrations,
            reconciles: JoinSet::new(),
            earlier_reconciles: std::mem::take(&mut *shared.unfinished_reconciles()),
            awaiting_writes: JoinSet::new(),
            ready: VecDeque::new(),
            key_streams: JoinSet::new(),
            _guard: guard,
        })
    }

    /// Waits until the reconciles of earlier runs have ended and the initial lists of all sources have been
    /// handled.
    async fn wait_for_sources(&mut self) -> Result<(), ControllerError> {
        // A key has one reconcile at a time, also across runs.
        for reconciles in &mut self.earlier_reconciles {
            join_all_tasks(reconciles).await;
        }
        self.shared.phase.send_replace(Phase::Waiting((0..self.shared.sources.len()).collect()));
        let sources = self.shared.sources.iter().zip(&self.registrations).enumerate();
        let mut waiting: FuturesUnordered<_> = sources
            .map(|(index, (source, registration))| {
                source.wait_until_ready(registration.as_ref()).map(move |ready| (index, ready))
            })
            .collect();
        while let Some((index, ready)) = waiting.next().await {
            if !ready {
                return Err(self.shared.source_stopped_error(index));
            }
            self.shared.phase.send_modify(|phase| {
                if let Phase::Waiting(unsynced) = phase {
                    unsynced.retain(|unsynced| *unsynced != index);
                }
            });
        }
        if let Some(unfinished) = &self.shared.unfinished_keys {
            // Now, and not before, the caches are complete.
            while let Some(requests) = unfinished.record_ready() {
                let sink = self.shared.key_sink(&self.runner.queue);
                let mut has_panicked = false;
                for source in &self.shared.sources {
                    has_panicked |= source.queue_all(&sink).await;
                }
                if let Some(own) = self.shared.sources.first().filter(|_| has_panicked) {
                    sink.enqueue_all(&own.engine.reader);
                }
                unfinished.fulfil_requests(requests);
            }
        }
        Ok(())
    }

    /// Reconciles keys until a source has stopped.
    async fn run_loop(&mut self) -> Result<(), ControllerError> {
        self.shared.phase.send_replace(Phase::Running);
        tracing::info!(controller = %self.shared.name, "running");
        for keys in &self.shared.streams {
            let (keys, sink) = (Arc::clone(keys), self.shared.key_sink(&self.runner.queue));
            let (pending, name) = (Arc::clone(&self.shared.external_keys), Arc::clone(&self.shared.name));
            self.key_streams.spawn(forward_keys(keys, sink, pending, name));
        }
        let sources = self.shared.sources.iter().zip(&self.registrations);
        let ends =
            sources.map(|(source, registration)| source.wait_until_stopped(registration.as_ref()).boxed());
        // Never empty, as `select_all` requires: the controller's own kind is a source.
        let mut source_ends = select_all(ends).map(|((), index, _)| index).fuse();
        loop {
            let free = self.shared.settings.concurrency.saturating_sub(self.reconciles.len());
            for item in self.ready.drain(..free.min(self.ready.len())) {
                self.reconciles.spawn(Arc::clone(&self.runner).run(item));
            }
            let has_capacity = self.reconciles.len() < self.shared.settings.concurrency;
            tokio::select! {
                biased;
                index = &mut source_ends => return Err(self.shared.source_stopped_error(index)),
                panic = panic_of(&mut self.gate_task) => std::panic::resume_unwind(panic),
                Some(_ended) = self.reconciles.join_next(), if !self.reconciles.is_empty() => {}
                Some(waited) = self.awaiting_writes.join_next(), if !self.awaiting_writes.is_empty() => {
                    // If the task panicked, dropping its work item has requeued the key.
                    self.ready.extend(waited.ok());
                }
                item = self.runner.queue.get(), if has_capacity => {
                    let Some(item) = item else { return Ok(()) };
                    let writes = self.shared.pending_writes.take(item.key());
                    let runner = Arc::clone(&self.runner);
                    if writes.is_empty() {
                        self.reconciles.spawn(runner.run(item));
                    } else {
                        self.awaiting_writes.spawn(runner.wait_for_own_writes(item, writes));
                    }
                }
            }
        }
    }

    /// Starts no more reconciles and waits for the running ones until the shutdown timeout; then aborts them.
    async fn stop(&mut self) -> Result<(), ControllerError> {
        /// How long an aborted reconcile may take to end.
        const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
        self.shared.phase.send_replace(Phase::Stopping);
        self.close();
        let timeout = self.shared.settings.shutdown_timeout;
        if tokio::time::timeout(timeout, join_all_tasks(&mut self.reconciles)).await.is_ok() {
            return Ok(());
        }
        let keys: Vec<_> = self.runner.queue.processing().into_iter().map(|(key, _)| key).collect();
        self.reconciles.abort_all();
        let blocked =
            tokio::time::timeout(ABORT_TIMEOUT, join_all_tasks(&mut self.reconciles)).await.is_err();
        if keys.is_empty() && !blocked {
            return Ok(()); // all reconciles had ended, only their tasks had not
        }
        Err(ControllerError::ReconcilesAborted {
            controller: Arc::clone(&self.shared.name),
            keys,
            timeout,
            blocked,
        })
    }

    /// Stops all inputs and prevents further reconciles from starting.
    fn close(&mut self) {
        self.stop_requested.send_replace(true);
        self.registrations.clear();
        self.key_streams.abort_all();
        self.awaiting_writes.abort_all();
        self.ready.clear();
        self.runner.queue.shutdown_now();
    }
}

/// Waits until all tasks have ended.
async fn join_all_tasks(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

/// Waits until a task panics. It does not end otherwise.
async fn panic_of(task: &mut Option<JoinHandle<()>>) -> Box<dyn Any + Send> {
    if let Some(running) = task
        && let Err(error) = running.await
        && let Ok(panic) = error.try_into_panic()
    {
        return panic;
    }
    *task = None;
    std::future::pending().await
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.close();
        // Aborted reconciles end at their next await point; the next run waits for that.
        self.reconciles.abort_all();
        let unfinished = self.earlier_reconciles.drain(..).chain([std::mem::take(&mut self.reconciles)]);
        self.shared.unfinished_reconciles().extend(unfinished.filter(|tasks| !tasks.is_empty()));
    }
}

impl fmt::Debug for RunnableController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {}: {:?}", self.shared.name, self.state())
    }
}
