//! Seeded random numbers for the parts of a run, with the generator of `informer-actors`.

use informer_actors as actors;

/// A random number generator. Equal seeds give equal numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(actors::Random);

impl Random {
    /// Creates a generator. Generators with different purposes of one seed are independent.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Neighbouring seeds must not give similar first numbers.
        Random(actors::Random::new(actors::Random::new(seed ^ hash).next_u64()))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
