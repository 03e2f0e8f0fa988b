//! [`ManagerHandle`]: stops and inspects a manager from outside its run.

use super::health::Health;
use crate::error::ReadinessError;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// How often a wait for readiness runs the checks.
const READINESS_POLL_PERIOD: Duration = Duration::from_millis(10);

/// A handle to stop and inspect a [`Manager`](super::Manager). Clones are cheap.
#[derive(Clone)]
pub struct ManagerHandle(pub(super) Arc<Shared>);

/// The state shared by a manager and its handles.
pub(super) struct Shared {
    pub(super) stop: watch::Sender<bool>,
    pub(super) run_state: Mutex<RunState>,
    pub(super) served_address: watch::Sender<ServedAddress>,
}

/// Whether a manager is running.
pub(super) enum RunState {
    NotStarted,
    Running(Arc<Health>),
    Ended,
}

/// The address of the endpoints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ServedAddress {
    /// Not known yet.
    Pending,
    At(SocketAddr),
    /// The endpoints are not served, or the manager has ended.
    NotServed,
}

impl ManagerHandle {
    /// Stops the manager in order, as the first signal does.
    pub fn stop(&self) {
        self.0.stop.send_replace(true);
    }

    /// Waits until the endpoints are served and returns their address; `None` if they are not served, or the
    /// manager has ended.
    pub async fn address(&self) -> Option<SocketAddr> {
        let mut served_address = self.0.served_address.subscribe();
        let known = served_address.wait_for(|address| *address != ServedAddress::Pending).await;
        match known.map(|address| *address) {
            Ok(ServedAddress::At(address)) => Some(address),
            _ => None,
        }
    }

    /// Waits until the program is ready, as served at `/readyz`.
    ///
    /// For tests: a standby is ready too. To wait for the leader's controllers, use
    /// [`RunnableController::wait_until_running`](crate::controller::RunnableController::wait_until_running).
    ///
    /// ```
    /// # use informer::{SharedInformerFactory, manager::Manager};
    /// # use k8s_openapi::api::core::v1::Pod;
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = informer_apiserver::ApiServer::new();
    /// let factory = SharedInformerFactory::new(server.client());
    /// let pods = factory.lister::<Pod>();
    /// let manager = Manager::new().factory(&factory);
    /// let handle = manager.handle();
    /// let run = tokio::spawn(manager.run_until(std::future::pending()));
    ///
    /// handle.wait_until_ready(Duration::from_secs(30)).await?;
    /// assert!(pods.has_synced());
    /// handle.stop();
    /// run.await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error with the reasons after the timeout, and immediately if the manager stops or has ended.
    /// A manager that has not started is waited for.
    pub async fn wait_until_ready(&self, timeout: Duration) -> Result<(), ReadinessError> {
        // Checks of the application do not notify, so that they have to be polled.
        let wait = async {
            loop {
                let is_ending = self.is_ending();
                let failures = self.readiness_failures();
                if failures.is_empty() {
                    return Ok(());
                }
                if is_ending {
                    return Err(ReadinessError { failures, timeout: None });
                }
                tokio::time::sleep(READINESS_POLL_PERIOD).await;
            }
        };
        if let Ok(result) = tokio::time::timeout(timeout, wait).await {
            return result;
        }
        let failures = self.readiness_failures();
        if failures.is_empty() { Ok(()) } else { Err(ReadinessError { failures, timeout: Some(timeout) }) }
    }

    /// Returns whether the manager cannot become ready any more.
    fn is_ending(&self) -> bool {
        match &*self.0.run_state() {
            RunState::NotStarted => false,
            RunState::Running(health) => health.is_stopping(),
            RunState::Ended => true,
        }
    }

    /// Returns the reasons why the program is not ready, as served at `/readyz`; empty if it is ready.
    pub fn readiness_failures(&self) -> Vec<String> {
        match self.health() {
            Ok(health) => health.readiness_failures(),
            Err(reason) => vec![reason.to_owned()],
        }
    }

    /// Returns the reasons why the process must be restarted, as served at `/healthz`; empty if it is
    /// healthy.
    pub fn health_failures(&self) -> Vec<String> {
        self.health().map(|health| health.health_failures()).unwrap_or_default()
    }

    fn health(&self) -> Result<Arc<Health>, &'static str> {
        match &*self.0.run_state() {
            RunState::NotStarted => Err("not started"),
            RunState::Running(health) => Ok(Arc::clone(health)),
            RunState::Ended => Err("ended"),
        }
    }
}

impl Shared {
    pub(super) fn set_run_state(&self, run_state: RunState) {
        let previous = std::mem::replace(&mut *self.run_state(), run_state);
        // Dropped without the lock: it may drop closures of the application.
        drop(previous);
    }

    fn run_state(&self) -> std::sync::MutexGuard<'_, RunState> {
        self.run_state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ManagerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manager, readiness failures: {:?}", self.readiness_failures())
    }
}
