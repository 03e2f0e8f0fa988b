//! The throughput of a client's connections, measured while full lists are received.
//!
//! A full list is a list, or the initial events of a watch-list. After it, a watch waits for changes, not for
//! the connection, so nothing is measured. The measured time is the time for which readers wait for bytes,
//! without the time for which they process them. Readers that wait at the same time share the waiting time.
//! Small bodies are ignored: they show the round-trip time instead of the throughput.
//!
//! The result decides how the next full list is requested. Over a slow connection a list with gzip arrives
//! earlier than a watch-list, which kube-apiserver sends without gzip. Over a fast connection gzip only costs
//! both sides time. This file knows neither HTTP nor the contents.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The measured throughput of one client's connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throughput(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rate: Mutex<Rate>,
    /// Number of full lists being received.
    readers: AtomicU32,
}

/// The bytes received recently, and how long readers waited for them.
#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    waited: Duration,
    last_recorded: Option<Instant>,
}

/// Minimum number of bytes for a meaningful rate.
const MIN_SAMPLE_BYTES: u64 = 1 << 20;
/// Minimum size of a body to be counted. A smaller one may have arrived from buffers on the way, or in one
/// round trip.
const MIN_BODY_BYTES: u64 = 256 << 10;
/// Number of bytes above which bytes and waiting time are halved, so that recent samples dominate.
const WINDOW_BYTES: u64 = 16 << 20;
/// Throughput below which a connection is slow.
///
/// A server compresses several times as fast as this, to a seventh of the size, so gzip saves time over a
/// slow connection. A server usually also sends plain bodies faster than this, so that a server is not
/// mistaken for a slow connection.
const SLOW_BYTES_PER_SECOND: u64 = 16_000_000;
/// Age above which a rate is ignored, since it may be that of another connection.
///
/// While a connection is slow, its bodies have gzip and are not counted. After this time a full list is
/// requested without gzip and measured again.
const SAMPLE_TTL: Duration = Duration::from_secs(1800);

impl Throughput {
    /// Starts to measure one full list.
    pub(crate) fn begin(&self) -> TransferSample {
        self.0.readers.fetch_add(1, Ordering::Relaxed);
        TransferSample { throughput: self.clone(), started: false, bytes: 0, waited: Duration::ZERO }
    }

    /// Returns whether full lists should be requested with gzip. An unmeasured connection is not slow.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        let rate = self.lock();
        let is_valid =
            rate.bytes >= MIN_SAMPLE_BYTES && rate.last_recorded.is_some_and(|last| now - last <= SAMPLE_TTL);
        is_valid
            && u128::from(rate.bytes) * 1_000_000
                < u128::from(SLOW_BYTES_PER_SECOND) * rate.waited.as_micros()
    }

    fn record(&self, bytes: u64, waited: Duration, now: Instant) {
        let mut rate = self.lock();
        if rate.last_recorded.is_some_and(|last| now - last > SAMPLE_TTL) {
            *rate = Rate::default();
        }
        rate.bytes += bytes;
        rate.waited += waited;
        rate.last_recorded = Some(now);
        if rate.bytes > WINDOW_BYTES {
            rate.bytes /= 2;
            rate.waited /= 2;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rate> {
        self.0.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The measurement of one full list.
#[derive(Debug)]
pub(crate) struct TransferSample {
    throughput: Throughput,
    /// Whether the first bytes have arrived. The wait for them is not counted: it depends on the server.
    started: bool,
    /// Bytes not recorded yet, because the body may turn out to be small.
    bytes: u64,
    waited: Duration,
}

impl TransferSample {
    /// Adds bytes that arrived after the reader had waited for `waited`.
    pub(crate) fn note(&mut self, bytes: usize, waited: Duration, now: Instant) {
        if !std::mem::replace(&mut self.started, true) {
            return;
        }
        // Each of several concurrent readers also waits while the connection transfers bytes of the others.
        self.waited += waited / self.throughput.0.readers.load(Ordering::Relaxed).max(1);
        self.bytes += bytes as u64;
        if self.bytes >= MIN_BODY_BYTES {
            self.throughput.record(std::mem::take(&mut self.bytes), std::mem::take(&mut self.waited), now);
        }
    }
}

impl Drop for TransferSample {
    fn drop(&mut self) {
        self.throughput.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Receives a full list in pieces of 64 KiB, each after `wait`.
    fn receive(throughput: &Throughput, bytes: usize, wait: Duration, now: Instant) {
        let mut sample = throughput.begin();
        sample.note(1, SECOND, now);
        for _ in 0..bytes / 65_536 {
            sample.note(65_536, wait, now);
        }
    }

    #[test]
    fn connection_is_slow_after_enough_slow_bytes() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        assert!(!throughput.is_slow(now), "nothing was measured yet");
        receive(&throughput, 900_000, SECOND / 10, now);
        assert!(!throughput.is_slow(now), "too few bytes");
        receive(&throughput, 900_000, SECOND / 10, now);
        assert!(throughput.is_slow(now));
        assert!(throughput.clone().is_slow(now), "clones share it");
        assert!(!throughput.is_slow(now + 2 * SAMPLE_TTL), "the rate has expired");
    }

    #[test]
    fn recent_samples_change_the_result() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        receive(&throughput, 8_000_000, SECOND / 20, now);
        assert!(throughput.is_slow(now));
        receive(&throughput, 100_000_000, SECOND / 10_000, now);
        assert!(!throughput.is_slow(now));
        receive(&throughput, 100_000_000, SECOND / 20, now);
        assert!(throughput.is_slow(now));
    }

    #[test]
    fn processing_time_of_the_reader_is_not_counted() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        receive(&throughput, 2_000_000, Duration::ZERO, now);
        assert!(!throughput.is_slow(now));
    }

    /// Regression: forty kinds with thirty kilobytes each took forty round trips, which counted as a slow
    /// connection.
    #[test]
    fn small_lists_are_ignored() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        for _ in 0..100 {
            receive(&throughput, 131_072, SECOND, now);
        }
        assert!(!throughput.is_slow(now));
    }

    /// Regression: of ten lists received concurrently, each waited for the bytes of the others, which
    /// resulted in a tenth of the throughput.
    #[test]
    fn concurrent_lists_share_the_waiting_time() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        let mut samples: Vec<_> = (0..10).map(|_| throughput.begin()).collect();
        for _ in 0..20 {
            for sample in &mut samples {
                // 64 KiB in 10 ms: 6.5 MB/s each, 65 MB/s together.
                sample.note(65_536, SECOND / 100, now);
            }
        }
        assert!(!throughput.is_slow(now));
        drop(samples);
        receive(&throughput, 20_000_000, SECOND / 100, now);
        assert!(throughput.is_slow(now), "a single list at this rate is slow");
    }

    /// Regression: lists too small for gzip kept a connection slow forever.
    #[test]
    fn small_lists_do_not_extend_the_validity_of_a_rate() {
        let (throughput, now) = (Throughput::default(), Instant::now());
        receive(&throughput, 8_000_000, SECOND / 20, now);
        let later = now + SAMPLE_TTL + SECOND;
        receive(&throughput, 65_536, SECOND, now + SAMPLE_TTL / 2);
        assert!(throughput.is_slow(now + SAMPLE_TTL / 2) && !throughput.is_slow(later));
    }
}
