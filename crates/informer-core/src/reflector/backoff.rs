//! Waiting longer after each failure, and the seeded randomness that spreads clients out.

use std::time::Duration;

/// How waits grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackoffConfig {
    /// The first wait.
    pub first: Duration,
    /// The longest wait, before jitter.
    pub longest: Duration,
}

impl Default for BackoffConfig {
    fn default() -> Self {
        Self { first: Duration::from_millis(800), longest: Duration::from_secs(30) }
    }
}

impl BackoffConfig {
    /// Waits that begin with `first` and double up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }
}

/// Doubles from the first wait to the longest; each is stretched by a random factor between one and two. Only
/// [`Backoff::reset`] starts it over: health does that, the mere passing of time does not (C11).
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
        let grown = self.config.first.saturating_mul(1 << self.failures.min(20));
        self.failures += 1;
        random.stretch(grown.min(self.config.longest))
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

/// A small generator (splitmix64): equal seeds give equal runs.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// Something from `duration` up to twice that.
    pub fn stretch(&mut self, duration: Duration) -> Duration {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        duration.saturating_add(Duration::from_millis(self.below(millis)))
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

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let numbers = |seed| -> Vec<u64> {
            let mut random = Random::new(seed);
            (0..5).map(|_| random.below(1000)).collect()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
