//! A controller that can run: the start gate, the turns, and the end.

use super::figures::{ControllerMetrics, Figures};
use super::outcome::Outcome;
use super::source::{Source, follow};
use super::turn::{Turn, Turns};
use super::writes::Writes;
use super::{BoxError, Plan, Settings, source};
use crate::factory::SharedInformerFactory;
use crate::shared::{Engine, Registration};
use crate::workqueue::WorkQueue;
use futures::future::{BoxFuture, FutureExt as _, select_all};
use futures::stream::{FuturesUnordered, StreamExt as _};
use informer_core::Key;
use informer_core::lease::Fence;
use informer_core::workqueue::QueueMetrics;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// A controller with its reconcile function. Cheap to clone; all clones are the same, and only one may run at a time.
///
/// It can run again after it has ended: with an empty queue, and every object that is there gets a turn.
#[derive(Clone)]
pub struct Reconciler {
    shared: Arc<Shared>,
}

pub(super) type Call =
    Box<dyn Fn(Turn) -> BoxFuture<'static, Result<Outcome, BoxError>> + Send + Sync + 'static>;

/// What a controller is, whoever runs it.
pub(super) struct Shared {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) sources: Vec<Source>,
    streams: Vec<source::Keys>,
    pub(super) settings: Settings,
    pub(super) call: Call,
    pub(super) writes: Writes,
    pub(super) figures: Figures,
    phase: watch::Sender<Phase>,
    /// Of the run that goes on, or the last one.
    queue: Mutex<Option<WorkQueue<Key>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Idle,
    /// For the sources whose numbers these are.
    Waiting(Vec<usize>),
    Running,
    Stopping,
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

/// Why a controller has ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ControllerError {
    /// One of its informers was stopped: it would miss changes from now on.
    #[error(
        "controller {controller}: the informer for {resource} has stopped (stop controllers before informers)"
    )]
    #[non_exhaustive]
    SourceStopped {
        /// Its name.
        controller: Arc<str>,
        /// What the informer was about.
        resource: Arc<str>,
    },
    /// Turns did not end in time after it was told to stop, and were dropped.
    #[error("controller {controller}: {} turns had not ended after {after:?} and were dropped: {}", keys.len(), some(keys))]
    #[non_exhaustive]
    TurnsDropped {
        /// Its name.
        controller: Arc<str>,
        /// Whose turns they were.
        keys: Vec<Key>,
        /// The time they were given.
        after: Duration,
    },
    /// It runs already.
    #[error("controller {controller}: it runs already")]
    #[non_exhaustive]
    RunsAlready {
        /// Its name.
        controller: Arc<str>,
    },
}

/// The first of many.
fn some(keys: &[Key]) -> String {
    let few: Vec<String> = keys.iter().take(5).map(ToString::to_string).collect();
    few.join(", ") + if keys.len() > few.len() { ", …" } else { "" }
}

impl Reconciler {
    pub(super) fn new(plan: Plan, call: Call) -> Self {
        let Plan { factory, name, sources, streams, settings, .. } = plan;
        let figures = Figures::new(settings.concurrency);
        let phase = watch::Sender::new(Phase::Idle);
        let (writes, queue) = (Writes::default(), Mutex::default());
        let shared =
            Shared { factory, name, sources, streams, settings, call, writes, figures, phase, queue };
        Self { shared: Arc::new(shared) }
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
            Phase::Waiting(missing) => {
                let source = |number: &usize| self.shared.sources.get(*number).map(Source::reason);
                ControllerState::Waiting { reasons: missing.iter().filter_map(source).collect() }
            }
            Phase::Running => ControllerState::Running,
            Phase::Stopping => ControllerState::Stopping,
        }
    }

    /// Waits until keys get their turns.
    pub async fn running(&self) {
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
        self.shared.figures.get()
    }

    /// The figures of its queue, in this run or the last one.
    pub fn queue_metrics(&self) -> QueueMetrics {
        self.shared.queue().as_ref().map(WorkQueue::metrics).unwrap_or_default()
    }

    /// The keys whose turns go on, and for how long; the longest first.
    pub fn turns(&self) -> Vec<(Key, Duration)> {
        self.shared.queue().as_ref().map(WorkQueue::held).unwrap_or_default()
    }

    /// Whether an informer is one of its sources, not there, and not missed.
    pub(crate) fn does_without(&self, engine: &Arc<Engine>) -> bool {
        let source = self.shared.sources.iter().find(|source| Arc::ptr_eq(&source.engine, engine));
        source.is_some_and(Source::is_absent)
    }

    /// Runs it until one of its informers is stopped. Starts them if nobody has. Dropping the future ends every turn where it waits.
    pub async fn run(&self) -> Result<(), ControllerError> {
        self.run_until(std::future::pending()).await
    }

    /// Runs it until `stop`; then no turn begins, and those that have begun are given [time](super::Controller::grace).
    pub async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<(), ControllerError> {
        self.run_in(None, stop).await
    }

    /// The same in a term of leadership.
    pub(crate) async fn run_in(
        &self,
        fence: Option<Fence>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ControllerError> {
        let mut stop = std::pin::pin!(stop);
        let mut run = Run::begin(&self.shared, fence)?;
        let mut ended = tokio::select! {
            biased;
            () = &mut stop => return Ok(()),
            opened = run.open() => opened,
        };
        if ended.is_ok() {
            ended = tokio::select! {
                biased;
                () = stop => Ok(()),
                ended = run.go() => ended,
            };
        }
        let stopped = run.stop().await;
        ended.and(stopped)
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Option<WorkQueue<Key>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn source_stopped(&self, number: usize) -> ControllerError {
        let resource = self.sources.get(number).map(|source| Arc::clone(&source.engine.resource));
        let controller = Arc::clone(&self.name);
        ControllerError::SourceStopped { controller, resource: resource.unwrap_or_default() }
    }
}

/// A run. When it goes, so does everything that it began.
struct Run<'a> {
    shared: &'a Arc<Shared>,
    turns: Arc<Turns>,
    stopping: watch::Sender<bool>,
    /// One for each source that tells something.
    registrations: Vec<Option<Registration>>,
    working: JoinSet<()>,
    /// Whoever brings keys from elsewhere.
    following: JoinSet<()>,
}

impl<'a> Run<'a> {
    fn begin(shared: &'a Arc<Shared>, fence: Option<Fence>) -> Result<Self, ControllerError> {
        let begun = shared.phase.send_if_modified(|phase| {
            let idle = *phase == Phase::Idle;
            if idle {
                *phase = Phase::Waiting((0..shared.sources.len()).collect());
            }
            idle
        });
        if !begun {
            return Err(ControllerError::RunsAlready { controller: Arc::clone(&shared.name) });
        }
        shared.factory.start();
        for source in &shared.sources {
            source.engine.start(&Handle::current());
        }
        shared.writes.clear();
        let queue = (shared.settings.limiter)();
        *shared.queue() = Some(queue.clone());
        // The first source is the kind that the controller is for.
        let main = shared.sources.first().map(|source| &source.engine);
        let listen = |source: &Source| source.listen(&shared.name, &queue, main?);
        let registrations = shared.sources.iter().map(listen).collect();
        let (stopping, receiver) = watch::channel(false);
        let turns = Turns {
            shared: Arc::clone(shared),
            queue,
            slots: Arc::new(Semaphore::new(shared.settings.concurrency)),
            fence: fence.map(Arc::new),
            stopping: receiver,
        };
        let (working, following) = (JoinSet::new(), JoinSet::new());
        Ok(Self { shared, turns: Arc::new(turns), stopping, registrations, working, following })
    }

    /// Waits until everything that was there has been seen.
    async fn open(&mut self) -> Result<(), ControllerError> {
        for keys in &self.shared.streams {
            self.following.spawn(follow(
                Arc::clone(keys),
                self.turns.queue.clone(),
                Arc::clone(&self.shared.name),
            ));
        }
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
    async fn go(&mut self) -> Result<(), ControllerError> {
        self.shared.phase.send_replace(Phase::Running);
        tracing::info!(controller = %self.shared.name, "running");
        let sources = self.shared.sources.iter().zip(&self.registrations);
        let ends = sources.map(|(source, registration)| source.ended(registration.as_ref()).boxed());
        // There is always one: the controller's own kind.
        let mut source_ends = select_all(ends).map(|((), number, _)| number).fuse();
        loop {
            tokio::select! {
                biased;
                number = &mut source_ends => return Err(self.shared.source_stopped(number)),
                Some(_ended) = self.working.join_next(), if !self.working.is_empty() => {}
                next = self.turns.next() => {
                    let Some((lease, permit)) = next else { return Ok(()) };
                    self.working.spawn(Arc::clone(&self.turns).work(lease, permit));
                }
            }
        }
    }

    /// Begins no turn any more, and waits for those that have begun.
    async fn stop(&mut self) -> Result<(), ControllerError> {
        self.shared.phase.send_replace(Phase::Stopping);
        self.stopping.send_replace(true);
        self.registrations.clear();
        self.following.abort_all();
        self.turns.queue.shut_down_now();
        let after = self.shared.settings.grace;
        let ended = async { while self.working.join_next().await.is_some() {} };
        if tokio::time::timeout(after, ended).await.is_ok() {
            return Ok(());
        }
        let keys = self.turns.queue.held().into_iter().map(|(key, _)| key).collect();
        Err(ControllerError::TurnsDropped { controller: Arc::clone(&self.shared.name), keys, after })
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // Whoever kept a context learns of it, and what still comes goes nowhere. The tasks end with their sets.
        self.stopping.send_replace(true);
        self.turns.queue.shut_down_now();
        self.shared.phase.send_replace(Phase::Idle);
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "controller {}: {:?}", self.shared.name, self.state())
    }
}
