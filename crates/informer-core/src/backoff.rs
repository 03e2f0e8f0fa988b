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

/// A delay that doubles from the initial to the maximum one; each is multiplied by a random factor between
/// one and two.
///
/// Only `Backoff::reset` starts it over, when the server is healthy again; the passing of time alone does
/// not (C11).
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
        let grown = self.config.initial.saturating_mul(1 << self.failures.min(20));
        self.failures += 1;
        random.jittered(grown.min(self.config.max))
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
