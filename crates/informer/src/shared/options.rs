//! What an informer can be told before it starts.

use informer_core::reflector::{BackoffConfig, Config, WatchListPolicy};
use informer_core::wire::{Limits, TypeMeta};
use informer_core::{FieldSelector, LabelSelector, Retention, Scope};
use std::time::Duration;

/// The settings of an informer. The defaults suit a production cluster: everything of the kind, in all namespaces.
///
/// ```
/// use informer::{LabelSelector, Options};
///
/// let options = Options::default().namespace("shop").labels("app=web,tier!=cache".parse::<LabelSelector>()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Options {
    pub(super) namespace: Option<String>,
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    pub(super) headers_deadline: Option<Duration>,
    retention: Retention,
    watch_list: WatchListPolicy,
    page_size: Option<u32>,
    object_limit: Option<usize>,
    backoff: Option<BackoffConfig>,
}

impl Options {
    /// One namespace only; an empty name means all of them.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into()).filter(|namespace| !namespace.is_empty());
        self
    }

    /// Only objects whose labels match; the server filters.
    pub fn labels(mut self, labels: LabelSelector) -> Self {
        self.labels = labels;
        self
    }

    /// Only objects whose fields match; the server filters, and knows few fields of each kind.
    pub fn fields(mut self, fields: FieldSelector) -> Self {
        self.fields = fields;
        self
    }

    /// What the cache keeps of each object.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Whether the initial set is streamed.
    pub fn watch_list(mut self, policy: WatchListPolicy) -> Self {
        self.watch_list = policy;
        self
    }

    /// Items per page, for every list.
    pub fn page_size(mut self, items: u32) -> Self {
        self.page_size = Some(items);
        self
    }

    /// The largest object that is kept, in bytes (8 MiB by default). A larger one is skipped and reported.
    pub fn object_limit(mut self, bytes: usize) -> Self {
        self.object_limit = Some(bytes);
        self
    }

    /// How long a request may take until its response headers are there.
    pub fn headers_deadline(mut self, deadline: Duration) -> Self {
        self.headers_deadline = Some(deadline);
        self
    }

    /// How waits grow after failures: from `first`, doubling, up to `longest`.
    pub fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        self.backoff = Some(BackoffConfig::new(first, longest));
        self
    }

    pub(super) fn scope(&self) -> Scope {
        self.namespace.as_deref().map_or(Scope::All, Scope::namespace)
    }

    pub(super) fn config(&self, types: TypeMeta) -> Config {
        let mut config = Config::new(types, self.scope());
        config.retention = self.retention;
        config.watch_list = self.watch_list;
        config.page_size = self.page_size;
        config.limits = self.object_limit.map_or_else(Limits::default, Limits::new);
        config.backoff = self.backoff.unwrap_or_default();
        if let Some(deadline) = self.headers_deadline {
            config.answer_deadline = config.answer_deadline.max(deadline.saturating_mul(2));
        }
        config
    }
}
