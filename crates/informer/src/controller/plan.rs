//! What a controller is made of before it runs: its sources and its settings.
//!
//! Nothing here knows the types of objects, or how a controller runs.

use super::source::{ErasedSource, Keys, Owner};
use crate::factory::SharedInformerFactory;
use crate::workqueue::{WorkQueue, seed};
use informer_core::Key;
use informer_core::workqueue::ExponentialBackoff;
use std::sync::Arc;
use std::time::Duration;

/// What a reconcile function may fail with: any error, `anyhow`'s too, or a text.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What is settled of a controller, whatever the types of its sources.
pub(super) struct ControllerSpec {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) owner: Owner,
    pub(super) sources: Vec<ErasedSource>,
    pub(super) streams: Vec<Keys>,
    pub(super) settings: Settings,
}

/// How a controller works.
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) reconcile_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) patience: Duration,
    pub(super) limiter: Box<dyn Fn() -> WorkQueue<Key> + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 1,
            reconcile_timeout: Duration::from_mins(5),
            shutdown_timeout: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            limiter: Box::new(|| WorkQueue::with_rate_limiter(ExponentialBackoff::default().jitter(seed()))),
        }
    }
}
