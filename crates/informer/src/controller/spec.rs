//! The configuration of a controller: its sources and its settings.
//!
//! This module knows neither the types of objects nor how a controller runs.

use super::source::{ErasedSource, KeyStream, OwnerKind};
use crate::factory::SharedInformerFactory;
use crate::workqueue::{WorkQueue, seed};
use informer_core::Key;
use informer_core::workqueue::ExponentialBackoff;
use std::sync::Arc;
use std::time::Duration;

/// The error of a reconcile function: any error type, including `anyhow`'s, or a text.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The configuration of a controller, without the types of its sources.
pub(super) struct ControllerSpec {
    pub(super) factory: SharedInformerFactory,
    pub(super) name: Arc<str>,
    pub(super) owner_kind: OwnerKind,
    pub(super) sources: Vec<ErasedSource>,
    pub(super) streams: Vec<KeyStream>,
    pub(super) settings: Settings,
}

/// The settings of a controller.
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) reconcile_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    pub(super) write_visibility_timeout: Duration,
    /// Creates the work queue of a run, with its rate limiter.
    pub(super) new_queue: Box<dyn Fn() -> WorkQueue<Key> + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 1,
            reconcile_timeout: Duration::from_mins(5),
            shutdown_timeout: Duration::from_secs(30),
            write_visibility_timeout: Duration::from_secs(30),
            new_queue: Box::new(|| {
                WorkQueue::with_rate_limiter(ExponentialBackoff::default().jitter(seed()))
            }),
        }
    }
}
