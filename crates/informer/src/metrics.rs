//! Figures about informers: as plain values, and as text for Prometheus.
//!
//! Nothing here is counted; the figures come from the status, the cache and the handlers at the moment somebody asks.

use crate::status::Status;
use informer_core::StoreSnapshot;
use informer_core::reflector::{Counters, State};
use informer_core::workqueue::Histogram;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

/// What an informer has done so far and what it costs now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// What it informs about.
    pub resource: Arc<str>,
    /// Its state.
    pub state: State,
    /// Whether the first complete set is in the cache.
    pub synced: bool,
    /// Objects in the cache.
    pub objects: usize,
    /// About how much memory they take.
    pub bytes: usize,
    /// Objects that came, changed and went.
    pub added: u64,
    /// Objects that changed.
    pub updated: u64,
    /// Objects that went.
    pub deleted: u64,
    /// What happened on the wire: lists, watches, relists by cause, rewinds, objects that were skipped, failures.
    pub wire: Counters,
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
    pub silence: Option<Duration>,
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
    pub number: u64,
    /// Objects, or states, that it has still to be told about.
    pub pending: usize,
    /// For how long the oldest of them has been waiting.
    pub oldest_pending: Option<Duration>,
    /// Events that it was told.
    pub told: u64,
    /// Events that were merged because it was too slow, of a handler that wants every state.
    pub skipped: u64,
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
    pub done: u64,
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
    pub unseen_writes: u64,
    /// Turns that go on.
    pub active: usize,
    /// How many may go on at the same time.
    pub concurrency: usize,
    /// How long turns took.
    pub durations: Histogram,
}

impl ControllerMetrics {
    /// Turns that failed, in whatever way.
    pub fn errors(&self) -> u64 {
        self.failed + self.terminal + self.panicked + self.timed_out
    }
}

impl Metrics {
    pub(crate) fn new(
        resource: &Arc<str>,
        status: &Status,
        snapshot: &StoreSnapshot,
        decode_errors: u64,
        handlers: Vec<HandlerMetrics>,
    ) -> Self {
        Self {
            resource: Arc::clone(resource),
            state: status.state.clone(),
            synced: status.synced,
            objects: snapshot.len(),
            bytes: snapshot.bytes(),
            added: status.changes.added,
            updated: status.changes.updated,
            deleted: status.changes.deleted,
            wire: status.counters,
            drift: status.changes.drift,
            decode_errors,
            index_panics: status.changes.index_panics,
            compression_panics: status.changes.compression_panics,
            staleness: status.staleness(),
            silence: status.silence(),
            handlers,
        }
    }

    /// The figures of several informers as Prometheus reads them.
    ///
    /// ```
    /// let text = informer::Metrics::prometheus(&[]);
    /// assert!(text.contains("# TYPE informer_objects gauge"));
    /// ```
    pub fn prometheus(informers: &[Self]) -> String {
        let informers = &told_apart(informers);
        let mut text = Text::default();
        for (name, kind, help, value) in FIGURES {
            text.family(name, kind, help, |out| {
                for m in informers {
                    out.sample(&[("resource", &m.resource)], &value(m));
                }
            });
        }
        text.family("informer_state", "gauge", "The state it is in: 1 for that one.", |out| {
            for m in informers {
                out.sample(&[("resource", &m.resource), ("state", state_name(&m.state))], &Value::Count(1));
            }
        });
        text.family("informer_events_total", "counter", "Changes of the cache, by kind.", |out| {
            for m in informers {
                for (kind, count) in [("added", m.added), ("updated", m.updated), ("deleted", m.deleted)] {
                    out.sample(&[("resource", &m.resource), ("kind", kind)], &Value::Count(count));
                }
            }
        });
        text.family(
            "informer_relists_total",
            "counter",
            "Times the whole set was asked for, by cause.",
            |out| {
                for m in informers {
                    for (cause, count) in m.wire.relists.by_cause() {
                        out.sample(&[("resource", &m.resource), ("cause", cause)], &Value::Count(count));
                    }
                }
            },
        );
        text.handlers(informers);
        text.0
    }
}

/// The informers, each with a name of its own: two samples with the same labels would make the whole text invalid.
fn told_apart(informers: &[Metrics]) -> Vec<Metrics> {
    let mut seen = BTreeMap::new();
    let mut named = informers.to_vec();
    for m in &mut named {
        let times = seen.entry(Arc::clone(&m.resource)).or_insert(0);
        *times += 1;
        if *times > 1 {
            m.resource = format!("{} #{times}", m.resource).into();
        }
    }
    named
}

/// A family of samples: its name, its type, what it means, and where its value comes from.
type Figure<T> = (&'static str, &'static str, &'static str, fn(&T) -> Value);

const FIGURES: &[Figure<Metrics>] = &[
    ("informer_objects", "gauge", "Objects in the cache.", |m| Value::Count(m.objects as u64)),
    ("informer_bytes", "gauge", "Memory of the objects in the cache, about.", |m| {
        Value::Count(m.bytes as u64)
    }),
    ("informer_synced", "gauge", "Whether the first complete set is in the cache.", |m| {
        Value::Count(m.synced.into())
    }),
    ("informer_staleness_seconds", "gauge", "How far the cache may be behind.", |m| Value::Time(m.staleness)),
    ("informer_silence_seconds", "gauge", "Time since the server was last heard.", |m| {
        Value::Time(m.silence)
    }),
    ("informer_rewinds_total", "counter", "Sets that lay behind what was seen before.", |m| {
        Value::Count(m.wire.rewinds)
    }),
    ("informer_watches_total", "counter", "Watches that were opened.", |m| Value::Count(m.wire.watches)),
    ("informer_watch_lists_total", "counter", "Watch-lists that were opened.", |m| {
        Value::Count(m.wire.watch_lists)
    }),
    ("informer_lists_total", "counter", "Lists and pages that were asked for.", |m| {
        Value::Count(m.wire.lists)
    }),
    ("informer_failures_total", "counter", "Requests that failed and streams that broke.", |m| {
        Value::Count(m.wire.failures)
    }),
    ("informer_skipped_objects_total", "counter", "Objects that could not be read.", |m| {
        Value::Count(m.wire.unreadable)
    }),
    ("informer_decode_errors_total", "counter", "Objects that did not decode when looked at.", |m| {
        Value::Count(m.decode_errors)
    }),
    ("informer_transform_errors_total", "counter", "Objects whose transform failed.", |m| {
        Value::Count(m.wire.transform_errors)
    }),
    ("informer_index_panics_total", "counter", "Calls of index functions that panicked.", |m| {
        Value::Count(m.index_panics)
    }),
    ("informer_compression_panics_total", "counter", "Times that compression panicked.", |m| {
        Value::Count(m.compression_panics)
    }),
    ("informer_drift_total", "counter", "Objects that an audit found to differ.", |m| Value::Count(m.drift)),
];

const HANDLER_FIGURES: &[Figure<HandlerMetrics>] = &[
    ("informer_handler_pending", "gauge", "What it has still to be told.", |h| {
        Value::Count(h.pending as u64)
    }),
    ("informer_handler_lag_seconds", "gauge", "Age of the oldest of that.", |h| {
        Value::Time(h.oldest_pending.or(Some(Duration::ZERO)))
    }),
    ("informer_handler_events_total", "counter", "Events it was told.", |h| Value::Count(h.told)),
    ("informer_handler_skipped_total", "counter", "Events merged since it lagged.", |h| {
        Value::Count(h.skipped)
    }),
    ("informer_handler_panics_total", "counter", "Calls that panicked.", |h| Value::Count(h.panics)),
    ("informer_handler_slow_calls_total", "counter", "Inline calls over 100 ms.", |h| {
        Value::Count(h.slow_calls)
    }),
];

pub(crate) enum Value {
    Count(u64),
    /// In seconds; what is not known is no number.
    Time(Option<Duration>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Time(Some(time)) => write!(f, "{:.3}", time.as_secs_f64()),
            Self::Time(None) => f.write_str("NaN"),
        }
    }
}

fn state_name(state: &State) -> &'static str {
    match state {
        State::NotStarted => "not-started",
        State::Connecting => "connecting",
        State::Listing { .. } => "listing",
        State::Live => "live",
        State::Stale { .. } => "stale",
        State::Forbidden { .. } => "forbidden",
        State::NotServed { .. } => "not-served",
        State::BackingOff { .. } => "backing-off",
        _ => "stopped",
    }
}

/// Text that is being written.
#[derive(Default)]
pub(crate) struct Text(pub(crate) String);

/// The samples of one family.
pub(crate) struct Samples<'a> {
    name: &'static str,
    text: &'a mut String,
}

impl Text {
    pub(crate) fn family(
        &mut self,
        name: &'static str,
        kind: &str,
        help: &str,
        samples: impl FnOnce(&mut Samples<'_>),
    ) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        samples(&mut Samples { name, text: &mut self.0 });
    }

    fn handlers(&mut self, informers: &[Metrics]) {
        for (name, kind, help, value) in HANDLER_FIGURES {
            self.family(name, kind, help, |out| {
                for m in informers {
                    // Two handlers may have one name; their samples must differ.
                    for handler in &m.handlers {
                        let number = handler.number.to_string();
                        let labels =
                            [("resource", &*m.resource), ("handler", &*handler.name), ("number", &number)];
                        out.sample(&labels, &value(handler));
                    }
                }
            });
        }
    }
}

impl Samples<'_> {
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: &Value) {
        self.sample_of("", labels, value);
    }

    /// A sample whose name ends with more than the family's.
    pub(crate) fn sample_of(&mut self, end: &str, labels: &[(&str, &str)], value: &Value) {
        let labels = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", Escaped(value)));
        let _ = writeln!(self.text, "{}{end}{{{}}} {value}", self.name, labels.collect::<Vec<_>>().join(","));
    }

    /// The samples of one histogram, told from others by a label.
    pub(crate) fn histogram(&mut self, label: (&str, &str), histogram: &Histogram) {
        for (bound, count) in histogram.buckets() {
            let bound = bound.as_secs_f64().to_string();
            self.sample_of("_bucket", &[label, ("le", &bound)], &Value::Count(count));
        }
        let count = Value::Count(histogram.count());
        self.sample_of("_bucket", &[label, ("le", "+Inf")], &count);
        self.sample_of("_sum", &[label], &Value::Time(Some(histogram.sum())));
        self.sample_of("_count", &[label], &count);
    }
}

/// A label's value, as the format wants it.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}
