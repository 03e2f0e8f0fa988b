//! Running a manager: starting its parts, waiting, stopping them in order.

use super::handle::{RunState, ServedAddress};
use super::health::Health;
use super::shards::RunningGroups;
use super::tasks::run_tasks;
use super::{CacheStart, Manager, serve, signals};
use crate::controller::RunnableController;
use crate::election::Term;
use crate::error::{ControllerError, ManagerError, ShutdownError};
use crate::factory::SharedInformerFactory;
use futures::future::{FutureExt as _, join_all};
use std::future::Future;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Notify, watch};

impl Manager {
    /// Runs everything until SIGINT, SIGTERM, a call of [`ManagerHandle::stop`](super::ManagerHandle::stop), or
    /// a permanent failure of a controller or task.
    ///
    /// A second signal exits the process immediately, with the exit code of a process killed by that signal.
    /// So does any signal after all managers of the process have ended.
    ///
    /// # Errors
    ///
    /// See [`run_until`](Self::run_until); also if signals cannot be handled.
    ///
    /// # Cancel safety
    ///
    /// See [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<(), ManagerError> {
        let mut signals = signals::Listener::new().map_err(ManagerError::Signals)?;
        let stop = async {
            let signal = signals.first_signal().await;
            tracing::info!(signal, "stopping; another signal exits the process immediately");
        };
        self.run_until(stop).await
    }

    /// Runs everything until `stop` completes, [`ManagerHandle::stop`](super::ManagerHandle::stop) is called, or
    /// a controller or task fails permanently. Does not handle signals.
    ///
    /// The informers are shut down before this returns. So a [`SharedInformerFactory::wait_for_sync`] outside the
    /// manager that still waits when the manager is stopped fails first, with
    /// [`ErrorKind::Stopped`](crate::error::ErrorKind::Stopped), which is not a failure of the program.
    ///
    /// # Errors
    ///
    /// Returns an error, before anything starts, if the endpoints cannot be served, if two controllers have the
    /// same name, or if there are leader election and sharding. Otherwise the first error of a controller, or else of a task, or an error if tasks or
    /// informers did not end in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops everything without waiting, as if the process was killed: reconciles and tasks
    /// are aborted at their next await point, informers stop when their last handle is dropped, recorded events
    /// that are not written yet may be lost, and the lease is not released but expires.
    pub async fn run_until(mut self, stop: impl Future<Output = ()>) -> Result<(), ManagerError> {
        self.check_parts()?;
        let health = Arc::new(self.health());
        self.shared.set_run_state(RunState::Running(Arc::clone(&health)));
        let endpoints = match self.address {
            Some(address) => Some(
                serve::Endpoints::serve(address, Arc::clone(&health))
                    .await
                    .map_err(|source| ManagerError::Bind { address, source })?,
            ),
            None => None,
        };
        if let Some(endpoints) = &endpoints {
            tracing::info!(address = %endpoints.address, "serving /healthz, /readyz and /metrics");
        }
        let served_address = endpoints
            .as_ref()
            .map_or(ServedAddress::NotServed, |endpoints| ServedAddress::At(endpoints.address));
        self.shared.served_address.send_replace(served_address);
        let groups = RunningGroups::start(&self.shard_groups);
        if self.elector.is_none() || self.cache_start == CacheStart::Immediate {
            self.factories.iter().for_each(SharedInformerFactory::start);
        }
        let handle_stop = wait_until_true(self.shared.stop.subscribe());
        let stop = async {
            tokio::select! {
                () = stop => {}
                () = handle_stop => {}
            }
        };
        let (ending, tasks, timeout) =
            (watch::Sender::new(false), std::mem::take(&mut self.tasks), self.shutdown_timeout);
        let controllers = async {
            let result = self.run_controllers(&ending, stop).await;
            ending.send_replace(true);
            result
        };
        let stopping = async {
            wait_until_true(ending.subscribe()).await;
            health.set_stopping();
            // Other processes need not wait for all reconciles of this one.
            groups.begin_stop();
        };
        let (result, tasks_result, ()) =
            tokio::join!(controllers, run_tasks(tasks, &ending, timeout), stopping);
        self.shared.stop.send_replace(true);
        groups.stop(self.shutdown_timeout).await;
        for recorder_result in
            join_all(self.recorders.iter().map(|recorder| recorder.shutdown(self.shutdown_timeout))).await
        {
            if let Err(error) = recorder_result {
                tracing::warn!(%error, "recorded events are lost");
            }
        }
        let informer_results =
            join_all(self.factories.iter().map(|factory| factory.shutdown(self.shutdown_timeout))).await;
        if let Some(endpoints) = endpoints {
            endpoints.shutdown().await;
        }
        result.and(tasks_result).and(
            ShutdownError::collect(self.shutdown_timeout, informer_results).map_err(ManagerError::Shutdown),
        )
    }

    /// Returns an error if the parts of the manager exclude each other.
    fn check_parts(&self) -> Result<(), ManagerError> {
        let mut names: Vec<&str> = self.controllers.iter().map(RunnableController::name).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ManagerError::DuplicateController(pair[0].into()));
        }
        let is_sharded = !self.shard_groups.is_empty()
            || self.controllers.iter().any(|controller| controller.shard_group().is_some());
        if is_sharded && self.elector.is_some() {
            return Err(ManagerError::ElectionWithShards);
        }
        Ok(())
    }

    fn health(&mut self) -> Health {
        Health {
            factories: self.factories.clone(),
            controllers: self.controllers.clone(),
            election: self.elector.as_ref().map(|elector| (elector.lease_name(), elector.leadership())),
            delayed_caches: self.elector.is_some() && self.cache_start == CacheStart::OnceLeading,
            shard_groups: self.shard_groups.clone(),
            recorders: self.recorders.clone(),
            checks: std::mem::take(&mut self.checks),
            collectors: std::mem::take(&mut self.collectors),
            stopping: AtomicBool::new(false),
        }
    }

    /// Runs the controllers, with leader election if configured, until `ending` is set: when `stop` completes,
    /// or by the first controller or task that fails.
    async fn run_controllers(
        &mut self,
        ending: &watch::Sender<bool>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ManagerError> {
        let run = async {
            let Some(elector) = self.elector.take() else {
                return self.run_term(None, ending).await;
            };
            let term_result: Mutex<Result<(), ManagerError>> = Mutex::new(Ok(()));
            let stuck = Notify::new();
            let lead = |term: Term| {
                let (term_result, stuck, manager) = (&term_result, &stuck, &*self);
                async move {
                    manager.factories.iter().for_each(SharedInformerFactory::start);
                    let ended = manager.run_term(Some(term), ending).await;
                    let is_stuck =
                        matches!(&ended, Err(ManagerError::Controller(error)) if error.is_blocked());
                    *term_result.lock().unwrap_or_else(PoisonError::into_inner) = ended;
                    if is_stuck {
                        stuck.notify_one();
                        // If the work completed, the elector would release the lease.
                        std::future::pending::<()>().await;
                    }
                }
            };
            tokio::select! {
                ended = elector.run(lead, wait_until_true(ending.subscribe())) => {
                    let _outcome = ended?;
                }
                // A reconcile is still running and may write. The lease is not released but expires, so that
                // no other process becomes the leader immediately.
                () = stuck.notified() => tracing::error!("the lease is not released because a reconcile has not ended"),
            }
            term_result.into_inner().unwrap_or_else(PoisonError::into_inner)
        };
        let mut run = std::pin::pin!(run.fuse());
        let mut stop = std::pin::pin!(stop);
        tokio::select! {
            biased;
            ended = &mut run => return ended,
            () = &mut stop => ending.send_replace(true),
        };
        run.await
    }

    /// Runs the controllers until all have ended, after `ending` was set or one of them has failed.
    async fn run_term(&self, term: Option<Term>, ending: &watch::Sender<bool>) -> Result<(), ManagerError> {
        let runs = self.controllers.iter().map(|controller| {
            let (term, stop) = (term.clone(), wait_until_true(ending.subscribe()));
            async move {
                let ended = controller.run_in(term, stop).await;
                if let Err(error) = &ended {
                    tracing::error!(%error, "a controller has failed; stopping everything else");
                    ending.send_replace(true);
                }
                ended
            }
        });
        let ended = join_all(runs).await;
        if self.controllers.is_empty() {
            wait_until_true(ending.subscribe()).await;
        }
        // An error with stuck reconciles takes precedence: after it, writes may still happen.
        let mut errors: Vec<ControllerError> = ended.into_iter().filter_map(Result::err).collect();
        errors.sort_by_key(|error| !error.is_blocked());
        errors.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

/// Waits until the value is true.
pub(super) async fn wait_until_true(mut flag: watch::Receiver<bool>) {
    // Cannot fail: the senders live until everything has ended.
    let _closed = flag.wait_for(|flag| *flag).await.is_err();
}
