//! Back-off: a delay that doubles with each failure, up to a longest one, with random jitter.
//!
//! Only `Backoff::reset` makes the next delay short again. This file must not know what failed, nor what the time is.

use crate::random::Random;
use std::time::Duration;

/// How waits grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackoffConfig {
    /// The first wait.
    pub initial: Duration,
    /// The longest wait, before jitter.
    pub max: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { initial: Duration::from_millis(800), max: Duration::from_secs(30) }
    }
}

impl BackoffConfig {
    /// Waits that begin with `first` and double up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { initial: first, max: longest }
    }
}

/// Doubles from the first wait to the longest; each is stretched by a random factor between one and two. Only
/// `Backoff::reset` starts it over: health does that, the mere passing of time does not (C11).
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
    fn waits_double_with_jitter_up_to_the_longest() {
        let (mut backoff, mut random) = (Backoff::new(BackoffConfig::default()), Random::new(7));
        for base in [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000].map(Duration::from_millis) {
            let wait = backoff.next(&mut random);
            assert!(wait >= base && wait < 2 * base, "{wait:?} for {base:?}");
        }
        backoff.reset();
        assert!(backoff.next(&mut random) < Duration::from_millis(1600));
    }
}
