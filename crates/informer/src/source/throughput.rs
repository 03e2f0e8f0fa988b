//! How fast sets of objects come over a client's connections, measured while they are read.
//!
//! What counts is how long readers waited for bytes, not how long they worked on them; and only while a set is read, since a watch waits for
//! changes. Readers that wait at the same time share one wait. Small bodies say nothing of a connection: they are one round trip.
//!
//! Whoever asks for the next set decides by it: over a slow connection a compressed list is there sooner than a stream, which
//! servers send as it is; over a fast one compressing only costs both sides time. This file knows neither HTTP nor what is read.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The rate of one client's connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Throughput(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rate: Mutex<Rate>,
    /// How many sets are being read.
    readers: AtomicU32,
}

#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    waited: Duration,
    last: Option<Instant>,
}

/// Less says nothing.
const MIN_SAMPLE_BYTES: u64 = 1 << 20;
/// A body that is smaller may have come out of the buffers on the way, or in one round trip.
const MIN_BODY_BYTES: u64 = 256 << 10;
/// When so much was counted, half of it is forgotten: what matters is how fast it is now.
const WINDOW: u64 = 16 << 20;
/// Bytes a second. A server compresses several times as fast, to a seventh; and usually sends what it has faster than that.
const SLOW_BYTES_PER_SECOND: u64 = 16_000_000;
/// A rate that is older may be that of another connection. Neither what comes compressed nor what is small is counted, so a slow
/// one is tried again.
const SAMPLE_TTL: Duration = Duration::from_mins(30);

impl Throughput {
    /// A set begins to come.
    pub(crate) fn begin(&self) -> TransferSample {
        self.0.readers.fetch_add(1, Ordering::Relaxed);
        TransferSample { link: self.clone(), started: false, bytes: 0, waited: Duration::ZERO }
    }

    /// Whether sets come so slowly that they had better come compressed. Nothing that was not measured is slow.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        let rate = self.lock();
        let valid = rate.bytes >= MIN_SAMPLE_BYTES && rate.last.is_some_and(|last| now - last <= SAMPLE_TTL);
        valid
            && u128::from(rate.bytes) * 1_000_000
                < u128::from(SLOW_BYTES_PER_SECOND) * rate.waited.as_micros()
    }

    fn note(&self, bytes: u64, waited: Duration, now: Instant) {
        let mut rate = self.lock();
        if rate.last.is_some_and(|last| now - last > SAMPLE_TTL) {
            *rate = Rate::default();
        }
        rate.bytes += bytes;
        rate.waited += waited;
        rate.last = Some(now);
        if rate.bytes > WINDOW {
            rate.bytes /= 2;
            rate.waited /= 2;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rate> {
        self.0.rate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One set that is coming.
#[derive(Debug)]
pub(crate) struct TransferSample {
    link: Throughput,
    /// The first bytes came: how long they took was up to the server.
    started: bool,
    /// What was not noted yet, because the body may still be a small one.
    bytes: u64,
    waited: Duration,
}

impl TransferSample {
    /// So many bytes came after a wait.
    pub(crate) fn note(&mut self, bytes: usize, waited: Duration, now: Instant) {
        if !std::mem::replace(&mut self.started, true) {
            return;
        }
        // Whoever waits beside others waits for their bytes too.
        self.waited += waited / self.link.0.readers.load(Ordering::Relaxed).max(1);
        self.bytes += bytes as u64;
        if self.bytes >= MIN_BODY_BYTES {
            self.link.note(std::mem::take(&mut self.bytes), std::mem::take(&mut self.waited), now);
        }
    }
}

impl Drop for TransferSample {
    fn drop(&mut self) {
        self.link.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A set of so many bytes in pieces of 64 KiB, each after a wait.
    fn read(link: &Throughput, bytes: usize, wait: Duration, now: Instant) {
        let mut reading = link.begin();
        reading.note(1, SECOND, now);
        for _ in 0..bytes / 65_536 {
            reading.note(65_536, wait, now);
        }
    }

    #[test]
    fn a_connection_is_slow_once_enough_came_slowly() {
        let (link, now) = (Throughput::default(), Instant::now());
        assert!(!link.is_slow(now), "nothing is known");
        read(&link, 900_000, SECOND / 10, now);
        assert!(!link.is_slow(now), "too little to tell");
        read(&link, 900_000, SECOND / 10, now);
        assert!(link.is_slow(now));
        assert!(link.clone().is_slow(now), "clones share it");
        assert!(!link.is_slow(now + 2 * SAMPLE_TTL), "that was long ago");
    }

    #[test]
    fn what_was_slow_may_become_fast_and_the_other_way() {
        let (link, now) = (Throughput::default(), Instant::now());
        read(&link, 8_000_000, SECOND / 20, now);
        assert!(link.is_slow(now));
        read(&link, 100_000_000, SECOND / 10_000, now);
        assert!(!link.is_slow(now));
        read(&link, 100_000_000, SECOND / 20, now);
        assert!(link.is_slow(now));
    }

    #[test]
    fn work_of_the_reader_does_not_count() {
        let (link, now) = (Throughput::default(), Instant::now());
        read(&link, 2_000_000, Duration::ZERO, now);
        assert!(!link.is_slow(now));
    }

    /// Forty kinds of thirty kilobytes each were forty round trips, and taken for a slow connection.
    #[test]
    fn many_small_sets_say_nothing() {
        let (link, now) = (Throughput::default(), Instant::now());
        for _ in 0..100 {
            read(&link, 131_072, SECOND, now);
        }
        assert!(!link.is_slow(now));
    }

    /// Ten sets that came at once each waited for the bytes of the others, and were taken for a tenth of the connection.
    #[test]
    fn sets_that_come_at_once_share_their_waits() {
        let (link, now) = (Throughput::default(), Instant::now());
        let mut readings: Vec<_> = (0..10).map(|_| link.begin()).collect();
        for _ in 0..20 {
            for reading in &mut readings {
                // 64 KiB in 10 ms: 6.5 MB a second each, 65 together.
                reading.note(65_536, SECOND / 100, now);
            }
        }
        assert!(!link.is_slow(now));
        drop(readings);
        read(&link, 20_000_000, SECOND / 100, now);
        assert!(link.is_slow(now), "alone that would be slow");
    }

    /// Lists that are too small to be compressed kept a connection slow for ever.
    #[test]
    fn small_sets_do_not_keep_a_rate_alive() {
        let (link, now) = (Throughput::default(), Instant::now());
        read(&link, 8_000_000, SECOND / 20, now);
        let later = now + SAMPLE_TTL + SECOND;
        read(&link, 65_536, SECOND, now + SAMPLE_TTL / 2);
        assert!(link.is_slow(now + SAMPLE_TTL / 2) && !link.is_slow(later));
    }
}
