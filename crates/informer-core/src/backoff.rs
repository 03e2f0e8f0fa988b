//! Backoff: a delay that doubles with each failure up to a maximum, with random jitter.
//!
//! Only `Backoff::reset` makes the next delay short again. This file does not know what failed, nor the
//! current time.

use crate::random::Random;
use std::time::Duration;

/// The initial and maximum delay of a backoff.
///
/// Defaults to 800 ms and 30 s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackoffConfig {
    /// The delay after the first failure, before jitter.
    pub initial: Duration,
    /// The maximum delay, before jitter.
    pub max: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { initial: Duration::from_millis(800), max: Duration::from_secs(30) }
    }
}

impl BackoffConfig {
    /// Creates a backoff that starts at `initial` and doubles up to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        Self { initial, max }
    }
}

/// A delay that doubles from the initial to the maximum one. Jitter multiplies each delay by a random factor
/// between one and two.
///
/// Only `Backoff::reset`, called when the server is healthy again, starts over; the passing of time alone
/// does not (C11).
#[derive(Debug)]
pub(crate) struct Backoff {
    config: BackoffConfig,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(config: BackoffConfig) -> Self {
        Self { config, failures: 0 }
    }

    pub(crate) fn next(&mut self, random: &mut Random) -> Duration {
        let grown = doubled(self.config.initial, self.failures);
        self.failures = self.failures.saturating_add(1);
        random.jittered(grown.min(self.config.max))
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns `delay` doubled `times` times, or the longest possible duration if that overflows.
pub(crate) fn doubled(delay: Duration, times: u32) -> Duration {
    /// Number of doublings after which even a nanosecond has become the longest possible duration.
    const MAX_DOUBLINGS: u32 = 94;
    (0..times.min(MAX_DOUBLINGS)).fold(delay, |delay, _| delay.saturating_mul(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: the factor stopped growing at 2²⁰ (2³² − 1 in the work queue), so that a delay that starts
    /// at nanoseconds never reached its maximum.
    #[test]
    fn short_initial_delay_reaches_the_maximum() {
        let config = BackoffConfig::new(Duration::from_nanos(1), Duration::from_secs(30));
        let (mut backoff, mut random) = (Backoff::new(config), Random::new(7));
        let last = (0..40).map(|_| backoff.next(&mut random)).last();
        assert!(last >= Some(Duration::from_secs(30)), "{last:?}");
    }

    #[test]
    fn doubling_never_overflows() {
        assert_eq!(doubled(Duration::from_millis(5), 3), Duration::from_millis(40));
        assert_eq!(doubled(Duration::from_nanos(1), 62), Duration::from_nanos(1 << 62));
        assert_eq!(doubled(Duration::from_nanos(1), 94), Duration::MAX);
        assert_eq!(doubled(Duration::from_secs(1), 500), Duration::MAX);
        assert_eq!(doubled(Duration::MAX, 1), Duration::MAX);
        assert_eq!(doubled(Duration::ZERO, 500), Duration::ZERO);
    }

    #[test]
    fn delays_double_with_jitter_up_to_the_maximum() {
        let (mut backoff, mut random) = (Backoff::new(BackoffConfig::default()), Random::new(7));
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000].map(Duration::from_millis) {
            let delay = backoff.next(&mut random);
            assert!(delay >= base && delay < 2 * base, "{delay:?} for {base:?}");
        }
        backoff.reset();
        assert!(backoff.next(&mut random) < Duration::from_millis(1600));
    }
}
