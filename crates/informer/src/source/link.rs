//! How fast sets of objects come over a client's connections, measured while they are read.
//!
//! What counts is how long a reader waited for bytes, not how long it worked on them; and only while a set is read, since a watch waits for
//! changes. Whoever asks for the next set decides by it: over a slow connection a compressed list is there sooner than a stream, which
//! servers send as it is; over a fast one compressing only costs both sides time. This file knows neither HTTP nor what is read.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The rate of one client's connections. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Link(Arc<Mutex<Rate>>);

#[derive(Debug, Default)]
struct Rate {
    bytes: u64,
    waited: Duration,
    last: Option<Instant>,
}

/// Less says nothing: it may come out of the buffers on the way.
const ENOUGH: u64 = 1 << 20;
/// When so much was counted, half of it is forgotten: what matters is how fast it is now.
const WINDOW: u64 = 16 << 20;
/// Bytes a second. A server compresses several times as fast, to a seventh; and sends what it has faster than that even
/// when it has much to do.
const SLOW: u64 = 16_000_000;
/// A rate that is older may be that of another connection. What comes compressed is not counted, so a slow one is tried again.
const VALID: Duration = Duration::from_mins(30);

impl Link {
    /// So many bytes of a set came after a wait.
    pub(crate) fn note(&self, bytes: usize, waited: Duration, now: Instant) {
        let mut rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if rate.last.is_some_and(|last| now - last > VALID) {
            *rate = Rate::default();
        }
        rate.bytes += bytes as u64;
        rate.waited += waited;
        rate.last = Some(now);
        if rate.bytes > WINDOW {
            rate.bytes /= 2;
            rate.waited /= 2;
        }
    }

    /// Whether sets come so slowly that they had better come compressed. Nothing that was not measured is slow.
    pub(crate) fn is_slow(&self, now: Instant) -> bool {
        let rate = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let valid = rate.bytes >= ENOUGH && rate.last.is_some_and(|last| now - last <= VALID);
        valid && u128::from(rate.bytes) * 1_000_000 < u128::from(SLOW) * rate.waited.as_micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_connection_is_slow_once_enough_came_slowly() {
        let (link, now) = (Link::default(), Instant::now());
        assert!(!link.is_slow(now), "nothing is known");
        link.note(900_000, SECOND, now);
        assert!(!link.is_slow(now), "too little to tell");
        link.note(900_000, SECOND, now);
        assert!(link.is_slow(now));
        assert!(link.clone().is_slow(now), "clones share it");
        assert!(!link.is_slow(now + 2 * VALID), "that was long ago");
    }

    #[test]
    fn what_was_slow_may_become_fast_and_the_other_way() {
        let (link, now) = (Link::default(), Instant::now());
        link.note(8_000_000, 4 * SECOND, now);
        assert!(link.is_slow(now));
        for _ in 0..20 {
            link.note(8_000_000, SECOND / 100, now);
        }
        assert!(!link.is_slow(now));
        for _ in 0..20 {
            link.note(8_000_000, 4 * SECOND, now);
        }
        assert!(link.is_slow(now));
    }

    #[test]
    fn work_of_the_reader_does_not_count() {
        let (link, now) = (Link::default(), Instant::now());
        link.note(2_000_000, Duration::ZERO, now);
        assert!(!link.is_slow(now));
    }
}
