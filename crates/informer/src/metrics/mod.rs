//! Metrics as plain values, and in the text format of Prometheus.
//!
//! Every component returns its metrics as a plain struct; [`encode`] turns any number of components into
//! text. Nothing is counted here: the values come from the status, the cache and the handlers at the time of
//! the call. The page "Metrics" of the book lists the names, labels and meanings of all metrics.

mod encoder;

pub use encoder::{Collect, CollectNamed, Encoder, Named, encode, named};
pub use informer_core::recorder::RecorderMetrics;
pub use informer_core::workqueue::{Histogram, QueueMetrics};
pub use informer_core::{DecodedMetrics, ProjectionMetrics};

use crate::status::InformerStatus;
use informer_core::StoreSnapshot;
use informer_core::reflector::{InformerState, ReflectorCounters};
use std::sync::Arc;
use std::time::Duration;

/// The metrics of one informer: counters since it was created, and current values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerMetrics {
    /// The resource and its selection, as in `pods in all namespaces`.
    pub informer: Arc<str>,
    /// The labels of the informer's series: `group`, `version`, `resource` and `namespace`, as the API spells
    /// them. `group` is empty for the core group, and `namespace` for all namespaces; several namespaces are
    /// separated by commas. `label_selector`, `field_selector` and `representation` (`metadata`) follow if
    /// they are set.
    pub labels: Arc<[(&'static str, Box<str>)]>,
    /// The current state.
    pub state: InformerState,
    /// Whether the initial list is in the cache.
    pub synced: bool,
    /// Number of objects in the cache.
    pub objects: usize,
    /// Approximate memory of the objects in the cache, without decoded values; see
    /// [`decoded`](Self::decoded) and [`projections`](Self::projections).
    pub memory_bytes: usize,
    /// Number of objects added to the cache.
    pub added: u64,
    /// Number of updates of objects in the cache.
    pub updated: u64,
    /// Number of objects deleted from the cache.
    pub deleted: u64,
    /// Number of objects that left the cache because they belong to other processes of a shard group.
    pub released: u64,
    /// Counters of the reflector: lists, watches, relists by cause, rewinds, unreadable objects, failures.
    pub reflector: ReflectorCounters,
    /// Number of changes by which audits corrected the cache.
    pub drift: u64,
    /// Number of objects that failed to decode on access.
    pub decode_errors: u64,
    /// Number of calls of index functions that panicked.
    pub index_panics: u64,
    /// Number of panics of compression.
    pub compression_panics: u64,
    /// Time for which the cache may be out of date; `None` if it was never complete.
    pub staleness: Option<Duration>,
    /// Time since response headers, a part of a list or a frame were received; `None` before the first ones.
    pub contact_age: Option<Duration>,
    /// The handlers and event streams of the informer.
    pub handlers: Vec<HandlerMetrics>,
    /// The decoded objects that [`Retention::Decoded`](crate::cache::Retention::Decoded) or
    /// [`Retention::RecentlyDecoded`](crate::cache::Retention::RecentlyDecoded) keeps.
    pub decoded: DecodedMetrics,
    /// The projections of the informer, and released ones whose values are not freed yet.
    pub projections: Vec<ProjectionMetrics>,
}

/// The metrics of one handler or event stream.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerMetrics {
    /// The name of the handler.
    pub name: Arc<str>,
    /// A number that distinguishes handlers of the same name; assigned in the order in which they were added.
    pub id: u64,
    /// Number of objects with pending events, or of pending events if the handler is uncoalesced.
    pub pending: usize,
    /// Age of the oldest event not delivered yet; `None` if there is none.
    pub oldest_pending_age: Option<Duration>,
    /// Number of events delivered.
    pub delivered: u64,
    /// Number of events that were coalesced because more were pending than the capacity of an uncoalesced
    /// handler; 0 for other handlers.
    pub coalesced: u64,
    /// Number of calls that panicked.
    pub panics: u64,
    /// Number of inline calls that took at least 100 ms, with the call in progress.
    pub slow_calls: u64,
    /// Duration of the call in progress; `None` if there is none.
    pub running_call: Option<Duration>,
}

/// The metrics of one controller, over all its runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Number of reconciles that returned `Outcome::Done`.
    pub succeeded: u64,
    /// Number of reconciles that returned `Outcome::RequeueAfter`.
    pub requeued: u64,
    /// Number of reconciles that returned an error and are retried.
    pub failed: u64,
    /// Number of reconciles that returned `Outcome::Terminal`.
    pub terminal: u64,
    /// Number of reconciles that panicked.
    pub panicked: u64,
    /// Number of reconciles that timed out.
    pub timed_out: u64,
    /// Number of reconciles that were dropped because their hash range was lost or released.
    pub withdrawn: u64,
    /// Number of reconciles that started before the cache showed an earlier write.
    pub invisible_writes: u64,
    /// Number of reconciles that are running.
    pub active: usize,
    /// Maximum number of concurrent reconciles.
    pub concurrency: usize,
    /// Durations of reconciles.
    pub reconcile_duration: Histogram,
}

impl ControllerMetrics {
    /// Returns the number of reconciles that failed: by an error, a terminal outcome, a panic or a timeout.
    pub fn errors(&self) -> u64 {
        self.failed + self.terminal + self.panicked + self.timed_out
    }
}

impl InformerMetrics {
    pub(crate) fn new(
        informer: &Arc<str>,
        labels: &Arc<[(&'static str, Box<str>)]>,
        status: &InformerStatus,
        snapshot: &StoreSnapshot,
        (decode_errors, decoded): (u64, DecodedMetrics),
        handlers: Vec<HandlerMetrics>,
        projections: Vec<ProjectionMetrics>,
    ) -> Self {
        Self {
            informer: Arc::clone(informer),
            labels: Arc::clone(labels),
            state: status.state.clone(),
            synced: status.synced,
            objects: snapshot.len(),
            memory_bytes: snapshot.bytes(),
            added: status.cache.added,
            updated: status.cache.updated,
            deleted: status.cache.deleted,
            released: status.cache.released,
            reflector: status.reflector,
            drift: status.cache.drift,
            decode_errors,
            index_panics: status.cache.index_panics,
            compression_panics: status.cache.compression_panics,
            staleness: status.staleness(),
            contact_age: status.contact_age(),
            handlers,
            decoded,
            projections,
        }
    }
}

impl Collect for InformerMetrics {
    fn collect(&self, encoder: &mut Encoder) {
        let mut labels: Vec<(&str, &str)> =
            self.labels.iter().map(|(name, value)| (*name, &**value)).collect();
        // Distinguishes informers of different factories, in all families.
        let times = encoder.count_identity("informer", &format!("{labels:?}")).to_string();
        if times != "1" {
            labels.push(("duplicate", &times));
        }
        let labels = &labels[..];
        let with = |name, value| [labels, &[(name, value)]].concat();
        for (name, help, value) in GAUGES {
            encoder.gauge(name, help, labels, value(self));
        }
        let help = "Time for which the cache may be out of date.";
        encoder.seconds("informer_staleness_seconds", help, labels, self.staleness);
        let help = "Time since the last response headers, part of a list or frame.";
        encoder.seconds("informer_contact_age_seconds", help, labels, self.contact_age);
        for (name, help, value) in COUNTERS {
            encoder.counter(name, help, labels, value(self));
        }
        let state = with("state", state_name(&self.state));
        encoder.gauge("informer_state", "The state of the informer: 1 for the current one.", &state, 1.0);
        let changes = [
            ("added", self.added),
            ("updated", self.updated),
            ("deleted", self.deleted),
            ("released", self.released),
        ];
        for (kind, count) in changes {
            let help = "Changes of the cache, by kind.";
            encoder.counter("informer_events_total", help, &with("kind", kind), count);
        }
        for (reason, count) in self.reflector.relists.by_reason() {
            let help = "Relists by reason, the initial list included.";
            encoder.counter("informer_relists_total", help, &with("reason", reason), count);
        }
        for handler in &self.handlers {
            handler.collect(labels, encoder);
        }
        for projection in &self.projections {
            collect_projection(projection, labels, encoder);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
fn collect_projection(projection: &ProjectionMetrics, informer: &[(&str, &str)], encoder: &mut Encoder) {
    let labels = &[informer, &[("type", projection.type_name)]].concat()[..];
    let help = "Values of the projection, with those of old object states in use.";
    encoder.gauge("informer_projection_values", help, labels, projection.values as f64);
    let help = "Estimated memory of the values of the projection.";
    encoder.gauge("informer_projection_bytes", help, labels, projection.bytes as f64);
    let errors = [("decode", projection.decode_errors), ("limit", projection.limit_errors)];
    for (reason, count) in errors {
        let labels = [labels, &[("reason", reason)]].concat();
        let help = "Objects that did not decode, and reads without a value because of the limit.";
        encoder.counter("informer_projection_errors_total", help, &labels, count);
    }
}

/// Name, help text and value of a gauge.
type Gauge = (&'static str, &'static str, fn(&InformerMetrics) -> f64);

/// Name, help text and value of a counter.
type Counter<T> = (&'static str, &'static str, fn(&T) -> u64);

#[expect(
    clippy::cast_precision_loss,
    reason = "gauges are floating-point numbers; counts below 2^53 are exact"
)]
const GAUGES: &[Gauge] = &[
    ("informer_objects", "Objects in the cache.", |m| m.objects as f64),
    ("informer_memory_bytes", "Approximate memory of the objects in the cache.", |m| m.memory_bytes as f64),
    ("informer_decoded_values", "Decoded objects that the cache keeps.", |m| m.decoded.values as f64),
    ("informer_decoded_source_bytes", "Size of the bytes from which these objects were decoded.", |m| {
        m.decoded.encoded_bytes as f64
    }),
    ("informer_synced", "Whether the initial list is in the cache.", |m| f64::from(u8::from(m.synced))),
];

const COUNTERS: &[Counter<InformerMetrics>] = &[
    ("informer_rewinds_total", "Lists older than the state seen before.", |m| m.reflector.rewinds),
    ("informer_watches_total", "Watches opened.", |m| m.reflector.watches),
    ("informer_watch_lists_total", "Watch-lists opened.", |m| m.reflector.watch_lists),
    ("informer_lists_total", "Lists and pages requested.", |m| m.reflector.lists),
    ("informer_failures_total", "Requests that failed and streams that broke.", |m| m.reflector.failures),
    ("informer_foreign_objects_total", "Objects dropped because they are in other hash ranges.", |m| {
        m.reflector.foreign
    }),
    ("informer_unreadable_objects_total", "Objects that could not be read.", |m| m.reflector.unreadable),
    ("informer_decode_errors_total", "Objects that failed to decode on access.", |m| m.decode_errors),
    ("informer_decoded_evictions_total", "Decoded objects dropped because of the limit.", |m| {
        m.decoded.evictions
    }),
    ("informer_transform_errors_total", "Objects whose transform failed.", |m| m.reflector.transform_errors),
    ("informer_index_panics_total", "Calls of index functions that panicked.", |m| m.index_panics),
    ("informer_compression_panics_total", "Panics of compression.", |m| m.compression_panics),
    ("informer_drift_total", "Changes by which audits corrected the cache.", |m| m.drift),
];

const HANDLER_COUNTERS: &[Counter<HandlerMetrics>] = &[
    ("informer_handler_events_total", "Events delivered to the handler.", |h| h.delivered),
    ("informer_handler_coalesced_total", "Events coalesced because the handler lagged.", |h| h.coalesced),
    ("informer_handler_panics_total", "Calls of the handler that panicked.", |h| h.panics),
    ("informer_handler_slow_calls_total", "Inline calls that took at least 100 ms.", |h| h.slow_calls),
];

impl HandlerMetrics {
    fn collect(&self, informer: &[(&str, &str)], encoder: &mut Encoder) {
        // Handlers of one informer may share a name; their ids differ.
        let id = self.id.to_string();
        let labels = &[informer, &[("handler", &*self.name), ("id", &id)]].concat();
        let help = "Events queued for the handler and not delivered yet.";
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a floating-point number")]
        encoder.gauge("informer_handler_pending", help, labels, self.pending as f64);
        let age = self.oldest_pending_age.or(Some(Duration::ZERO));
        encoder.seconds(
            "informer_handler_lag_seconds",
            "Age of the oldest event not delivered yet.",
            labels,
            age,
        );
        let running = self.running_call.or(Some(Duration::ZERO));
        let help = "Duration of the call in progress; 0 if there is none.";
        encoder.seconds("informer_handler_running_call_seconds", help, labels, running);
        for (name, help, value) in HANDLER_COUNTERS {
            encoder.counter(name, help, labels, value(self));
        }
    }
}

fn state_name(state: &InformerState) -> &'static str {
    match state {
        InformerState::NotStarted => "not-started",
        InformerState::Connecting => "connecting",
        InformerState::Listing { .. } => "listing",
        InformerState::Restored { .. } => "restored",
        InformerState::Live => "live",
        InformerState::Stale { .. } => "stale",
        InformerState::Forbidden { .. } => "forbidden",
        InformerState::NotServed { .. } => "not-served",
        InformerState::BackingOff { .. } => "backing-off",
        _ => "stopped",
    }
}
