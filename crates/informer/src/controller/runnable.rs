//! A controller that can run: the start gate, the turns, and the end.

use super::metrics::MetricsRecorder;
use super::pending_writes::PendingWrites;
use super::plan::ControllerSpec;
use super::reconcile::ReconcileRunner;
use super::shared::{Call, Phase, Shared};
use super::source::{ErasedSource, forward_keys};
use crate::error::ControllerError;
use crate::factory::SharedInformerFactory;
use crate::metrics::ControllerMetrics;
use crate::shared::{Engine, Registration};
use crate::workqueue::{WorkItem, WorkQueue};
use futures::future::{FutureExt as _, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use informer_core::Key;
use informer_core::election::FencingToken;
use informer_core::workqueue::QueueMetrics;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A controller with its reconcile function. Cheap to clone; all clones are the same, and only one may run at a time.
///
/// It can run again after it has ended: with an empty queue, and every object that is there gets a turn.
#[derive(Clone)]
pub struct RunnableController {
    shared: Arc<Shared>,
}

/// Where a controller stands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControllerState {
    /// Nobody runs it.
    Idle,
    /// No turn has begun: not everything that was there has been seen. The reasons, source by source.
    #[non_exhaustive]
    Waiting {
        /// What is missing, and why.
        reasons: Vec<String>,
    },
    /// Keys get their turns.
    Running,
    /// It was told to stop, and the turns that have begun are given time.
    Stopping,
}

impl RunnableController {
    pub(super) fn new(plan: ControllerSpec, call: Call) -> Self {
        let ControllerSpec { factory, name, sources, streams, settings, .. } = plan;
        let figures = MetricsRecorder::new(settings.concurrency);
        let phase = watch::Sender::new(Phase::Idle);
        let shared = Shared {
            factory,
            name,
            sources,
            streams,
            settings,
            call,
            writes: PendingWrites::default(),
            owed: Arc::default(),
            metrics: figures,
            phase,
            queue: Mutex::default(),
            unfinished_reconciles: Mutex::default(),
            undeclared: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// What it is called in messages and metrics.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The factory of its informers.
    pub fn factory(&self) -> &SharedInformerFactory {
        &self.shared.factory
    }

    /// Where it stands.
    pub fn state(&self) -> ControllerState {
        match &*self.shared.phase.borrow() {
            Phase::Idle => ControllerState::Idle,
            Phase::WaitingForTurns => {
                let reason = "turns of an earlier run have not ended (is something blocking its thread?)";
                ControllerState::Waiting { reasons: vec![reason.to_owned()] }
            }
            Phase::Waiting(missing) => {
                let source = |number: &usize| self.shared.sources.get(*number).map(ErasedSource::reason);
                ControllerState::Waiting { reasons: missing.iter().filter_map(source).collect() }
            }
            Phase::Running => ControllerState::Running,
            Phase::Stopping => ControllerState::Stopping,
        }
    }

    /// Waits until keys get their turns.
    pub async fn wait_until_running(&self) {
        // The sender is here, so it cannot be gone.
        let _gone = self.shared.phase.subscribe().wait_for(|phase| *phase == Phase::Running).await.is_err();
    }

    /// Asks for a turn of a key. While nobody runs it this does nothing: a run begins with everything.
    pub fn enqueue(&self, key: Key) {
        if let Some(queue) = &*self.shared.queue() {
            queue.add(key);
        }
    }

    /// Its figures, over all runs.
    pub fn metrics(&self) -> ControllerMetrics {
        self.shared.metrics.get()
    }

    /// The figures of its queue, in this run or the last one.
    pub fn queue_metrics(&self) -> QueueMetrics {
        self.shared.queue().as_ref().map(WorkQueue::metrics).unwrap_or_default()
    }

    /// The keys whose turns go on, and for how long; the longest first.
    pub fn active_reconciles(&self) -> Vec<(Key, Duration)> {
        self.shared.queue().as_ref().map(WorkQueue::processing).unwrap_or_default()
    }

    /// Whether an informer is one of its sources, not there, and not missed.
    pub(crate) fn does_without(&self, engine: &Arc<Engine>) -> bool {
        !self.needs(engine) && self.shared.sources_of(engine).any(ErasedSource::is_absent)
    }

    /// Whether an informer is one of its sources, and must be there.
    pub(crate) fn needs(&self, engine: &Arc<Engine>) -> bool {
        self.shared.sources_of(engine).any(ErasedSource::is_needed)
    }

    /// Runs it until one of its informers is stopped. Starts them if nobody has. Dropping the future ends every turn where it waits.
    pub async fn run(&self) -> Result<(), ControllerError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs it until `stop`; then no turn begins, and those that have begun are given [time](super::Controller::shutdown_timeout).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<(), ControllerError> {
        self.run_in(None, stop).await
    }

    /// The same in a term of leadership.
    pub(crate) async fn run_in(
        &self,
        fence: Option<FencingToken>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ControllerError> {
        let mut stop = std::pin::pin!(stop);
        let mut run = Run::begin(&self.shared, fence)?;
        let mut ended = tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            opened = run.wait_for_sources() => opened,
        };
        if ended.is_ok() {
            ended = tokio::select! {
                biased;
                () = stop => Ok(()),
                ended = run.run_loop() => ended,
            };
        }
        let stopped = run.stop().await;
        ended.and(stopped)
    }
}

/// The right to run. When it goes, another may have it.
struct RunGuard<'a>(&'a Shared);

impl<'a> RunGuard<'a> {
    fn take(shared: &'a Shared) -> Result<Self, ControllerError> {
        let taken = shared.phase.send_if_modified(|phase| {
            let idle = *phase == Phase::Idle;
            if idle {
                *phase = Phase::WaitingForTurns;
            }
            idle
        });
        let controller = || Arc::clone(&shared.name);
        if taken {
            Ok(Self(shared))
        } else {
            Err(ControllerError::AlreadyRunning { controller: controller() })
        }
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        self.0.phase.send_replace(Phase::Idle);
    }
}

/// A run. When it goes, so does everything that it began.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    runner: Arc<ReconcileRunner>,
    stopping: watch::Sender<bool>,
    /// One for each source that tells something.
    registrations: Vec<Option<Registration>>,
    working: JoinSet<()>,
    /// Turns of earlier runs.
    earlier: Vec<JoinSet<()>>,
    /// Keys whose writes have not been seen yet: they take nobody's place.
    catching_up: JoinSet<WorkItem<Key>>,
    /// Keys whose writes have been seen, and that wait for a place.
    caught_up: VecDeque<WorkItem<Key>>,
    /// Whoever brings keys from elsewhere.
    following: JoinSet<()>,
    _claim: RunGuard<'a>,
}

impl<'a> Run<'a> {
    fn begin(shared: &'a Arc<Shared>, fence: Option<FencingToken>) -> Result<Self, ControllerError> {
        let claim = RunGuard::take(shared)?;
        shared.factory.start();
        for source in &shared.sources {
            source.engine.start(&Handle::current());
        }
        shared.writes.clear();
        let queue = (shared.settings.limiter)();
        shared.owed.keys().into_iter().for_each(|key| queue.add(key));
        *shared.queue() = Some(queue.clone());
        // The first source is the kind that the controller is for.
        let main = shared.sources.first().map(|source| &source.engine);
        let listen = |source: &ErasedSource| source.listen(&shared.name, &queue, main?);
        let registrations = shared.sources.iter().map(listen).collect();
        let (stopping, receiver) = watch::channel(false);
        let fence = fence.map(Arc::new);
        let turns = Arc::new(ReconcileRunner {
            shared: Arc::clone(shared),
            queue,
            fencing_token: fence,
            stop_requested: receiver,
        });
        Ok(Self {
            shared,
            runner: turns,
            stopping,
            registrations,
            working: JoinSet::new(),
            earlier: std::mem::take(&mut *shared.unfinished_reconciles()),
            catching_up: JoinSet::new(),
            caught_up: VecDeque::new(),
            following: JoinSet::new(),
            _claim: claim,
        })
    }

    /// Waits until everything that was there has been seen, and the turns of earlier runs have ended.
    async fn wait_for_sources(&mut self) -> Result<(), ControllerError> {
        // A key has one turn at a time, whatever run it belongs to.
        for turns in &mut self.earlier {
            ended(turns).await;
        }
        self.shared.phase.send_replace(Phase::Waiting((0..self.shared.sources.len()).collect()));
        let sources = self.shared.sources.iter().zip(&self.registrations).enumerate();
        let mut opening: FuturesUnordered<_> = sources
            .map(|(number, (source, registration))| {
                source.opened(registration.as_ref()).map(move |opened| (number, opened))
            })
            .collect();
        while let Some((number, opened)) = opening.next().await {
            if !opened {
                return Err(self.shared.source_stopped(number));
            }
            self.shared.phase.send_modify(|phase| {
                if let Phase::Waiting(missing) = phase {
                    missing.retain(|missing| *missing != number);
                }
            });
        }
        Ok(())
    }

    /// Gives keys their turns, until a source has ended.
    async fn run_loop(&mut self) -> Result<(), ControllerError> {
        self.shared.phase.send_replace(Phase::Running);
        tracing::info!(controller = %self.shared.name, "running");
        for keys in &self.shared.streams {
            let (keys, queue) = (Arc::clone(keys), self.runner.queue.clone());
            let (owed, name) = (Arc::clone(&self.shared.owed), Arc::clone(&self.shared.name));
            self.following.spawn(forward_keys(keys, queue, owed, name));
        }
        let sources = self.shared.sources.iter().zip(&self.registrations);
        let ends = sources.map(|(source, registration)| source.ended(registration.as_ref()).boxed());
        // There is always one: the controller's own kind.
        let mut source_ends = select_all(ends).map(|((), number, _)| number).fuse();
        loop {
            let places = self.shared.settings.concurrency.saturating_sub(self.working.len());
            for lease in self.caught_up.drain(..places.min(self.caught_up.len())) {
                self.working.spawn(Arc::clone(&self.runner).work(lease));
            }
            let room = self.working.len() < self.shared.settings.concurrency;
            tokio::select! {
                biased;
                number = &mut source_ends => return Err(self.shared.source_stopped(number)),
                Some(_ended) = self.working.join_next(), if !self.working.is_empty() => {}
                Some(seen) = self.catching_up.join_next(), if !self.catching_up.is_empty() => {
                    // One that panicked has given its key back.
                    self.caught_up.extend(seen.ok());
                }
                lease = self.runner.queue.get(), if room => {
                    let Some(lease) = lease else { return Ok(()) };
                    let writes = self.shared.writes.take(lease.key());
                    let turns = Arc::clone(&self.runner);
                    if writes.is_empty() {
                        self.working.spawn(turns.work(lease));
                    } else {
                        self.catching_up.spawn(turns.wait_for_own_writes(lease, writes));
                    }
                }
            }
        }
    }

    /// Begins no turn any more, and waits for those that have begun.
    async fn stop(&mut self) -> Result<(), ControllerError> {
        /// How long a turn that was dropped may take to let go.
        const ABORT_TIMEOUT: Duration = Duration::from_secs(1);
        self.shared.phase.send_replace(Phase::Stopping);
        self.close();
        let after = self.shared.settings.shutdown_timeout;
        if tokio::time::timeout(after, ended(&mut self.working)).await.is_ok() {
            return Ok(());
        }
        let keys = self.runner.queue.processing().into_iter().map(|(key, _)| key).collect();
        self.working.abort_all();
        let blocked = tokio::time::timeout(ABORT_TIMEOUT, ended(&mut self.working)).await.is_err();
        Err(ControllerError::ReconcilesAborted {
            controller: Arc::clone(&self.shared.name),
            keys,
            timeout: after,
            blocked,
        })
    }

    /// Nothing new comes in or begins.
    fn close(&mut self) {
        self.stopping.send_replace(true);
        self.registrations.clear();
        self.following.abort_all();
        self.catching_up.abort_all();
        self.caught_up.clear();
        self.runner.queue.shutdown_now();
    }
}

/// Returns when all tasks have ended.
async fn ended(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.close();
        // They end where they wait. Until then the next run does not begin.
        self.working.abort_all();
        let turns = self.earlier.drain(..).chain([std::mem::take(&mut self.working)]);
        self.shared.unfinished_reconciles().extend(turns.filter(|turns| !turns.is_empty()));
    }
}

impl fmt::Debug for RunnableController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {}: {:?}", self.shared.name, self.state())
    }
}
