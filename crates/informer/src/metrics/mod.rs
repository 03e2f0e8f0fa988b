//! Metrics as plain values, and in the text format of Prometheus.
//!
//! Every component returns its metrics as a plain struct; [`encode`] turns any number of components into text. Nothing here counts: the
//! values come from the status, the cache and the handlers at the moment of the call.

mod encoder;

pub use encoder::{Collect, CollectNamed, Encoder, Named, encode, named};
pub use informer_core::recorder::RecorderMetrics;
pub use informer_core::workqueue::{Histogram, QueueMetrics};

use crate::status::InformerStatus;
use informer_core::StoreSnapshot;
use informer_core::reflector::{InformerState, ReflectorCounters};
use std::sync::Arc;
use std::time::Duration;

/// What an informer has done so far and what it costs now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InformerMetrics {
    /// What it informs about.
    pub informer: Arc<str>,
    /// Its state.
    pub state: InformerState,
    /// Whether the first complete set is in the cache.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// About how much memory they take.
    pub memory_bytes: usize,
    /// Objects that came, changed and went.
    pub added: u64,
    /// Objects that changed.
    pub updated: u64,
    /// Objects that went.
    pub deleted: u64,
    /// What happened on the wire: lists, watches, relists by cause, rewinds, objects that were skipped, failures.
    pub reflector: ReflectorCounters,
    /// Objects that an audit found to differ.
    pub drift: u64,
    /// Objects that did not decode when somebody looked at them.
    pub decode_errors: u64,
    /// Calls of index functions that panicked.
    pub index_panics: u64,
    /// How often compression panicked.
    pub compression_panics: u64,
    /// How far the cache may be behind; `None` if it was never complete.
    pub staleness: Option<Duration>,
    /// How long ago the server last gave a sign of life; `None` if it never has.
    pub contact_age: Option<Duration>,
    /// Its handlers and event streams.
    pub handlers: Vec<HandlerMetrics>,
}

/// What a handler was told, and how far it is behind.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerMetrics {
    /// What it is called.
    pub name: Arc<str>,
    /// Tells handlers of one name apart; given out in the order in which they were added.
    pub id: u64,
    /// Objects, or states, that it has still to be told about.
    pub pending: usize,
    /// For how long the oldest of them has been waiting.
    pub oldest_pending_age: Option<Duration>,
    /// Events that it was told.
    pub delivered: u64,
    /// Events that were merged because it was too slow, of a handler that wants every state.
    pub coalesced: u64,
    /// Calls that panicked.
    pub panics: u64,
    /// Inline calls that took longer than 100 ms.
    pub slow_calls: u64,
}

/// What a controller has done. Counts only ever grow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControllerMetrics {
    /// Turns that went well.
    pub succeeded: u64,
    /// Turns that went well and asked for another.
    pub requeued: u64,
    /// Turns that failed and are tried again.
    pub failed: u64,
    /// Turns that failed for good.
    pub terminal: u64,
    /// Turns that panicked.
    pub panicked: u64,
    /// Turns that took too long.
    pub timed_out: u64,
    /// Turns that began although the cache had not seen a write.
    pub invisible_writes: u64,
    /// Turns that go on.
    pub active: usize,
    /// How many may go on at the same time.
    pub concurrency: usize,
    /// How long turns took.
    pub reconcile_duration: Histogram,
}

impl ControllerMetrics {
    /// Turns that failed, in whatever way.
    pub fn errors(&self) -> u64 {
        self.failed + self.terminal + self.panicked + self.timed_out
    }
}

impl InformerMetrics {
    pub(crate) fn new(
        resource: &Arc<str>,
        status: &InformerStatus,
        snapshot: &StoreSnapshot,
        decode_errors: u64,
        handlers: Vec<HandlerMetrics>,
    ) -> Self {
        Self {
            informer: Arc::clone(resource),
            state: status.state.clone(),
            synced: status.synced,
            objects: snapshot.len(),
            memory_bytes: snapshot.bytes(),
            added: status.cache.added,
            updated: status.cache.updated,
            deleted: status.cache.deleted,
            reflector: status.reflector,
            drift: status.cache.drift,
            decode_errors,
            index_panics: status.cache.index_panics,
            compression_panics: status.cache.compression_panics,
            staleness: status.staleness(),
            contact_age: status.contact_age(),
            handlers,
        }
    }
}

impl Collect for InformerMetrics {
    fn collect(&self, encoder: &mut Encoder) {
        let identity = &encoder.identity("resource", &self.informer);
        let labels = &[("resource", &**identity)][..];
        for (name, help, value) in GAUGES {
            encoder.gauge(name, help, labels, value(self));
        }
        let help = "Time for which the cache may be out of date.";
        encoder.seconds("informer_staleness_seconds", help, labels, self.staleness);
        let help = "Time since the last byte from the server.";
        encoder.seconds("informer_contact_age_seconds", help, labels, self.contact_age);
        for (name, help, value) in COUNTERS {
            encoder.counter(name, help, labels, value(self));
        }
        let state = [labels[0], ("state", state_name(&self.state))];
        encoder.gauge("informer_state", "The state of the informer: 1 for the current one.", &state, 1.0);
        for (kind, count) in [("added", self.added), ("updated", self.updated), ("deleted", self.deleted)] {
            let labels = [labels[0], ("kind", kind)];
            encoder.counter("informer_events_total", "Changes of the cache, by kind.", &labels, count);
        }
        for (cause, count) in self.reflector.relists.by_reason() {
            let labels = [labels[0], ("cause", cause)];
            encoder.counter("informer_relists_total", "Full lists requested, by cause.", &labels, count);
        }
        for handler in &self.handlers {
            handler.collect(labels[0], encoder);
        }
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
    ("informer_synced", "Whether the initial list is in the cache.", |m| f64::from(u8::from(m.synced))),
];

const COUNTERS: &[Counter<InformerMetrics>] = &[
    ("informer_rewinds_total", "Lists older than the state seen before.", |m| m.reflector.rewinds),
    ("informer_watches_total", "Watches opened.", |m| m.reflector.watches),
    ("informer_watch_lists_total", "Watch-lists opened.", |m| m.reflector.watch_lists),
    ("informer_lists_total", "Lists and pages requested.", |m| m.reflector.lists),
    ("informer_failures_total", "Requests that failed and streams that broke.", |m| m.reflector.failures),
    ("informer_unreadable_objects_total", "Objects that could not be read.", |m| m.reflector.unreadable),
    ("informer_decode_errors_total", "Objects that failed to decode on access.", |m| m.decode_errors),
    ("informer_transform_errors_total", "Objects whose transform failed.", |m| m.reflector.transform_errors),
    ("informer_index_panics_total", "Calls of index functions that panicked.", |m| m.index_panics),
    ("informer_compression_panics_total", "Panics of compression.", |m| m.compression_panics),
    ("informer_drift_total", "Objects that an audit found to differ.", |m| m.drift),
];

const HANDLER_COUNTERS: &[Counter<HandlerMetrics>] = &[
    ("informer_handler_events_total", "Events delivered to the handler.", |h| h.delivered),
    ("informer_handler_coalesced_total", "Events coalesced because the handler lagged.", |h| h.coalesced),
    ("informer_handler_panics_total", "Calls of the handler that panicked.", |h| h.panics),
    ("informer_handler_slow_calls_total", "Inline calls that took more than 100 ms.", |h| h.slow_calls),
];

impl HandlerMetrics {
    fn collect(&self, informer: (&str, &str), encoder: &mut Encoder) {
        // Handlers of one informer may share a name; their ids differ.
        let id = self.id.to_string();
        let labels = &[informer, ("handler", &*self.name), ("id", &id)];
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
        InformerState::Live => "live",
        InformerState::Stale { .. } => "stale",
        InformerState::Forbidden { .. } => "forbidden",
        InformerState::NotServed { .. } => "not-served",
        InformerState::BackingOff { .. } => "backing-off",
        _ => "stopped",
    }
}
