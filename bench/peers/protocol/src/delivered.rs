//! Delivery statistics of handlers: number of events, versions reached and latencies. Independent of kinds
//! and clients.
//!
//! Each handler writes to its own counters, so that a hundred handlers do not contend.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::{Failure, ProcessStats};

/// Annotation with the time at which a frame was sent, in nanoseconds since 1970.
pub const SENT: &str = "bench.example.com/sent";

/// Time without any event after which the run fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Events delivered to all handlers of an informer.
#[derive(Debug)]
pub struct Deliveries {
    handlers: Vec<Handler>,
    timed: AtomicBool,
    /// Latencies of the first handler, in nanoseconds.
    latencies: Mutex<Vec<u64>>,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Handler {
    events: AtomicU64,
    highest: AtomicU64,
}

impl Deliveries {
    /// Creates counters for this many handlers.
    pub fn new(handlers: usize) -> Self {
        let handlers = (0..handlers).map(|_| Handler::default()).collect();
        Self { handlers, timed: AtomicBool::new(false), latencies: Mutex::default() }
    }

    /// Records an event for an object of this version. `sent` returns the send time and is called only if
    /// latency is measured.
    pub fn record(&self, handler: usize, version: &str, sent: impl FnOnce() -> Option<u64>) {
        let counters = &self.handlers[handler];
        counters.events.fetch_add(1, Ordering::Relaxed);
        if handler == 0 && self.timed.load(Ordering::Relaxed) {
            let latency = sent().map(|sent| now().saturating_sub(sent));
            self.latencies.lock().unwrap_or_else(PoisonError::into_inner).extend(latency);
        }
        counters.highest.fetch_max(version.parse().unwrap_or(0), Ordering::Release);
    }

    /// Waits until every handler has reached this version and `settled` returns true, and returns the
    /// measurements.
    pub async fn follow(
        &self,
        until: u64,
        latency: bool,
        settled: impl Fn() -> bool,
    ) -> Result<Value, Failure> {
        self.timed.store(latency, Ordering::Relaxed);
        let (stats, before) = (ProcessStats::start(), self.events());
        let (mut last, mut moved) = (before, Instant::now());
        let reached = |handler: &Handler| handler.highest.load(Ordering::Acquire) >= until;
        while !(self.handlers.iter().all(reached) && settled()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let events = self.events();
            if events != last {
                (last, moved) = (events, Instant::now());
            } else if moved.elapsed() > STALL_TIMEOUT {
                return Err(
                    format!("no event for {STALL_TIMEOUT:?} while waiting for version {until}").into()
                );
            }
        }
        let mut response = stats.response(json!({"events": self.events() - before}));
        if latency {
            self.timed.store(false, Ordering::Relaxed);
            let taken = std::mem::take(&mut *self.latencies.lock().unwrap_or_else(PoisonError::into_inner));
            response["latency"] = percentiles(taken);
        }
        Ok(response)
    }

    /// Waits until every handler has received this many events.
    pub async fn wait_for_each(&self, min_events: u64) {
        while self.handlers.iter().any(|handler| handler.events.load(Ordering::Relaxed) < min_events) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Starts a measurement of work that runs beside the changes.
    pub fn measure(&self) -> Measurement<'_> {
        Measurement { deliveries: self, before: self.reached(), stats: ProcessStats::start() }
    }

    /// Returns the version that every handler has reached.
    fn reached(&self) -> u64 {
        self.handlers.iter().map(|handler| handler.highest.load(Ordering::Acquire)).min().unwrap_or(0)
    }

    /// Returns the number of events delivered to all handlers so far.
    pub fn events(&self) -> u64 {
        self.handlers.iter().map(|handler| handler.events.load(Ordering::Relaxed)).sum()
    }
}

/// A running measurement of work beside the changes.
#[derive(Debug)]
pub struct Measurement<'a> {
    deliveries: &'a Deliveries,
    before: u64,
    stats: ProcessStats,
}

impl Measurement<'_> {
    /// Returns seconds since the start.
    pub fn seconds(&self) -> f64 {
        self.stats.seconds()
    }

    /// Builds a response with the given fields, the elapsed times and the number of changes that every handler
    /// has seen meanwhile: the replay server increments the version with each change.
    pub fn response(&self, fields: Value) -> Value {
        let mut response = self.stats.response(fields);
        response["changes"] = json!(self.deliveries.reached() - self.before);
        response
    }
}

/// Returns the send time in an object's annotations.
pub fn sent_in(annotations: Option<&BTreeMap<String, String>>) -> Option<u64> {
    annotations?.get(SENT)?.parse().ok()
}

/// Counts the objects whose annotations contain this revision; `None` if no revision is given.
pub fn revised<'a>(
    annotations: impl Iterator<Item = Option<&'a BTreeMap<String, String>>>,
    revision: Option<&str>,
) -> Option<usize> {
    let revision = revision?;
    let has_revision = |annotations: Option<&BTreeMap<String, String>>| {
        annotations.and_then(|annotations| annotations.get("revision")).is_some_and(|text| text == revision)
    };
    Some(annotations.filter(|annotations| has_revision(*annotations)).count())
}

/// Returns nanoseconds since 1970, the clock that two processes share.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or_default()
}

/// Returns percentiles in microseconds.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a benchmark stay far below 2^52")]
fn percentiles(mut nanos: Vec<u64>) -> Value {
    nanos.sort_unstable();
    let at = |thousandths: usize| {
        let index = (nanos.len() * thousandths).div_ceil(1000).saturating_sub(1);
        nanos.get(index).map(|nanos| *nanos as f64 / 1000.0)
    };
    json!({"n": nanos.len(), "p50": at(500), "p99": at(990), "p999": at(999), "max": at(1000)})
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn wait_for_each_waits_for_every_handler() {
        let deliveries = Deliveries::new(2);
        deliveries.record(0, "1", || None);
        deliveries.record(0, "2", || None);
        let mut waiting = std::pin::pin!(deliveries.wait_for_each(1));
        assert!(
            std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await.is_pending()
        );
        deliveries.record(1, "1", || None);
        waiting.await;
        assert_eq!(deliveries.events(), 3);
    }

    #[test]
    fn measurement_counts_changes_that_every_handler_has_seen() {
        let deliveries = Deliveries::new(2);
        deliveries.record(0, "5", || None);
        deliveries.record(1, "5", || None);
        let measurement = deliveries.measure();
        deliveries.record(0, "9", || None);
        deliveries.record(1, "7", || None);
        assert_eq!(measurement.response(json!({}))["changes"], 2);
    }

    #[test]
    fn revisions_are_counted_if_requested() {
        let annotations =
            ["0", "1", "1"].map(|revision| BTreeMap::from([("revision".to_owned(), revision.to_owned())]));
        let all = || annotations.iter().map(Some).chain([None]);
        assert_eq!(revised(all(), Some("1")), Some(2));
        assert_eq!(revised(all(), None), None);
    }

    #[test]
    fn percentiles_use_sorted_values() {
        let nanos: Vec<u64> = (1..=1000).rev().map(|number| number * 1000).collect();
        let expected = json!({"n": 1000, "p50": 500.0, "p99": 990.0, "p999": 999.0, "max": 1000.0});
        assert_eq!(percentiles(nanos), expected);
        assert_eq!(percentiles(Vec::new())["max"], Value::Null);
    }
}
