//! Options of a new server.

use std::sync::Arc;

use super::ApiServer;
use crate::clock::{Clock, ManualClock};
use crate::model::{HistoryLimits, Model, Registry};
use crate::shared::Shared;

/// Options of a new server, from [`ApiServer::builder`].
///
/// ```
/// let server = informer_apiserver::ApiServer::builder().history_limit(10).build();
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ApiServerBuilder {
    history: HistoryLimits,
    seed: u64,
    all_versions: bool,
    clock: Clock,
}

impl ApiServer {
    /// Returns the options of a new server, with defaults.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            history: HistoryLimits::default(),
            seed: 0,
            all_versions: false,
            clock: Clock::default(),
        }
    }
}

impl ApiServerBuilder {
    /// Sets the number of changes retained per resource.
    ///
    /// A watch that has not sent all changes in its scope before they are dropped ends with 410. Defaults to
    /// 100,000. Independently of this limit, the changes of all resources together take at most 32 MiB, and
    /// changes older than five minutes are dropped, except for the last 100 of each resource but events.
    pub fn history_limit(self, changes: usize) -> Self {
        ApiServerBuilder { history: HistoryLimits { changes, ..self.history }, ..self }
    }

    /// Removes all limits of the history: number, size and age of changes.
    ///
    /// Memory then grows with every write, until [`ApiServer::compact`] is called.
    pub fn unlimited_history(self) -> Self {
        ApiServerBuilder { history: HistoryLimits::UNLIMITED, ..self }
    }

    /// Sets the seed of uids and generated names. Defaults to 0.
    ///
    /// Equal seeds and equal sequences of writes produce equal uids and names.
    pub fn seed(self, seed: u64) -> Self {
        ApiServerBuilder { seed, ..self }
    }

    /// Serves alpha and beta versions too. By default they are disabled, as in kube-apiserver.
    pub fn all_versions(self) -> Self {
        ApiServerBuilder { all_versions: true, ..self }
    }

    /// Sets the clock of the server. By default, the server follows tokio's clock.
    ///
    /// With a manual clock, futures of the server need no tokio runtime: timeouts of watches, bookmarks and
    /// delays pass only as the clock is advanced. [`ApiServer::wait_for`] and [`Schedule`](crate::faults::Schedule)
    /// still use tokio's clock.
    pub fn clock(self, clock: ManualClock) -> Self {
        ApiServerBuilder { clock: Clock::Manual(clock), ..self }
    }

    /// Creates the server.
    pub fn build(self) -> ApiServer {
        let registry = if self.all_versions { Registry::all_versions() } else { Registry::builtin() };
        let model = Model::serving(registry, self.clock.now(), self.seed, self.history);
        ApiServer { shared: Arc::new(Shared::new(model, self.clock)), documents: Arc::default() }
    }
}
